"""GraphRAG-Bench of Xiang et al. (arXiv 2506.05690): questions over novels, and over one medical guideline text.

`NAME.json` holds documents, `{"corpus_name", "context"}` in a list (novel) or alone (medical); `NAME_questions.json`
rows with `id`, `source` (a corpus_name), `question`, `answer`, `question_type` and `evidence`: statements about the
source, seldom in its own words, which `placing` turns into gold passages. Triples of the evidence come as strings
`(head, relation, tail)`, under a name that changed between releases. Not the benchmark of `textbook_bench`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.jsonl import Skips, read_json, read_objects
from gnnrag.datasets.placing import GoldPlacer, MissingGold, cut, document_of
from gnnrag.datasets.release_fields import Ids, text_of, texts_of
from gnnrag.errors import DataError
from gnnrag.types import Passage, Question

_TRIPLES = ("evidence_triple", "evidence_triples", "evidence_tripples")
_READ = frozenset(("id", "question", "answer", "question_type", "evidence", *_TRIPLES))


def load_passages(path: Path, chunking: Chunking, skips: Skips) -> list[Passage]:
    """Return documents as passages `<corpus_name>#<number>`; DataError: broken file, repeated name, or no text."""
    data = read_json(path)
    documents = [data] if isinstance(data, dict) else read_objects(path, "documents")
    passages: list[Passage] = []
    seen: set[str] = set()
    for i, document in enumerate(documents):
        name = text_of(path, f"document {i}", document, "corpus_name", filled=True)
        if name in seen:
            raise DataError(path, f"document {i} has corpus_name {name!r}, which an earlier one has already")
        seen.add(name)
        parts = cut(name, name, text_of(path, f"document {i}", document, "context"), chunking)
        if not parts:
            skips.add("empty document", name)
        passages += parts
    if not passages:
        raise DataError(path, "holds no text; expected objects with 'corpus_name' and 'context'")
    return passages


def load_questions(path: Path, passages: Sequence[Passage], skips: Skips, missing_gold: MissingGold) -> list[Question]:
    """Return the questions of a `NAME_questions.json`; the later of two with one id is called `ID@SOURCE`.

    Raises DataError where the file is broken, a document is unknown, or an id is taken.
    """
    placer, ids = GoldPlacer(path, passages, missing_gold, skips), Ids(path, skips)
    known = {document_of(passage.id) for passage in passages}
    sources: dict[str, str] = {}
    questions = []
    for i, row in enumerate(read_objects(path, "questions")):
        row_id = text_of(path, f"question {i}", row, "id", filled=True)
        where = f"question {row_id!r} (number {i})"
        source = text_of(path, where, row, "source", filled=True)
        if sources.setdefault(row_id, source) != source:
            skips.notes.append(
                f"id {row_id} is used for {sources[row_id]} and {source}; the second is {row_id}@{source}"
            )
            row_id = f"{row_id}@{source}"
        text = text_of(path, where, row, "question", filled=True)
        question = Question(
            row_id,
            text,
            texts_of(path, where, row, "answer"),
            text_of(path, where, row, "question_type"),
            evidence=_triples(path, where, row),
            extra={key: value for key, value in row.items() if key not in _READ},
        )
        statements = texts_of(path, where, row, "evidence")
        if isinstance(row.get("evidence"), str):  # an export of the set joins them
            statements = tuple(part for part in statements[0].split("; ") if part.strip()) if statements else ()
        document = source if source in known else None
        gold = placer.place(where, [(document, source, statement) for statement in statements])
        if gold is not None and ids.is_new(row_id, text, where):
            extra = {**question.extra, "statements": list(statements)}
            questions.append(
                Question(row_id, text, question.answers, question.type, gold, (), question.evidence, extra)
            )
    placer.report()
    if not questions:
        raise DataError(path, f"holds no usable questions. {skips.summary()}".strip())
    return questions


def _triples(path: Path, where: str, row: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return those triples that have three parts; a comma inside a name cannot be told from one between parts."""
    found = []
    for key in _TRIPLES:
        for text in texts_of(path, where, row, key):
            parts = [part.strip() for part in text.strip().rstrip(".").strip().strip("()").split(",")]
            if len(parts) == 3 and all(parts):
                found.append((parts[0], parts[1], parts[2]))
    return tuple(dict.fromkeys(found))
