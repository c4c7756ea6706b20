"""Whether a picture shows anything."""

from __future__ import annotations

from pathlib import Path


def is_drawn(path: Path) -> bool:
    """Tell whether a file is a picture of some size with lines in colours: more than white, black and grey."""
    from matplotlib.image import imread

    pixels = imread(path)[..., :3]
    coloured = (pixels.max(axis=2) - pixels.min(axis=2)) > 0.2
    return min(pixels.shape[:2]) > 300 and int(coloured.sum()) > 20
