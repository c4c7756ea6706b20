"""Thoughts without a language model: ask for what the question names and the pool lacks, then for bridges."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.index.index import Index
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.session import Session
from gnnrag.text.normalise import words


@dataclass
class OfflineThoughtsConfig:
    """Settings of `OfflineThoughts`."""

    frontier: int = 2  # pool passages that bridges are looked for in when the question names no title
    max_words: int = 12  # of the open part that a query carries
    max_passages: int = 20  # a name that more passages have leads nowhere


class OfflineThoughts:
    """Fast: the first missing thing with the part of the question that no shown passage covers. Slow: the open part of
    the question asked of the next missing thing, or of the bridge that leads there.

    Missing are, in this order: titles that the question names, and bridges out of the passages reached so far.

    Args:
        index: an opened index.
        config: see `OfflineThoughtsConfig`.
    """

    config_class = OfflineThoughtsConfig

    def __init__(self, index: Index, config: OfflineThoughtsConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineThoughtsConfig()
        self.finder = BridgeFinder(index)

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Return the next two queries; None where nothing is missing."""
        return self.think(task)

    def think(self, task: ThoughtsTask) -> Thoughts:
        """The same, synchronously."""
        question = task.question.text
        shown = [self.index.position[p.id] for p in task.passages]
        anchors = self.finder.anchors(question)
        missing = [a.name for a in anchors if a.passage not in shown]
        reached = self._reached(question, shown)
        missing += [b.name for b in self.finder.bridges(question, reached, shown)]
        asked = " | ".join(task.earlier).casefold()
        fresh = [name for name in missing if name.casefold() not in asked]
        if not fresh:
            shared = self.finder.shared_names(question, reached, self.config.max_passages)
            fresh = [b.name for b in shared if b.name.casefold() not in asked][:2]
        if not fresh:
            return Thoughts(sufficient=bool(anchors), flags=("nothing_missing",))
        fast = f"{fresh[0]} {self._uncovered(question, task)}".strip()
        follow = fresh[1] if len(fresh) > 1 else fresh[0]
        slow = f"{self.finder.open_part(question)} {follow}"
        return Thoughts(fast, slow if slow.casefold() != fast.casefold() else None)

    def _reached(self, question: str, shown: list[int]) -> list[int]:
        """Return the passages that bridges start from: the anchors, and what was reached from them and is shown."""
        reached = [a.passage for a in self.finder.anchors(question)] or shown[: self.config.frontier]
        bridged = {b.passage for b in self.finder.bridges(question, reached)}
        return reached + [p for p in shown if p in bridged]

    def _uncovered(self, question: str, task: ThoughtsTask) -> str:
        """Return the words of the open part that occur in no shown passage."""
        seen = {w for p in task.passages for w in words(p.content)}
        rest = [w for w in words(self.finder.open_part(question)) if w not in seen]
        return " ".join(rest[: self.config.max_words])
