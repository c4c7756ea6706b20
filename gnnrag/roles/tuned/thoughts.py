"""Thoughts by a model trained here: a next-hop encoder, which asks in vectors, or a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnrag.common.waiting import MicroBatcher
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.roles.base import Role, Thoughts, ThoughtsTask
from gnnrag.roles.tuned.checkpoint import (
    LANGUAGE_KINDS,
    LanguageRoleConfig,
    open_language_role,
    read_tuned,
    role_folder,
)
from gnnrag.roles.tuned.encoder import KIND as ENCODER
from gnnrag.roles.tuned.encoder import NextHop
from gnnrag.roles.tuned.vector_thoughts import VectorThoughts
from gnnrag.session import Session


@dataclass
class TunedThoughtsConfig(LanguageRoleConfig):
    """Settings of `TunedThoughts`."""

    is_guess: bool | None = None  # methods treat its queries as those of rules; null: as its training was told, or no
    device: str = "auto"  # where an encoder runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    mixed: bool = False  # of an encoder: the slow query is that of the rules, in words, where they name what is missing


class TunedThoughts(Role[ThoughtsTask, Thoughts]):
    """Writes the next two queries with the model of a checkpoint.

    A next-hop encoder asks in vectors, of retrievers that search by them; questions in flight share its batches.
    ConfigError: no checkpoint is named, and none ships. ArtefactError: the checkpoint is missing, damaged, of another
    role or kind, or of another embedder.
    """

    config_class = TunedThoughtsConfig
    kinds = (ENCODER, *LANGUAGE_KINDS)
    stages = ("hierarchy", "embeddings")

    @classmethod
    def asks_in_vectors(cls, path: str | None) -> bool:
        """Tell whether the checkpoint at `path` (None: the one that ships) is a next-hop encoder."""
        return read_tuned(role_folder("thoughts", path), "thoughts", cls.kinds).kind == ENCODER

    def __init__(self, index: Index, config: TunedThoughtsConfig | None = None) -> None:
        self.index, self.config = index, config or TunedThoughtsConfig()
        folder = role_folder("thoughts", self.config.path)
        record = read_tuned(folder, "thoughts", self.kinds)
        if self.config.mixed and record.kind != ENCODER:
            raise ConfigError(
                f"roles.thoughts.options.mixed=true: {folder} is a {record.kind}; an encoder's thoughts are mixed, "
                "give its folder as roles.thoughts.path"
            )
        self.fingerprint = record.fingerprint
        self.is_guess = bool(self.config.is_guess)
        self._language: Any = None
        if record.kind in LANGUAGE_KINDS:
            self._language = open_language_role(folder, record, "thoughts", self.config)
            self.prompters = self._language.prompters
            return
        encoder = NextHop.open(index, str(folder), self.config.base, self.config.device, "thoughts.device")
        self._vectors = VectorThoughts(encoder, self.config.mixed)
        self._batcher: MicroBatcher[ThoughtsTask, Thoughts] = MicroBatcher(self._vectors.think)

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Return the next two queries; None where there is nothing to follow."""
        if self._language:
            return await self._language(task, session)
        (found,) = await self._batcher.results([task])
        return found

    async def close(self) -> None:
        """Let the model go."""
        if self._language:
            await self._language.close()
        else:
            self._batcher.close()
