"""Which entities of a graph of facts a question names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from gnnrag.text.normalise import FUNCTION_WORDS, phrase_key

_WORD = re.compile(r"\S+")
_EDGE = "?!.,;:'\"()"  # what may stand at the edge of a name without being part of it
Span = tuple[int, int]
Found = tuple[str, Span]  # name, and where it stands in the text


class NameFinder:
    """Finds names in questions: as they are written, then in any case; or by their spelling-insensitive form.

    A name that holds a capital or a digit goes before one that does not; of those the longest, then the first. Names in
    lower case are mostly words of the question (`director`, `actors`), so they count only where there are no others.

    Args:
        position: name to number.
        is_normalised: the names are `phrase_key` forms, as in graphs of text; else they are written as they are.
    """

    def __init__(self, position: Mapping[str, int], is_normalised: bool = False) -> None:
        self.position, self.is_normalised = position, is_normalised

    @cached_property
    def _folded(self) -> dict[str, str]:
        folded: dict[str, str] = {}
        for name in self.position:
            folded.setdefault(name.casefold(), name)
        return folded

    @cached_property
    def _longest(self) -> int:
        return max((len(name.split()) for name in self.position), default=0) + 1

    def find_all(self, text: str) -> list[Found]:
        """Return the names in a text, best first, no two overlapping."""
        for read in (self._by_form,) if self.is_normalised else (self._as_written, self._in_any_case):
            if found := self._search(text, read):
                return found
        return []

    def _search(self, text: str, read: Callable[[str], str | None]) -> list[Found]:
        ranked = []
        for start, stop in _spans(text, self._longest):
            shown = text[start:stop]
            name = read(shown)
            if name is not None:
                is_marked = any(c.isupper() or c.isdigit() for c in shown)
                ranked.append(((not is_marked, start - stop, start), name, (start, stop)))
        ranked.sort()
        kept: list[Found] = []
        for (is_plain, _, _), name, span in ranked:
            if is_plain and kept:
                break
            if all(span[1] <= other[0] or span[0] >= other[1] for _, other in kept):
                kept.append((name, span))
                if is_plain:
                    break
        return kept

    def _as_written(self, shown: str) -> str | None:
        return shown if shown in self.position else None

    def _in_any_case(self, shown: str) -> str | None:
        return self._folded.get(shown.casefold())

    def _by_form(self, shown: str) -> str | None:
        key = phrase_key(shown)
        return key if key in self.position and not FUNCTION_WORDS.issuperset(key.split()) else None


def _spans(text: str, longest: int) -> Iterator[Span]:
    """Yield every run of up to `longest` words, as it is and without punctuation and a possessive at its edges."""
    words = [found.span() for found in _WORD.finditer(text)]
    for i, (start, _) in enumerate(words):
        for _, stop in words[i : i + longest]:
            yield start, stop
            inner = text[start:stop]
            bare = inner.strip(_EDGE)
            at = start + inner.index(bare)
            if bare and bare != inner:
                yield at, at + len(bare)
            if bare.endswith(("'s", "’s")) and len(bare) > 2:
                yield at, at + len(bare) - 2
