"""Errors that a user can act on. Each message names the value received, what is allowed, and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class GnnragError(Exception):
    """Base of every error that gnnrag raises on purpose; scripts print it without a traceback."""


class ConfigError(GnnragError):
    """A setting is unknown, has the wrong type, or contradicts another."""


class NotGivenError(ConfigError):
    """Something is needed that only the caller can give, since no index says it: a model's server, a file, a folder."""


class DataError(GnnragError):
    """A missing or broken data file; `problem` says what is wrong and how to mend it, `line` is 1-based."""

    def __init__(self, path: str | Path, problem: str, line: int | None = None) -> None:
        self.path, self.problem, self.line = Path(path), problem, line
        super().__init__(f"{path}{f', line {line}' if line else ''}: {problem}")

    def __reduce__(self) -> tuple[Any, ...]:
        return DataError, (self.path, self.problem, self.line), self.__dict__  # for pickle, which knows one argument


class ArtefactError(GnnragError):
    """An index artefact or a checkpoint is missing, damaged, or made with other settings."""


class LLMError(GnnragError):
    """A language-model call failed after its retries; `kind`: what a run counts it as besides, if known."""

    kind = ""


class StoppedError(GnnragError):
    """The run was asked to stop; the same command continues it."""


class BudgetError(GnnragError):
    """A question used up its budget of rounds, calls, tokens or seconds."""


def described(problem: BaseException) -> str:
    """Return what goes into the row of something that failed: our own messages as they are, others with their type."""
    try:
        return str(problem) if isinstance(problem, GnnragError) else f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001 - a part's own error, whose `__str__` raises
        return f"{type(problem).__name__} (its message cannot be read)"


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a `did you mean` sentence listing what is allowed; the closest name comes first."""
    names = sorted(allowed)
    if not names:
        return "There are none."
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Allowed: {', '.join(names)}."
