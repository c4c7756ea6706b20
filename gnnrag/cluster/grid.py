"""What a command line asks for: configs and tables at the points of a grid, as evaluations and trainings."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnrag.cluster.job import Runs, Target, is_scored
from gnnrag.common.files import digest, read_json, remove, write_json
from gnnrag.common.yaml_config import MARK
from gnnrag.config import CHOICES, EvaluateConfig, IndexConfig, load_config, read_yaml, to_plain
from gnnrag.datasets.source import find_source
from gnnrag.errors import ConfigError, GnnragError, described
from gnnrag.index.plan import closure
from gnnrag.registry import TRAININGS
from gnnrag.reports.inputs import missing_analyser, missing_data, missing_inputs, missing_model
from gnnrag.reports.papers import PaperTable, Row, load_table
from gnnrag.reports.reproduction import checked, resolved
from gnnrag.run.pipeline import index_path, index_settings, needed_stages
from gnnrag.run.rundir import fingerprint_fields, roles_label

LIBRARY = Path(__file__).resolve().parents[1]
CACHE = Path(".cache", "resolved")  # the caller's own: what is read there decides what is run
REPRODUCE = "inference/reproduce.py"
EXAMPLE, TRAINING_EXAMPLES = "configs/evaluate/sample.yaml", "those of configs/train"
FRESH = "run.fresh=true would throw away what a job had done whenever it goes on; delete the run"
_BRACKETS = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


# --------------------------------------------------------------------------------------------- points of the grid
@dataclass(frozen=True)
class Point:
    """One choice for every axis."""

    overrides: tuple[str, ...]  # `key=value`, in the order given
    label: str  # the values that differ between points, `dense/seed=1`; empty where there is one point


def expand(overrides: Sequence[str]) -> list[Point]:
    """Return the points of `key=value` and `key=a,b,c`, last axis fastest. Raises ConfigError: bad form or repeats."""
    axes: dict[str, list[str]] = {}
    for item in overrides:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"{item!r} is neither a config file nor key=value")
        if key in axes:
            raise ConfigError(f"{key} is given twice; several values of it are written {key}=a,b")
        axes[key] = split_values(value)
        if len(set(axes[key])) < len(axes[key]):
            raise ConfigError(f"{item}: a value stands there twice")
    points = []
    for choice in product(*axes.values()):
        values = dict(zip(axes, choice, strict=True))
        label = "/".join(_shown(key, value) for key, value in values.items() if len(axes[key]) > 1)
        points.append(Point(tuple(f"{key}={value}" for key, value in values.items()), label))
    return points


def split_values(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes. Raises ConfigError: one is left open, or a value is empty."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += _BRACKETS.get(char, 0)
        if depth < 0:
            break
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    if quote or depth:
        raise ConfigError(f"{text!r}: a quote or bracket has no counterpart; commas inside of them separate nothing")
    if len(parts) == 1:
        return parts
    if not all(part.strip() for part in parts):
        raise ConfigError(f"{text!r}: there is nothing between two commas, or before or after one")
    return [part.strip() for part in parts]


def _shown(key: str, value: str) -> str:
    """Return a value as it stands in a label: names of parts speak for themselves, numbers do not."""
    return value if key in ("method", "retriever", "roles") else f"{key.rpartition('.')[2]}={value}"


def seconds_of(text: str) -> float:
    """Return a duration such as `90m`, `2h`, `1h30m` or `45s` in seconds. Raises ConfigError for anything else."""
    if not re.fullmatch(r"(\d+(\.\d+)?[dhms])+", text):
        raise ConfigError(f"{text!r} is no duration; write 90m, 2h, 1h30m or 45s")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([dhms])", text))
    if seconds <= 0:
        raise ConfigError(f"{text!r}: must be longer than nothing")
    return seconds


# ---------------------------------------------------------------------------------------------------- evaluations
@dataclass(frozen=True)
class Evaluation:
    """One run of `gnnrag evaluate`, as plain data."""

    label: str  # what a person calls it
    config: Mapping[str, Any] = field(default_factory=dict)  # settings that differ from the defaults
    fingerprint: Mapping[str, Any] = field(default_factory=dict)  # the settings that decide its predictions
    stages: tuple[str, ...] = ()  # that it reads, of the index
    index: Mapping[str, Any] = field(default_factory=dict)  # settings of the index, resolved
    missing: str = ""  # why it cannot run here, whatever the machine holds

    @property
    def data(self) -> tuple[str, str]:
        """Where passages and questions are, as configured."""
        data = self.config.get("data", {})
        return data.get("path", EvaluateConfig().data.path), data.get("questions") or ""

    @property
    def root(self) -> str:
        """Folder of all runs."""
        return str(self.config.get("run", {}).get("root", EvaluateConfig().run.root))

    @property
    def run_name(self) -> str:
        """Name of the run, where the settings give one."""
        return str(self.config.get("run", {}).get("name") or "")

    @property
    def key(self) -> str:
        """Hash of what makes it another run."""
        return digest([self.fingerprint, *self.data, self.root, self.run_name or None])[:8]

    @property
    def name(self) -> str:
        """Fit for a folder: readable in front, the key behind."""
        data, split = Path(self.data[0]).stem, self.fingerprint["data"]["split"]
        parts = [data, split, *(self.fingerprint[part]["name"] for part in ("method", "retriever"))]
        return "-".join([*parts, roles_label(self.fingerprint["roles"]), self.key])

    @property
    def index_folder(self) -> str:
        """Folder of the index that it reads. Raises DataError where its data are not here."""
        settings = IndexConfig(path=self.index.get("path"), root=self.index["root"])
        return str(index_path(settings, find_source(Path(self.data[0])).name))

    @property
    def target(self) -> Target:
        """Target of the run. Raises DataError where its data are not here."""
        data = tuple(map(to_plain, self.data))  # as a run records them
        return Target(self.root, (), self.fingerprint, data, self.index_folder, self.run_name)

    @property
    def unavailable(self) -> str:
        """Why it cannot run on this machine: a part, data or a model is not here; empty where it can."""
        if self.missing:
            return self.missing
        missing = _missing_data(*self.data, self.fingerprint["data"]["split"])
        missing = missing or missing_model(self.index["embedder"]["model"])
        return missing or missing_analyser(self.index["text"]["language"])


@cache
def _missing_data(path: str, questions: str, split: str) -> str:
    return missing_data(path, split, questions or None)


def is_table(source: Path) -> bool:
    """Tell whether a file is a table of a paper."""
    return "columns" in read_yaml(source, EXAMPLE)


def is_training(source: Path) -> bool:
    """Tell whether a file says how something is trained."""
    return "fit" in read_yaml(source, EXAMPLE)


def evaluations(source: Path, point: Point) -> list[Evaluation]:
    """Return what a config asks for at a point: one run, or a table's rows. Raises ConfigError, naming point or row."""
    if is_table(source):
        return list(_rows(load_table(source, point.overrides), point))
    try:
        config = checked(load_config(EvaluateConfig, source, point.overrides))
    except ConfigError as error:
        raise ConfigError(f"{source}{f', {point.label}' if point.label else ''}: {error}") from error
    return [_evaluation(config, "/".join(filter(None, (source.stem, point.label))))]


