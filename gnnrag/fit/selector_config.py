"""Settings of `training/train_thoughts.py kind=selector`."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnrag.config import DataConfig, IndexConfig
from gnnrag.errors import ConfigError
from gnnrag.fit.config import USES, FitConfig, FoldConfig, TrainingRunConfig, check_sets
from gnnrag.index_config import one_of
from gnnrag.tuned.selector import SelectorConfig

TRAILS = ("rules", "best", "wander")


@dataclass
class ThoughtSetConfig:
    """A corpus with questions that takes part in a training."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    use: str = one_of(
        *USES
    )  # folds: each question trains, validates or reports; train: none reports; report: all report
    share: float = 1.0  # factor of the probability that a batch takes its questions, beside the root of their number
    train_limit: int | None = None  # at most so many questions train and validate, drawn by a hash of their ids
    licence: str = ""  # for the model card


@dataclass
class DecisionConfig:
    """Which decisions are trained on, and what a query is worth there."""

    candidates: int = 60  # most candidates of a decision
    shown: int = 5  # passages that a decision is made from
    trails: list[str] = field(default_factory=lambda: list(TRAILS))  # whose first round the second one follows
    recall: float = 1.0  # worth of a gold passage among the pool's first 5
    recall_10: float = 0.1  # among its first 10
    reciprocal: float = 0.2  # of its reciprocal rank, if among its first 10


@dataclass
class TrainSelectorConfig:
    """Everything that training of the selector reads."""

    kind: str = "selector"
    sets: dict[str, ThoughtSetConfig] = field(default_factory=dict)  # by name
    selector: SelectorConfig = field(default_factory=SelectorConfig)
    decisions: DecisionConfig = field(default_factory=DecisionConfig)
    temperature: float = 0.05  # of the target: candidates as good as the best share its probability
    expected: float = 10.0  # weight of the expected gain in the loss, beside the cross-entropy
    rollouts: bool = True  # report on two rounds, the second from where the first led; false: on the decisions made
    metric: str = "gain"  # of validation, that decides which weights are kept
    folds: FoldConfig = field(default_factory=FoldConfig)
    cross: bool = False  # train once for each fold and report on all questions together
    fit: FitConfig = field(default_factory=FitConfig)
    run: TrainingRunConfig = field(default_factory=TrainingRunConfig)
    seed: int = 0
    cache: str = ".cache/selector"  # decisions of the questions


def check_selector(config: TrainSelectorConfig) -> None:
    """Raise ConfigError where there is nothing to train on, or a setting is out of range."""
    _check_sizes(config)
    if not config.sets:
        raise ConfigError("sets: name at least one, as configs/train/thoughts_selector.yaml does")
    for name, one in config.sets.items():
        if one.train_limit is not None and one.train_limit < 1:
            raise ConfigError(f"sets.{name}.train_limit={one.train_limit}: must be at least 1")
    if not 0 <= config.selector.dropout < 1:
        raise ConfigError(f"selector.dropout={config.selector.dropout}: must be at least 0 and below 1")
    if config.temperature <= 0 or config.expected < 0:
        raise ConfigError(f"temperature={config.temperature} must be above 0, expected={config.expected} at least 0")
    if config.selector.features:
        raise ConfigError("selector.features is filled in by the training; leave it out")
    check_sets(config.sets, config.cross, config.folds)


def _check_sizes(config: TrainSelectorConfig) -> None:
    decisions = config.decisions
    if unknown := [name for name in decisions.trails if name not in TRAILS]:
        raise ConfigError(f"decisions.trails={unknown[0]!r}: allowed are {', '.join(TRAILS)}")
    for section, name, least in (("decisions", "candidates", 2), ("decisions", "shown", 1), ("selector", "hidden", 1)):
        if (value := getattr(getattr(config, section), name)) < least:
            raise ConfigError(f"{section}.{name}={value}: must be at least {least}")
