"""How far something long is, as a bar in a notebook; elsewhere nothing is shown, for a library does not print."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]  # stage, done since the last call, in all


@contextmanager
def progressing(given: Progress | None) -> Iterator[Progress]:
    """Give what is to be called with the progress: `given`, or where there is none a bar for each stage, or nothing."""
    bars = _Bars() if given is None and is_notebook() else None
    try:
        yield given or bars or (lambda stage, done, total: None)
    finally:
        if bars:
            bars.close()


def is_notebook() -> bool:
    """Tell whether this is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


class _Bars:
    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets it is a bar in text, which is no news
            from tqdm.auto import tqdm

        self._make, self._stage = tqdm, ""
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self.close()
            self._bar, self._stage = self._make(total=total, desc=stage), stage
        self._bar.update(done)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
