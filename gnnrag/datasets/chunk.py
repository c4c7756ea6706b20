"""Cut a text into passages of about equal length on paragraph and sentence borders, with no word lost or changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gnnrag.errors import ConfigError
from gnnrag.types import Passage

# A word is a run of characters without blanks. Chinese and Japanese write none, so each of their characters counts as
# one, with the punctuation after it. Runs longer than 40 characters (encoded data, other scripts without blanks) count
# and break every 40, which bounds the length of a passage whatever the input.
_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_WIDE}][、。！？，；：”’」』）]*|[^\s{_WIDE}]{{1,40}}")
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE_END = re.compile(
    r"[.!?…][\"'”’)\]]*(?=\s+[\"'“‘(\[]*[^\W_a-z])"  # a stop, before a capital or a digit
    r"|[。！？][”’」』）]*"
    r"|\n(?=[ \t]*(?:[-*+•]|\d+[.)])\s)"  # the items of a list
)
_ABBREVIATION = re.compile(r"(?:\b(?:[A-Z]|Mrs?|Ms|Dr|Prof|St|Jr|Sr|Gen|Col|Lt|Rev|No|vs|etc|cf|e\.g|i\.e|approx))\.$")


@dataclass(frozen=True, slots=True)
class Chunking:
    """Settings that cut own documents into passages."""

    target_words: int = 100  # a passage grows until the next sentence would take it over this
    overlap_words: int = 0  # at most this many words of the passage before are repeated, in whole sentences

    def check(self) -> None:
        """Raise ConfigError where a value is out of range."""
        if self.target_words < 1:
            raise ConfigError(f"target_words={self.target_words}: must be at least 1, for example 100")
        if not 0 <= self.overlap_words < self.target_words:
            allowed = f"must be between 0 and target_words - 1 = {self.target_words - 1}"
            raise ConfigError(f"overlap_words={self.overlap_words}: {allowed}")


def chunk_text(text: str, chunking: Chunking | None = None) -> list[str]:
    """Return the passages of `text`, in order, none of them blank.

    A passage ends before the sentence that would take it over the target, and earlier, at the end of a paragraph, if it
    is at least half full and the next paragraph does not fit whole. A sentence over the target is cut.
    """
    settings = chunking or Chunking()
    settings.check()
    sentences = list(_sentences(text, settings.target_words))
    spans = pack([sizes for _, sizes in sentences], settings)
    return [text[sentences[a][0][0] : sentences[b - 1][0][1]].strip() for a, b in spans]


def cut(document: str, title: str, text: str, chunking: Chunking) -> list[Passage]:
    """Return a document's passages; their ids are `DOCUMENT#1`, `DOCUMENT#2`, ..."""
    chunks = enumerate(chunk_text(text, chunking), start=1)
    return [Passage(f"{document}#{number}", title, chunk) for number, chunk in chunks]


def document_of(passage_id: str) -> str:
    """Return the document that a passage comes from."""
    return passage_id.rpartition("#")[0]


def pack(sizes: Sequence[tuple[int, int]], settings: Chunking) -> list[tuple[int, int]]:
    """Return the passages that whole sentences make: the first of each, and the one after its last.

    Of each sentence, `sizes` has its words, and those of the paragraph if it starts one, else 0.
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
    """Return where the words of a text start."""
    return [match.start() for match in _WORD.finditer(text)]


def count_words(text: str) -> int:
    """Return how many words a text counts for."""
    return len(word_starts(text))


def _sentences(text: str, limit: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the span and the sizes (`pack`) of sentences with words; one longer than `limit` comes in pieces."""
    for begin, end in _between(text, 0, len(text), [m.end() for m in _PARAGRAPH_END.finditer(text)]):
        pieces = []
        borders = [
            m.end()
            for m in _SENTENCE_END.finditer(text, begin, end)
            if not _ABBREVIATION.search(text, max(0, m.end() - 8), m.end())
        ]
        for start, stop in _between(text, begin, end, borders):
            words = [m.start() for m in _WORD.finditer(text, start, stop)]
            cuts = [start, *words[limit::limit], stop]
            counts = [min(limit, len(words) - i) for i in range(0, len(words), limit)]
            pieces += list(zip(cuts, cuts[1:], counts, strict=False))
        total = sum(count for _, _, count in pieces)
        for i, (start, stop, count) in enumerate(pieces):
            yield (start, stop), (count, 0 if i else total)


def _between(text: str, begin: int, end: int, borders: list[int]) -> Iterator[tuple[int, int]]:
    edges = [begin, *borders, end]
    for start, stop in pairwise(edges):
        if start < stop and not text[start:stop].isspace():
            yield start, stop
