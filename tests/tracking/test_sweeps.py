"""Sweeps: every point that W&B may draw is a training that can be started."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gnnrag.cli.console import split_arguments
from gnnrag.config import load_config, to_plain
from gnnrag.errors import ConfigError
from gnnrag.training.config import check_fit
from gnnrag.training.gnn import GNNTraining
from gnnrag.training.gnn_data import check_training
from gnnrag.training.verifier_data import TrainVerifierConfig, check_verifier
from tests.helpers.each import each

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))


def checked_gnn(source: str | None, overrides: Sequence[str]) -> Any:
    config = GNNTraining.load(source, overrides)
    check_training(config)
    check_fit(config.fit)
    return config


def checked_verifier(source: str | None, overrides: Sequence[str]) -> Any:
    config = load_config(TrainVerifierConfig, source, overrides)
    check_verifier(config)
    return config


LOADERS: dict[str, Callable[[str | None, Sequence[str]], Any]] = {"gnn": checked_gnn, "verifier": checked_verifier}


def sweep(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def distribution(parameter: dict[str, Any]) -> str:
    return str(parameter.get("distribution", "categorical" if "values" in parameter else "uniform"))


def draw(parameter: dict[str, Any], rng: np.random.Generator) -> Any:
    kind = distribution(parameter)
    if kind == "categorical":
        return parameter["values"][int(rng.integers(len(parameter["values"])))]
    if kind == "int_uniform":
        return int(rng.integers(parameter["min"], parameter["max"] + 1))
    if kind == "log_uniform_values":
        return float(np.exp(rng.uniform(np.log(parameter["min"]), np.log(parameter["max"]))))
    return float(rng.uniform(parameter["min"], parameter["max"]))


def command_line(path: Path, point: dict[str, Any]) -> list[str]:
    """Return what the agent starts for a point: W&B's own code fills the command in."""
    utils = importlib.import_module("wandb.sdk.launch.sweeps.utils")
    found = sweep(path)
    arguments = utils.create_sweep_command_args({"args": {name: {"value": value} for name, value in point.items()}})
    words: list[str] = []
    for word in utils.create_sweep_command(list(found["command"])):
        name = word[2:-1] if word.startswith("${") else None
        known = {"env": ["/usr/bin/env"], "program": [found["program"]], **arguments}
        words += known[name] if name else [word]
    return words


def get(config: Any, name: str) -> Any:
    found = to_plain(config)
    for key in name.split("."):
        found = found[key]
    return found


@each("path", SWEEPS)
def test_every_point_is_a_training_that_can_be_started(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found, rng = sweep(path), np.random.default_rng(0)
    parameters, load = found["parameters"], LOADERS[path.stem]
    points = [{name: draw(one, rng) for name, one in parameters.items()} for _ in range(4)]
    ends = [{name: one.get("values", [one.get("min"), one.get("max")])[end] for name, one in parameters.items()}
            for end in (0, -1)]  # fmt: skip
    names = set()
    for point in [*points, *ends]:
        words = command_line(path, point)
        assert words[:4] == ["/usr/bin/env", "accelerate", "launch", found["program"]]
        assert not any(word.startswith(("-", "$")) for word in words) and shlex.join(words)
        source, overrides = split_arguments(words[4:])
        config = load(source, overrides)
        assert {name: get(config, name) for name in point} == pytest.approx(point)
        assert config.run.tracking == "online" and not config.cross and config.run.name is None
        assert config.folds.report == 0, "a part that decides nothing stays to be reported on"
        names.add(str(to_plain(config)))
    with pytest.raises(ConfigError, match=r"fit\.lrr"):  # a misspelt parameter would be found
        load(*split_arguments(command_line(path, {"fit.lrr": 0.1})[4:]))
    assert len(names) == len(points) + 2, "points are told apart by their settings, and so are their run directories"


@each("path", SWEEPS)
def test_the_optimised_metric_is_the_one_that_decides_which_weights_are_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    config = LOADERS[path.stem](*split_arguments(command_line(path, {})[4:]))
    assert sweep(path)["metric"]["name"] == f"validation/{config.metric}"
    stops = sweep(path)["early_terminate"]
    evaluations = config.fit.steps // config.fit.eval_every
    assert stops["min_iter"] * stops["eta"] <= evaluations, "runs are compared at least twice before their end"
    assert config.fit.patience is None, "all runs of a sweep are of one length"
