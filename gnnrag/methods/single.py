"""Naive RAG: retrieve once with the question, read the top passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnnrag.methods.base import State
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking


@dataclass
class SingleConfig:
    """Settings of `Single`."""

    top_k: int = 200  # passages asked for: what Recall@k is measured on
    reader_top_k: int = 5  # passages the reader sees


class Single:
    """One retrieval, the row called "Original" in the papers' tables."""

    config_class = SingleConfig

    def __init__(self, index: Any, roles: Any, config: SingleConfig | None = None) -> None:
        self.config = config or SingleConfig()

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """See `Method`."""
        return [Query(state.question.text, top_k=self.config.top_k)] if state.round == 0 else []

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """See `Method`."""
        state.pool.merge(rankings[0], "raw")

    async def select(self, state: State) -> Evidence:
        """See `Method`."""
        ranking = state.pool.ranked()
        return Evidence(ranking, ranking[: self.config.reader_top_k])
