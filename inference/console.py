"""What the scripts share: progress, tables, and errors without tracebacks."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from rich.console import Console
from tqdm import tqdm

from gnnrag.config import EvaluateConfig
from gnnrag.errors import ConfigError, GnnragError, nearest
from gnnrag.stopping import STOPPED, listening
from gnnrag.types import Prediction


def run_script(main: Callable[[Sequence[str]], int], arguments: Sequence[str], help_text: str | None) -> int:
    """Run a script's main; returns the exit code.

    A user's error is one line and exit code 2. An interrupt is exit code 130, a scheduler's signal to stop 75
    (`gnnrag.stopping`), which tells it to start the same command again.
    """
    if any(a in ("-h", "--help") for a in arguments):
        print((help_text or "").strip())
        return 0
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # a damaged file is named by our own note
    told: list[str] = []
    try:
        with listening(told):
            return main(arguments)
    except GnnragError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        what = f"told to stop by {told[0]}" if told else "interrupted"
        print(f"{what}; the same command continues where this one stopped", file=sys.stderr)
        return STOPPED if told else 130
    except BrokenPipeError:
        return 0


def split_arguments(arguments: Sequence[str], flags: Sequence[str] = ()) -> tuple[str | None, list[str]]:
    """Split a command line without its `flags` into config file and overrides; GnnragError where more is left."""
    refuse_flags(arguments, flags)
    files = [a for a in arguments if "=" not in a]
    if len(files) > 1:
        raise GnnragError(
            f"one config file at most, got {', '.join(files)}; settings are written key=value without spaces or dashes "
            "(method=single), and a question stands in quotes"
        )
    return (files[0] if files else None), [a for a in arguments if "=" in a]


def refuse_flags(arguments: Sequence[str], known: Sequence[str]) -> None:
    """Raise GnnragError for what is written like a flag, naming those that are known."""
    for argument in arguments:
        if argument.startswith("-") and " " not in argument:
            allowed = ", ".join([*known, "--help"])
            raise GnnragError(f"{argument}: allowed are {allowed}; settings are written key=value")


def refuse_unknown(overrides: Sequence[str], own: Iterable[str]) -> None:
    """Raise ConfigError for a setting that neither the script nor a run has, naming the nearest of both.

    Args:
        overrides: `key=value` strings.
        own: the script's own keys.
    """
    known = {*own, "gnn", *(field.name for field in fields(EvaluateConfig))}
    for override in overrides:
        if (key := override.split("=")[0].split(".")[0]) not in known:
            raise ConfigError(f"unknown setting {key!r}. {nearest(key, known)}")


def note(text: str) -> None:
    """Tell a person something on stderr."""
    print(f"note: {text}", file=sys.stderr)


class IndexProgress:
    """A progress bar per index stage; use as a context manager that gives the callback of `build_index`."""

    def __init__(self) -> None:
        self._bar: Any = None  # a tqdm bar
        self._stage = ""

    def __enter__(self) -> Callable[[str, int, int], None]:
        return self._update

    def _update(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self.close()
            self._stage = stage
            # Only for a terminal, and only for what takes longer than a second.
            self._bar = tqdm(
                total=total, desc=f"index: {stage}", unit=" passages", file=sys.stderr, delay=1, disable=None
            )
        if self._bar is not None:
            self._bar.update(done)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the bar that is open, if any."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._stage = None, ""


def describe_failures(predictions: Sequence[Prediction]) -> str:
    """Return the distinct errors of a run, most frequent first, for a person."""
    errors = Counter(re.sub(r"\(\d+\)", "(...)", p.error) for p in predictions if p.error)
    lines = [f"  {count} x {message}" for message, count in errors.most_common(3)]
    failed, asked = errors.total(), len(predictions)
    what = "all of them: nothing was measured" if failed == asked else "they score 0"
    return "\n".join([f"{failed} of {asked} questions failed, {what}; the same command tries them again", *lines])


def render(*parts: Any, width: int = 140) -> str:
    """Return rich renderables as plain text."""
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True, highlight=False)
    for part in parts:
        console.print(part)
    return out.getvalue().rstrip()
