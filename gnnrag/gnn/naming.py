"""Which entity of a knowledge base a question is about, by its exact name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

_WORD = re.compile(r"\S+")
_EDGE = "?!.,;:'\"()"  # what may stand at the edge of a name without being part of it


class NameFinder:
    """Finds names in questions: exactly as they are written, then in any case.

    A name that holds a capital or a digit goes before one that does not, where the text has any; of those the longest,
    then the first. Names in lower case are mostly words of the question (`director`, `actors`).

    Args:
        position: name to number.
    """

    def __init__(self, position: Mapping[str, int]) -> None:
        self.position = position

    @cached_property
    def _folded(self) -> dict[str, str]:
        folded: dict[str, str] = {}
        for name in self.position:
            folded.setdefault(name.casefold(), name)
        return folded

    @cached_property
    def _longest(self) -> int:
        return max((len(name.split()) for name in self.position), default=0)

    def find(self, text: str) -> tuple[str, tuple[int, int]] | None:
        """Return the name that a question is about, and where it stands in the text; None where there is none."""
        spans = [found.span() for found in _WORD.finditer(text)]
        for table in ({}, self._folded):
            best: tuple[tuple[bool, int, int], str, tuple[int, int]] | None = None
            for i, (start, _) in enumerate(spans):
                for _, stop in spans[i : i + self._longest]:
                    for part in _readings(text, start, stop):
                        shown = text[slice(*part)]
                        name = table.get(shown.casefold()) if table else shown if shown in self.position else None
                        if name is None:
                            continue
                        is_marked = any(c.isupper() or c.isdigit() for c in shown)
                        rank = (is_marked, len(shown), -part[0])
                        if best is None or rank > best[0]:
                            best = (rank, name, part)
            if best:
                return best[1], best[2]
        return None


def _readings(text: str, start: int, stop: int) -> list[tuple[int, int]]:
    """Return a span as it is, and without punctuation and a possessive ending at its edges."""
    found = [(start, stop)]
    inner = text[start:stop]
    bare = inner.strip(_EDGE)
    if bare and bare != inner:
        at = start + inner.index(bare)
        found.append((at, at + len(bare)))
    for ending in ("'s", "’s"):
        if bare.endswith(ending) and len(bare) > 2:
            at = start + inner.index(bare)
            found.append((at, at + len(bare) - 2))
    return found
