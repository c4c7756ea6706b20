"""Thoughts by a model trained here: a next-hop encoder, which asks in vectors, or a language model."""

from __future__ import annotations

from typing import Any

from gnnrag.common.waiting import MicroBatcher
from gnnrag.errors import ConfigError
from gnnrag.parts import part
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


@part("role", "thoughts.tuned")
class TunedThoughts(LanguageRoleConfig, Role[ThoughtsTask, Thoughts]):
    """Writes the next two queries with the model of a checkpoint.

    A next-hop encoder asks in vectors, of retrievers that search by them; questions in flight share its batches.
    ConfigError: no checkpoint is named, and none ships. ArtefactError: the checkpoint is missing, damaged, of another
    role or kind, or of another embedder.
    """

    is_guess: bool = False  # methods treat its queries as those of rules
    device: str = "auto"  # where an encoder runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    mixed: bool = False  # of an encoder: the slow query is that of the rules, in words, where they name what is missing

    kinds = (ENCODER, *LANGUAGE_KINDS)
    reads = ("hierarchy", "embeddings")

    @classmethod
    def asks_in_vectors(cls, path: str | None) -> bool:
        """Tell whether the checkpoint at `path` (None: the one that ships) is a next-hop encoder."""
        return read_tuned(role_folder("thoughts", path), "thoughts", cls.kinds).kind == ENCODER

    def setup(self) -> None:
        folder = role_folder("thoughts", self.path)
        record = read_tuned(folder, "thoughts", self.kinds)
        if self.mixed and record.kind != ENCODER:
            raise ConfigError(
                f"roles.thoughts.options.mixed=true: {folder} is a {record.kind}; an encoder's thoughts are mixed, "
                "give its folder as roles.thoughts.path"
            )
        self.fingerprint = record.fingerprint
        self._language: Any = None
        if record.kind in LANGUAGE_KINDS:
            self._language = open_language_role(folder, record, "thoughts", self)
            self.prompters = self._language.prompters
            return
        encoder = NextHop.open(self.index, str(folder), self.base, self.device, "thoughts.device")
        self._vectors = VectorThoughts(encoder, self.mixed)
        self._batcher: MicroBatcher[ThoughtsTask, Thoughts] = MicroBatcher(self._vectors.think)

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        if self._language:
            return await self._language(task, session)
        (found,) = await self._batcher.results([task])
        return found

    async def close(self) -> None:
        if self._language:
            await self._language.close()
        else:
            self._batcher.close()
