"""Settings that all trainings share, and the folds that they divide questions into."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Lt

from gnnrag.config import DataConfig, IndexConfig, TrackingConfig
from gnnrag.errors import ConfigError
from gnnrag.session import normalised

Count = Annotated[int, Ge(1)]
Use = Literal["folds", "train", "report"]  # of the questions of a set: all three parts, none reports, all report
SetShare = Annotated[float, Gt(0)]  # factor of the probability that a batch takes a set's questions


@dataclass
class FoldConfig:
    """Which questions train, validate and report; by a hash of the question's id, so that data may grow."""

    count: Annotated[int, Ge(2)] = 5
    report: Annotated[int, Ge(0)] | None = 0  # fold that is reported on; null: none, all others train
    validation: Annotated[float, Ge(0), Lt(1)] = 0.1  # share of the other questions that decides when to stop
    salt: str = "gnnrag"  # another one makes other folds


@dataclass
class TrainingRunConfig(TrackingConfig):
    notes: list[str] = field(default_factory=list)  # go into the model card
    licence: str = ""  # of the weights, for the card


@dataclass
class TrainConfig:
    """Settings of every training."""

    folds: FoldConfig = field(default_factory=FoldConfig)
    cross: bool = False  # train once for each fold and report on all questions together
    # of the trainer's arguments (transformers.TrainingArguments, or the subclass of the library), by their own names
    trainer: dict[str, Any] = field(default_factory=dict)
    patience: Count | None = None  # evaluations without a better one after which training stops; null: never
    run: TrainingRunConfig = field(default_factory=TrainingRunConfig)
    seed: int = 0


@dataclass
class NetworkConfig(TrainConfig):
    """Settings of a training of a network of gnnrag; `gnnrag.training.networks.DEFAULTS` stand below `trainer`."""

    sets: dict[str, Any] = field(default_factory=dict)
    metric: str = "recall@5"  # of validation, that decides which weights are kept


@dataclass
class SetConfig:
    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    use: Use = "folds"
    share: SetShare = 1.0  # factor of the probability that a batch takes its questions, beside the root of their number
    leave_out: list[str] = field(default_factory=list)  # ids of questions not to be used, such as those of a test set
    licence: str = ""  # for the model card


@dataclass(frozen=True)
class Parts:
    """Ids of the questions of each part, in the order given; no id is in two."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    report: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        return {name: list(ids) for name, ids in asdict(self).items()}


def draw(text: str, salt: str) -> float:
    """Return a number in [0, 1) that only the text and the salt decide."""
    return int(hashlib.sha256(f"{salt}:{text}".encode()).hexdigest()[:12], 16) / 16**12


def split_questions(ids: Iterable[str], config: FoldConfig, texts: Mapping[str, str] | None = None) -> Parts:
    """Divide questions into parts; those whose texts differ in case and spacing only get the same one.

    Raises ConfigError where the fold to report on does not exist.
    """
    if config.report is not None and config.report >= config.count:
        raise ConfigError(f"folds.report={config.report} with folds.count={config.count}: give one of them, or null")
    ids = list(ids)
    known = {id_: text for id_ in ids if (text := normalised(texts[id_]))} if texts else {}
    first: dict[str, str] = {}  # of each text, the id that decides
    for id_ in sorted(known):
        first.setdefault(known[id_], id_)
    parts: dict[str, list[str]] = {"train": [], "validation": [], "report": []}
    for id_ in ids:
        lead = first[known[id_]] if id_ in known else id_
        if config.report is not None and int(draw(lead, config.salt) * config.count) == config.report:
            part = "report"
        else:
            part = "validation" if draw(lead, f"{config.salt}/validation") < config.validation else "train"
        parts[part].append(id_)
    return Parts(**{name: tuple(rows) for name, rows in parts.items()})


def divide(texts: Mapping[str, str], folds: FoldConfig, fold: int | None, use: Use = "folds") -> Parts:
    """Split the questions of a set (texts by id) for the fold that is reported on, as `use` of the set says."""
    if use == "report":
        return Parts((), (), tuple(texts))
    return split_questions(texts, replace(folds, report=None if use == "train" else fold), texts)
