"""BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from gnnrag.common.files import write_atomic, write_jsonl
from gnnrag.datasets.base import Dataset
from gnnrag.datasets.jsonl import read_jsonl, read_lines
from gnnrag.errors import DataError
from gnnrag.types import Passage, Question

_HEAD = "query-id\tcorpus-id\tscore"


def read_beir(folder: Path, split: str = "test") -> Dataset:
    """Return a BEIR folder's corpus and the queries that its split judges; gold is what has a grade above 0.

    Answers are those of a query's `metadata.answers`, which BEIR itself does not have. Raises DataError where a file
    is missing or a line of another form.
    """
    passages = []
    for line, row in read_jsonl(folder / "corpus.jsonl"):
        passages.append(Passage(*(_text(folder / "corpus.jsonl", line, row, key) for key in ("_id", "title", "text"))))
    known = {passage.id for passage in passages}
    if len(known) < len(passages):
        raise DataError(folder / "corpus.jsonl", "two passages have the same _id")
    gold = _read_qrels(folder / "qrels" / f"{split}.tsv", known)
    path, questions = folder / "queries.jsonl", []
    for line, row in read_jsonl(path):
        id_, text = _text(path, line, row, "_id"), _text(path, line, row, "text")
        if id_ in gold:
            metadata = row.get("metadata") if isinstance(row.get("metadata"), dict) else {}
            answers = metadata.get("answers", []) if metadata else []
            if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
                raise DataError(path, "metadata.answers must be a list of texts", line)
            questions.append(Question(id_, text, tuple(answers), gold=tuple(gold[id_])))
    if missing := gold.keys() - {question.id for question in questions}:
        raise DataError(path, f"has no query {sorted(missing)[0]!r}, which qrels/{split}.tsv judges")
    return Dataset(folder.resolve().name, tuple(passages), tuple(questions))


def write_beir(data: Dataset, folder: Path, split: str = "test") -> None:
    """Write a dataset as a BEIR folder; a question without gold has no line in the judgements."""
    rows = ({"_id": p.id, "title": p.title, "text": p.text} for p in data.passages)
    write_jsonl(folder / "corpus.jsonl", rows)
    asked = ({"_id": q.id, "text": q.text, "metadata": {"answers": list(q.answers)}} for q in data.questions)
    write_jsonl(folder / "queries.jsonl", asked)
    for id_ in (id_ for q in data.questions for id_ in (q.id, *q.gold)):
        if any(sign in id_ for sign in "\t\n\r"):
            raise DataError(folder, f"the id {id_!r} has a tab or a line feed, which a .tsv file cannot hold")
    judged = [f"{q.id}\t{gold}\t1" for q in data.questions for gold in q.gold]
    write_atomic(folder / "qrels" / f"{split}.tsv", "\n".join([_HEAD, *judged]) + "\n")


def write_canonical(data: Dataset, folder: Path, split: str = "test") -> None:
    """Write a dataset in the layout that all commands read: `corpus.jsonl`, `questions.SPLIT.jsonl`."""
    write_jsonl(folder / "corpus.jsonl", ({"id": p.id, "title": p.title, "text": p.text} for p in data.passages))
    asked = ({"id": q.id, "question": q.text, "answers": q.answers, "gold": q.gold} for q in data.questions)
    write_jsonl(folder / f"questions.{split}.jsonl", asked)


def _read_qrels(path: Path, known: set[str]) -> dict[str, list[str]]:
    gold: dict[str, list[str]] = defaultdict(list)
    for number, line in read_lines(path):
        fields = line.split("\t")
        if number == 1 and line == _HEAD:
            continue
        if len(fields) != 3 or not fields[2].lstrip("-").isdigit():
            raise DataError(path, "must be query-id, corpus-id and a whole score, separated by tabs", number)
        if int(fields[2]) > 0:
            if fields[1] not in known:
                raise DataError(path, f"passage {fields[1]!r} is not in the corpus", number)
            gold[fields[0]].append(fields[1])
    return dict(gold)


def _text(path: Path, line: int, row: dict[str, object], key: str) -> str:
    value = row.get(key, "" if key == "title" else None)
    if not isinstance(value, str):
        raise DataError(path, f"{key!r} must be a text", line)
    return value
