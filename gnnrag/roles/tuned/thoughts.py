"""Thoughts by a model trained here: a next-hop encoder, which asks in vectors, or a language model.

The next-hop encoder says where to search next, after passages that the pool likes best; a thought's text, for words
and traces, names what it rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from gnnrag.batching import MicroBatcher
from gnnrag.parts import part, set_up
from gnnrag.roles.base import Role, Thoughts, ThoughtsTask
from gnnrag.roles.thoughts import OfflineThoughts
from gnnrag.roles.tuned.checkpoint import LANGUAGE, TunedRecord, TunedRole, read_tuned, role_folder
from gnnrag.roles.tuned.encoder import KIND as ENCODER
from gnnrag.roles.tuned.encoder import NextHop
from gnnrag.session import Session
from gnnrag.types import Passage

# Places among the passages shown that the fast and the slow query follow, by round; the last row is that of all later
# rounds. First each of the two best alone, as either may be the first hop; then the best with each of the next two.
CHAINS = (((0,), (1,)), ((0, 1), (0, 2)))
OPENING = 6  # words of a passage without a title that name it


@part("role", "thoughts.tuned")
class TunedThoughts(TunedRole):
    """Writes the next two queries with the model of a checkpoint.

    A next-hop encoder asks in vectors, of retrievers that search by them; questions in flight share its batches.
    """

    device: str = "auto"  # where an encoder runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    is_guess: bool = False  # methods treat its queries as those of rules
    mixed: bool = False  # of an encoder: the slow query is that of the rules, in words, where they name what is missing

    role: ClassVar[str] = "thoughts"
    kinds: ClassVar[tuple[str, ...]] = (ENCODER, LANGUAGE)
    reads = ("hierarchy", "embeddings")

    @classmethod
    def asks_in_vectors(cls, path: str | None) -> bool:
        """Tell whether the checkpoint at `path` (None: the one that ships) is a next-hop encoder."""
        return read_tuned(role_folder("thoughts", path), "thoughts", cls.kinds).kind == ENCODER

    def open(self, folder: Path, record: TunedRecord) -> Role[ThoughtsTask, Thoughts]:
        encoder = NextHop.open(self.index, str(folder), self.base, self.device)
        return VectorThoughts(encoder, self.mixed)


class VectorThoughts(Role[ThoughtsTask, Thoughts]):
    """Asks for what may follow the best passages.

    `is_mixed`: where rules name what is missing (a title that the question or a passage mentions), the slow thought is
    theirs, in words: names are what vectors know least of. That serves `dense`, and harms `chg`, which follows names.
    """

    def __init__(self, encoder: NextHop, is_mixed: bool = False) -> None:
        self.encoder, self.rules = encoder, set_up(OfflineThoughts(), index=encoder.index) if is_mixed else None
        self.fingerprint = encoder.fingerprint
        self._batcher: MicroBatcher[ThoughtsTask, Thoughts] = MicroBatcher(self.think)

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        (thoughts,) = await self._batcher([task])
        return thoughts

    def think(self, tasks: Sequence[ThoughtsTask]) -> list[Thoughts]:
        """Return two queries with their vectors for each task; fewer where fewer passages are shown."""
        position = self.encoder.index.position
        picked = [_chains(task) for task in tasks]
        asked = [
            (task.question.text, tuple(position[passage.id] for passage in chain))
            for task, chains in zip(tasks, picked, strict=True)
            for chain in chains.values()
        ]
        vectors = iter(self.encoder.vectors(asked) if asked else ())
        thoughts = []
        for task, chains in zip(tasks, picked, strict=True):
            texts = {kind: f"{task.question.text} {_named(chain)}" for kind, chain in chains.items()}
            rows = {kind: tuple(next(vectors).tolist()) for kind in chains}
            if self.rules and (named := self.rules.think(task).fast):
                texts["slow"] = named
                rows.pop("slow", None)
            flags = () if chains else ("nothing_shown",)
            thoughts.append(Thoughts(texts.get("fast"), texts.get("slow"), flags=flags, vectors=rows))
        return thoughts


def _chains(task: ThoughtsTask) -> dict[str, tuple[Passage, ...]]:
    """Return the passages that each thought of a task follows."""
    fast, slow = CHAINS[min(max(task.round, 1), len(CHAINS)) - 1]
    chains = {
        kind: tuple(task.passages[place] for place in places if place < len(task.passages))
        for kind, places in (("fast", fast), ("slow", slow))
    }
    if chains["slow"] == chains["fast"]:  # too few to differ
        del chains["slow"]
    return {kind: chain for kind, chain in chains.items() if chain}


def _named(chain: Sequence[Passage]) -> str:
    return " ".join(p.title or " ".join(p.text.split()[:OPENING]) for p in chain)
