"""Read JSON and JSON Lines; errors name the file and the line. `Skips` counts the rows that a loader leaves out."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from gnnrag.errors import DataError

T = TypeVar("T")

MAX_FILE_BYTES = 2_000_000_000  # of a file that is read whole


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Filled = Annotated[str, AfterValidator(_not_blank)]
Id = Annotated[Filled, BeforeValidator(_number_as_text)]


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (1-based line, object) of lines that are not blank. DataError: unreadable, or a line that is no object."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    row = _parse(path, decode_utf8(path, raw, number), number)
                    if not isinstance(row, dict):
                        raise DataError(
                            path, f"is a JSON {type(row).__name__}; a line must be an object {{...}}", number
                        )
                    yield number, row
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def read_jsonl_by_id(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield (line, id, object) as `read_jsonl`; the id is the line where a row has none. DataError: a repeated id."""
    lines: dict[str, int] = {}
    for line, row in read_jsonl(path):
        key = str(row.get("id", line))
        if key in lines:
            raise DataError(path, f"id {key!r} is already used on line {lines[key]}; ids must be unique", line)
        lines[key] = line
        yield line, key, row


def read_json(path: Path) -> Any:
    """Return the content of one JSON file; DataError: it cannot be read, is not UTF-8, or not JSON."""
    return _parse(path, decode_utf8(path, read_whole(path)))


def read_objects(path: Path, what: str) -> list[dict[str, Any]]:
    """Return a file's JSON list of objects, called `what` in messages; DataError: unreadable, or something else."""
    data = read_json(path)
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise DataError(path, f"must hold a JSON list of {what}, each an object {{...}}")
    return data


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (1-based line, text without its line end) for lines that are not blank. DataError: unreadable."""
    for number, line in enumerate(decode_utf8(path, read_whole(path)).split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def read_whole(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a file; DataError: it cannot be read, or is larger than `limit` bytes."""
    try:
        size = path.stat().st_size
        if size > limit:
            raise DataError(path, f"has {size:,} bytes, the limit is {limit:,}; split it")
        return path.read_bytes()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def decode_utf8(path: Path, raw: bytes, line: int | None = None) -> str:
    """Return `raw` as text without a byte-order mark. Raises DataError with the command that converts the file."""
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        fix = f"iconv -f ENCODING -t UTF-8 '{path.name}'"
        problem = (
            f"is not UTF-8 (position {error.start}); it is cut off, or has another encoding: convert it with {fix}"
        )
        raise DataError(path, problem, line) from error


def parse_row(model: type[T], path: Path, row: Mapping[str, Any], where: str = "", line: int | None = None) -> T:
    """Return a row as a pydantic model or dataclass. Raises DataError naming the field, its value, and `where`."""
    try:
        return _adapter(model).validate_python(row)  # type: ignore[arg-type]
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        message = f"{name!r}: {problem['msg'].removeprefix('Value error, ')}"
        message += f" (keys: {', '.join(row)})" if problem["type"] == "missing" else f", not {problem['input']!r:.80}"
        raise DataError(path, f"{where}: {message}" if where else message, line) from error


@functools.cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _parse(path: Path, text: str, line: int | None = None) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} at column {error.colno}; is the file complete?"
        raise DataError(path, problem, line or error.lineno) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise DataError(path, f"is not usable JSON: {error}", line) from error
    if "\\ud" in text.lower():  # half a surrogate pair can be neither written nor sent
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


@dataclass
class Skips:
    """What a loader left out, names by reason; `notes` are remarks on what was read."""

    by_reason: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, reason: str, name: str) -> None:
        """Record that `name` (a file, passage or question) was left out, and why."""
        self.by_reason.setdefault(reason, []).append(name.encode("utf-8", "backslashreplace").decode())

    def frozen(self) -> dict[str, tuple[str, ...]]:
        """Return reason -> names."""
        return {reason: tuple(names) for reason, names in self.by_reason.items()}

    def summary(self, shown: int = 5) -> str:
        """Return one line for an error message: counts by reason with the first names."""
        parts = (f"{len(names)} x {reason}: {', '.join(names[:shown])}" for reason, names in self.by_reason.items())
        return "; ".join(parts)
