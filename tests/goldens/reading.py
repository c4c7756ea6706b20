"""What the papers' released code computed on given inputs: the whole files where they are, else the part kept here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent / "data"
WHOLE = Path(__file__).resolve().parents[3] / "shared" / "goldens"


def place(name: str) -> Path:
    """Return the file of that name: beside the checkout where all cases are, else the subset of them (`cut.py`)."""
    return WHOLE / name if (WHOLE / name).is_file() else HERE / f"{name.removesuffix('.gz')}.gz"


@cache
def golden(name: str) -> Any:
    """Return a `.json` file."""
    path = place(name)
    return next(_lines(path)) if path.suffix == ".gz" else json.loads(path.read_text("utf-8"))


@cache
def lines(name: str) -> list[Any]:
    """Return the lines of a `.jsonl.gz` file; the first one is what the others share."""
    return list(_lines(place(name)))


def _lines(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as rows:
        yield from map(json.loads, rows)