def _rows(table: PaperTable, point: Point) -> Iterator[Evaluation]:
    where = f"{table.path.parent.name}/{table.path.stem}"
    for row in table.rows:
        label = " / ".join(filter(None, (where, row.name, point.label)))
        if counted := row.missing or (table.counts and f"is counted, not run: python {REPRODUCE} {table.path}"):
            yield Evaluation(label, missing=counted)
        else:
            yield _evaluation(resolved(table, row, point.overrides), label)


def _evaluation(config: EvaluateConfig, label: str) -> Evaluation:
    """Return a run as plain data. Raises ConfigError where it would start over each time."""
    if config.run.fresh:
        raise ConfigError(FRESH)
    plain = to_plain(config)
    settings = to_plain(index_settings(config), values=True)
    stages = tuple(closure(needed_stages(config), config.index))
    named_parts = {key: value for key, value in plain.items() if key in CHOICES}  # keep all of their own settings
    return Evaluation(
        label, {**_changed(plain, _DEFAULTS), **named_parts}, fingerprint_fields(to_plain(config)), stages, settings
    )


_DEFAULTS: dict[str, Any] = to_plain(EvaluateConfig())


def _changed(value: Any, default: Any) -> Any:
    """Return a setting with what differs from its default, in sections at any depth."""
    if not (isinstance(value, Mapping) and isinstance(default, Mapping) and default):
        return value
    return {key: _changed(v, default.get(key)) for key, v in value.items() if v != default.get(key)}


def cached(
    sources: Sequence[Path], points: Sequence[Point], on_note: Callable[[str], None] = lambda note: None
) -> list[list[Evaluation]]:
    """Return each source's evaluations, kept in `CACHE` until a config or the library changes; tables take minutes."""
    files = [path for path in sorted(LIBRARY.rglob("*")) if path.suffix in (".py", ".yaml")]
    code = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    found = []
    for source in sources:
        asked = [source.read_text("utf-8"), *(override for point in points for override in point.overrides)]
        name = f"{source.parent.name}-{source.stem}"
        path = CACHE / f"{name}-{digest([str(source), asked, [point.label for point in points], code])[:16]}.json"
        try:
            raw = read_json(path)
        except (FileNotFoundError, ValueError):
            if is_table(source):
                on_note(f"{source}: resolving its rows, once")
            raw = [asdict(evaluation) for point in points for evaluation in evaluations(source, point)]
            if not any(MARK in text for text in asked):  # values of expressions are for no file
                for old in CACHE.glob(f"{glob.escape(name)}-*.json"):
                    remove(old, CACHE)
                write_json(path, raw)
                raw = json.loads(json.dumps(raw))
        found.append([Evaluation(**{**row, "stages": tuple(row["stages"])}) for row in raw])
    return found


