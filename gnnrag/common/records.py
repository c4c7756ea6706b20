"""Until every caller is rewritten (issue 30): the names of before for what `gnnrag.io` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.config import DataConfig, read_plain
from gnnrag.errors import ConfigError
from gnnrag.io import WEIGHTS as WEIGHTS
from gnnrag.io import check_shapes as check_shapes
from gnnrag.io import check_tokenizer as check_tokenizer
from gnnrag.io import difference as difference
from gnnrag.io import fill as fill
from gnnrag.io import folds_advice as folds_advice
from gnnrag.io import folds_of as folds_of
from gnnrag.io import interpreting as interpreting
from gnnrag.io import load_tensors as load_tensors
from gnnrag.io import read_record as read_record
from gnnrag.io import read_settings as read_settings
from gnnrag.io import remove
from gnnrag.io import save_tensors as save_tensors

AGAIN = "run its command again"
LARGEST = 1 << 16
MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
EVALUATION = TRAINING = CROSS = AUDIT = ROWS = QUESTIONS = JUDGEMENT = DATA = INDEX = None


def refuse_other(path: Path, kind: object) -> None:
    """Raise ConfigError where a folder is wanted and a file is there."""
    if path.is_file():
        raise ConfigError(f"{path} is a file; name a folder")


def start_over(path: Path, kind: object, settings: Mapping[str, Any]) -> None:
    """Delete an earlier run."""
    remove(path)


def number(value: Any) -> float:
    """Return a number of a record. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.40} is no number")
    return value


def text(value: Any) -> str:
    """Return a text of a record. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def refuse_references(values: Any, path: Path) -> None:
    """Nothing in a record is evaluated."""


def read_config(run: Path) -> dict[str, Any]:
    """Return the settings in a run's `config.yaml`, empty without one."""
    path = run / "config.yaml"
    with interpreting(path):
        return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}


def recorded_data(run: Path, fix: str) -> DataConfig:
    """Return where a run found its data and how it read them. Raises ArtefactError, with advice `fix`."""
    with interpreting(run / "config.yaml", fix):
        section = read_config(run)["data"]
        return read_plain(DataConfig, {f.name: section[f.name] for f in fields(DataConfig) if f.name in section})
