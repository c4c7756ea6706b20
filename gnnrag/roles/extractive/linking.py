"""Names to passages: which passage is about an entity, and which titles a question names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rapidfuzz import fuzz

from gnnrag.roles.extractive.spans import NAME_RE, clean, fold, sentences, without_parentheses
from gnnrag.text.bounds import MAX_PASSAGE, beginning
from gnnrag.types import Passage

_SMALL_WORDS = """
of the de la le van von der a and in
"""
_SMALL = frozenset(_SMALL_WORDS.split())
_ROMAN = re.compile(r"^(?:[ivx]+)$")


@dataclass(frozen=True, slots=True)
class Mention:
    """A title found in a question: words `start` to `end` of the folded question are passage number `passage`."""

    passage: int
    start: int
    end: int


class Linker:
    """Resolves names within the handful of passages that a reader sees.

    Args:
        passages: best first.
        texts: their cleaned texts.
    """

    def __init__(self, passages: Sequence[Passage], texts: Sequence[str]) -> None:
        self.titles = [fold(p.title) for p in passages]
        self.bare = [fold(without_parentheses(p.title)) for p in passages]
        self.leads = [self._lead(t) for t in texts]

    @staticmethod
    def _lead(text: str) -> str:
        first = sentences(text)[0] if text else ""
        match = NAME_RE.match(first.lstrip('"')) if first else None
        return fold(match.group()) if match else ""

    def mentions(self, question: str) -> list[Mention]:
        """Return the titles that `question` names, longest first, without overlaps, then in reading order."""
        words = fold(question).split()
        spans: list[tuple[int, int, Mention]] = []
        for i, (title, bare, lead) in enumerate(zip(self.titles, self.bare, self.leads, strict=True)):
            for form, bonus in ((title, 1), (bare, 0), (lead, 0)):
                at = _find(form.split(), words) if len(form) > 2 else None
                if at is not None:
                    spans.append((len(form) + bonus, -i, Mention(i, at, at + len(form.split()))))
        chosen: list[Mention] = []
        for _, _, mention in sorted(spans, key=lambda s: s[:2], reverse=True):
            if all(mention.passage != c.passage and (mention.end <= c.start or mention.start >= c.end) for c in chosen):
                chosen.append(mention)
        return sorted(chosen, key=lambda m: m.start)

    def resolve(self, name: str, exclude: Collection[int] = (), floor: float = 0.62) -> int | None:
        """Return the number of the passage about `name`, or None where none fits well enough."""
        folded, bare = fold(name), fold(without_parentheses(name))
        best, best_score = None, floor
        for i in range(len(self.titles)):
            if i in exclude:
                continue
            score = max(
                similarity(folded, self.titles[i]),
                0.99 * similarity(bare, self.bare[i]),
                0.9 * similarity(bare, self.leads[i]),
            )
            if score > best_score:
                best, best_score = i, score
        return best


def _find(part: list[str], whole: list[str]) -> int | None:
    for i in range(len(whole) - len(part) + 1):
        if whole[i : i + len(part)] == part:
            return i
    return None


def similarity(a: str, b: str) -> float:
    """Return how likely two folded names name one thing, in [0, 1]; numerals (Henry IV, Henry V) must agree."""
    if not a or not b:
        return 0.0
    if a == b:
        return 1.0
    left = {w for w in a.split() if w not in _SMALL}
    right = {w for w in b.split() if w not in _SMALL}
    numerals = {w for w in left if _ROMAN.match(w)}, {w for w in right if _ROMAN.match(w)}
    if not left or not right or (numerals[0] and numerals[1] and numerals[0] != numerals[1]):
        return 0.0
    fuzzy = fuzz.ratio(a, b) / 100
    common = len(left & right)
    shorter, longer = sorted((len(left), len(right)))
    contained = 0.6 * common / shorter + 0.4 * common / longer
    if shorter == 1 and longer > 2:
        contained *= 0.8
    return max(contained * 0.98, fuzzy if fuzzy >= 0.8 else 0.0)


def readable(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """Return passages with as much of each as is read."""
    return tuple(replace(p, title=beginning(p.title), text=beginning(p.text, MAX_PASSAGE)) for p in passages)


def build_linker(passages: Sequence[Passage]) -> tuple[Linker, list[str]]:
    """Return a linker and the cleaned texts it reads."""
    texts = [clean(p.text) for p in passages]
    return Linker(passages, texts), texts
