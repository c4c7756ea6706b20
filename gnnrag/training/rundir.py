"""The directory of a training run: settings, metrics, curves, states to resume from, checkpoints."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]

from gnnrag import __version__
from gnnrag.io import (
    Journal,
    read_journal,
    remove,
    write_atomic,
    write_folder,
    write_json,
    write_jsonl,
)
from gnnrag.metrics.plotting import write_figure
from gnnrag.run.rundir import check_same, code_version, lock_run
from gnnrag.run.tracking import Tracker

STATE, BEFORE = "state.pt", "state.before.pt"
CHECKPOINTS = "checkpoints"  # of a trainer of transformers, which keeps its own states
FITTED = "fitted.json"  # what such a trainer came to, once it has ended
TRAINED = (STATE, BEFORE, CHECKPOINTS, FITTED, "best")  # any of them: the run has trained
logger = logging.getLogger(__name__)


class TrainingRun:
    """One training on disk: `config.yaml`, `meta.json`, `folds.json`, `metrics.jsonl`, `curves.png`, `best/`, ...

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
        self.on_row: Callable[[Mapping[str, Any]], None] = lambda row: None  # told about each row of metrics
        self.tracker: Tracker | None = None  # told, too
        self._rows: Journal | None = None
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
        self._rows = Journal(self.path / "metrics.jsonl")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of `metrics.jsonl`."""
        return read_journal(self.path / "metrics.jsonl")

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row of metrics."""
        if self._rows is not None:
            self._rows.append(dict(row))
            self.on_row(row)
            if self.tracker:
                self.tracker.log({k: v for k, v in row.items() if k not in ("step", "seconds")}, row["step"])

    def cut(self, step: int) -> None:
        """Forget the metrics of later steps: a resumed run makes them again."""
        if self._rows is not None:
            self._rows.close()
            write_jsonl(self.path / "metrics.jsonl", [row for row in self.rows if row["step"] <= step])
            self._rows = Journal(self.path / "metrics.jsonl")

    def write(self, name: str, data: Any) -> None:
        """Write a JSON file of the run."""
        if self.is_main:
            write_json(self.path / name, data)

    def draw(self) -> None:
        """Draw `curves.png` anew."""
        if self.is_main:
            draw_curves(self.rows, self.path / "curves.png")

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Save what training resumes from; the state before is kept beside it."""
        if self.is_main:
            if (self.path / STATE).exists():
                (self.path / STATE).replace(self.path / BEFORE)
            write_atomic(self.path / STATE, lambda out: torch.save(dict(state), out))

    def load_state(self) -> dict[str, Any] | None:
        """Return the newest state that can be read; None where there is none."""
        for path in (self.path / STATE, self.path / BEFORE):
            if path.exists():
                try:
                    return torch.load(path, map_location="cpu", weights_only=True)
                except Exception as error:  # noqa: BLE001 - the reader raises several unrelated types
                    logger.warning("%s cannot be read (%s); an earlier state is taken, if there is one", path, error)
        return None

    def save_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Write a folder of the run; one that was there is replaced when the new one is whole."""
        if self.is_main:
            write_folder(self.path / name, write)

    def close(self) -> None:
        """Close the files and let other processes write them."""
        if self._rows is not None:
            self._rows.close()
        self._lock.close()


def draw_curves(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Draw `train/loss` above and each `validation/...` below by step, as PNG. No file without rows."""
    from matplotlib.figure import Figure  # no pyplot: it has global state

    series: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name == "train/loss" or name.startswith("validation/"):
                series.setdefault(name, []).append((row["step"], value))
    if not series:
        return
    figure = Figure(figsize=(8, 6.4), layout="constrained")
    panels: Any = figure.subplots(2, sharex=True)
    for name, points in series.items():
        panels[int(name != "train/loss")].plot(*zip(*points, strict=True), marker=".", label=name)
    for axes in panels:
        if axes.lines:
            axes.legend(fontsize="small")
    figure.suptitle(path.parent.name)
    write_figure(figure, path)
