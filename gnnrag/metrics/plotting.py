"""Pictures: an empty pair of axes, and a file that is whole or not there. Matplotlib is loaded on first use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnrag.io import write_atomic


def blank_axes() -> tuple[Any, Any]:
    """Return a figure and its axes, without a window system and without global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    return figure, figure.add_subplot()


def write_figure(figure: Any, path: Path) -> None:
    """Write a figure in the format of the file's ending (PNG where it has none)."""
    write_atomic(path, lambda out: figure.savefig(out, format=path.suffix.lstrip(".") or "png", dpi=130))
