"""Figures of a model card that come from other runs: on questions that did not train there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnrag.errors import ConfigError
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
            held = OmegaConf.to_container(OmegaConf.load(first / "config.yaml"))
            metrics = json.loads((path / "metrics.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"run.measured: {name} is no finished training run ({error})") from error
        if problem := difference(held, settings):
            raise ConfigError(f"run.measured: {name}: {problem}; name a run with the settings of this one")
        part = "cross-validated" if len(metrics.pop("folds")) > 1 else "left out of training"
        rows += [row | {"part": part} for row in score_rows({"validation": {}, "report": metrics})]
    return tuple(rows)
