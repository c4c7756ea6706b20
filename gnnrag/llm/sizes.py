"""How large a model is, as far as its name or its files tell: small models get the small variant of the prompts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

Variant = Literal["auto", "full", "small"]

SMALL_BELOW = 1e9  # parameters
_BYTES = 2  # of a parameter, about: half precision, or less where weights are quantised
_NAMED = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([mb])(?![A-Za-z0-9])", re.IGNORECASE)  # 135M, 0.5B, 7b
_WEIGHTS = (".safetensors", ".gguf", ".bin")


def wants_small(prompts: Variant, model: str, path: Path | None = None) -> bool:
    """Tell which variant of the prompts a model gets.

    Args:
        prompts: the setting; `auto` leaves it to the size.
        model: name of the model; of several numbers in it the largest counts (a context of `1M` is one).
        path: folder or file of its weights, where they are here; a model that was fine-tuned on prompts (a folder with
            `gnnrag.json`) gets those, whatever its size.
    """
    if prompts != "auto":
        return prompts == "small"
    if path is not None and (path / "gnnrag.json").is_file():
        return False
    name = re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    if found := [float(number) * (1e6 if unit in "mM" else 1e9) for number, unit in _NAMED.findall(name)]:
        return max(found) < SMALL_BELOW
    if path is None:
        return False
    files = [path] if path.is_file() else [file for file in path.glob("*") if file.suffix in _WEIGHTS]
    return 0 < sum(file.stat().st_size for file in files) < SMALL_BELOW * _BYTES
