"""Type relabelling without a language model: the type whose definition is nearest to what is known of the entity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.roles.writing import UNSURE, Typed, TypesTask
from gnnrag.session import Session


@dataclass
class OfflineTypesConfig:
    """Settings of `OfflineTypes`."""

    floor: float = 0.15  # least cosine of entity and definition; below it the entity is `unsure`


class OfflineTypes:
    """Compares embeddings of `name: description` and `type: definition`; ties go to the type that the schema has first.

    Args:
        tools: gives the embedder.
        config: settings.
    """

    config_class = OfflineTypesConfig
    version = 1
    uses_embedder = True

    def __init__(self, tools: Any, config: OfflineTypesConfig | None = None) -> None:
        self.tools, self.config = tools, config or OfflineTypesConfig()

    async def __call__(self, task: TypesTask, session: Session) -> Typed:
        """Type the entities, in their order."""
        named = [(name, text) for name, text in task.schema if name != UNSURE]
        if not named or not task.entities:
            return Typed(tuple((entity[0], UNSURE) for entity in task.entities))
        embedder = self.tools.embedder()
        kinds = embedder.encode([f"{name}: {text}" for name, text in named])
        rows = embedder.encode([f"{name}: {text}" if text else name for _, name, text in task.entities])
        types = []
        for (id_, _, _), row in zip(task.entities, rows, strict=True):
            scores = kinds @ row
            best = int(np.argmax(scores))
            types.append((id_, named[best][0] if scores[best] >= self.config.floor else UNSURE))
        return Typed(tuple(types))
