"""The directory of a training run: everything needed to trust it, to resume it, and to use what it made."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from gnnrag import __version__
from gnnrag.common.files import (
    Journal,
    lock_run,
    open_regular,
    read_journal,
    read_json,
    write_atomic,
    write_folder,
    write_json,
    write_jsonl,
)
from gnnrag.common.records import TRAINING, folds_of, interpreting, number, refuse_other, start_over
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.metrics.plotting import write_figure
from gnnrag.run.rundir import commit, differences

# Settings that a resumed run may change: they decide where it lies and who is told, not what comes out.
EXCLUDED_FIELDS = ("run",)
STATE = "state.pt"
_OVER = "run.fresh=true starts the run over"


class TrainingRun:
    """One training on disk: `config.yaml`, `meta.json`, `folds.json`, `metrics.jsonl`, `curves.png`, `best/`, ...

    Only the first process writes; the others read (`is_main=False`). Raises ConfigError where the run has other
    settings or inputs, the folder holds something else, or `fresh` would delete more than a run; GnnragError while
    another process writes it.
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
        self._rows: Journal | None = None
        self._lock = ExitStack()
        if not is_main:
            return
        config = config
        kept = {name: value for name, value in config.items() if name not in EXCLUDED_FIELDS}
        meta = json.loads(json.dumps({"settings": kept, "inputs": dict(inputs)}))
        refuse_other(self.path, TRAINING)
        self._lock = lock_run(self.path, "training run")
        if fresh:
            start_over(self.path, TRAINING, config)
        self._check(meta)
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(config))))
        versions = {"gnnrag": __version__, "python": platform.python_version(), "torch": torch.__version__}
        write_json(self.path / "meta.json", {**meta, "commit": commit(), "versions": versions})
        self._rows = Journal(self.path / "metrics.jsonl")

    def _check(self, meta: Mapping[str, Any]) -> None:
        path = self.path / "meta.json"
        if not path.exists() or not (self.path / STATE).exists():
            return
        with interpreting(path, _OVER):
            old = read_json(path)
            changed = sorted(differences({k: dict(old[k]) for k in meta}, meta))
        if changed:
            raise ConfigError(
                f"training run {self.path} exists with another value of {', '.join(changed[:5])}; "
                "give another run.name, or run.fresh=true to start it over"
            )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of `metrics.jsonl`."""
        path = self.path / "metrics.jsonl"
        rows = read_journal(path)
        with interpreting(path, _OVER):
            for row in rows:
                number(row["step"])
        return rows

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row of metrics."""
        if self._rows is not None:
            self._rows.append(dict(row))
            self.on_row(row)

    def cut(self, step: int) -> None:
        """Forget the metrics of later steps: a resumed run makes them again."""
        if self._rows is None:
            return
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
            draw_curves({"": self.rows}, self.path / "curves.png", self.path.name)

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Save what training resumes from, so that a kill leaves the old state or the new one."""
        if self.is_main:
            write_atomic(self.path / STATE, lambda out: torch.save(dict(state), out))

    def load_state(self) -> dict[str, Any] | None:
        """Return the saved state, None where there is none. Raises ArtefactError where it is damaged."""
        path = self.path / STATE
        if not path.exists():
            return None
        try:
            with open_regular(path) as held:
                return torch.load(held, map_location="cpu", weights_only=True)
        except Exception as error:  # the reader raises several unrelated types
            raise ArtefactError(f"{path} is damaged ({error}); run.fresh=true starts the run over") from error

    def save_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Write a folder of the run; one that was there is replaced when the new one is whole."""
        if self.is_main:
            write_folder(self.path / name, write)

    def close(self) -> None:
        """Close the files and let other processes write them."""
        if self._rows is not None:
            self._rows.close()
        self._lock.close()


def refuse_other_layout(path: Path, folds: Sequence[int] | None) -> None:
    """Raise ConfigError where `path` holds no training, or one of other folds than `folds` (None: it has none)."""
    refuse_other(path, TRAINING)
    known = {f"fold{number}" for number in folds or ()}
    others = [folder.name for folder in folds_of(path) if folder.name not in known]
    is_single = folds is not None and any((path / name).exists() for name in (STATE, "best"))
    if others or is_single:
        what = f"the folds of a training with cross=true ({', '.join(others)})" if others else "a single training"
        raise ConfigError(
            f"training run {path} holds {what}, and its report would be overwritten; give another run.name, or delete "
            "the folder"
        )


Rows = Sequence[Mapping[str, Any]]
# Of each panel: its metrics, what the rows are counted by, and its label.
PANELS = (
    ("features/loss", "features/fitted", "loss of the features' head", "step, before the training"),
    ("train/loss", "step", "training loss", "step"),
    ("validation/", "step", "validation", "step"),
)


def draw_curves(runs: Mapping[str, Iterable[Mapping[str, Any]]], path: Path, title: str = "") -> None:
    """Draw losses above, `validation/...` below, as PNG; runs by name (folds) share colours. No file without rows."""
    from matplotlib.figure import Figure  # no pyplot: it has global state

    every = {name: list(rows) for name, rows in runs.items()}
    shown = [panel for panel in PANELS if any(_series(rows, *panel[:2]) for rows in every.values())]
    if not shown:
        return
    figure = Figure(figsize=(8, 3.2 * len(shown)), layout="constrained")
    shared: Any = None  # the axis of the steps: an only evaluation stands where it was made
    for position, (prefix, counter, label, below) in enumerate(shown, start=1):
        axes = figure.add_subplot(len(shown), 1, position, sharex=shared if counter == "step" else None)
        shared = axes if counter == "step" else shared
        _draw(axes, {name: _series(rows, prefix, counter) for name, rows in every.items()})
        axes.set_xlabel(below)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(title)
    write_figure(figure, path)


def _draw(axes: Any, runs: Mapping[str, Mapping[str, list[tuple[int, float]]]]) -> None:
    """Draw one colour for each metric, and of several runs thin lines of it."""
    names = sorted({name for series in runs.values() for name in series})
    for place, name in enumerate(names):
        label = name.partition("/")[2]
        label = f"{label}, {len(runs)} folds" if len(runs) > 1 else label
        for series in runs.values():
            points = series.get(name, [])
            marker = "." if len(points) < 60 else None
            style: dict[str, Any] = {"color": f"C{place % 10}", "marker": marker, "label": label}
            if points:
                axes.plot(*zip(*points, strict=True), **style, **({"alpha": 0.6, "lw": 1} if len(runs) > 1 else {}))
                label = "_"  # one entry in the legend


def _series(rows: Rows, prefix: str, counter: str) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith(prefix) and counter in row:
                found.setdefault(name, []).append((row[counter], value))
    return found
