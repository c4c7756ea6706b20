"""The interface of methods (four functions), and the state of one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

from gnnrag.parts import Part
from gnnrag.pool import Pool
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking, ScoreNorm

AutoNorm = Literal["auto", "minmax_full", "max_scale", "rank", "raw"]  # auto: see `scale_of`


@dataclass
class State:
    """The state of one question in the loop. The loop updates `round` and `queries`, the method everything else."""

    question: Question
    session: Session
    round: int = 0  # retrieval rounds so far
    done: bool = False  # set by the method to end the loop
    pool: Pool = field(default_factory=Pool)
    queries: list[str] = field(default_factory=list)  # query texts sent so far, oldest first
    memory: dict[str, Any] = field(default_factory=dict)


class Method(Part):
    """Base of all methods. A method keeps nothing about a question itself: everything is in `State`."""

    role_names: tuple[str, ...] | None = None  # roles that it asks besides the reader; None: any
    asked_channels: frozenset[str] = frozenset({"text"})  # channels that its retriever must offer
    default_retriever: ClassVar[str | None] = None  # its retriever if the config names none; None: the general default
    may_miss: bool = False  # true: a question fails only if all queries of its first round fail
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

    A query made by rules is a guess. Its hits should be seen, but the question's best hits should stay ahead. With
    scores by rank and a weight of .95, the first hit of a guess follows the question's fourth.
    """
    norm = score_norm if score_norm != "auto" else "rank" if is_guess else "minmax_full"
    return cast(ScoreNorm, norm), 0.95 if is_guess else 1.0
