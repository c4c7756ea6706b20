"""Long documents cut into passages, and the passages that hold the evidence, which releases name by words alone."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from gnnrag.datasets.chunk import Chunking, chunk_text
from gnnrag.datasets.jsonl import Skips
from gnnrag.errors import ConfigError, DataError
from gnnrag.types import Passage

MissingGold = Literal["error", "drop"]

# A statement about a text rarely repeats it. One that shares 85% of its words with a passage of its own document was
# taken from there; below that, statements about a novel start to match passages that merely name the same people.
SHARED_WORDS = 0.85
_WORD = re.compile(r"\w+")


def cut(document: str, title: str, text: str, chunking: Chunking) -> list[Passage]:
    """Return a document's passages; their ids are `DOCUMENT#1`, `DOCUMENT#2`, ..."""
    chunks = enumerate(chunk_text(text, chunking), start=1)
    return [Passage(f"{document}#{number}", title, chunk) for number, chunk in chunks]


def document_of(passage_id: str) -> str:
    """Return the document that a passage of `cut` comes from."""
    return passage_id.rpartition("#")[0]


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise ConfigError where a setting has none of its values."""
    if value not in allowed:
        raise ConfigError(f"{name}={value!r}: allowed are {', '.join(allowed)}")


@dataclass
class _Document:
    """The words of a document; words are compared without case, accents of form and punctuation."""

    ids: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # where each passage starts in `text`
    text: str = " "  # words with a blank around each
    postings: dict[str, np.ndarray] = field(default_factory=dict)  # word -> passages with it, ascending

    def add(self, passage: Passage) -> None:
        self.ids.append(passage.id)
        self.starts.append(len(self.text) - 1)
        self.text += "".join(f"{word} " for word in words(passage.text))

    def spans(self, quoted: str) -> tuple[str, ...]:
        """Return the passages that a string of words runs through where it stands first."""
        at = self.text.find(quoted)
        if at < 0:
            return ()
        first, last = (bisect_right(self.starts, i) - 1 for i in (at, at + len(quoted) - 2))
        return tuple(self.ids[first : last + 1])

    def nearest(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return the passage, the first of equals, with most of some distinct words, if it has enough of them."""
        if not self.postings:
            found: defaultdict[str, list[int]] = defaultdict(list)
            for i, start in enumerate(self.starts):
                stop = self.starts[i + 1] if i + 1 < len(self.starts) else len(self.text)
                for word in dict.fromkeys(self.text[start:stop].split()):
                    found[word].append(i)
            self.postings = {word: np.array(rows) for word, rows in found.items()}
        counts = np.zeros(len(self.ids), dtype=np.int64)
        for word in wanted:
            if word in self.postings:
                counts[self.postings[word]] += 1
        best = int(np.argmax(counts))
        return (self.ids[best],) if counts[best] >= SHARED_WORDS * len(wanted) else ()


class GoldPlacer:
    """Finds the passages that evidence stands in, and counts what it does not find in `skips`.

    `missing_gold`: `error` stops at evidence from a document that the corpus lacks, and keeps a question none of whose
    statements is found; `drop` leaves both kinds of questions out; ConfigError for another value.
    """

    def __init__(self, path: Path, passages: Iterable[Passage], missing_gold: MissingGold, skips: Skips) -> None:
        check_choice("missing_gold", missing_gold, get_args(MissingGold))
        self._path, self._missing_gold, self._skips = path, missing_gold, skips
        self._documents: defaultdict[str, _Document] = defaultdict(_Document)
        self._counts = {"quoted": 0, "reworded": 0, "not found": 0, "without any": 0}
        for passage in passages:
            self._documents[document_of(passage.id)].add(passage)

    def place(self, question: str, statements: Sequence[tuple[str | None, str, str]]) -> tuple[str, ...] | None:
        """Return gold passages in the order of statements; None leaves the question out; DataError: see the class.

        A statement is (document, or None if the corpus lacks it; what the release calls it; words of the evidence).
        """
        gold: dict[str, None] = {}
        for document, called, statement in statements:
            if document not in self._documents:
                if self._missing_gold == "error":
                    fix = (
                        "Use the corpus of the same release, or set data.missing_gold=drop to leave such questions out"
                    )
                    raise DataError(
                        self._path, f"{question}: its evidence is from {called!r}, not in the corpus. {fix}"
                    )
                self._skips.add("evidence from a document that is not in the corpus", question)
                return None
            gold |= dict.fromkeys(self._find(self._documents[str(document)], statement))
        if statements and not gold:
            if self._missing_gold == "drop":
                self._skips.add("no passage has the words of its evidence", question)
                return None
            self._counts["without any"] += 1
        return tuple(gold)

    def report(self) -> None:
        """Note how the evidence was found."""
        quoted, reworded, lost, without = self._counts.values()
        total, notes = quoted + reworded + lost, self._skips.notes
        if reworded:
            rule = f"the passage with at least {SHARED_WORDS:.0%} of their words counts as gold"
            notes.append(f"{reworded} of {total} statements of evidence stand nowhere as they are quoted; {rule}")
        if lost:
            notes.append(f"{lost} of {total} statements of evidence are in no passage")
        if without:
            fix = "set data.missing_gold=drop to leave them out, or metrics.skip_no_gold=true"
            notes.append(f"{without} questions have no gold passage for that reason, and score 0; {fix}")

    def _find(self, document: _Document, statement: str) -> tuple[str, ...]:
        wanted = words(statement)
        found = document.spans(f" {' '.join(wanted)} ") if wanted else ()
        how = "quoted"
        if not found and wanted:
            found, how = document.nearest(list(dict.fromkeys(wanted))), "reworded"
        self._counts[how if found else "not found"] += 1
        return found


def words(text: str) -> list[str]:
    """Return the words of a text for comparison: no case, no punctuation, one form of each character."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
