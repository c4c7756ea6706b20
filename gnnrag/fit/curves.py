"""The picture of a training run: its losses and its validation metrics over the steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.metrics.plotting import write_figure

Rows = Sequence[Mapping[str, Any]]
# Of each panel: its metrics, what the rows are counted by, and its label.
PANELS = (
    ("features/loss", "features/fitted", "loss of the features' head", "step, before the training"),
    ("train/loss", "step", "training loss", "step"),
    ("validation/", "step", "validation", "step"),
)


def draw_curves(runs: Mapping[str, Iterable[Mapping[str, Any]]], path: Path, title: str = "") -> None:
    """Draw losses above and `validation/...` below, as PNG.

    Args:
        runs: the rows of `metrics.jsonl`, by the name of the run: one, or one for each fold, which are drawn in the
            same colours and named by their number. A row has `step` and any metrics.
        path: the file to write; nothing is written without rows.
        title: above the picture.
    """
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
    for number, name in enumerate(names):
        label = name.partition("/")[2]
        label = f"{label}, {len(runs)} folds" if len(runs) > 1 else label
        for series in runs.values():
            points = series.get(name, [])
            marker = "." if len(points) < 60 else None
            style: dict[str, Any] = {"color": f"C{number % 10}", "marker": marker, "label": label}
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