# ------------------------------------------------------------------------------------- tables of what there is now
UNFINISHED = "its run has not ended, and --finished starts none"


def only_done(table: PaperTable, overrides: Sequence[str], trained: Collection[str] = ()) -> PaperTable:
    """Return a table whose rows without a scored run are missing. Raises ConfigError, GnnragError (`trained` given)."""
    if trained:
        raise GnnragError(f"--finished shows no runs of trained parts ({', '.join(trained)}=RUN); leave it out")
    runs: dict[str, Runs] = {}

    def checked_for(row: Row) -> Row:
        if row.missing or missing_inputs(config := resolved(table, row, overrides)):
            return row
        target = _evaluation(config, row.name).target
        run = runs.setdefault(target.path, Runs(target.path)).find(target)
        return row if run and is_scored(run) else replace(row, missing=UNFINISHED)

    return replace(table, rows=tuple(map(checked_for, table.rows)))


def refuse_questions(row: Row, left: int) -> None:
    """Raise GnnragError where questions of a row are left: prompts have changed since, or it asks more of them."""
    if left:
        raise GnnragError(f"{left} questions have no answer yet, and --finished asks none")


# ------------------------------------------------------------------------------------------------------ trainings
@dataclass(frozen=True)
class Training:
    """One run of a training script."""

    label: str  # what a person calls it
    script: str  # its path in the repository
    arguments: tuple[str, ...]  # config file and overrides
    run: str  # its directory
    settings: Mapping[str, Any]  # all that its script notes of the run, but for the fold and where the run is


def trainings(source: Path, points: Sequence[Point]) -> Iterator[Training]:
    """Yield a training and its run directory for each point. Raises ConfigError: see `script_for`; or a shared run."""
    for point in points:
        script = script_for(source, point.overrides)
        unnamed = [o for o in point.overrides if not o.startswith("run.name=")]
        if len(unnamed) < len(point.overrides) and len(points) > 1:
            raise ConfigError("run.name=...: several trainings cannot share a run; each gets a name of its own")
        raw = OmegaConf.merge(read_yaml(source, TRAINING_EXAMPLES), OmegaConf.from_dotlist(list(point.overrides)))
        run = OmegaConf.to_container(raw).get("run") or {}  # type: ignore[union-attr]
        if run.get("fresh"):
            raise ConfigError(FRESH)
        name = run.get("name") or source.stem
        if changed := [o for o in point.overrides if not o.startswith("run.")]:
            name = f"{name}-{digest(changed)[:8]}"
        settings = to_plain(_read_training(Path(script).name, source, point.overrides))
        label, path = "/".join(filter(None, (source.stem, point.label))), Path(run.get("root") or "runs") / name
        settings.pop("run")
        yield Training(label, script, (str(source), *unnamed, f"run.name={name}"), str(path), settings)


def script_for(source: Path, overrides: Sequence[str]) -> str:
    """Return the script that reads a config; of several, its name's first word says. Raises ConfigError: not one."""
    problems: dict[str, str] = {}
    for script in TRAININGS:
        try:
            _read_training(script, source, overrides)
        except GnnragError as error:
            problems[script] = described(error)
    fitting = [script for script in TRAININGS if script not in problems]
    named = f"train_{source.stem.split('_')[0]}.py"
    if not fitting:
        reasons = [problems[named]] if named in problems else [f"{name}: {text}" for name, text in problems.items()]
        raise ConfigError(f"{source}: no training script can read it. {'; '.join(reasons)}")
    if len(fitting) > 1 and named not in fitting:
        example = f"{fitting[0].removeprefix('train_').removesuffix('.py')}_{source.name}"
        raise ConfigError(
            f"{source}: {', '.join(fitting)} can all read it; begin the file's name with what is trained, such as "
            f"{example}"
        )
    return f"training/{fitting[0] if len(fitting) == 1 else named}"


def _read_training(script: str, source: Path, overrides: Sequence[str]) -> Any:
    """Read a config as a script does, with what it leaves open written out. Raises ConfigError where it would."""
    from gnnrag.training.base import chosen_training  # torch

    kind = chosen_training(TRAININGS[script], str(source), overrides)
    return kind.settle(kind.load(source, overrides))
