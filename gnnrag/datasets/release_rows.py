"""Reading the fields of a release's rows: strict, and naming the row."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnrag.datasets.skips import Skips
from gnnrag.errors import DataError


def text_of(
    path: Path, where: str, row: Mapping[str, Any], key: str, line: int | None = None, filled: bool = False
) -> str:
    """Return a field that must be a string, and if `filled` not a blank one. Raises DataError naming the row."""
    value = row.get(key)
    if isinstance(value, str) and (value.strip() or not filled):
        return value
    if key not in row:
        raise DataError(path, f"{where} has no {key!r}; its keys are {', '.join(map(str, row)) or 'none'}", line)
    problem = "is empty" if isinstance(value, str) else f"is {reprlib.repr(value)}; it must be a string"
    raise DataError(path, f"{where}: {key!r} {problem}", line)


def texts_of(path: Path, where: str, row: Mapping[str, Any], key: str, line: int | None = None) -> tuple[str, ...]:
    """Return a field that is a list of strings, or one string; blank ones are left out, as is what comes twice."""
    value = row.get(key, [])
    values = value if isinstance(value, list) else [value]
    wrong = next((v for v in values if not isinstance(v, str)), None)
    if wrong is not None or None in values:
        raise DataError(path, f"{where}: {key!r} holds {reprlib.repr(wrong)}; each must be a string", line)
    return tuple(dict.fromkeys(v for v in values if v.strip()))


class Ids:
    """The ids of a file's questions: a row that comes again is left out, an id for two questions is an error.

    Args:
        path: the file.
        skips: told of rows that come again.
    """

    def __init__(self, path: Path, skips: Skips) -> None:
        self._path, self._skips = path, skips
        self._seen: dict[str, tuple[object, str]] = {}

    def is_new(self, row_id: str, content: object, where: str, line: int | None = None) -> bool:
        """Tell whether a row is to be read; `content` is what makes it the same as an earlier one.

        Raises:
            DataError: another question has the id.
        """
        if row_id not in self._seen:
            self._seen[row_id] = (content, where)
            return True
        earlier, first = self._seen[row_id]
        if earlier == content:
            self._skips.add("repeated question", row_id)
            return False
        raise DataError(self._path, f"{where} has id {row_id!r}, which {first} has already", line)
