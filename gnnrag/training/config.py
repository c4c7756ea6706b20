"""Settings that all trainings share, and the folds that they divide questions into."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any

from gnnrag.config import TrackedRun
from gnnrag.errors import ConfigError
from gnnrag.session import normalised

USES = ("folds", "train", "report")  # of the questions of a set
SCHEDULES, PRECISIONS, KEPT = ("constant", "linear", "cosine"), ("no", "bf16", "fp16"), ("best", "last")


@dataclass
class FitConfig:
    """The optimiser and how long it runs. A step is one update from `batch_size` items over all processes."""

    steps: int = 2000  # at most
    batch_size: int = 8  # items of a step, over all processes together
    micro_batch: int | None = None  # items of one forward pass in one process; null: its whole share
    lr: float = 5e-4  # AdamW
    weight_decay: float = 0.01
    schedule: str = "constant"  # constant, or falling to 0 at the last step: linear, cosine
    warmup: int = 0  # steps in which lr rises from 0
    clip: float | None = 1.0  # largest norm of the gradient; null: none
    average: float = 0.0  # decay of the running mean of the weights that is evaluated and saved; 0: the weights
    eval_every: int = 100  # steps
    patience: int | None = 10  # evaluations without a better one after which training stops; null: never
    keep: str = "best"  # weights of the best evaluation, or of the last step
    save_every: int = 100  # steps between states to resume from; one is also saved at each evaluation
    log_every: int = 20  # steps
    precision: str = "no"  # no: float32; bf16 or fp16 where the hardware has it

    def __post_init__(self) -> None:
        if self.precision == "off":  # what a bare no is in YAML
            self.precision = "no"


@dataclass
class FoldConfig:
    """Which questions train, validate and report; by a hash of the question's id, so that data may grow."""

    count: int = 5
    report: int | None = 0  # fold that is reported on; null: none, all others train
    validation: float = 0.1  # share of the other questions that decides when to stop
    salt: str = "gnnrag"  # another one makes other folds


@dataclass
class TrainingRunConfig(TrackedRun):
    """The run directory of a training, and who else is told."""

    root: str = "runs"
    name: str | None = None  # default: the data and a hash of the settings
    fresh: bool = False  # throw an earlier run of that name away
    notes: list[str] = field(default_factory=list)  # go into the model card
    licence: str = ""  # of the weights, for the card
    measured: list[str] = field(default_factory=list)  # runs with these settings whose figures go into the model card


def check_values(
    config: Any, choices: Mapping[str, Sequence[str]] | None = None, least: Mapping[str, int] | None = None
) -> None:
    """Raise ConfigError where a setting, given by its dotted name, is no allowed choice, or is too small."""
    for name, allowed in (choices or {}).items():
        if (value := attrgetter(name)(config)) not in allowed:
            raise ConfigError(f"{name}={value!r}: allowed are {', '.join(allowed)}")
    for name, low in (least or {}).items():
        if (value := attrgetter(name)(config)) is not None and value < low:
            raise ConfigError(f"{name}={value}: must be at least {low}")


def check_fit(config: FitConfig, processes: int = 1) -> None:
    """Raise ConfigError where a setting is out of range, or the batch cannot be shared evenly."""
    for name, allowed in (("schedule", SCHEDULES), ("precision", PRECISIONS), ("keep", KEPT)):
        if (value := getattr(config, name)) not in allowed:
            raise ConfigError(f"fit.{name}={value!r}: allowed are {', '.join(allowed)}")
    for name in ("steps", "batch_size", "eval_every", "save_every", "log_every", "micro_batch", "patience"):
        if (value := getattr(config, name)) is not None and value < 1:
            raise ConfigError(f"fit.{name}={value}: must be at least 1")
    if config.batch_size % processes:
        raise ConfigError(
            f"fit.batch_size={config.batch_size} cannot be shared evenly by {processes} processes; "
            f"give a multiple of {processes}"
        )
    if not 0 <= config.average < 1:
        raise ConfigError(f"fit.average={config.average}: must be at least 0 and below 1")


def check_sets(sets: Mapping[str, Any], cross: bool, folds: FoldConfig) -> None:
    """Raise ConfigError: bad `share` or `use`, or `cross` would report on a question in every fold, or in none."""
    for name, one in sets.items():
        use = getattr(one, "use", USES[0])
        if use not in USES:
            raise ConfigError(f"sets.{name}.use={use!r}: allowed are {', '.join(USES)}")
        if cross and use == "report":
            raise ConfigError(
                f"sets.{name}.use=report with cross=true: every fold would report on all of it; cross=false"
            )
        if one.share <= 0:
            raise ConfigError(f"sets.{name}.share={one.share}: must be above 0")
    if cross and folds.report is None:
        raise ConfigError("cross=true reports on every fold in turn; folds.report=null reports on none")


@dataclass(frozen=True)
class Parts:
    """Ids of the questions of each part, in the order given; no id is in two."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    report: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """Return the parts as JSON data."""
        return {name: list(ids) for name, ids in asdict(self).items()}


def draw(text: str, salt: str) -> float:
    """Return a number in [0, 1) that only the text and the salt decide."""
    return int(hashlib.sha256(f"{salt}:{text}".encode()).hexdigest()[:12], 16) / 16**12


def fold_of(question_id: str, config: FoldConfig) -> int:
    """Return the fold of a question, in 0 .. count - 1."""
    return int(draw(question_id, config.salt) * config.count)


def split_questions(ids: Iterable[str], config: FoldConfig, texts: Mapping[str, str] | None = None) -> Parts:
    """Split ids; `texts` equal but for case and spacing stay together. Raises ConfigError: no such fold, bad share."""
    if config.count < 2 or (config.report is not None and not 0 <= config.report < config.count):
        raise ConfigError(
            f"folds.report={config.report} with folds.count={config.count}: at least 2 folds, and one of them or null"
        )
    if not 0 <= config.validation < 1:
        raise ConfigError(f"folds.validation={config.validation}: must be at least 0 and below 1")
    ids = list(ids)
    known = {id_: text for id_ in ids if (text := normalised(texts[id_]))} if texts else {}
    least: dict[str, str] = {}
    for id_ in sorted(known):
        least.setdefault(known[id_], id_)
    parts: dict[str, list[str]] = {"train": [], "validation": [], "report": []}
    for id_ in ids:
        lead = least[known[id_]] if id_ in known else id_
        if config.report is not None and fold_of(lead, config) == config.report:
            part = "report"
        else:
            part = "validation" if draw(lead, f"{config.salt}/validation") < config.validation else "train"
        parts[part].append(id_)
    return Parts(**{name: tuple(rows) for name, rows in parts.items()})


def divide(texts: Mapping[str, str], folds: FoldConfig, fold: int | None, use: str = "folds") -> Parts:
    """Split the questions of a set (texts by id) for the fold that is reported on, as `use` of the set says."""
    if use == "report":
        return Parts((), (), tuple(texts))
    return split_questions(texts, replace(folds, report=None if use == "train" else fold), texts)
