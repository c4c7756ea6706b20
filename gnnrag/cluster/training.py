"""Which training script a config is for: the one that can read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnrag.cluster.grid import Point
from gnnrag.common.files import digest
from gnnrag.config import load_config, read_yaml, to_plain
from gnnrag.errors import ConfigError, GnnragError, described
from gnnrag.registry import TRAININGS

EXAMPLES = "those of configs/train"
GNN, READER = "train_gnn.py", "train_reader.py"
SCRIPTS = TRAININGS


@dataclass(frozen=True)
class Training:
    """One run of a training script.

    Attributes:
        label: what a person calls it.
        script: its path in the repository.
        arguments: config file and overrides.
        run: its directory.
        settings: all that its script notes of the run, but for the fold and where the run is.
    """

    label: str
    script: str
    arguments: tuple[str, ...]
    run: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def script_for(source: Path, overrides: Sequence[str]) -> str:
    """Return the training script of a config.

    Several may read the same keys; then the file's name decides, whose first word is what is trained.

    Raises:
        ConfigError: none can read it, or several can and the name says nothing.
    """
    problems: dict[str, str] = {}
    fitting = []
    for script in SCRIPTS:
        try:
            _read(script, source, overrides)
            fitting.append(script)
        except GnnragError as error:
            problems[script] = described(error)
    word = source.stem.split("_")[0]
    named = f"train_{word}.py"
    if not fitting:
        told = [problems[named]] if named in problems else [f"{name}: {text}" for name, text in problems.items()]
        raise ConfigError(f"{source}: no training script can read it. {'; '.join(told)}")
    if len(fitting) == 1:
        return f"training/{fitting[0]}"
    if named not in fitting:
        names = ", ".join(fitting)
        raise ConfigError(
            f"{source}: {names} can all read it; begin the file's name with what is trained, such as "
            f"{fitting[0].removeprefix('train_').removesuffix('.py')}_{source.name}"
        )
    return f"training/{named}"


def _read(script: str, source: Path, overrides: Sequence[str]) -> Any:
    """Read a config as a script does, with what it leaves open written out. Raises ConfigError where it would."""
    if script == GNN:
        from gnnrag.training.gnn import load_training, settle

        return settle(load_training(source, overrides))
    from gnnrag.training.base import chosen_kind

    kinds = SCRIPTS[script]
    config: Any = load_config(chosen_kind(kinds, next(iter(kinds)), str(source), overrides).schema, source, overrides)
    if script == READER:
        from gnnrag.training import reader

        return reader.settle(config)
    return config


def _merged(source: Path, overrides: Sequence[str]) -> Any:
    return OmegaConf.merge(read_yaml(source, EXAMPLES), OmegaConf.from_dotlist(list(overrides)))


def trainings(source: Path, points: Sequence[Point]) -> Iterator[Training]:
    """Yield a training for each point of the grid, each with a run directory of its own.

    Raises:
        ConfigError: see `script_for`; or several points would share a run that is named.
    """
    for point in points:
        script = script_for(source, point.overrides)
        if [o for o in point.overrides if o.startswith("run.name=")] and len(points) > 1:
            raise ConfigError("run.name=...: several trainings cannot share a run; each gets a name of its own")
        raw = _merged(source, point.overrides)
        run = OmegaConf.to_container(raw).get("run") or {}  # type: ignore[union-attr]
        name = run.get("name") or source.stem
        if changed := [o for o in point.overrides if not o.startswith("run.")]:
            name = f"{name}-{digest(changed)[:8]}"
        if run.get("fresh"):
            raise ConfigError("run.fresh=true would throw away what a job had done whenever it goes on; delete the run")
        label = "/".join(filter(None, (source.stem, point.label)))
        arguments = (str(source), *(o for o in point.overrides if not o.startswith("run.name=")), f"run.name={name}")
        read = to_plain(_read(Path(script).name, source, point.overrides))
        settings = {key: value for key, value in read.items() if key != "run"}
        yield Training(label, script, arguments, str(Path(run.get("root") or "runs") / name), settings)
