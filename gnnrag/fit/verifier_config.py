"""Settings of the cross-encoder in `training/train_verifier.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnrag.errors import ConfigError
from gnnrag.fit.config import FitConfig, FoldConfig, TrainingRunConfig, check_fit, check_run, check_sets
from gnnrag.tuned.cross_encoder import CrossEncoderConfig, check_cross_encoder

COLLECT = "inference/collect_traces.py writes verifier.jsonl"
CHOICES = {
    "loss": ("listwise", "each", "bce"),
    "labels": ("selected", "gold"),
    "calibrate": ("platt", "temperature", "none"),
}


@dataclass
class RowsConfig:
    """Recorded decisions on the questions of a set."""

    rows: list[str] = field(default_factory=list)  # files verifier.jsonl, such as of several retrievers
    data: str | None = None  # the set's folder: questions without rows are then dealt out to the folds, too
    split: str = "dev"  # of that folder
    share: float = 1.0  # factor of the probability that a batch takes its rows, beside the root of their number
    licence: str = ""  # for the model card


@dataclass
class RankingConfig:
    """What a step learns from: lists of a row's positives and some negatives."""

    loss: str = "listwise"  # softmax over the list; each: every positive against all negatives; bce: every pair alone
    labels: str = "selected"  # what the teacher selected, or gold
    negatives: int = 4  # for each positive, drawn anew at each step
    max_pairs: int = 16  # of a list; positives first
    hardness: float = 1.0  # a negative that the features rank r-th is drawn by 1 / r^hardness; 0: all alike
    feature_steps: int = 600  # that fit the head of the features alone, on whole lists, before the training
    feature_batch: int = 64  # lists of such a step
    feature_lr: float = 0.003
    positive_weight: float = 1.0  # of a positive in the loss bce


@dataclass
class SelectingConfig:
    """How scores become a selection, and what it is measured by."""

    max_selected: int = 5  # at most so many passages are promoted
    top_k: int = 5  # the threshold is the one with the best recall of so many passages after promotion
    read: int | None = 20  # passages of a question whose text is read, the best by their features; null: all
    calibrate: str = "platt"  # scores to probabilities, on validation: platt, temperature or none


@dataclass
class TrainVerifierConfig:
    """Everything that training of a cross-encoder reads."""

    kind: str = "cross_encoder"
    sets: dict[str, RowsConfig] = field(default_factory=dict)  # by name
    network: CrossEncoderConfig = field(default_factory=CrossEncoderConfig)
    ranking: RankingConfig = field(default_factory=RankingConfig)
    selecting: SelectingConfig = field(default_factory=SelectingConfig)
    metric: str = "auc"  # of validation, that decides which weights are kept
    folds: FoldConfig = field(default_factory=FoldConfig)
    cross: bool = False  # train once for each fold and report on all questions together
    fit: FitConfig = field(default_factory=FitConfig)
    run: TrainingRunConfig = field(default_factory=TrainingRunConfig)
    seed: int = 0


def check_verifier(config: TrainVerifierConfig) -> None:
    """Raise ConfigError where there is nothing to train on, or a setting is out of range."""
    if not config.sets:
        raise ConfigError(f"sets: name at least one, as configs/train/verifier.yaml does; {COLLECT}")
    for name, one in config.sets.items():
        if not one.rows:
            raise ConfigError(f"sets.{name}.rows is empty: give files of decisions; {COLLECT}")
    check_sets(config.sets, config.cross, config.folds)
    _check_ranking(config.ranking, config.selecting)
    check_cross_encoder(config.network)
    check_run(config.run)
    check_fit(config.fit)


def _check_ranking(r: RankingConfig, s: SelectingConfig) -> None:
    for where, key, value in (
        ("ranking", "loss", r.loss),
        ("ranking", "labels", r.labels),
        ("selecting", "calibrate", s.calibrate),
    ):
        if value not in CHOICES[key]:
            raise ConfigError(f"{where}.{key}={value!r}: allowed are {', '.join(CHOICES[key])}")
    for where, least, given in (
        ("ranking.negatives", 1, r.negatives),
        ("ranking.max_pairs", 2, r.max_pairs),
        ("ranking.feature_steps", 0, r.feature_steps),
        ("ranking.feature_batch", 1, r.feature_batch),
        ("selecting.max_selected", 1, s.max_selected),
        ("selecting.top_k", 1, s.top_k),
        ("selecting.read", 1, s.read),
    ):
        if given is not None and given < least:
            raise ConfigError(f"{where}={given}: must be at least {least}")
    if r.hardness < 0 or r.positive_weight <= 0:
        raise ConfigError(
            f"ranking: hardness={r.hardness} must be 0 or more, positive_weight={r.positive_weight} above 0"
        )
