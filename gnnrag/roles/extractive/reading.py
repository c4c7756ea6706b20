"""What all rules of the offline reader work on: passages whose names are resolved, and what a rule finds there."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.roles.extractive import relations
from gnnrag.roles.extractive.linking import Linker
from gnnrag.roles.extractive.spans import fold, words
from gnnrag.types import Passage


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer with the numbers of the passages it was read from and how sure the rule is, in [0, 1]."""

    text: str
    passages: tuple[int, ...]
    confidence: float
    how: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What all rules read: the passages, their cleaned texts and the linker over their titles."""

    passages: tuple[Passage, ...]
    texts: tuple[str, ...]
    linker: Linker

    def hop(self, at: int, relation: str, visited: tuple[int, ...]) -> tuple[int | None, str, float]:
        """Follow one relation from passage `at`: the passage reached (None if it is not here), the name, a score."""
        candidates = relations.find(relation, self.texts[at], self.passages[at].title)
        best: tuple[int | None, str, float] = (None, "", 0.0)
        for candidate in candidates[:12]:
            target = self.linker.resolve(candidate.text, (at, *visited))
            score = candidate.score + (0.6 if target is not None else 0.0)
            if score > best[2]:
                best = (target, candidate.text, score)
        if best[0] is None:
            other = self._mentioned(at, visited)
            if other is not None:
                return other, self.passages[other].title, 0.0
        return best

    def _mentioned(self, at: int, visited: tuple[int, ...]) -> int | None:
        """Return a passage that names `at`, or that `at` names, where no pattern told them apart."""
        here = f" {fold(self.texts[at])} "
        for other in range(len(self.texts)):
            if other == at or other in visited:
                continue
            bare = self.linker.bare[other]
            lead = self.linker.leads[other]
            if f" {bare} " in here or (len(lead.split()) > 1 and f" {lead} " in here):
                return other
        title = f" {self.linker.bare[at]} "  # the other way round
        for other in range(len(self.texts)):
            if other != at and other not in visited and len(title) > 6 and title in f" {fold(self.texts[other])} ":
                return other
        return self._nearest(at, visited)

    def _nearest(self, at: int, visited: tuple[int, ...]) -> int | None:
        """Return the unread passage that shares most words with `at`, if it shares any part of a title."""
        here = set(words(self.passages[at].content))
        best, best_score = None, 0.0
        for other, passage in enumerate(self.passages):
            if other == at or other in visited:
                continue
            title = set(words(passage.title))
            score = len(title & here) / max(1, len(title))
            if score > best_score:
                best, best_score = other, score
        return best
