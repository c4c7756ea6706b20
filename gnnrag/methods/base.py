"""What a method is: four short functions that read like the paper's algorithm (design 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gnnrag.pool import Pool
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking


@dataclass
class State:
    """What one question knows while it is in the loop. The loop sets `round`; everything else is the method's.

    `memory` is for what a single method keeps between its functions.
    """

    question: Question
    session: Session
    round: int = 0  # 0 is the retrieval of the question itself
    done: bool = False  # set by a method that has seen enough
    pool: Pool = field(default_factory=Pool)
    queries: list[str] = field(default_factory=list)  # query texts sent so far, oldest first
    memory: dict[str, Any] = field(default_factory=dict)


class Method(Protocol):
    """Start, propose, absorb, select. Methods hold no state of a question: everything is in `State`."""

    async def start(self, question: Question, session: Session) -> State:
        """Prepare a question."""
        ...

    async def propose(self, state: State) -> list[Query]:
        """Return the next queries; an empty list ends the loop."""
        ...

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Take in one ranking for each query; may set `state.done`."""
        ...

    async def select(self, state: State) -> Evidence:
        """Decide what the reader sees."""
        ...
