"""Pictures: an empty pair of axes, and a file that is whole or not there. Matplotlib is loaded on first use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnrag.io import write_atomic


def blank_axes() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    return figure, figure.add_subplot()


def write_figure(figure: Any, path: Path) -> None:
    write_atomic(path, lambda out: figure.savefig(out, format=path.suffix.lstrip(".") or "png", dpi=130))
