"""GraphRAG-Bench of Xiao et al. (arXiv 2506.02404): exam questions of 16 disciplines over 20 textbooks.

`questions/` holds a file for each kind: FB (fill in the blank), MC (multiple choice), MS (multi-select), OE (open
ended), TF (true or false), rows with `Question`, `Answer`, `Rationale`, `Level-1 Topic`, `Level-2 Topic`, and `Choices`
by letter for MC and MS. `textbooks/NAME/NAME.md` are the books. There are no gold passages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents.text import markdown_sections
from gnnrag.datasets.jsonl import Skips, read_jsonl
from gnnrag.datasets.placing import MissingGold, cut
from gnnrag.datasets.release_fields import text_of, texts_of
from gnnrag.errors import DataError
from gnnrag.types import Passage, Question

KINDS = {
    "FB": "fill in the blank",
    "MC": "multiple choice",
    "MS": "multi-select",
    "OE": "open ended",
    "TF": "true or false",
}


def load_passages(path: Path, chunking: Chunking, skips: Skips) -> list[Passage]:
    """Return the books below `path` in passages `<book>/<section>#<number>`; DataError: one is unreadable, or none."""
    passages: list[Passage] = []
    for book in sorted(path.glob("*/*.md")):
        sections = [(title, text) for title, text in markdown_sections(book) if text.strip()]
        if not sections:
            skips.add("empty book", book.name)
        for number, (title, text) in enumerate(sections, start=1):
            passages += cut(f"{book.stem}/{number}", title, text, chunking)
    if not passages:
        raise DataError(path, "holds no books with text; expected NAME/NAME.md for each")
    return passages


def load_questions(path: Path, passages: Sequence[Passage], skips: Skips, missing_gold: MissingGold) -> list[Question]:
    """Return the questions of one file, or of all files of the folder `path`; the type is the name of the file.

    Choices are appended to the question. The answers of multiple choice are the text of the right choice and its
    letter, those of multi-select all right texts joined by "; " and all letters by ", ". DataError: a broken row, or no
    question.
    """
    files = (
        [path] if path.is_file() else [path / f"{kind}.jsonl" for kind in KINDS if (path / f"{kind}.jsonl").is_file()]
    )
    questions = [
        _question(file, line, row, f"{file.stem}-{number}")
        for file in files
        for number, (line, row) in enumerate(read_jsonl(file))
    ]
    if not questions:
        raise DataError(path, f"holds no questions; expected {', '.join(f'{kind}.jsonl' for kind in KINDS)}")
    skips.notes.append("this GraphRAG-Bench names no gold passages: retrieval cannot be scored on it, answers can")
    return questions


def _question(file: Path, line: int, row: Mapping[str, Any], row_id: str) -> Question:
    text = text_of(file, "the row", row, "Question", line, filled=True)
    answers = texts_of(file, "the row", row, "Answer", line)
    choices = row.get("Choices")
    if choices:
        if not (isinstance(choices, dict) and all(isinstance(v, str) for v in choices.values())):
            raise DataError(file, "'Choices' must be an object of letters and texts", line)
        text = "\n".join([text, *(f"{letter}) {choices[letter]}" for letter in sorted(choices))])
        letters = [letter for letter in "".join(answers) if not letter.isspace() and letter not in ",;"]
        unknown = next((letter for letter in letters if letter not in choices), None)
        if unknown is not None or not letters:
            raise DataError(file, f"'Answer' {', '.join(answers)!r} names none of the choices {sorted(choices)}", line)
        answers = ("; ".join(choices[letter] for letter in letters), ", ".join(letters))
    read = {"Question", "Answer"}
    extra = {key: value for key, value in row.items() if key not in read}
    return Question(row_id, text, answers, file.stem, extra=extra)
