"""Settings of the selector's training, and the decisions it learns from: candidates and what each is worth.

A pool is what dense retrieval makes of the question and the queries so far (BDTR): each passage's best score, scaled to
[0, 1] over the corpus. Scores need only the vectors of the index, so that every pair of candidates can be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from gnnrag.common.files import digest, open_regular, write_atomic
from gnnrag.config import DataConfig, IndexConfig
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.index import Index
from gnnrag.index_config import one_of
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.thoughts import OfflineThoughts
from gnnrag.roles.tuned.thoughts import FEATURES, OptionMaker, Options, SelectorConfig
from gnnrag.training.config import USES, FitConfig, FoldConfig, TrainingRunConfig, check_sets, check_values, draw
from gnnrag.types import Question

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
    if unknown := [name for name in config.decisions.trails if name not in TRAILS]:
        raise ConfigError(f"decisions.trails={unknown[0]!r}: allowed are {', '.join(TRAILS)}")
    check_values(config, least={"decisions.candidates": 2, "decisions.shown": 1, "selector.hidden": 1})
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


VERSION = 1  # of the files
NEAR = 10  # ranks that count


@dataclass(frozen=True, eq=False)
class Decision:
    """A decision with what each choice is worth."""

    round: int  # 1-based
    trail: str  # whose first round it follows; empty in round 1
    options: Options  # the candidates
    # (n + 1, n + 1) float32, of the pool with candidates i and j; the last row and column are for none
    worth: np.ndarray
    recall: np.ndarray  # (n + 1, n + 1) float32, the same for recall@5 alone

    def gains(self, picked: int | None) -> np.ndarray:
        """Return what each candidate, and none, adds to the pool with a picked one. Shape (n + 1,)."""
        row = self.worth[-1 if picked is None else picked]
        return row - row[-1]

    @property
    def best(self) -> tuple[int | None, int | None]:
        """The best pair, one after the other; None where nothing helps."""
        first = self._best(None)
        return first, None if first is None else self._best(first)

    def _best(self, picked: int | None) -> int | None:
        gains = self.gains(picked)
        return int(gains.argmax()) if gains.max() > 1e-6 else None


class DecisionMaker:
    """Makes decisions of questions, and pools of queries."""

    def __init__(self, index: Index, config: DecisionConfig) -> None:
        self.index, self.config = index, config
        self.options, self.rules = OptionMaker(index, config.candidates), OfflineThoughts(index)

    def pool(self, queries: Sequence[str]) -> np.ndarray:
        """Return the scores of all passages after some queries. Shape (num_passages,), float32."""
        vectors = self.index.embedder.encode(list(queries), is_query=True)
        return np.max([self._scores(v) for v in vectors], axis=0)

    def task(self, question: Question, pool: np.ndarray, earlier: Sequence[str], round_: int) -> ThoughtsTask:
        """Return what the role is asked at a pool."""
        top = np.argsort(-pool, kind="stable")[: self.config.shown].tolist()
        passages = tuple(self.index.passages[p] for p in top)
        return ThoughtsTask(question, passages, tuple(pool[top].tolist()), tuple(earlier), round_)

    def recall(self, question: Question, pool: np.ndarray) -> float:
        """Return recall@5 of a pool."""
        ranks = [1 + int((pool > pool[g]).sum()) for g in self.gold(question)]
        return float(np.mean([rank <= 5 for rank in ranks])) if ranks else 0.0

    def gold(self, question: Question) -> list[int]:
        """Return the positions of the gold passages."""
        return [self.index.position[id_] for id_ in dict.fromkeys(question.gold) if id_ in self.index.position]

    def decisions(self, question: Question) -> Iterator[Decision]:
        """Yield the decision of round 1, and that of round 2 for each trail that differs."""
        start = self.pool([question.text])
        task = self.task(question, start, (), 1)
        candidates, first = self.decide(task, start, "")
        yield first
        done = set[tuple[str, ...]]()
        for trail in self.config.trails:
            queries = self._follow(trail, task, [c.text for c in candidates], first)
            if queries in done:
                continue
            done.add(queries)
            pool = self.pool([question.text, *queries])
            yield self.decide(self.task(question, pool, queries, 2), pool, trail)[1]

    def decide(self, task: ThoughtsTask, pool: np.ndarray, trail: str) -> tuple[list[Any], Decision]:
        """Return the candidates of a task, and the decision."""
        candidates, options = self.options([task])[0]
        scores = np.stack([*(self._scores(v) for v in options.vectors), np.full_like(pool, -np.inf)])
        worth, recall = self._worth(pool, scores, self.gold(task.question))
        return candidates, Decision(task.round, trail, options, worth, recall)

    def _follow(self, trail: str, task: ThoughtsTask, texts: Sequence[str], first: Decision) -> tuple[str, ...]:
        """Return the queries of round 1."""
        if trail == "rules":
            thoughts = self.rules.think(task)
            return tuple(q for q in (thoughts.fast, thoughts.slow) if q)
        if trail == "best":
            return tuple(texts[i] for i in first.best if i is not None)
        drawn = [int(draw(task.question.id, f"wander{n}") * len(texts)) for n in range(2)] if texts else []
        return tuple(dict.fromkeys(texts[i] for i in drawn))

    def _scores(self, vector: np.ndarray) -> np.ndarray:
        scores = self.index.passage_vectors @ vector
        low, high = scores.min(), scores.max()
        return (scores - low) / (high - low) if high > low else np.ones_like(scores)

    def _worth(self, pool: np.ndarray, scores: np.ndarray, gold: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the worth and the recall@5 of the pool with every two rows of scores.

        Only what is among the first `NEAR` of some list can be among those of the pool.
        """
        count = min(NEAR, len(pool))
        near = {int(p) for row in (pool, *scores[:-1]) for p in np.argpartition(-row, count - 1)[:count]}
        columns = sorted(near | set(gold))
        place = np.searchsorted(columns, gold)
        base, rows = pool[columns], scores[:, columns]
        size, config = len(scores), self.config
        worth, recall = np.zeros((2, size, size), dtype=np.float32)
        for i in range(size):
            united = np.maximum(np.maximum(base, rows[i]), rows)  # (n + 1, columns)
            for g in place:
                ranks = 1 + (united > united[:, g : g + 1]).sum(axis=1)
                is_near = ranks <= NEAR
                value = config.recall * (ranks <= 5) + is_near * (config.recall_10 + config.reciprocal / ranks)
                worth[i] += value / len(gold)
                recall[i] += (ranks <= 5) / len(gold)
        return worth, recall


