"""Settings of the cross-encoder's training, and recorded decisions as its examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gnnrag.common.files import digest, file_digest
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError, DataError
from gnnrag.roles.tuned.pair_features import Shown
from gnnrag.roles.tuned.verifier import CrossEncoderConfig, PairMaker, check_cross_encoder
from gnnrag.training.config import FitConfig, FoldConfig, TrainingRunConfig, check_sets, check_values
from gnnrag.training.rows import VerifierRow, read_rows

COLLECT = "gnnrag collect-traces writes verifier.jsonl"


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
    """Settings of a step's lists: a row's positives and some negatives."""

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


CHOICES = {
    "ranking.loss": ("listwise", "each", "bce"),
    "ranking.labels": ("selected", "gold"),
    "selecting.calibrate": ("platt", "temperature", "none"),
}
LEAST = {"ranking.negatives": 1, "ranking.max_pairs": 2, "ranking.feature_steps": 0, "ranking.feature_batch": 1}
LEAST |= {"selecting.max_selected": 1, "selecting.top_k": 1, "selecting.read": 1}


def check_verifier(config: TrainVerifierConfig) -> None:
    """Raise ConfigError where there is nothing to train on, or a setting is out of range."""
    if not config.sets:
        raise ConfigError(f"sets: name at least one, as configs/train/verifier.yaml does; {COLLECT}")
    for name, one in config.sets.items():
        if not one.rows:
            raise ConfigError(f"sets.{name}.rows is empty: give files of decisions; {COLLECT}")
    check_sets(config.sets, config.cross, config.folds)
    check_values(config, CHOICES, LEAST)
    r = config.ranking
    if r.hardness < 0 or r.positive_weight <= 0:
        raise ConfigError(
            f"ranking: hardness={r.hardness} must be 0 or more, positive_weight={r.positive_weight} above 0"
        )
    check_cross_encoder(config.network)


@dataclass(frozen=True, eq=False)
class Example:
    """A decision."""

    # set, question_id: where it is from
    set: str
    question_id: str
    shown: Shown  # all its passages: those that the verifier saw in pool order, then those that were mined
    seen: int  # number of those that it saw; only they are judged in evaluations
    features: np.ndarray  # (passages, features) float32
    labels: np.ndarray  # (passages,) bool

    @property
    def judged(self) -> Shown:
        """Part of what is shown that the verifier saw."""
        s = self.shown
        return replace(
            s, passages=s.passages[: self.seen], scores=s.scores[: self.seen], cosines=s.cosines[: self.seen]
        )


@dataclass(frozen=True)
class VerifierSet:
    """The examples of a set, and all its questions: texts by id."""

    name: str
    config: RowsConfig
    examples: tuple[Example, ...]
    questions: Mapping[str, str]
    fingerprint: str


def open_set(name: str, config: TrainVerifierConfig, maker: PairMaker) -> VerifierSet:
    """Read the rows of a set. Raises DataError where a file is missing or holds something else."""
    given = config.sets[name]
    rows = [row for path in given.rows for row in read_rows(path, VerifierRow)]
    if config.network.features and (cut := next((row for row in rows if row.source.get("left_out")), None)):
        raise DataError(
            ", ".join(given.rows),
            f"row {cut.id!r} lacks {cut.source['left_out']} of the passages that were shown, so that ranks and other "
            "features would differ from those at inference: collect the rows again with negatives=null, or give "
            "network.features=[] for a network of the text alone",
        )
    examples = tuple(make_example(name, row, maker, config.ranking.labels) for row in rows)
    asked = [(row.question_id, row.question) for row in rows]
    if given.data:
        asked = [(q.id, q.text) for q in load_dataset(given.data, given.split).questions] + asked
    content = [[file_digest(Path(path)) for path in given.rows], [id_ for id_, _ in asked]]
    return VerifierSet(name, given, examples, dict(asked), digest(content))


def make_example(name: str, row: VerifierRow, maker: PairMaker, labels: str = "selected") -> Example:
    """Return a row as an example. Mined passages are judged as if each list went on with them."""
    seen = next((i for i, p in enumerate(row.passages) if p.score is None), len(row.passages))
    seen = seen or len(row.passages)  # rows recorded elsewhere may know no scores at all
    features = maker.features(_shown(row, seen))
    if seen < len(row.passages):
        features = np.concatenate([features, maker.features(_shown(row, len(row.passages)))[seen:]])
    right = set(getattr(row, labels))
    found = np.array([p.id in right for p in row.passages], dtype=bool)
    return Example(name, row.question_id, _shown(row, len(row.passages)), seen, features, found)


def _shown(row: VerifierRow, count: int) -> Shown:
    passages = row.passages[:count]
    known = [p.score for p in passages if p.score is not None]
    scores = [min(known) if p.score is None else p.score for p in passages] if known else []
    cosines = [p.cosine for p in passages if p.cosine is not None]
    return Shown(
        row.question,
        row.chain,
        tuple(p.passage for p in passages),
        scores,
        cosines if len(cosines) == len(passages) else (),
        frozenset(row.support),
    )
