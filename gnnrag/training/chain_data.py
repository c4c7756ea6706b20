"""Settings of the chain verifier's training, and recorded decisions as lists to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gnnrag.common.files import digest, file_digest
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError, DataError
from gnnrag.roles.tuned.chain_features import ChainReading
from gnnrag.roles.tuned.chain_verifier import ChainConfig, check_chain
from gnnrag.roles.tuned.pair_features import Shown
from gnnrag.training.config import FitConfig, FoldConfig, TrainingRunConfig, check_sets, check_values, draw
from gnnrag.training.rows import VerifierRow, read_rows
from gnnrag.training.verifier_data import COLLECT, RowsConfig


@dataclass
class ChainRowsConfig(RowsConfig):
    """Recorded decisions on the questions of a set."""

    untitled: float = 0.0  # share of the rows whose passages lose their titles: corpora have some, others, or none


@dataclass
class ChainsConfig:
    """Chains that a step learns to go on from: some of the gold passages, and some that are none."""

    empty: float = 0.25  # share of lists that start a chain
    wrong: float = 0.5  # share of the other lists whose chain has passages that are not gold
    most_wrong: int = 3  # at most so many
    depth: int = 15  # they are among the first so many of the pool


@dataclass
class TrainChainConfig:
    """Everything that training of a chain verifier reads."""

    kind: str = "chain"
    sets: dict[str, ChainRowsConfig] = field(default_factory=dict)  # by name
    network: ChainConfig = field(default_factory=ChainConfig)
    chains: ChainsConfig = field(default_factory=ChainsConfig)
    next_hop: float = 0.0  # weight that the next-hop encoder which ships is given in use; its scores teach nothing
    metric: str = "recall@5"  # of validation, that decides which weights are kept
    folds: FoldConfig = field(default_factory=FoldConfig)
    cross: bool = False  # train once for each fold and report on all questions together
    fit: FitConfig = field(default_factory=FitConfig)
    run: TrainingRunConfig = field(default_factory=TrainingRunConfig)
    seed: int = 0


def check_chains(config: TrainChainConfig) -> None:
    """Raise ConfigError where there is nothing to train on, or a setting is out of range."""
    if not config.sets:
        raise ConfigError(f"sets: name at least one, as configs/train/verifier_chain.yaml does; {COLLECT}")
    for name, one in config.sets.items():
        if not one.rows:
            raise ConfigError(f"sets.{name}.rows is empty: give files of decisions; {COLLECT}")
        if not 0 <= one.untitled <= 1:
            raise ConfigError(f"sets.{name}.untitled={one.untitled}: a share, from 0 to 1")
    check_sets(config.sets, config.cross, config.folds)
    check_values(config, least={"chains.most_wrong": 1, "chains.depth": 1, "next_hop": 0})
    for key in ("empty", "wrong"):
        if not 0 <= (value := getattr(config.chains, key)) <= 1:
            raise ConfigError(f"chains.{key}={value}: a share, from 0 to 1")
    check_chain(config.network)


@dataclass(frozen=True, eq=False)
class ChainExample:
    """A decision."""

    # set, question_id: where it is from
    set: str
    question_id: str
    reading: ChainReading
    labels: np.ndarray  # (passages,) bool: gold


@dataclass(frozen=True)
class ChainSet:
    """The examples of a set, and all its questions: texts by id."""

    config: ChainRowsConfig
    examples: tuple[ChainExample, ...]
    questions: Mapping[str, str]
    fingerprint: str


def open_chain_set(name: str, config: TrainChainConfig) -> ChainSet:
    """Read the rows of a set. Raises DataError where a file is missing or holds something else."""
    given = config.sets[name]
    rows = [row for path in given.rows for row in read_rows(path, VerifierRow)]
    if cut := next((row for row in rows if row.source.get("left_out")), None):
        problem = f"row {cut.id!r} lacks {cut.source['left_out']} of the passages that were shown; collect with "
        raise DataError(", ".join(given.rows), problem + "negatives=null")
    examples = tuple(chain_example(name, row, given.untitled) for row in rows)
    asked = [(row.question_id, row.question) for row in rows]
    if given.data:
        asked = [(q.id, q.text) for q in load_dataset(given.data, given.split).questions] + asked
    content = [[file_digest(Path(path)) for path in given.rows], [id_ for id_, _ in asked], given.untitled]
    return ChainSet(given, examples, dict(asked), digest(content))


def chain_example(name: str, row: VerifierRow, untitled: float) -> ChainExample:
    """Return a row as an example, of the passages that the verifier saw; which rows lose titles follows from ids."""
    seen = [p for p in row.passages if p.score is not None] or list(row.passages)
    passages = [p.passage for p in seen]
    if draw(row.id, "untitled") < untitled:
        passages = [replace(p, title="") for p in passages]
    scores = [p.score for p in seen if p.score is not None]
    cosines = [p.cosine for p in seen if p.cosine is not None]
    shown = Shown(
        row.question,
        row.chain,
        passages,
        scores,
        cosines if len(cosines) == len(seen) else (),
        frozenset(row.support),
    )
    gold = set(row.gold)
    return ChainExample(name, row.question_id, ChainReading(shown), np.array([p.id in gold for p in seen], dtype=bool))


def draw_chain(labels: np.ndarray, config: ChainsConfig, rng: np.random.Generator) -> tuple[int, ...]:
    """Return a chain that lacks at least one gold passage, as places; gold in any order, wrong ones from the top."""
    gold, chain = rng.permutation(np.flatnonzero(labels)), list[int]()
    if rng.random() >= config.empty:
        chain = gold[: rng.integers(len(gold))].tolist()
        wrong = np.flatnonzero(~labels[: config.depth])
        if rng.random() < config.wrong or not chain:
            chain += rng.permutation(wrong)[: rng.integers(1, config.most_wrong + 1)].tolist()
    return tuple(sorted(chain))


def feature_scale(features: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each feature over all passages, the latter at least 0.01."""
    every = np.concatenate(features)
    return every.mean(0), np.maximum(every.std(0), 0.01)
