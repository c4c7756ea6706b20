"""What every training leaves, checked alike whatever it trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    """Return what a JSON file holds."""
    return json.loads(path.read_text("utf-8"))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def reported(run: Path, name: str, note: str, id_: str = "id") -> list[dict[str, Any]]:
    """Return the report of a run, of a set's unseen questions alone; its card has the note."""
    parts, rows = read(run / "folds.json")[name], rows_of(run / "report.jsonl")
    assert sorted(row[id_] for row in rows) == sorted(parts["report"]) and rows
    assert not set(parts["report"]) & {*parts["train"], *parts["validation"]}
    assert note in (run / "best" / "README.md").read_text("utf-8")
    return rows


def batches(items: list[Any], size: int) -> list[list[Any]]:
    """Return the items of each step."""
    return [items[start : start + size] for start in range(0, len(items), size)]
