"""Settings of `training/train_reader.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnrag.config import DataConfig, IndexConfig
from gnnrag.errors import ConfigError
from gnnrag.fit.config import FitConfig, FoldConfig, TrainingRunConfig, check_sets
from gnnrag.tuned.span_reader import SpanReaderConfig, check_span_reader

STAGES = ("questions", "practice")
METRICS = ("em", "f1", "gold_em", "gold_f1")


@dataclass
class ReaderSetConfig:
    """A corpus with questions and answers."""

    data: DataConfig = field(default_factory=DataConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    use: str = "folds"  # folds: each question trains, validates or reports; train: none reports; report: all report
    share: float = 1.0  # factor of the probability that a batch takes its questions, beside the root of their number
    parts: float = 1.0  # the same for sub-questions and evidence triples of its questions; 0: none
    triples: str | None = None  # extracted triples of its passages, as `index.extract.path`; they are practised on
    licence: str = ""  # for the model card


@dataclass
class ShownConfig:
    """Which passages a question is read with."""

    retriever: str = "chg"  # whose passages stand beside the gold ones
    passages: int = 5  # read at validation and in the report: the best of the retriever
    least: int = 2  # fewest passages in training
    most: int = 6  # most passages in training
    gold_only: float = 0.25  # how often only gold passages are shown
    complete: float = 0.6  # how often missing gold passages are put in otherwise
    variants: int = 3  # choices of passages for each question, used by turns; 0: another one at each step
    drop: float = 0.2  # how often a passage that is not gold is left out


@dataclass
class ReaderLossConfig:
    """What a step learns from."""

    rank: float = 1.0  # weight of choosing among the candidates of a whole question
    span: float = 0.5  # weight of finding where the answer begins and ends
    rank_hops: bool = False  # choose among the candidates of single hops, too
    distractors: int = 1  # further passages of a practice question
    held_out: int = 100  # practice questions that validate


@dataclass
class TrainReaderConfig:
    """Everything that training of a reader reads."""

    kind: str = "span"
    sets: dict[str, ReaderSetConfig] = field(default_factory=dict)  # by name
    stage: str = "questions"  # questions: with their answers; practice: questions made from the passages
    start: str | None = None  # checkpoint to start from, such as that of practice
    network: SpanReaderConfig = field(default_factory=SpanReaderConfig)
    shown: ShownConfig = field(default_factory=ShownConfig)
    losses: ReaderLossConfig = field(default_factory=ReaderLossConfig)
    metric: str = "f1"  # of validation, that decides which weights are kept; in practice: em of its own questions
    threshold_loss: float = 0.01  # EM of validation that may be lost by withholding unsure answers
    folds: FoldConfig = field(default_factory=FoldConfig)
    cross: bool = False  # train once for each fold and report on all questions together
    fit: FitConfig = field(default_factory=FitConfig)
    run: TrainingRunConfig = field(default_factory=TrainingRunConfig)
    seed: int = 0


def check_reader(config: TrainReaderConfig) -> None:
    """Raise ConfigError where there is nothing to train on, or a setting is out of range."""
    if not config.sets:
        raise ConfigError("sets: name at least one, as configs/train/reader.yaml does")
    for name, value, allowed in (("stage", config.stage, STAGES), ("metric", config.metric, METRICS)):
        if value not in allowed:
            raise ConfigError(f"{name}={value!r}: allowed are {', '.join(allowed)}")
    for name, one in config.sets.items():
        if one.parts < 0:
            raise ConfigError(f"sets.{name}.parts={one.parts}: must be 0 or more")
    check_sets(config.sets, config.cross, config.folds)
    _check_shown(config.shown)
    check_span_reader(config.network)
    _check_stage(config)


def _check_shown(shown: ShownConfig) -> None:
    if not 1 <= shown.least <= shown.most or shown.passages < 1:
        given = f"least={shown.least}, most={shown.most}, passages={shown.passages}"
        raise ConfigError(f"shown: {given}: 1 <= least <= most is needed, and at least 1 passage")
    for key in ("gold_only", "complete", "drop"):
        if not 0 <= getattr(shown, key) <= 1:
            raise ConfigError(f"shown.{key}={getattr(shown, key)}: must be in [0, 1]")
    if shown.variants < 0:
        raise ConfigError(f"shown.variants={shown.variants}: must be 0 or more")


def _check_stage(config: TrainReaderConfig) -> None:
    network, is_practice = config.network, config.stage == "practice"
    if config.cross and is_practice:
        raise ConfigError("cross=true reports on every fold in turn, and stage=practice on none: give stage=questions")
    if is_practice and (network.fixed or not network.text):
        raise ConfigError("stage=practice teaches to read: network.fixed must be false and network.text true")
    if network.fixed and network.text and not config.start:
        raise ConfigError("network.fixed=true keeps what practice taught: give its checkpoint, start=DIR")
