"""Metadata of documents: the names of their own fields, values of cells, dates, one type for each field of a corpus."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from email.utils import parsedate_to_datetime
from typing import Any

from gnnrag.types import Passage, Scalar

OWN = "own_"  # begins the name of a document's field that would hide one of these
RESERVED = frozenset({"id", "title", "text", "place", "source", "folder", "date", "page"})
MOST_FIELDS, LONGEST = 50, 1000  # fields of a record, and characters of a value; more are left out
MOST_IN_ALL = 200  # fields of a corpus
_NO_VALUE = frozenset({"", "-", "n/a", "na", "nan", "none", "null"})
_WHOLE, _DECIMAL = re.compile(r"-?(0|[1-9]\d{0,14})"), re.compile(r"-?(0|[1-9]\d{0,14})\.\d{1,15}")
_DATE = re.compile(r"(?:D:)?(\d{4})-?(\d\d)-?(\d\d)(?!\d\d-)")


def own_fields(row: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the scalars of a record as metadata: names in lower case, with `_` for what is no letter or digit.

    A reserved name gets the prefix `own_`, except `date` where the value is a date. Of fields whose names become equal
    the first is kept.
    """
    fields: dict[str, Scalar] = {}
    for key, value in row.items():
        name = re.sub(r"\W+", "_", key.strip().lower()).strip("_")[:60]
        is_scalar = isinstance(value, bool | str | int) or (isinstance(value, float) and math.isfinite(value))
        if not name or not is_scalar or len(str(value)[: LONGEST + 1]) > LONGEST or len(fields) >= MOST_FIELDS:
            continue
        if name == "date" and isinstance(value, str) and (stated := iso_date(value)):
            fields.setdefault("date", stated)
            continue
        if isinstance(value, int) and abs(value) >= 2**63:
            value = float(value) if abs(value) < 2**1000 else str(value)
        fields.setdefault(f"{OWN}{name}" if name in RESERVED else name, value)
    return fields


def cell_value(text: str) -> Scalar | None:
    """Return the cell of a table as a number where it is written as one, None where it holds nothing, else as text."""
    text = text.strip()
    if text.lower() in _NO_VALUE:
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def iso_date(text: str) -> str:
    """Return the day that a text begins with (`2020-05-06T10:00Z`, `D:20200506`, of a mail) in ISO form; or nothing."""
    match = _DATE.match(text.strip())
    try:
        found = date(*map(int, match.groups())) if match else parsedate_to_datetime(text).date()
    except (TypeError, ValueError, IndexError, OverflowError):
        return ""
    return found.isoformat()


def with_one_type(passages: Iterable[Passage]) -> list[Passage]:
    """Return passages whose metadata fields have one type each: float where numbers are mixed, else str.

    Of more than `MOST_IN_ALL` fields the first are kept.
    """
    passages, types = list(passages), dict[str, type]()
    for passage in passages:
        for name, value in passage.metadata.items():
            known = types.setdefault(name, type(value))
            if known is not type(value):
                types[name] = float if {known, type(value)} == {int, float} else str
    types = dict(list(types.items())[:MOST_IN_ALL])

    def is_plain(passage: Passage) -> bool:
        return all(types.get(name) is type(value) for name, value in passage.metadata.items())

    return [
        p
        if is_plain(p)
        else replace(p, metadata={k: _as_type(types[k], value) for k, value in p.metadata.items() if k in types})
        for p in passages
    ]


def _as_type(kind: type, value: Scalar) -> Scalar:
    return str(value).lower() if kind is str and isinstance(value, bool) else kind(value)  # as SQL writes it
