"""The plain retrieve-and-reason loop: ask for what is missing until nothing is, then read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from gnnrag.methods.base import Method, State, check_values
from gnnrag.roles.base import ThoughtsTask
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking, ScoreNorm


@dataclass
class MultiHopConfig:
    """Settings of `MultiHop`."""

    max_rounds: int = 3  # retrievals after the first
    top_k: int = 200  # passages asked for per query
    context_passages: int = 5  # passages that the next query is made from
    reader_top_k: int = 5  # passages the reader sees
    score_norm: str = "minmax_full"  # how scores of different queries are made comparable


class MultiHop(Method):
    """One query a round, from the fast thought, until the evidence suffices; ConfigError: unknown `score_norm`."""

    config_class = MultiHopConfig
    role_names = ("thoughts",)

    def __init__(self, index: Any, roles: Any, config: MultiHopConfig | None = None) -> None:
        self.index, self.config = index, config or MultiHopConfig()
        self.check_settings(self.config)
        self.thoughts = roles["thoughts"]

    @staticmethod
    def check_settings(config: MultiHopConfig) -> None:
        """Raise ConfigError for a value out of range."""
        least = {"max_rounds": 0, "top_k": 1, "context_passages": 1, "reader_top_k": 1}
        check_values(config, {"score_norm": get_args(ScoreNorm)}, least)

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question; then the thought, unless the pool suffices or nothing new comes to mind."""
        if state.round == 0:
            return [Query(state.question.text, top_k=self.config.top_k)]
        if state.round > self.config.max_rounds:
            return []
        ids = state.pool.top(self.config.context_passages)
        scores = tuple(state.pool.scores[i] for i in ids)
        task = ThoughtsTask(
            state.question, self.index.lookup(ids), scores, tuple(state.queries[1:]), state.round, may_stop=True
        )
        thoughts = await self.thoughts(task, state.session)
        state.session.flag("thoughts", *thoughts.flags)
        text = thoughts.fast or thoughts.slow
        if thoughts.sufficient or not text or text in state.queries:
            state.session.record("stop", sufficient=thoughts.sufficient, query=text)
            return []
        return [Query(text, top_k=self.config.top_k, kind="fast")]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Unite, and keep each passage's best score."""
        new = state.pool.merge(rankings[0], self.config.score_norm)  # type: ignore[arg-type]
        state.session.record("merge", round=state.round, kind=queries[0].kind, new=new, top=state.pool.top(50))

    async def select(self, state: State) -> Evidence:
        """The pool's best."""
        ranked = state.pool.ranked()
        return Evidence(ranked, ranked[: self.config.reader_top_k])
