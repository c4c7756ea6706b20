"""Benchmarks over long documents: the documents are cut into passages, and gold passages are found by their words.

- MultiHop-RAG (Tang and Yang, 2024): news articles in `corpus.json`, questions in `MultiHopRAG.json`.
- GraphRAG-Bench of Xiang et al. (arXiv 2506.05690): `NAME.json` (novels, or one medical guideline text) and
  `NAME_questions.json`.
- UltraDomain (released with MemoRAG, 2024): questions over whole books, one `DOMAIN.jsonl` for each domain.

The last one names no gold passages.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from gnnrag.datasets.chunk import Chunking, cut, document_of
from gnnrag.datasets.hipporag import MissingGold
from gnnrag.datasets.jsonl import (
    Filled,
    Id,
    Skips,
    is_unanswerable,
    new_id,
    parse_row,
    read_json,
    read_jsonl,
    read_objects,
)
from gnnrag.errors import DataError
from gnnrag.text.normalise import find_words
from gnnrag.types import Passage, Question


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Texts = Annotated[list[str], BeforeValidator(_as_list)]  # a list of strings, or one string


class _Row(BaseModel):
    model_config = ConfigDict(extra="allow")

    @property
    def extra(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


# -------------------------------------------------------------------------------------------------------- MultiHop-RAG
ARTICLES, QUERIES = "corpus.json", "MultiHopRAG.json"
UNANSWERABLE = "null_query"  # has no answers here; the release's, a phrase that says so, is `extra["release_answer"]`


class _Article(_Row):
    title: str
    body: str
    url: str = ""


class _Fact(BaseModel):
    fact: Filled
    url: str = ""
    title: str = ""


class _Query(_Row):
    query: Filled
    answer: str
    question_type: str
    evidence_list: list[_Fact] = []


def multihop_rag_passages(path: Path, chunking: Chunking, skips: Skips) -> list[Passage]:
    """Return articles as passages `article-<position>#<number>`; DataError: broken file, or an article lacks a text."""
    passages: list[Passage] = []
    for i, row in enumerate(read_objects(path, "articles")):
        article = parse_row(_Article, path, row, f"article {i}")
        _add_document(passages, f"article-{i}", article.title, article.body, chunking, skips)
    return passages


def multihop_rag_questions(
    path: Path, passages: Sequence[Passage], skips: Skips, missing_gold: MissingGold
) -> list[Question]:
    """Return the questions of a `MultiHopRAG.json`; ids are `multihop-rag-<position>`, hops the pieces of evidence.

    An article is found by its URL, else by its title. DataError: a broken file, or evidence from another article.
    """
    placer = GoldPlacer(path, passages, missing_gold, skips)
    documents: dict[str, str] = {}
    for i, article in enumerate(read_objects(path.with_name(ARTICLES), "articles")):
        for key in (article.get("url"), article.get("title")):
            if isinstance(key, str) and key.strip():
                documents.setdefault(key.strip(), f"article-{i}")
    questions = []
    for i, raw in enumerate(read_objects(path, "questions")):
        where = f"question {i}"
        row = parse_row(_Query, path, raw, where)
        statements = []
        for fact in row.evidence_list:
            keys = [key.strip() for key in (fact.url, fact.title) if key.strip()]
            document = next((documents[key] for key in keys if key in documents), None)
            statements.append((document, next(iter(keys), "an article without url and title"), fact.fact))
        gold = placer.place(where, statements)
        if gold is not None:
            is_open = row.question_type == UNANSWERABLE
            extra = row.extra | {"hops": len(statements), "facts": [fact for _, _, fact in statements]}
            extra |= {"release_answer": row.answer} if is_open else {}
            answers = () if is_open else (row.answer,)
            questions.append(Question(f"multihop-rag-{i}", row.query, answers, row.question_type, gold, extra=extra))
    placer.report()
    return questions


# ------------------------------------------------------------------------------------- GraphRAG-Bench of Xiang et al.
class _Document(BaseModel):
    corpus_name: Filled
    context: str


# Strings `(head, relation, tail)`, under a name that changed between releases.
_TRIPLES = ("evidence_triple", "evidence_triples", "evidence_tripples")


class _BenchRow(_Row):
    id: Id
    source: Filled  # a corpus_name
    question: Filled
    answer: Texts
    question_type: str
    evidence: str | list[str] = []  # statements about the source, seldom in its own words
    triples: Texts = Field([], validation_alias=AliasChoices(*_TRIPLES))


def graphrag_bench_passages(path: Path, chunking: Chunking, skips: Skips) -> list[Passage]:
    """Return documents as passages `<corpus_name>#<number>`; DataError: broken file, repeated name, or no text."""
    data = read_json(path)
    passages: list[Passage] = []
    seen: set[str] = set()
    for i, row in enumerate([data] if isinstance(data, dict) else read_objects(path, "documents")):
        document = parse_row(_Document, path, row, f"document {i}")
        if document.corpus_name in seen:
            raise DataError(path, f"document {i} has the corpus_name {document.corpus_name!r} of an earlier one")
        seen.add(document.corpus_name)
        _add_document(passages, document.corpus_name, document.corpus_name, document.context, chunking, skips)
    return passages


def graphrag_bench_questions(
    path: Path, passages: Sequence[Passage], skips: Skips, missing_gold: MissingGold
) -> list[Question]:
    """Return the questions of a `NAME_questions.json`; the later of two with one id is called `ID@SOURCE`.

    Raises DataError where the file is broken, or a document is unknown.
    """
    placer, seen = GoldPlacer(path, passages, missing_gold, skips), dict[str, object]()
    documents = {document_of(passage.id) for passage in passages}
    questions = []
    for i, raw in enumerate(read_objects(path, "questions")):
        row = parse_row(_BenchRow, path, raw, f"question {i}")
        row_id = new_id(seen, [row.id, f"{row.id}@{row.source}"], (row.source, row.question), skips)
        if row_id is None:
            continue
        # An export of the set joins the statements.
        statements = row.evidence.split("; ") if isinstance(row.evidence, str) else row.evidence
        document = row.source if row.source in documents else None
        gold = placer.place(f"question {row_id!r}", [(document, row.source, text) for text in _distinct(statements)])
        if gold is not None:
            questions.append(
                Question(
                    row_id,
                    row.question,
                    () if is_unanswerable(raw) else _distinct(row.answer),
                    row.question_type,
                    gold,
                    evidence=tuple(_triples(row.triples)),
                    extra=row.extra | {"statements": list(_distinct(statements))},
                )
            )
    placer.report()
    return questions


def _triples(texts: Iterable[str]) -> dict[tuple[str, str, str], None]:
    """Return those triples that have three parts; a comma inside a name cannot be told from one between parts."""
    rows = ([part.strip() for part in text.strip().rstrip(".").strip().strip("()").split(",")] for text in texts)
    return {(row[0], row[1], row[2]): None for row in rows if len(row) == 3 and all(row)}


# -------------------------------------------------------------------------------------------------------- UltraDomain
_KEYS = frozenset(("input", "context", "answers"))  # what tells a row of it from a record of own documents


class _DomainRow(_Row):
    input: Filled
    context: str  # the whole book; rows share books
    answers: Texts
    id: Filled | None = None
    label: str | None = None


def is_ultradomain(path: Path) -> bool:
    """Tell by the keys of its first row whether a `.jsonl` file is one of UltraDomain; False if it cannot be read."""
    try:
        row = next(read_jsonl(path))[1] if path.is_file() else {}
    except (DataError, StopIteration):
        return False
    return row.keys() >= _KEYS and "text" not in row


def ultradomain_passages(path: Path, chunking: Chunking, skips: Skips) -> list[Passage]:
    """Return distinct books by first appearance as `DOMAIN-<book>#<number>`; DataError: broken row, or no text."""
    passages: list[Passage] = []
    last = 0
    for _, row, book in _domain_rows(path):
        if book > last:
            last, meta = book, row.extra.get("meta")
            title = meta.get("title") if isinstance(meta, dict) else None
            title = title if isinstance(title, str) else ""  # fin.jsonl has none
            _add_document(passages, f"{path.stem}-{book}", title, row.context, chunking, skips)
    return passages


def ultradomain_questions(
    path: Path, passages: Sequence[Passage], skips: Skips, missing_gold: MissingGold
) -> list[Question]:
    """Return questions, their book as `extra["document"]`; DataError: a broken row."""
    questions, seen = [], dict[str, object]()
    for line, row, book in _domain_rows(path):
        if row_id := new_id(seen, [row.id or f"{path.stem}-q{line}"], (row.input, book), skips):
            extra = row.extra | {"document": f"{path.stem}-{book}"}
            questions.append(Question(row_id, row.input, _distinct(row.answers), row.label or path.stem, extra=extra))
    skips.notes.append("UltraDomain names no gold passages: retrieval cannot be scored on it, answers can")
    return questions


def _domain_rows(path: Path) -> Iterator[tuple[int, _DomainRow, int]]:
    """Yield line, row and the number of the row's book, from 1."""
    books: dict[str, int] = {}
    for line, raw in read_jsonl(path):
        raw = {("id" if key == "_id" else key): value for key, value in raw.items()}
        row = parse_row(_DomainRow, path, raw, line=line)
        yield line, row, books.setdefault(row.context, len(books) + 1)


