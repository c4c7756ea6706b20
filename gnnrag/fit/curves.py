"""The picture of a training run: its losses and its validation metrics over the steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gnnrag.plotting import write_figure


def draw_curves(rows: Iterable[Mapping[str, Any]], path: Path, title: str = "") -> None:
    """Draw `train/...` above and `validation/...` below, as PNG.

    Args:
        rows: the rows of `metrics.jsonl`; `step` and any metrics.
        path: the file to write; nothing is written without rows.
        title: above the picture.
    """
    from matplotlib.figure import Figure  # no pyplot: it has global state

    rows = list(rows)
    groups = [_series(rows, "train/loss"), _series(rows, "validation/")]
    shown = [group for group in groups if group]
    if not shown:
        return
    figure = Figure(figsize=(8, 3.2 * len(shown)), layout="constrained")
    for position, group in enumerate(shown, start=1):
        axes = figure.add_subplot(len(shown), 1, position)
        for name, points in sorted(group.items()):
            axes.plot(*zip(*points, strict=True), marker="." if len(points) < 60 else None, label=name)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(title)
    write_figure(figure, path)


def _series(rows: Iterable[Mapping[str, Any]], prefix: str) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith(prefix):
                found.setdefault(name, []).append((row["step"], value))
    return found
