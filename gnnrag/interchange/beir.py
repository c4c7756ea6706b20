"""BEIR folders: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from gnnrag.datasets.base import Dataset
from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.errors import DataError
from gnnrag.io import write_atomic, write_jsonl
from gnnrag.types import Passage, Question

_HEAD = "query-id\tcorpus-id\tscore"


def read_beir(folder: Path, split: str = "test") -> Dataset:
    """Return a BEIR folder's corpus and the queries that its split judges; gold is what has a grade above 0.

    Answers are those of a query's `metadata.answers`, which BEIR itself does not have. Raises DataError where a field
    is missing, or the judgements name a passage or query that is not there.
    """
    qrels = folder / "qrels" / f"{split}.tsv"
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    if not qrels.is_file():
        raise DataError(qrels, "is missing; give a split that the folder has")
    passages = {}
    for line, row in read_jsonl(corpus):
        try:
            passages[row["_id"]] = Passage(row["_id"], row.get("title", ""), row["text"])
        except KeyError as error:
            raise DataError(corpus, f"{error} is missing", line) from error
    gold: dict[str, list[str]] = defaultdict(list)
    with qrels.open(encoding="utf-8", newline="") as file:
        for line, fields in enumerate(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), start=1):
            if not fields or fields == _HEAD.split("\t"):
                continue
            if len(fields) != 3 or not fields[2].lstrip("-").isdigit():
                raise DataError(qrels, "must be query-id, corpus-id and a whole score, separated by tabs", line)
            if int(fields[2]) > 0 and fields[1] not in passages:
                raise DataError(qrels, f"passage {fields[1]!r} is not in the corpus", line)
            if int(fields[2]) > 0:
                gold[fields[0]].append(fields[1])
    questions = []
    for line, row in read_jsonl(queries):
        if row.get("_id") in gold:
            answers = (row.get("metadata") or {}).get("answers", [])
            if not isinstance(answers, list) or "text" not in row:
                raise DataError(queries, "must have text, and metadata.answers must be a list of texts", line)
            questions.append(Question(row["_id"], row["text"], tuple(answers), gold=tuple(gold[row["_id"]])))
    if missing := gold.keys() - {question.id for question in questions}:
        raise DataError(queries, f"has no query {sorted(missing)[0]!r}, which qrels/{split}.tsv judges")
    return Dataset(folder.resolve().name, tuple(passages.values()), tuple(questions))


def write_beir(data: Dataset, folder: Path, split: str = "test") -> None:
    """Write a dataset as a BEIR folder; a question without gold has no line in the judgements."""
    write_jsonl(folder / "corpus.jsonl", ({"_id": p.id, "title": p.title, "text": p.text} for p in data.passages))
    queries = ({"_id": q.id, "text": q.text, "metadata": {"answers": list(q.answers)}} for q in data.questions)
    write_jsonl(folder / "queries.jsonl", queries)
    rows = [f"{q.id}\t{gold}\t1" for q in data.questions for gold in q.gold]
    write_atomic(folder / "qrels" / f"{split}.tsv", "\n".join([_HEAD, *rows]) + "\n")


def write_canonical(data: Dataset, folder: Path, split: str = "test") -> None:
    """Write a dataset in the layout that all commands read: `corpus.jsonl`, `questions.SPLIT.jsonl`."""
    write_jsonl(folder / "corpus.jsonl", ({"id": p.id, "title": p.title, "text": p.text} for p in data.passages))
    rows = ({"id": q.id, "question": q.text, "answers": q.answers, "gold": q.gold} for q in data.questions)
    write_jsonl(folder / f"questions.{split}.jsonl", rows)