# ------------------------------------------------------------------------------------------- documents, ids, evidence
def _add_document(passages: list[Passage], name: str, title: str, text: str, chunking: Chunking, skips: Skips) -> None:
    parts = cut(name, title, text, chunking)
    if not parts:
        skips.add("empty document", name)
    passages += parts


# A statement about a text rarely repeats it. One that shares 85% of its words with a passage of its own document was
# taken from there; below that, statements about a novel start to match passages that merely name the same people.
SHARED_WORDS = 0.85


@dataclass
class _Words:
    """The words of a document; words are compared without case, accents of form and punctuation."""

    ids: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # where each passage starts in `text`
    text: str = " "  # words with a blank around each
    postings: dict[str, np.ndarray] = field(default_factory=dict)  # word -> passages with it, ascending

    def add(self, passage: Passage) -> None:
        self.ids.append(passage.id)
        self.starts.append(len(self.text) - 1)
        self.text += "".join(f"{word} " for word in _words(passage.text))

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
            rows: defaultdict[str, list[int]] = defaultdict(list)
            for i, (start, stop) in enumerate(zip(self.starts, [*self.starts[1:], len(self.text)], strict=True)):
                for word in dict.fromkeys(self.text[start:stop].split()):
                    rows[word].append(i)
            self.postings = {word: np.array(numbers) for word, numbers in rows.items()}
        counts = np.zeros(len(self.ids), dtype=np.int64)
        for word in wanted:
            if word in self.postings:
                counts[self.postings[word]] += 1
        best = int(np.argmax(counts))
        return (self.ids[best],) if counts[best] >= SHARED_WORDS * len(wanted) else ()


