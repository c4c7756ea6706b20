"""WebQSP and CWQ as RoG (Luo et al., ICLR 2024) releases them: each question has a graph of its own, its scope.

Rows are of `id, question, answer, q_entity, a_entity, graph` in `<split>-*.parquet` (at Hugging Face below `data/`) or
`<split>.jsonl`; `graph` is a list of [head, relation, tail].

The corpus is the union of the graphs of all questions that are asked. A passage holds up to `MAX_FACTS` facts of one
head, each on a line `head → relation → tail`, for `index.extract.method=facts`. Its metadata `graph_id` is the id of
its question, whose filter `Question.scope` keeps the search in that graph; `Question.seeds` are its topic entities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.errors import DataError
from gnnrag.types import Passage, Question

Triple = tuple[str, str, str]  # head, relation, tail
GRAPH, ARROW, BACK = "graph_id", " → ", " ← "
MAX_FACTS = 25
SPLITS = ("train", "validation", "dev", "test")
_FIELDS = {"id", "question", "answer", "q_entity", "a_entity", "graph"}


def is_release(folder: Path) -> bool:
    """Tell whether a folder holds such a release: a file of a split, whose rows have the fields."""
    files = (file for split in SPLITS for file in _files(folder, split))
    try:
        _, row = next(_rows(next(files)))
    except (StopIteration, DataError, ValueError, OSError):  # no such file, or one of another kind
        return False
    return row.keys() >= _FIELDS


def load(folder: Path, split: str, limit: int | None = None) -> list[tuple[Question, list[Triple]]]:
    """Return the questions of a split, or the first `limit`, each with its graph.

    DataError: no such split, or a broken row.
    """
    files = _files(folder, split) or (_files(folder, "validation") if split == "dev" else [])
    if not files:
        raise DataError(folder, f"split={split!r}: holds no {split}-*.parquet and no {split}.jsonl")
    return list(islice(_read(files), limit))


def _files(folder: Path, split: str) -> list[Path]:
    parquet = sorted(file for place in (folder, folder / "data") for file in place.glob(f"{split}[-.]*parquet"))
    return parquet or [path for path in (folder / f"{split}.jsonl",) if path.is_file()]


def _name(text: Any) -> str:
    """Return a name as a line of a passage can hold it."""
    return " ".join(str(text).replace("→", "->").split())


def _question(id_: Any, text: str, answers: Iterable[str], nodes: Iterable[str], seeds: Iterable[str]) -> Question:
    quoted = str(id_).replace("'", "''")
    asked, starts = list(dict.fromkeys(map(_name, nodes))), tuple(dict.fromkeys(map(_name, seeds)))
    distinct, scope = tuple(dict.fromkeys(answers)), f"{GRAPH} = '{quoted}'"
    return Question(str(id_), text, distinct, extra={"nodes": asked}, scope=scope, seeds=starts)


def _read(files: list[Path]) -> Iterator[tuple[Question, list[Triple]]]:
    for file in files:
        for number, row in _rows(file):
            try:
                answers = row["answer"]
                question = _question(row["id"], row["question"], answers, row["a_entity"] or answers, row["q_entity"])
                graph = [(_name(head), _name(relation), _name(tail)) for head, relation, tail in row["graph"]]
            except (KeyError, TypeError, ValueError) as error:
                wanted = "id, question, answer, q_entity, a_entity and graph, a list of [head, relation, tail]"
                raise DataError(file, f"is no row of RoG, which needs {wanted} ({error!r})", number) from error
            yield question, graph


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.suffix != ".parquet":
        return read_jsonl(path)
    from pyarrow import parquet  # of pylance; only this form needs it

    rows = (row for batch in parquet.ParquetFile(path).iter_batches(8) for row in batch.to_pylist())
    return enumerate(rows, start=1)


def passages_of(question: Question, graph: Iterable[Triple]) -> Iterator[Passage]:
    """Yield the graph of a question as passages, heads by first appearance; their ids are `question/head#part`."""
    of_head: dict[str, list[str]] = {}
    for triple in dict.fromkeys(graph):
        if all(triple):
            of_head.setdefault(triple[0], []).append(ARROW.join(triple))
    for head, facts in of_head.items():
        for part, start in enumerate(range(0, len(facts), MAX_FACTS), start=1):
            text = "\n".join(facts[start : start + MAX_FACTS])
            yield Passage(f"{question.id}/{head}#{part}", head, text, metadata={GRAPH: question.id})


def facts_in(text: str) -> list[Triple]:
    """Return the triples in a passage's text; other lines are skipped."""
    rows = [tuple(line.split(ARROW)) for line in text.split("\n")]
    return [row for row in rows if len(row) == 3]  # type: ignore[misc]


def nodes_of(passage: Passage) -> tuple[str, ...]:
    """Return the entities that a passage names, its head first."""
    return tuple(dict.fromkeys(name for head, _, tail in facts_in(passage.text) for name in (head, tail)))
