"""TREC run and qrels files, which trec_eval, ir-measures, Pyserini and ranx read."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

from gnnrag.common.files import write_atomic
from gnnrag.datasets.jsonl import read_lines
from gnnrag.errors import ConfigError, DataError
from gnnrag.types import Prediction, Question

_UNFIT = re.compile(r"[\s%]")  # what a field may not hold, and the sign that stands for it


def write_run(path: Path, predictions: Iterable[Prediction], tag: str = "gnnrag") -> None:
    """Write a run: `query Q0 passage rank score tag`, best first.

    Scores are counted down to 1, so that tools which sort by score, and break ties their own way, see our order. Of a
    repeated id the first stands; a question that failed has no line, which tools count as 0, as we do. White space and
    `%` within ids are percent-encoded.
    """
    if not tag or _UNFIT.search(tag):
        raise ConfigError(f"tag={tag!r}: give one word, without %")
    lines = []
    for prediction in predictions:
        ids = [] if prediction.error is not None else list(dict.fromkeys(prediction.ranking))
        query = _field(prediction.question_id)
        for rank, id_ in enumerate(ids, start=1):
            lines.append(f"{query} Q0 {_field(id_)} {rank} {len(ids) + 1 - rank} {tag}\n")
    write_atomic(path, "".join(lines))


def write_qrels(path: Path, questions: Iterable[Question]) -> None:
    """Write relevance judgements: `query 0 passage 1` for each gold passage; a question without gold has no line."""
    rows = (f"{_field(q.id)} 0 {_field(gold)} 1\n" for q in questions for gold in dict.fromkeys(q.gold))
    write_atomic(path, "".join(rows))


def read_run(path: Path) -> dict[str, list[str]]:
    """Return the ids of each query of a run file, best score first, ties by rank. DataError: a line of another form."""
    found: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for number, fields in _rows(path, 6):
        query, _, id_, rank, score, _ = fields
        try:
            value, place = float(score), int(rank)
        except ValueError as error:
            raise DataError(path, f"rank {rank!r} and score {score!r} must be numbers", number) from error
        if not math.isfinite(value):
            raise DataError(path, f"score {score!r} must be finite", number)
        found[unquote(query)].append((-value, place, unquote(id_)))
    return {query: [id_ for _, _, id_ in sorted(rows)] for query, rows in found.items()}


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Return the grade of each judged passage, by query. DataError: a line of another form."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for number, (query, _, id_, grade) in _rows(path, 4):
        try:
            found[unquote(query)][unquote(id_)] = int(grade)
        except ValueError as error:
            raise DataError(path, f"grade {grade!r} must be a whole number", number) from error
    return dict(found)


def _rows(path: Path, count: int) -> Iterable[tuple[int, list[str]]]:
    for number, line in read_lines(path):
        fields = line.split()
        if len(fields) != count:
            raise DataError(path, f"has {len(fields)} fields instead of {count}", number)
        yield number, fields


def _field(text: str) -> str:
    return _UNFIT.sub(lambda found: quote(found.group(), safe=""), text)
