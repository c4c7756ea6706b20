"""Thoughts in vectors: the next-hop encoder says where to search next, after passages that the pool likes best."""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.parts import ready
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.thoughts import OfflineThoughts
from gnnrag.roles.tuned.encoder import NextHop
from gnnrag.types import Passage

# Places among the passages shown that the fast and the slow query follow, by round; the last row is that of all later
# rounds. First each of the two best alone, as either may be the first hop; then the best with each of the next two.
CHAINS = (((0,), (1,)), ((0, 1), (0, 2)))
_KINDS = ("fast", "slow")
_OPENING = 6  # words of a passage without a title that name it


class VectorThoughts:
    """Asks for what may follow the best passages; a thought's text, for words and traces, names what it rests on.

    `is_mixed`: where rules name what is missing (a title that the question or a passage mentions), the slow thought is
    theirs, in words: names are what vectors know least of. That serves `dense`, and harms `chg`, which follows names.
    """

    def __init__(self, encoder: NextHop, is_mixed: bool = False) -> None:
        self.encoder, self.rules = encoder, ready(OfflineThoughts(), index=encoder.index) if is_mixed else None

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
        found = []
        for task, chains in zip(tasks, picked, strict=True):
            texts = {kind: f"{task.question.text} {_named(chain)}" for kind, chain in chains.items()}
            rows = {kind: tuple(next(vectors).tolist()) for kind in chains}
            if self.rules and (named := self.rules.think(task).fast):
                texts["slow"] = named
                rows.pop("slow", None)
            flags = () if chains else ("nothing_shown",)
            found.append(Thoughts(texts.get("fast"), texts.get("slow"), flags=flags, vectors=rows))
        return found


def _chains(task: ThoughtsTask) -> dict[str, tuple[Passage, ...]]:
    """Return the passages that each thought of a task follows."""
    rows = CHAINS[min(max(task.round, 1), len(CHAINS)) - 1]
    shown = task.passages
    kept = {kind: tuple(shown[p] for p in places if p < len(shown)) for kind, places in zip(_KINDS, rows, strict=True)}
    if kept["slow"] == kept["fast"]:  # too few to differ
        del kept["slow"]
    return {kind: chain for kind, chain in kept.items() if chain}


def _named(chain: Sequence[Passage]) -> str:
    return " ".join(p.title or " ".join(p.text.split()[:_OPENING]) for p in chain)
