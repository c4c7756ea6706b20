"""Which device a network runs on: a GPU where there is one, unless a setting names another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gnnrag.errors import ConfigError

if TYPE_CHECKING:
    import torch


def device_named(name: str, key: str = "device") -> torch.device:
    """Return the device that a setting `key` names (auto, cpu, cuda, cuda:1, mps, ...). ConfigError: it has none."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        problem = str(error).splitlines()[0][:150]
        raise ConfigError(f"{key}={name!r} cannot be used here ({problem}); give auto or cpu") from error
    return device


def visible_gpus() -> list[str]:
    """Return the CUDA devices that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given is not None else [str(number) for number in range(torch.cuda.device_count())]
    return [name.strip() for name in names if name.strip()] if torch.cuda.is_available() else []
