"""The directory of a training: settings, metrics, and what it has learned."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]

from gnnrag import __version__
from gnnrag.io import remove, write_atomic, write_folder, write_json, write_jsonl
from gnnrag.run.rundir import check_same, code_version, lock_run
from gnnrag.run.tracking import Tracker

CHECKPOINTS = "checkpoints"  # of the trainer
FITTED = "fitted.json"  # its result, once it has ended
TRAINED = (CHECKPOINTS, FITTED, "best")  # a run with any of these has trained


class TrainingRun:
    """One training on disk: `config.yaml`, `meta.json`, `folds.json`, `metrics.jsonl`, `best/`, ...

    Only the first process writes; the others read (`is_main=False`). Raises ConfigError where the run has other
    settings or inputs, GnnragError while another process writes it.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any],
        inputs: Mapping[str, Any],
        fresh: bool = False,
        is_main: bool = True,
    ) -> None:
        self.path, self.is_main = Path(path), is_main
        self.tracker: Tracker | None = None  # gets the rows of metrics
        self._lock = ExitStack()
        if not is_main:
            return
        self._lock = lock_run(self.path)
        if fresh:
            remove(self.path)
        meta = {"settings": {k: v for k, v in config.items() if k != "run"}, "inputs": dict(inputs)}
        check_same(self.path, meta["settings"], inputs, TRAINED)
        write_atomic(self.path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
        versions = {"gnnrag": __version__, "python": platform.python_version(), "torch": torch.__version__}
        write_json(self.path / "meta.json", {**meta, "commit": code_version(), "versions": versions})

    def log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write all rows of metrics so far; the last one is new."""
        if self.is_main:
            write_jsonl(self.path / "metrics.jsonl", rows)
            if self.tracker:
                self.tracker.log({k: v for k, v in rows[-1].items() if k != "step"}, rows[-1]["step"])

    def write(self, name: str, data: Any) -> None:
        if self.is_main:
            write_json(self.path / name, data)

    def save_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Write a folder of the run; one that was there is replaced when the new one is whole."""
        if self.is_main:
            write_folder(self.path / name, write)

    def close(self) -> None:
        self._lock.close()