class DecisionSet:
    """The decisions of questions on one index, made once and read from disk afterwards."""

    def __init__(
        self,
        questions: Sequence[Question],
        index: Index,
        config: DecisionConfig,
        folder: Path,
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        self.maker = DecisionMaker(index, config)
        stages = {name: index.fingerprint[name] for name in OptionMaker.stages}
        key = [VERSION, stages, vars(config), FEATURES]
        self.decisions: dict[str, list[Decision]] = {}
        for question in questions:
            gold = self.maker.gold(question)
            path = folder / f"{digest([key, question.id, question.text, gold])[:24]}.npz"
            if not path.exists():
                write_decisions(path, list(self.maker.decisions(question)))
                progress(1)
            self.decisions[question.id] = read_decisions(path)


_ARRAYS = ("features", "vectors", "hits", "worth", "recall")


def write_decisions(path: Path, decisions: Sequence[Decision]) -> None:
    """Write the decisions of a question, so that a kill leaves a whole file or none."""
    arrays: dict[str, np.ndarray] = {
        "rounds": np.array([d.round for d in decisions]),
        "trails": np.array([d.trail for d in decisions]),
    }
    for n, d in enumerate(decisions):
        values = (d.options.features, d.options.vectors, d.options.hits, d.worth, d.recall)
        arrays |= {f"{name}{n}": value for name, value in zip(_ARRAYS, values, strict=True)}
    write_atomic(path, lambda out: np.savez(out, **arrays))  # type: ignore[arg-type]


def read_decisions(path: Path) -> list[Decision]:
    """Read what `write_decisions` wrote. Raises ArtefactError where the file is damaged."""
    try:
        with open_regular(path) as held, np.load(held, allow_pickle=False) as data:
            found = []
            for n, (round_, trail) in enumerate(zip(data["rounds"].tolist(), data["trails"].tolist(), strict=True)):
                features, vectors, hits, worth, recall = (data[f"{name}{n}"] for name in _ARRAYS)
                found.append(Decision(round_, trail, Options(features, vectors, hits), worth, recall))
            return found
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise ArtefactError(f"{path} is damaged ({error}); delete it, training makes it again") from error
