"""Records that others may have written: what interpreting one stumbles over is one error that names the file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from gnnrag.common.files import open_regular
from gnnrag.common.untrusted import parse_yaml
from gnnrag.config import DataConfig, read_plain
from gnnrag.errors import ArtefactError, ConfigError

AGAIN = "run its command again"
_SHOWN = 200  # characters of what went wrong
MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


@contextmanager
def interpreting(path: Path, fix: str = AGAIN) -> Iterator[None]:
    """Raise ArtefactError, with advice `fix`, where a record interpreted meanwhile lacks a field or has an odd one."""
    try:
        yield
    except MISSHAPEN as error:
        raise ArtefactError(f"{path} is damaged or forged ({in_short(error)}); {fix}") from error


def in_short(error: Exception) -> str:
    """Return what interpreting something stumbled over, in a line of bounded length."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]


def number(value: Any) -> float:
    """Return a number of a record. Raises ValueError for anything else, and for one that is not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is no number")
    return value


def text(value: Any) -> str:
    """Return a text of a record. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def read_config(run: Path) -> dict[str, Any]:
    """Return the unresolved settings in a run's `config.yaml`, empty without one; ArtefactError: damaged or forged."""
    path = run / "config.yaml"
    with interpreting(path):
        try:
            with open_regular(path) as handle:
                found = parse_yaml(handle.read())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        if not isinstance(found, dict):
            raise ValueError("no mapping of settings")
        return found


def recorded_data(run: Path, fix: str) -> DataConfig:
    """Return where a run found its data and how it read them; nothing is evaluated or compared with what lies there.

    Raises ArtefactError, with advice `fix`, where the record does not say, or is of another form.
    """
    path = run / "config.yaml"
    with interpreting(path, fix):
        section = read_config(run)["data"]
        known = {field.name: section[field.name] for field in fields(DataConfig) if field.name in section}
        if any("\0" in str(value) for value in known.values()):
            raise ValueError("a path with a null character")
        try:
            return read_plain(DataConfig, known)
        except ConfigError as error:
            raise ValueError(str(error)) from error
