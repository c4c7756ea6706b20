"""Reads what Weights & Biases wrote offline: a LevelDB log of protobuf records, in files `run-ID.wandb`."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER, BLOCK = 7, 32768  # bytes
FULL, FIRST, LAST = 1, 2, 4  # parts of a record; 3 is one in the middle


def run_files(folder: Path) -> list[Path]:
    """Return the files of a run directory's sessions, in their order."""
    return sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a file, up to where a killed writer left it."""
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    assert struct.unpack("<4sH", data[:6]) == (b":W&B", 0xBEE1)
    at, part = HEADER, b""
    while at + HEADER <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        checksum, size, kind = struct.unpack("<IHB", data[at : at + HEADER])
        body = data[at + HEADER : at + HEADER + size]
        if kind == 0 or len(body) < size:
            return
        assert zlib.crc32(body, zlib.crc32(bytes([kind]))) == checksum
        at += HEADER + size
        part = body if kind in (FULL, FIRST) else part + body
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(part)
            yield record


def _of(path: Path, kind: str) -> list[Any]:
    return [getattr(record, kind) for record in records(path) if record.WhichOneof("record_type") == kind]


def _values(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        *outer, name = item.nested_key or [item.key]
        place = found
        for key in outer:
            place = place.setdefault(key, {})
        place[name] = json.loads(item.value_json)
    return found


def history(path: Path) -> list[dict[str, Any]]:
    """Return the logged rows, `_step` among them."""
    return [_values(row.item) for row in _of(path, "history")]


def summary(path: Path) -> dict[str, Any]:
    """Return the final values that were set."""
    found: dict[str, Any] = {}
    for row in _of(path, "summary"):
        found |= _values(row.update)
    return found


def settings(path: Path) -> dict[str, Any]:
    """Return the config of the run."""
    found: dict[str, Any] = {}
    for run in _of(path, "run"):
        found |= _values(run.config.update)
    return found


def run_record(path: Path) -> Any:
    """Return what the run is shown as: `run_id`, `project`, `run_group`, `job_type`, `display_name`, `tags`."""
    return _of(path, "run")[0]


def exit_code(path: Path) -> int:
    """Return the code it ended with. Raises IndexError where it did not end."""
    return int(_of(path, "exit")[0].exit_code)


def artifacts(path: Path) -> list[Any]:
    """Return records with `name`, `type`, `aliases`, `use_after_commit` (an input), `metadata`, `manifest`."""
    return _of(path, "artifact")


def table(path: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the table that a row's or the summary's entry points to: `columns` and `data`."""
    found: dict[str, Any] = json.loads((path.parent / "files" / entry["path"]).read_text("utf-8"))
    return found
