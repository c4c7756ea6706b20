"""How own documents are cut into passages of about equal length, in whole sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gnnrag.errors import ConfigError
from gnnrag.text.normalise import MARKS, NO_BLANKS

# A word is a run of characters without blanks. Chinese and Japanese write none, so each of their characters counts as
# one, with the punctuation after it; so do up to five letters of Thai, Khmer and others alike. Longer runs (encoded
# data) count and break every 40 characters, which bounds the length of a passage whatever the input.
_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(
    rf"[{_WIDE}][、。！？，；：”’」』）]{{0,8}}|(?:(?![{_WIDE}])[{NO_BLANKS}][{MARKS}]{{0,8}}){{1,5}}|[^\s{NO_BLANKS}]{{1,40}}"
)


@dataclass(frozen=True, slots=True)
class Chunking:
    target_words: int = 100  # a passage grows until the next sentence would take it over this
    overlap_words: int = 0  # at most this many words of the passage before are repeated, in whole sentences

    def check(self) -> None:
        if self.target_words < 1:
            raise ConfigError(f"target_words={self.target_words}: must be at least 1, for example 100")
        if not 0 <= self.overlap_words < self.target_words:
            allowed = f"must be between 0 and target_words - 1 = {self.target_words - 1}"
            raise ConfigError(f"overlap_words={self.overlap_words}: {allowed}")


def document_of(passage_id: str) -> str:
    return passage_id.rpartition("#")[0]


def pack(sizes: Sequence[tuple[int, int]], settings: Chunking) -> list[tuple[int, int]]:
    """Return the passages that whole sentences make: the first of each, and the one after its last.

    Of each sentence, `sizes` has its words, and those of the paragraph if it starts one, else 0. A passage ends before
    the sentence that would take it over the target, and earlier, at the end of a paragraph, if it is at least half full
    and the next paragraph does not fit whole.
    """
    chunks, first, words, target = [], 0, 0, settings.target_words
    for i, (size, paragraph) in enumerate(sizes):
        is_full = words + size > target or (2 * words >= target and words + paragraph > target)
        if words and is_full:
            chunks.append((first, i))
            start, words = i, 0
            room = min(settings.overlap_words, target - size)
            while start - 1 > first and words + sizes[start - 1][0] <= room:
                start -= 1
                words += sizes[start][0]
            first = start
        words += size
    return [*chunks, (first, len(sizes))] if sizes else []


def word_starts(text: str) -> list[int]:
    return [match.start() for match in _WORD.finditer(text)]


def count_words(text: str) -> int:
    return len(word_starts(text))
