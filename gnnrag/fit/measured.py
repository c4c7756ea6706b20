"""Figures of a model card that come from other runs: on questions that did not train there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.common.files import read_json
from gnnrag.common.records import read_config
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.fit.training import score_rows
from gnnrag.weights import difference


def measured_rows(runs: Sequence[str], settings: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return rows of a model card's evaluation table from finished runs.

    Args:
        runs: their folders.
        settings: sections that must be the same in each of them, or its figures would be those of another model.

    Raises:
        ConfigError: no finished run, or one with other settings.
    """
    rows: list[dict[str, Any]] = []
    for name in runs:
        path = Path(name)
        try:
            first = path / "fold0" if (path / "fold0").is_dir() else path
            held, metrics = read_config(first), dict(read_json(path / "metrics.json"))
            is_crossed = len(metrics.pop("folds")) > 1
        except (OSError, ValueError, TypeError, KeyError, GnnragError) as error:
            raise ConfigError(f"run.measured: {name} is no finished training run ({error})") from error
        if problem := difference(held, settings):
            raise ConfigError(f"run.measured: {name}: {problem}; name a run with the settings of this one")
        part = "cross-validated" if is_crossed else "left out of training"
        rows += [row | {"part": part} for row in score_rows({"validation": {}, "report": metrics})]
    return tuple(rows)
