"""The rows and facts of a run's files, checked as they are read: whoever made the run may be a stranger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from gnnrag.common.files import read_journal, read_json, read_lines
from gnnrag.common.records import interpreting, number, text
from gnnrag.types import Prediction

_OVER = "run.fresh=true starts the run over"
_FIELDS = {field.name for field in fields(Prediction)} - {"seconds"}
Row = Mapping[str, Any]


def prediction_rows(run: Path) -> list[Row]:
    """Return the rows of a run's `predictions.jsonl`. Raises ArtefactError where one is no prediction."""
    path = run / "predictions.jsonl"
    return checked(path, read_journal(path), check_prediction)


def log_rows(run: Path) -> list[Row]:
    """Return the rows of a run's `log.jsonl`. Raises ArtefactError where one is no entry."""
    path = run / "log.jsonl"
    return checked(path, read_journal(path), check_entry)


def trace_lines(run: Path) -> dict[str, bytes]:
    """Return the lines of a run's `traces.jsonl` by question, the newest where one was redone: they may be large."""
    path = run / "traces.jsonl"
    with interpreting(path, _OVER):
        return {text(row["question_id"]): line for row, line in read_lines(path)}


def read_meta(run: Path) -> dict[str, Any]:
    """Return what a run's `meta.json` says, empty where there is none. Raises ArtefactError where it is no object."""
    path = run / "meta.json"
    with interpreting(path, _OVER):
        try:
            return _mapping(read_json(path))
        except FileNotFoundError:
            return {}


def trained_counts(run: Path) -> dict[str, str]:
    """Return which trained parts of a run had been shaped by its own questions, and how many: `3 of 50`."""
    noted = read_meta(run).get("trained_on", {})
    with interpreting(run / "meta.json", _OVER):
        return {
            text(name): f"{int(said.split(' of ')[0])} of {int(said.split(' of ')[1])}" for name, said in noted.items()
        }


def compared(run: Path) -> tuple[Row, Row]:
    """Return the settings and the inputs that a run was made with. Raises ArtefactError where it does not say."""
    meta = read_meta(run)
    with interpreting(run / "meta.json", _OVER):
        return _mapping(meta["decisive"]), _mapping(meta["inputs"])


def checked(path: Path, rows: Iterable[Any], check: Callable[[Any], None]) -> list[Row]:
    """Return rows of a file, each checked. Raises ArtefactError naming the first that is not what it should be."""
    found = list(rows)
    with interpreting(path, _OVER):
        for row in found:
            check(row)
    return found


def predictions_of(rows: Iterable[Row], log: Iterable[Row]) -> Iterator[Prediction]:
    """Yield the newest prediction of each question, with its seconds from the log; both have been checked."""
    seconds = {row["id"]: row["seconds"] for row in log if row["event"] == "question"}
    for id_, row in {row["question_id"]: row for row in rows}.items():
        lists = {name: tuple(row.get(name, ())) for name in ("ranking", "context", "nodes")}
        yield Prediction(**{**row, **lists, "seconds": seconds.get(id_, 0.0)})


def check_prediction(row: Any) -> None:
    """Raise ValueError, KeyError or TypeError where a row is none of `predictions.jsonl`."""
    if odd := sorted(_mapping(row).keys() - _FIELDS):
        raise ValueError(f"unknown field {odd[0]!r:.40}")
    for name in ("question_id", "answer"):
        text(row[name])
    for name in ("ranking", "context", "nodes"):
        if not isinstance(ids := row[name] if name != "nodes" else row.get(name, []), list):
            raise ValueError(f"{name} is no list")
        for id_ in ids:
            text(id_)
    number(row["rounds"])
    if row["error"] is not None:
        text(row["error"])
    for name, count in _mapping(row["usage"]).items():
        _check_counts(name, count)


def _check_counts(name: str, count: Any) -> None:
    """Accept what `Session.usage` gives: numbers, and those of each role and flag."""
    if name not in ("roles", "flags"):
        number(count)
        return
    for inner in _mapping(count).values():
        for value in _mapping(inner).values() if name == "roles" else (inner,):
            number(value)


def check_entry(row: Any) -> None:
    """Raise ValueError, KeyError or TypeError where a row is none of `log.jsonl`."""
    event = text(_mapping(row)["event"])
    if event == "question":
        text(row["id"])
    if event in ("question", "predicted"):
        number(row["seconds"])


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} is no object")
    return value
