"""Benchmarks over long documents, as they are released; documents are cut into passages, and none of these is gold.

- GraphRAG-Bench of Xiang et al. (arXiv 2506.05690): `FOLDER/NAME` for `FOLDER/Datasets/Corpus/NAME.json` (novels, or a
  medical text) and `FOLDER/Datasets/Questions/NAME_questions.json`. `Question.extra` has its evidence, as statements.
- UltraDomain (released with MemoRAG, 2024): `DOMAIN.jsonl`, questions over whole books.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents.blocks import Block, Document
from gnnrag.datasets.documents.passages import cut_document
from gnnrag.datasets.jsonl import Skips, is_unanswerable, new_id, read_json, read_jsonl, read_objects
from gnnrag.errors import DataError
from gnnrag.types import Passage, Question

CORPORA, QUESTIONS = "Datasets/Corpus", "Datasets/Questions"

_Documents = dict[str, tuple[str, str]]  # title and text by name


def is_release(path: Path) -> bool:
    return _reader(path) is not None


def load(path: Path, chunking: Chunking, skips: Skips) -> tuple[list[Passage], list[Question]]:
    """Return passages `DOCUMENT#1`, `DOCUMENT#2`, ... and questions; DataError: a broken file."""
    chunking.check()
    read: Any = _reader(path)
    try:
        documents, questions = read(path, skips)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(path, f"has an unknown shape: {error!r}") from error
    passages: list[Passage] = []
    for name, (title, text) in documents.items():
        blocks = [Block("text", paragraph) for paragraph in text.split("\n\n")]
        parts = cut_document(Document(title, blocks), chunking, "")
        passages += [replace(part, id=f"{name}#{number}", place="") for number, part in enumerate(parts, start=1)]
    skips.notes.append("no passage is marked as gold here: retrieval cannot be scored, answers can")
    return passages, questions


def _reader(path: Path) -> Callable[[Path, Skips], tuple[_Documents, list[Question]]] | None:
    if (path.parent / CORPORA / f"{path.name}.json").is_file():
        return _graphrag_bench
    is_file = path.suffix == ".jsonl" and path.is_file()
    try:
        return _ultradomain if is_file and next(read_jsonl(path))[1].keys() >= {"input", "context", "answers"} else None
    except (DataError, StopIteration):
        return None


def _graphrag_bench(path: Path, skips: Skips) -> tuple[_Documents, list[Question]]:
    corpus = read_json(path.parent / CORPORA / f"{path.name}.json")
    corpus = [corpus] if isinstance(corpus, dict) else corpus
    questions, seen = list[Question](), dict[str, object]()
    for row in read_objects(path.parent / QUESTIONS / f"{path.name}_questions.json", "questions"):
        said = row.get("evidence", [])
        said = said.split("; ") if isinstance(said, str) else said  # an export of the set joins the statements
        if id_ := new_id(seen, str(row["id"]), row, skips):
            answers = () if is_unanswerable(row) else (row["answer"],)
            extra = {"document": row["source"], "statements": said}
            questions.append(Question(id_, row["question"], answers, row["question_type"], extra=extra))
    return {row["corpus_name"]: (row["corpus_name"], row["context"]) for row in corpus}, questions


def _ultradomain(path: Path, skips: Skips) -> tuple[_Documents, list[Question]]:
    documents, books = _Documents(), dict[str, str]()
    questions, seen = list[Question](), dict[str, object]()
    for line, row in read_jsonl(path):
        name = books.setdefault(row["context"], f"{path.stem}-{len(books) + 1}")
        documents[name] = ((row.get("meta") or {}).get("title", ""), row["context"])
        if id_ := new_id(seen, str(row.get("_id", f"{path.stem}-q{line}")), row, skips):
            kind = row.get("label") or path.stem
            questions.append(Question(id_, row["input"], tuple(row["answers"]), kind, extra={"document": name}))
    return documents, questions
