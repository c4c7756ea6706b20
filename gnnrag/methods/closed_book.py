"""No retrieval: what the reader knows by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnrag.methods.base import State
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking


class ClosedBook:
    """The lower bound of every results table: the reader sees the question alone."""

    def __init__(self, index: Any, roles: Any, config: None = None) -> None:
        pass

    roles = ()

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """See `Method`."""
        return []

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """See `Method`."""

    async def select(self, state: State) -> Evidence:
        """See `Method`."""
        return Evidence()
