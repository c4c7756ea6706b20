"""UltraDomain (released with MemoRAG, 2024): questions over whole books, one `DOMAIN.jsonl` for each of its domains.

A row holds `input` (the question), `answers`, and the whole book as `context`; most have `_id`, `label`, `length`,
`context_id` and `meta` with the book's `title` and `authors`; `fin.jsonl` lacks the last two. Rows share books: each is
one document. There are no gold passages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.common.files import open_regular
from gnnrag.common.untrusted import counted_repairs, parse_json
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.jsonl import Skips, read_jsonl
from gnnrag.datasets.placing import MissingGold, cut
from gnnrag.datasets.release_fields import Ids, text_of, texts_of
from gnnrag.errors import ArtefactError, DataError
from gnnrag.types import Passage, Question

KEYS = frozenset(("input", "context", "answers"))  # what tells a row of it from a record of own documents
_MAX_LINE_BYTES = 200_000_000  # a row repeats its book
_READ = frozenset((*KEYS, "_id", "label"))


def is_ultradomain(path: Path) -> bool:
    """Tell by the keys of its first row whether a `.jsonl` file is one of UltraDomain; False if it cannot be read."""
    try:
        with open_regular(path) as file, counted_repairs():  # the loader counts them
            row = parse_json(file.readline(_MAX_LINE_BYTES))
    except (OSError, ValueError, ArtefactError):
        return False
    return isinstance(row, dict) and row.keys() >= KEYS and "text" not in row


def load_passages(path: Path, chunking: Chunking, skips: Skips) -> list[Passage]:
    """Return distinct books by first appearance as `DOMAIN-<book>#<number>`; DataError: broken row, or no text."""
    passages: list[Passage] = []
    number = 0
    for line, row, document in _rows(path):
        if document > number:
            number = document
            text = text_of(path, "the row", row, "context", line)
            parts = cut(f"{path.stem}-{number}", _title(row), text, chunking)
            if not parts:
                skips.add("empty context", f"line {line}")
            passages += parts
    if not passages:
        raise DataError(path, "holds no text; each row must be an object with 'input', 'answers' and 'context'")
    return passages


def load_questions(path: Path, passages: Sequence[Passage], skips: Skips, missing_gold: MissingGold) -> list[Question]:
    """Return questions, their book as `extra["document"]`; DataError: a broken row, or two questions with one id."""
    questions, ids = [], Ids(path, skips)
    for line, row, document in _rows(path):
        text = text_of(path, "the row", row, "input", line, filled=True)
        row_id = text_of(path, "the row", row, "_id", line, filled=True) if "_id" in row else f"{path.stem}-q{line}"
        if ids.is_new(row_id, (text, document), f"line {line}", line):
            extra = {key: value for key, value in row.items() if key not in _READ}
            kind = text_of(path, "the row", row, "label", line) if "label" in row else path.stem
            answers = texts_of(path, "the row", row, "answers", line)
            questions.append(
                Question(row_id, text, answers, kind, extra={**extra, "document": f"{path.stem}-{document}"})
            )
    if not questions:
        raise DataError(path, "holds no questions")
    skips.notes.append("UltraDomain names no gold passages: retrieval cannot be scored on it, answers can")
    return questions


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any], int]]:
    """Yield line, row and the number of the row's book, from 1."""
    books: dict[str, int] = {}
    for line, row in read_jsonl(path, _MAX_LINE_BYTES):
        book = text_of(path, "the row", row, "context", line)
        yield line, row, books.setdefault(book, len(books) + 1)


def _title(row: Mapping[str, Any]) -> str:
    meta = row.get("meta")
    title = meta.get("title") if isinstance(meta, dict) else None
    return title if isinstance(title, str) else ""
