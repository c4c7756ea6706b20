"""Thoughts by a model that was trained here: a selector of candidate queries, or a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnrag.common.batching import MicroBatcher
from gnnrag.errors import ArtefactError
from gnnrag.index.index import Index
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.thought_features import FEATURES
from gnnrag.roles.thought_options import OptionMaker
from gnnrag.roles.tuned_models import LANGUAGE_KINDS, LanguageRoleConfig, open_language_role
from gnnrag.session import Session
from gnnrag.tuned.folder import read_tuned, role_folder
from gnnrag.tuned.selector import KIND, load_selector


@dataclass
class TunedThoughtsConfig(LanguageRoleConfig):
    """Settings of `TunedThoughts`."""

    is_guess: bool | None = None  # methods treat its queries as those of rules; null: as its training was told


class TunedThoughts:
    """Writes the next two queries with the model of a checkpoint.

    A selector builds candidates by rules and picks the best, and another beside it, or none. Questions in flight share
    its batches.

    Args:
        index: an opened index.
        config: see `TunedThoughtsConfig`.

    Raises:
        ConfigError: no checkpoint is named, and none ships.
        ArtefactError: the checkpoint is missing, damaged, of another role or kind, or of another embedder.
    """

    config_class = TunedThoughtsConfig
    kinds = (KIND, *LANGUAGE_KINDS)
    stages = OptionMaker.stages

    def __init__(self, index: Index, config: TunedThoughtsConfig | None = None) -> None:
        self.index, self.config = index, config or TunedThoughtsConfig()
        folder = role_folder("thoughts", self.config.path)
        record = read_tuned(folder, "thoughts", self.kinds)
        self.fingerprint = record.fingerprint
        self.is_guess = bool(self.config.is_guess)
        self._language: Any = None
        if record.kind in LANGUAGE_KINDS:
            self._language = open_language_role(folder, record, "thoughts", self.config)
            self.prompters = self._language.prompters
            return
        self.model = load_selector(folder, record, FEATURES)
        _check_embedder(folder, record.base, index)
        if self.config.is_guess is None:
            self.is_guess = self.model.config.is_guess
        self.options = OptionMaker(index, self.model.config.candidates)
        self._batcher: MicroBatcher[ThoughtsTask, Thoughts] = MicroBatcher(self.think)

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Return the next two queries; None where no candidate is worth asking."""
        if self._language:
            return await self._language(task, session)
        (found,) = await self._batcher.results([task])
        return found

    def think(self, tasks: Sequence[ThoughtsTask]) -> list[Thoughts]:
        """The same for several decisions, synchronously; selector only."""
        thoughts = []
        for candidates, options in self.options(tasks):
            fast, slow = (None if i is None else candidates[i].text for i in self.model.pick(options))
            flags = () if fast else ("nothing_worth_asking",)
            thoughts.append(Thoughts(fast, slow, sufficient=fast is None, flags=flags))
        return thoughts

    async def close(self) -> None:
        """Let the model go."""
        if self._language:
            await self._language.close()
        else:
            self._batcher.close()


def _check_embedder(folder: Path, base: dict[str, Any], index: Index) -> None:
    """Raise ArtefactError where the vectors of the index are not those that a selector was trained on."""
    found = getattr(index.embedder, "weights", index.embedder.identity)
    if base.get("weights") != found:
        raise ArtefactError(
            f"{folder}: the selector was trained on vectors of {base.get('name')!r}, and the index was made with "
            f"{index.config.embedder.model!r}; build the index with that embedder, or train a selector for this one"
        )
