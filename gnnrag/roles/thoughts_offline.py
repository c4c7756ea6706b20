"""Thoughts without a language model: ask for what the question names and the pool lacks, then for bridges."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.index.index import Index
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.bridges import BridgeFinder, OpenQuestion
from gnnrag.session import Session
from gnnrag.text.normalise import words


@dataclass
class OfflineThoughtsConfig:
    """Settings of `OfflineThoughts`."""

    max_bridges: int = 2  # bridges the evidence should have, over all anchors
    frontier: int = 2  # pool passages that bridges are looked for in when the question names no title
    max_words: int = 12  # of the open part that a query carries


class OfflineThoughts:
    """Asks for what the evidence lacks.

    Fast: the first missing thing with the part of the question that no shown passage covers. Slow: the open part of the
    question, asked of the next missing thing. Missing are, in this order: titles that the question names, and bridges
    out of the passages about them.

    Args:
        index: an opened index.
        config: see `OfflineThoughtsConfig`.
    """

    config_class = OfflineThoughtsConfig
    stages = ("hierarchy", "embeddings")
    is_guess = True  # methods let its queries widen the pool, not overrule the question

    def __init__(self, index: Index, config: OfflineThoughtsConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineThoughtsConfig()
        self.finder = BridgeFinder(index)

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Return the next two queries; None where nothing is missing."""
        return self.think(task)

    def think(self, task: ThoughtsTask) -> Thoughts:
        """The same, synchronously."""
        question = self.finder.read(task.question.text)
        shown = [self.index.position[p.id] for p in task.passages]
        anchors = [a.passage for a in question.anchors]
        wanted = self.finder.bridges(question, anchors or shown[: self.config.frontier])[: self.config.max_bridges]
        missing = [a.name for a in question.anchors if a.passage not in shown]
        missing += [b.name for b in wanted if b.passage not in shown]
        asked = " | ".join(task.earlier).casefold()
        fresh = [name for name in missing if name.casefold() not in asked]
        if not fresh:
            return Thoughts(sufficient=bool(question.anchors), flags=("nothing_missing",))
        fast = f"{fresh[0]} {self._uncovered(question, task)}".strip()
        follow = fresh[1] if len(fresh) > 1 else fresh[0]
        slow = f"{question.open_part} {follow}"
        return Thoughts(fast, slow if slow.casefold() != fast.casefold() else None)

    def _uncovered(self, question: OpenQuestion, task: ThoughtsTask) -> str:
        """Return the words of the open part that occur in no shown passage."""
        seen = {w for p in task.passages for w in words(p.content)}
        return " ".join([w for w in words(question.open_part) if w not in seen][: self.config.max_words])
