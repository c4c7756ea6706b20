"""TREC run and qrels files, which trec_eval, ir-measures, Pyserini and ranx read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from gnnrag.io import write_atomic
from gnnrag.types import Prediction, Question


def write_run(path: Path, predictions: Iterable[Prediction], tag: str = "gnnrag") -> None:
    """Write a run: `query Q0 passage rank score tag`, best first; white space and `%` in names are percent-encoded.

    Scores are counted down to 1, so that tools which sort by score, and break ties their own way, see our order. Of a
    repeated id the first stands; a question that failed has no line, which tools count as 0, as we do.
    """
    lines = []
    for prediction in predictions:
        ids = [] if prediction.error is not None else list(dict.fromkeys(prediction.ranking))
        for rank, id_ in enumerate(ids, start=1):
            names = f"{_field(prediction.question_id)} Q0 {_field(id_)}"
            lines.append(f"{names} {rank} {len(ids) + 1 - rank} {_field(tag)}\n")
    write_atomic(path, "".join(lines))


def write_qrels(path: Path, questions: Iterable[Question]) -> None:
    """Write relevance judgements: `query 0 passage 1` for each gold passage; a question without gold has no line."""
    rows = (f"{_field(q.id)} 0 {_field(gold)} 1\n" for q in questions for gold in dict.fromkeys(q.gold))
    write_atomic(path, "".join(rows))


def _field(text: str) -> str:
    return re.sub(r"[\s%]", lambda sign: quote(sign.group(), safe=""), text)
