"""LoRA adapters of strangers: their settings are read before peft acts on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.files import read_json

LARGEST_RANK = 4096
_PATTERNS = ("target_modules", "exclude_modules", "layers_pattern")
_START = re.compile(r"[A-Za-z_]{1,40}\d{0,2}")  # how the matrices began: `pissa_niter_16` computes so many rounds
_GROUP = re.compile(r"\)[*+{]")
_REPEATED = re.compile(r"(?<!\()(?:[*+?]\??|\{)")
_REPEATS = 5  # in a pattern; a name has a hundred characters


def check_adapter(folder: Path) -> None:
    """Refuse a LoRA adapter whose settings say more than its shapes: peft would import, start or copy what they name.

    Raises:
        ConfigError: it is of another kind, lacks a file, or has such settings.
    """
    if not (folder / "adapter_config.json").is_file():
        raise ConfigError(f"adapter {str(folder)!r} has no adapter_config.json: give a folder saved by peft")
    config = read_settings(folder / "adapter_config.json")
    kind, task = config.get("peft_type"), config.get("task_type")
    if kind != "LORA" or task not in (None, "CAUSAL_LM", "SEQ_2_SEQ_LM"):
        raise ConfigError(
            f"adapter {str(folder)!r} is {kind} for {task}: only LORA for CAUSAL_LM or SEQ_2_SEQ_LM is loaded here"
        )
    if not (folder / "adapter_model.safetensors").is_file():
        raise ConfigError(f"adapter {str(folder)!r} has no adapter_model.safetensors; pickled weights are not loaded")
    for name, value in config.items():
        if not _is_plain(name, value):
            raise ConfigError(
                f"adapter {str(folder)!r}: {name} in adapter_config.json holds {str(value)!r:.80}, and only shapes, "
                "names and simple patterns are loaded here; where you trust it, set it to null, or merge the adapter"
            )


def refuse_adapter(folder: Path, where: str = "adapter_config.json") -> None:
    """Refuse a model with an adapter in its folder: transformers would put it on unasked, and take the base it names.

    Raises:
        ConfigError: there is one.
    """
    if found := next(folder.glob(where), None):
        problem = f"model folder {str(folder)!r} holds an adapter as well ({found.relative_to(folder)})"
        raise ConfigError(f"{problem}: move the two into folders of their own, or merge them")


def _is_plain(name: str, value: Any) -> bool:
    """Tell whether a setting is a number, a name, a list of them, or ranks by module."""
    if name == "auto_mapping":  # not read where the base is given
        return True
    if name in ("rank_pattern", "alpha_pattern") and isinstance(value, dict):
        return all(map(_is_quick, value)) and all(map(_is_rank, value.values()))
    if name == "init_lora_weights" and isinstance(value, str):
        return bool(_START.fullmatch(value))
    if isinstance(value, list):
        return all(isinstance(one, str | int) and (name != "layers_pattern" or _is_quick(str(one))) for one in value)
    if name in _PATTERNS and isinstance(value, str):
        return _is_quick(value)
    return not value if isinstance(value, dict) else name != "r" or _is_rank(value)


def _is_rank(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and value <= LARGEST_RANK)


def _is_quick(pattern: str) -> bool:
    """Tell whether a pattern of names of modules has nothing repeated that could be divided in many ways."""
    return not _GROUP.search(pattern) and len(_REPEATED.findall(pattern)) <= _REPEATS


def read_settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ConfigError where there is none."""
    try:
        data = read_json(path)
    except (OSError, ValueError, ArtefactError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a JSON object")
    return data
