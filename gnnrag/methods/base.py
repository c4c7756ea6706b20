"""The interface of methods (four functions), the state of one question, and the pool of its scored passages."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import numpy as np

from gnnrag.parts import Part
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking, ScoreNorm

AutoNorm = Literal["auto", "minmax_full", "max_scale", "rank", "raw"]  # auto: see `scale_of`

Promotion = Literal["exempt", "order_only", "boost"]


@dataclass
class Pool:
    """Passages found so far with their scores, in the order in which they were first seen. That order breaks ties."""

    scores: dict[str, float] = field(default_factory=dict)

    def merge(self, ranking: Ranking, norm: ScoreNorm = "minmax_full", weight: float = 1.0) -> int:
        """Take each passage's best score over all queries (BDTR, arXiv 2509.25530, eq. 3, 4); return how many are new.

        A score is normalised by `norm` and multiplied by `weight`.
        """
        before = len(self.scores)
        for id_, score in zip(ranking.ids, (weight * ranking.normalised(norm)).tolist(), strict=True):
            if score > self.scores.get(id_, -math.inf):  # NaN never is
                self.scores[id_] = score
        return len(self.scores) - before

    def ranked(self) -> list[str]:
        """Return the ids, best score first, ties by first appearance."""
        return sorted(self.scores, key=lambda id_: -self.scores[id_])  # sorting is stable

    def top(self, count: int) -> list[str]:
        """Return the best `count` ids."""
        return self.ranked()[:count]

    def __len__(self) -> int:
        return len(self.scores)


def passages_behind(ranking: Ranking) -> Ranking:
    """Rank the source passages of graph hits, each by the score of its best hit; ties by that hit's rank."""
    best: dict[str, float] = {}
    for hit in ranking.hits:
        for passage in hit.sources:
            best[passage] = max(hit.score, best.get(passage, hit.score))
    ids = sorted(best, key=lambda id_: -best[id_])  # sorting is stable
    scores = np.array([best[id_] for id_ in ids], dtype=np.float64)
    return Ranking(tuple(ids), scores, branch=ranking.branch, low=ranking.low, high=ranking.high)


def promote(order: Sequence[str], selected: Collection[str]) -> list[str]:
    """Move the selected ids to the front; selected and other ids each keep their order (BDTR, eq. 5)."""
    chosen = set(selected)
    return [i for i in order if i in chosen] + [i for i in order if i not in chosen]


@dataclass(frozen=True)
class CutResult:
    """What the cut kept, and the statistics it used."""

    kept: tuple[str, ...]
    mean: float
    deviation: float


def mean_deviation_cut(
    order: Sequence[str],
    scores: dict[str, float],
    selected: Collection[str] = (),
    *,
    promotion: Promotion = "exempt",
    window: int = 50,
    floor: int = 5,
    max_final: int | None = 10,
) -> CutResult:
    """Keep passages that score at least mean + population deviation of the first `window` scores (BDTR, eq. 6).

    `order` holds all pool ids, the promoted (`selected`) first. At least `floor` (if the pool has them) and at most
    `max_final` are kept. `promotion=exempt` keeps promoted passages whatever their score. `order_only`, the literal
    equation, can cut them, and keeps all if all scores are equal. `boost` first raises them to the pool's best score.
    """
    if not order:
        return CutResult((), 0.0, 0.0)
    chosen = set(selected)
    values = dict(scores)
    if promotion == "boost":
        values.update(dict.fromkeys(chosen & set(order), max(scores[i] for i in order)))
    head = np.array([values[i] for i in order[:window]])
    mean = float(head.mean())
    deviation = float(head.std())
    kept = set(chosen) if promotion == "exempt" else set()
    # If all scores are equal, rounding must not decide whether all or none reach the threshold.
    if promotion == "order_only":
        least = mean + deviation - 1e-12 * float(np.abs(head).max())
        kept = {i for i in order if values[i] >= least}
    elif deviation > 1e-9 * max(1.0, abs(mean)):
        kept |= {i for i in order if values[i] >= mean + deviation}
    else:
        kept |= chosen
    missing = max(0, floor - sum(i in kept for i in order))
    kept.update([i for i in order if i not in kept][:missing])
    result = [i for i in order if i in kept]
    return CutResult(tuple(result[:max_final]), mean, deviation)


@dataclass
class State:
    """The state of one question in the loop. The loop updates `round` and `queries`, the method everything else."""

    question: Question
    session: Session
    round: int = 0  # retrieval rounds so far
    done: bool = False  # set by the method to end the loop
    pool: Pool = field(default_factory=Pool)
    queries: list[str] = field(default_factory=list)  # query texts sent so far, oldest first
    memory: dict[str, Any] = field(default_factory=dict)  # what else the method keeps between steps


class Method(Part):
    """Base of all methods. A method keeps nothing about a question itself: everything is in `State`."""

    role_names: tuple[str, ...] | None = None  # roles that it asks besides the reader; None: any
    asked_channels: frozenset[str] = frozenset({"text"})  # channels that its retriever must offer
    default_retriever: ClassVar[str | None] = None  # its retriever if the config names none; None: the general default
    is_router: ClassVar[bool] = False  # it hands questions to other methods
    routes: Mapping[str, Any] = {}  # the methods that it hands questions to, by name
    index: Any  # set by `build`
    roles: Any  # set by `build`

    async def start(self, question: Question, session: Session) -> State:
        """Return the initial state of a question."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """Return the next queries; an empty list ends the loop."""
        raise NotImplementedError

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Take in one ranking for each query; may set `state.done`."""
        raise NotImplementedError

    async def select(self, state: State) -> Evidence:
        """Decide what the reader sees."""
        raise NotImplementedError


def scale_of(is_guess: bool, score_norm: AutoNorm = "auto") -> tuple[ScoreNorm, float]:
    """Return how the hits of a role's queries are normalised and weighted against those of the question.

    A query made by rules is a guess. Its hits should enter the pool, but the question's best hits should stay ahead.
    With scores by rank and a weight of .95, the best hit of a guess comes after the question's fourth hit.
    """
    norm = score_norm if score_norm != "auto" else "rank" if is_guess else "minmax_full"
    return cast(ScoreNorm, norm), 0.95 if is_guess else 1.0
