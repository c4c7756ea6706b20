"""From `method=bdtr,single seed=0,1` to the points of a grid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from gnnrag.errors import ConfigError

_OPEN, _CLOSE = "[{(", "]})"
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


@dataclass(frozen=True)
class Point:
    """One choice for every axis.

    Attributes:
        overrides: `key=value`, in the order given.
        label: the values that differ between points, `dense/seed=1`; empty where there is one point.
    """

    overrides: tuple[str, ...]
    label: str


def split_values(text: str) -> list[str]:
    """Split at commas that stand in no brackets and no quotes.

    Raises:
        ConfigError: a bracket or a quote is left open, or a value is empty.
    """
    parts, depth, quote, start = [], 0, "", 0
    for i, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
        if depth < 0:
            break
    if quote or depth:
        raise ConfigError(f"{text!r}: a quote or bracket has no counterpart; commas inside of them separate nothing")
    parts.append(text[start:])
    if len(parts) > 1 and not all(part.strip() for part in parts):
        raise ConfigError(f"{text!r}: there is nothing between two commas, or before or after one")
    return [part.strip() for part in parts] if len(parts) > 1 else parts


def expand(overrides: Sequence[str]) -> list[Point]:
    """Return the points of a grid, the last axis fastest.

    Args:
        overrides: `key=value` or `key=a,b,c`; a value with commas of its own stands in brackets or quotes.

    Raises:
        ConfigError: no `key=value`, a key that is given twice, or the same value twice on an axis.
    """
    axes: list[tuple[str, list[str]]] = []
    for item in overrides:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"{item!r} is neither a config file nor key=value")
        if key in [name for name, _ in axes]:
            raise ConfigError(f"{key} is given twice; several values of it are written {key}=a,b")
        values = split_values(value)
        if len(set(values)) < len(values):
            raise ConfigError(f"{item}: a value stands there twice")
        axes.append((key, values))
    points = []
    for choice in product(*(values for _, values in axes)):
        pairs = [(key, value, len(values) > 1) for (key, values), value in zip(axes, choice, strict=True)]
        label = "/".join(_shown(key, value) for key, value, varies in pairs if varies)
        points.append(Point(tuple(f"{key}={value}" for key, value, _ in pairs), label))
    return points


def _shown(key: str, value: str) -> str:
    """Return a value as it stands in a label: names of parts speak for themselves, numbers do not."""
    return value if key in ("method", "retriever", "roles") else f"{key.rpartition('.')[2]}={value}"


def seconds_of(text: str) -> float:
    """Return a duration such as `90m`, `2h`, `1h30m` or `45s` in seconds. Raises ConfigError for anything else."""
    found = re.findall(r"(\d+(?:\.\d+)?)([dhms])", text)
    if not found or "".join(number + unit for number, unit in found) != text:
        raise ConfigError(f"{text!r} is no duration; write 90m, 2h, 1h30m or 45s")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in found)
    if seconds <= 0:
        raise ConfigError(f"{text!r}: must be longer than nothing")
    return seconds