class GoldPlacer:
    """Finds the passages that evidence stands in, and counts what it does not find in `skips`.

    `missing_gold`: `error` stops at evidence from a document that the corpus lacks, and keeps a question none of whose
    statements is found; `drop` leaves both kinds of questions out.
    """

    def __init__(self, path: Path, passages: Iterable[Passage], missing_gold: MissingGold, skips: Skips) -> None:
        self._path, self._missing_gold, self._skips = path, missing_gold, skips
        self._documents: defaultdict[str, _Words] = defaultdict(_Words)
        self._counts: Counter[str] = Counter()
        for passage in passages:
            self._documents[document_of(passage.id)].add(passage)

    def place(self, question: str, statements: Sequence[tuple[str | None, str, str]]) -> tuple[str, ...] | None:
        """Return gold passages in the order of statements; None leaves the question out; DataError: see the class.

        A statement is (document, or None if the corpus lacks it; what the release calls it; words of the evidence).
        """
        gold: dict[str, None] = {}
        for document, called, statement in statements:
            if document not in self._documents:
                if self._missing_gold != "drop":
                    fix = "Use the corpus of the same release, or set missing_gold=drop to leave such questions out"
                    problem = f"{question}: its evidence is from {called!r}, not in the corpus. {fix}"
                    raise DataError(self._path, problem)
                self._skips.add("evidence from a document that is not in the corpus", question)
                return None
            words = _words(statement)
            place = self._documents[str(document)]
            quoted = place.spans(f" {' '.join(words)} ") if words else ()
            ids = quoted or (place.nearest(list(dict.fromkeys(words))) if words else ())
            self._counts["quoted" if quoted else "reworded" if ids else "lost"] += 1
            gold |= dict.fromkeys(ids)
        if statements and not gold:
            if self._missing_gold == "drop":
                self._skips.add("no passage has the words of its evidence", question)
                return None
            self._counts["without"] += 1
        return tuple(gold)

    def report(self) -> None:
        """Note how the evidence was found."""
        counts, notes = self._counts, self._skips.notes
        total = counts["quoted"] + counts["reworded"] + counts["lost"]
        if reworded := counts["reworded"]:
            rule = f"the passage with at least {SHARED_WORDS:.0%} of their words counts as gold"
            notes.append(f"{reworded} of {total} statements of evidence stand nowhere as they are quoted; {rule}")
        if lost := counts["lost"]:
            notes.append(f"{lost} of {total} statements of evidence are in no passage")
        if without := counts["without"]:
            fix = "set data.missing_gold=drop to leave them out, or metrics.skip_no_gold=true"
            notes.append(f"{without} questions have no gold passage for that reason, and score 0; {fix}")


def _words(text: str) -> list[str]:
    return find_words(unicodedata.normalize("NFKC", text).casefold())
