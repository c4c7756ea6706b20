"""Assign entity types; prompted, and by rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, PromptedRole
from gnnrag.roles.writers.base import UNSURE, Typed, TypesTask
from gnnrag.session import Session


@dataclass
class PromptedTypesConfig(PromptedConfig):
    """`description_characters`: how much of each description is shown; `tries`: replies before a batch is halved."""

    max_tokens: int = 1024
    description_characters: int = 300
    tries: int = 3


class PromptedTypes(PromptedRole[TypesTask, Typed]):
    """Asks for one type per entity, out of the schema, for a whole batch.

    A reply must decide for exactly the entities that were given, with types of the schema. A batch that gets no such
    reply is halved; a single entity that gets none is `unsure` and counted as `types_failed`.
    """

    role = "types"
    config_class = PromptedTypesConfig

    def __init__(self, backend: Backend, config: PromptedTypesConfig | None = None) -> None:
        super().__init__(backend, config)
        self.prompters[0].tries = self.config.tries

    async def __call__(self, task: TypesTask, session: Session) -> Typed:
        """Type the entities, in their order."""
        schema = dict(task.schema) | {UNSURE: dict(task.schema).get(UNSURE, "none of these, or too little is known")}
        listed = "\n".join(f"- {inline(name)}: {inline(text)}" for name, text in schema.items())
        waiting, failed = [list(task.entities)], 0
        decided: dict[str, str] = {}
        while waiting:
            batch = waiting.pop(0)
            kinds = await self._ask(batch, listed, frozenset(schema), session)
            if kinds is None and len(batch) > 1:
                waiting += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                continue
            failed += kinds is None
            decided.update(zip((entity[0] for entity in batch), kinds or [UNSURE], strict=True))
        types = tuple((entity[0], decided[entity[0]]) for entity in task.entities)
        return Typed(types, ("types_failed",) * failed)

    async def _ask(
        self, batch: list[tuple[str, str, str]], listed: str, allowed: frozenset[str], session: Session
    ) -> list[str] | None:
        rows = []
        for number, (_, name, description) in enumerate(batch, start=1):
            text = inline(description)[: self.config.description_characters]
            rows.append(f"{number}. {inline(name)}" + (f": {text}" if text else ""))
        values = {"schema": listed, "entities": notes_element("\n".join(rows))}
        outcome = await self.ask(session, values, lambda reply: read_types(reply, len(batch), allowed))
        return outcome.value


def read_types(reply: str, count: int, allowed: frozenset[str]) -> list[str]:
    """Return the types of a reply `{"types": {"1": "person", ...}}` in the order of their numbers.

    Raises:
        MalformedError: the numbers are not 1 to `count`, or a type is not of the schema.
    """
    for data in objects(strip_thinking(reply)):
        rows = data.get("types")
        if not isinstance(rows, dict):
            continue
        kinds = {str(number).strip(): str(kind).strip() for number, kind in rows.items()}
        if kinds.keys() != {str(n) for n in range(1, count + 1)}:
            raise MalformedError(f"the numbers are not 1 to {count}")
        if wrong := sorted({kind for kind in kinds.values() if kind not in allowed}):
            raise MalformedError(f"types that the schema does not have: {', '.join(wrong)[:200]}")
        return [kinds[str(n)] for n in range(1, count + 1)]
    raise MalformedError("no object 'types'")


@dataclass
class OfflineTypesConfig:
    """Settings of `OfflineTypes`."""

    floor: float = 0.15  # least cosine of entity and definition; below it the entity is `unsure`


class OfflineTypes(Role[TypesTask, Typed]):
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
