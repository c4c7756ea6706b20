"""Read JSON and JSON lines row by row, with the place of each fault, and count the rows left out.

Lines have a limit. Half surrogate pairs become U+FFFD (`gnnrag.common.untrusted`); ids made equal are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO

from gnnrag.common.files import open_regular
from gnnrag.common.untrusted import parse_json
from gnnrag.errors import ArtefactError, DataError

MAX_LINE_BYTES = 10_000_000
MAX_FILE_BYTES = 2_000_000_000  # of a file that is read whole
_READ_BLOCK = 1 << 20
_UTF8_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = ((b"\xff\xfe\x00\x00", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))


def read_jsonl(path: Path, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (1-based line, object) of lines not blank; DataError: unreadable file, bad or too long line, no object."""
    with open_plain(path) as file:
        for number, raw in _lines(path, file, max_line_bytes):
            if raw.strip():
                yield number, _parse_line(path, number, raw)


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file to be read; DataError: it is none (a pipe would wait for ever), or cannot be opened or read."""
    try:
        file = open_regular(path)
    except ArtefactError as error:
        is_file = path.is_file()  # then it is a hole
        other = "is no plain file, but a folder, a pipe, a socket or a device; give a file"
        raise DataError(path, str(error).removeprefix(f"{path} ") if is_file else other) from error
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error
    with file:
        yield file


def read_whole(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a file; DataError: it cannot be read, or is larger than `limit` bytes."""
    with open_plain(path) as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise DataError(path, f"has {path.stat().st_size:,} bytes, the limit is {limit:,}; split it")
    return raw


def read_json(path: Path) -> Any:
    """Return the content of one JSON file; DataError: it cannot be opened, is not UTF-8, or not JSON."""
    raw = read_whole(path)
    return _parse(path, decode_utf8(path, raw), None, complete=False)


def read_objects(path: Path, what: str) -> list[dict[str, Any]]:
    """Return a file's JSON list of objects, called `what` in messages; DataError: unreadable, or something else."""
    data = read_json(path)
    if not isinstance(data, list):
        raise DataError(path, f"is a JSON {type(data).__name__}; expected a list of {what}")
    kinds = Counter(type(item).__name__ for item in data if not isinstance(item, dict))
    if kinds:
        raise DataError(path, f"holds {', '.join(kinds)} where {what} should be objects, like {{...}}")
    return data


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (1-based line, text without its line end) for each line not blank; DataError: unreadable, not UTF-8."""
    raw = read_whole(path)
    try:
        lines = decode_utf8(path, raw).split("\n")
    except DataError:  # again line by line, so that the message names the line
        lines = [decode_utf8(path, line, number) for number, line in enumerate(raw.split(b"\n"), start=1)]
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def decode_utf8(path: Path, raw: bytes, line: int | None = None) -> str:
    """Return `raw` as text without a byte-order mark; DataError: which encoding it looks like and how to convert."""
    for bom, encoding in _OTHER_BOMS:
        if raw.startswith(bom):
            raise DataError(path, f"is {encoding}, not UTF-8; convert it: {_iconv(encoding, path)}", line)
    try:
        text = raw.removeprefix(_UTF8_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            problem = "is cut off within a character: the file is incomplete; copy or download it again"
            raise DataError(path, problem, line) from error
        where = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
        problem = f"is not UTF-8 ({where}); if it is Latin-1, convert it: {_iconv('LATIN1', path)}"
        raise DataError(path, problem, line) from error
    if text.startswith("{\x00") or text.startswith("\x00{"):
        raise DataError(path, f"looks like UTF-16, not UTF-8; convert it: {_iconv('UTF-16LE', path)}", line)
    return text


def _lines(path: Path, file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes]]:
    number = 0
    while raw := file.readline(limit + 1):
        number += 1
        if len(raw) > limit and not (len(raw) == limit + 1 and raw.endswith(b"\n")):
            size = len(raw) + _rest_of_line(file)
            problem = f"is {size:,} bytes long, the limit is {limit:,}; write one object per line, or split the text"
            raise DataError(path, problem, number)
        yield number, raw


def _rest_of_line(file: BinaryIO) -> int:
    """Return how many bytes follow up to the end of the line, without keeping them."""
    size = 0
    while block := file.read(_READ_BLOCK):
        end = block.find(b"\n")
        if end >= 0:
            return size + end
        size += len(block)
    return size


def _parse_line(path: Path, number: int, raw: bytes) -> dict[str, Any]:
    text = decode_utf8(path, raw, number)
    if number == 1 and text.strip() in ("[", "{"):
        problem = "is the start of JSON spread over several lines; this format has one complete object per line"
        raise DataError(path, problem, number)
    row = _parse(path, text, number, complete=raw.endswith(b"\n"))
    if not isinstance(row, dict):
        raise DataError(path, f"is a JSON {_kind(row)}; each line must be one object, like {{...}}", number)
    return row


def _parse(path: Path, text: str, line: int | None, complete: bool) -> Any:
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        ends_early = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        if ends_early and not complete:
            problem = f"is cut off ({error.msg}): the file is incomplete; copy or download it again"
        else:
            problem = f"is not JSON: {error.msg} at column {error.colno}; it starts with {text.strip()[:40]!r}"
        raise DataError(path, problem, line or error.lineno) from error
    except ValueError as error:
        raise DataError(path, f"is not usable JSON: {error}", line) from error


def _kind(value: Any) -> str:
    return {list: "list", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")


def _iconv(encoding: str, path: Path) -> str:
    names = (quote(name) for name in (path.name, f"{path.stem}.utf8{path.suffix}"))  # it is made to be pasted
    return f"iconv -f {encoding} -t UTF-8 {' > '.join(names)}"


@dataclass
class Skips:
    """Collected while loading; `notes` are remarks on what was kept."""

    by_reason: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, reason: str, name: str) -> None:
        """Record that `name` (file, passage, question) was left out, and why; bytes that are no UTF-8 are spelt out."""
        self.by_reason.setdefault(reason, []).append(name.encode("utf-8", "backslashreplace").decode())

    def frozen(self) -> Mapping[str, tuple[str, ...]]:
        """Return reason -> names."""
        return {reason: tuple(names) for reason, names in self.by_reason.items()}

    def summary(self, shown: int = 5) -> str:
        """Return one line for an error message: counts by reason with the first names."""
        parts = []
        for reason, names in self.by_reason.items():
            more = f" and {len(names) - shown} more" if len(names) > shown else ""
            parts.append(f"{len(names)} x {reason}: {', '.join(names[:shown])}{more}")
        return "; ".join(parts)
