"""What the scripts share: progress, tables, and what they are told; how they end is in `running.py`."""

from __future__ import annotations

import io
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from tqdm import tqdm

from gnnrag.cli.running import run_script
from gnnrag.common.untrusted import one_line
from gnnrag.config import EvaluateConfig
from gnnrag.datasets.base import Dataset, load_passages
from gnnrag.datasets.chunk import Chunking
from gnnrag.errors import ConfigError, GnnragError, nearest
from gnnrag.metrics.replies import is_error
from gnnrag.types import Prediction

__all__ = ["run_script"]


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
    """Tell a person something on stderr, in one line whatever names are in it."""
    print(f"note: {one_line(text)}", file=sys.stderr)


def tell(remarks: Iterable[str]) -> bool:
    """Tell a person remarks that begin with what they are (`metrics.replies.remarks`); returns if one is an error."""
    lines = list(remarks)
    for line in lines:
        print(one_line(line), file=sys.stderr)
    return is_error(lines)


def load_corpus(path: str | Path, chunking: Chunking, reports: bool = False, titles: bool = True) -> Dataset:
    """Return the corpus at a path; a person sees how far documents are read, and is told what was left out.

    `reports`: the caller prints the report of own documents; `titles`: see `DataConfig`.
    """
    with IndexProgress() as progress:
        data = load_passages(path, chunking, progress)
    for remark in data.notes if reports and data.report else data.remarks:
        note(remark)
    return data if titles else data.without_titles()


class IndexProgress:
    """A progress bar per index stage with rate and time left, and a note where another process is waited for.

    The `progress` of `build_index` and of loading documents. Without a terminal it is a line every ten seconds. Use as
    a context manager, which gives it.
    """

    EVERY = 10.0  # seconds between two lines

    def __init__(self) -> None:
        self._bar: Any = None  # a tqdm bar
        self._stage = ""
        self._done: Counter[str] = Counter()
        self._totals: dict[str, int] = {}
        self._started: dict[str, float] = {}
        self._told = time.monotonic()

    def __enter__(self) -> IndexProgress:
        return self

    def tell(self, line: str) -> None:
        """Tell a person what is waited for."""
        note(line)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move the bar of a stage; one that is come back to, as files are between their pages, goes on."""
        if stage != self._stage:
            self.close()
            self._stage = stage
            if self._done[stage] >= self._totals.get(stage, 1):  # the stage of another index
                self._started.pop(stage, None)
                self._done[stage] = 0
            self._totals[stage] = total
            self._started.setdefault(stage, time.monotonic())
            # Only for what takes longer than a second.
            label, unit = f"index: {one_line(stage)}", f" {unit_of(stage)}"
            start = self._done[stage]
            self._bar = tqdm(total=total, initial=start, desc=label, unit=unit, file=sys.stderr, delay=1, disable=None)
        self._done[stage] += done
        self._bar.update(done)
        now = time.monotonic()
        if self._bar.disable and now - self._told >= self.EVERY:
            self._told = now
            note(pace(stage, self._done[stage], total, now - self._started[stage]))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the bar that is open, if any."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._stage = None, ""


def unit_of(stage: str) -> str:
    """Return what a stage counts."""
    counted = {"files": "files", "pages": "pages", "slides": "slides", "chapters": "chapters"}
    return counted.get(stage.partition(" ")[0], "passages")


def pace(stage: str, done: int, total: int, seconds: float) -> str:
    """Return how far a stage is, how fast it goes, and when it will be done, in one line."""
    rate = done / seconds if seconds > 0 else 0.0
    if done >= total or not rate:
        left = ""
    else:
        minutes, rest = divmod(round((total - done) / rate), 60)
        left = f", {minutes} min {rest:02} s left" if minutes else f", {rest} s left"
    return f"index: {stage}: {done:,} of {total:,} {unit_of(stage)}, {rate:.3g} a second{left}"


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
    # Cells hold names from data, and no markup of ours: `[/b]` is a name.
    console = Console(file=out, width=width, no_color=True, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(part)
    return out.getvalue().rstrip()
