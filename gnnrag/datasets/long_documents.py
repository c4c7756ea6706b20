"""Benchmarks over long documents, as they are released: documents are cut into passages, gold is found by its words.

- GraphRAG-Bench of Xiang et al. (arXiv 2506.05690): `FOLDER/NAME` for `FOLDER/Datasets/Corpus/NAME.json` (novels, or a
  medical text) and `FOLDER/Datasets/Questions/NAME_questions.json`.
- UltraDomain (released with MemoRAG, 2024): `DOMAIN.jsonl`, questions over whole books, without gold passages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from gnnrag.datasets.chunk import Chunking, document_of
from gnnrag.datasets.documents.blocks import Block, Document
from gnnrag.datasets.documents.passages import cut_document
from gnnrag.datasets.jsonl import Skips, is_unanswerable, new_id, read_json, read_jsonl, read_objects
from gnnrag.errors import DataError
from gnnrag.text.normalise import lower_words
from gnnrag.types import Passage, Question

CORPORA, QUESTIONS = "Datasets/Corpus", "Datasets/Questions"
# A statement about a text rarely repeats it. One that shares 85% of its words with a passage of its own document was
# taken from there; below that, statements about a novel start to match passages that merely name the same people.
SHARED_WORDS = 0.85

_Documents = dict[str, tuple[str, str]]  # title and text by name
_Asked = tuple[Question, list[tuple[str, str]]]  # with its evidence: the document's name, and a statement


def is_release(path: Path) -> bool:
    return _reader(path) is not None


def load(
    path: Path, chunking: Chunking, skips: Skips, has_questions: bool = True
) -> tuple[list[Passage], list[Question]]:
    """Return passages `DOCUMENT#1`, `DOCUMENT#2`, ... and questions.

    A question none of whose statements of evidence is found has no gold. DataError: a broken file, or evidence from a
    document that is not there.
    """
    chunking.check()
    read: Any = _reader(path)
    try:
        documents, rows = read(path, skips)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(path, f"has an unknown shape: {error!r}") from error
    passages: list[Passage] = []
    for name, (title, text) in documents.items():
        blocks = [Block("text", paragraph) for paragraph in text.split("\n\n")]
        parts = cut_document(Document(title, blocks), chunking, "")
        passages += [replace(part, id=f"{name}#{number}", place="") for number, part in enumerate(parts, start=1)]
    return passages, _with_gold(path, rows, passages, skips) if has_questions else []


def _reader(path: Path) -> Callable[[Path, Skips], tuple[_Documents, list[_Asked]]] | None:
    if (path.parent / CORPORA / f"{path.name}.json").is_file():
        return _graphrag_bench
    is_file = path.suffix == ".jsonl" and path.is_file()
    try:
        return _ultradomain if is_file and next(read_jsonl(path))[1].keys() >= {"input", "context", "answers"} else None
    except (DataError, StopIteration):
        return None


def _graphrag_bench(path: Path, skips: Skips) -> tuple[_Documents, list[_Asked]]:
    corpus = read_json(path.parent / CORPORA / f"{path.name}.json")
    corpus = [corpus] if isinstance(corpus, dict) else corpus
    rows, seen = list[_Asked](), dict[str, object]()
    for row in read_objects(path.parent / QUESTIONS / f"{path.name}_questions.json", "questions"):
        said = row.get("evidence", [])
        said = said.split("; ") if isinstance(said, str) else said  # an export of the set joins the statements
        if id_ := new_id(seen, str(row["id"]), row, skips):
            answers = () if is_unanswerable(row) else (row["answer"],)
            question = Question(id_, row["question"], answers, row["question_type"], extra={"statements": said})
            rows.append((question, [(row["source"], statement) for statement in said]))
    return {row["corpus_name"]: (row["corpus_name"], row["context"]) for row in corpus}, rows


def _ultradomain(path: Path, skips: Skips) -> tuple[_Documents, list[_Asked]]:
    documents, books = _Documents(), dict[str, str]()
    rows, seen = list[_Asked](), dict[str, object]()
    for line, row in read_jsonl(path):
        name = books.setdefault(row["context"], f"{path.stem}-{len(books) + 1}")
        documents[name] = ((row.get("meta") or {}).get("title", ""), row["context"])
        if id_ := new_id(seen, str(row.get("_id", f"{path.stem}-q{line}")), row, skips):
            kind = row.get("label") or path.stem
            rows.append((Question(id_, row["input"], tuple(row["answers"]), kind, extra={"document": name}), []))
    skips.notes.append("UltraDomain names no gold passages: retrieval cannot be scored on it, answers can")
    return documents, rows


# ---------------------------------------------------------------------------------------------------------- evidence
def _with_gold(path: Path, rows: Sequence[_Asked], passages: Sequence[Passage], skips: Skips) -> list[Question]:
    of = {name: _Words(list(group)) for name, group in groupby(passages, lambda passage: document_of(passage.id))}
    found, questions = Counter[str](), []
    for question, evidence in rows:
        if strange := next((document for document, _ in evidence if document not in of), None):
            raise DataError(path, f"evidence of question {question.id!r} is from {strange!r}, not in the corpus")
        gold = dict.fromkeys(id_ for document, said in evidence for id_ in of[document].places(said, found))
        found["without"] += bool(evidence and not gold)
        questions.append(replace(question, gold=tuple(gold)))
    if found["reworded"] or found["lost"]:
        skips.notes.append(
            f"{found['reworded']} statements of evidence stand nowhere as they are quoted: the passage with "
            f"{SHARED_WORDS:.0%} of their words counts as gold; {found['lost']} are in no passage, and "
            f"{found['without']} questions have no gold passage for that reason"
        )
    return questions


class _Words:
    """The words of a document's passages, without case and punctuation."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        rows = [lower_words(passage.text).split() for passage in passages]
        self.ids, self.sets = [passage.id for passage in passages], [frozenset(row) for row in rows]
        texts = ["".join(f"{word} " for word in row) for row in rows]
        self.text, self.starts = f" {''.join(texts)}", list(accumulate(map(len, texts[:-1]), initial=0))

    def places(self, statement: str, found: Counter[str]) -> list[str]:
        """Return the passages that a statement stands in (its first place), else the one with most of its words."""
        wanted = lower_words(statement).split()
        quoted = f" {' '.join(wanted)} "
        if wanted and (at := self.text.find(quoted)) >= 0:
            found["quoted"] += 1
            first, last = (bisect_right(self.starts, i) - 1 for i in (at, at + len(quoted) - 2))
            return self.ids[first : last + 1]
        shared = [len(words.intersection(wanted)) for words in self.sets]
        best = max(range(len(shared)), key=shared.__getitem__)
        is_near = bool(wanted) and shared[best] >= SHARED_WORDS * len({*wanted})
        found["reworded" if is_near else "lost"] += 1
        return [self.ids[best]] if is_near else []
