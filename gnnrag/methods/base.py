"""The protocol of methods, four functions that read like the paper's algorithm; a question's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gnnrag.parts import Part
from gnnrag.pool import Pool
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking


@dataclass
class State:
    """What one question knows while it is in the loop. The loop sets `round`; everything else is the method's."""

    question: Question
    session: Session
    round: int = 0  # 0 is the retrieval of the question itself
    done: bool = False  # set by a method that has seen enough
    pool: Pool = field(default_factory=Pool)
    queries: list[str] = field(default_factory=list)  # query texts sent so far, oldest first
    memory: dict[str, Any] = field(default_factory=dict)


class Method(Part):
    """Start, propose, absorb, select. Methods hold no state of a question: everything is in `State`."""

    role_names: tuple[str, ...] | None = None  # asked besides the reader; None: any
    asked_channels: frozenset[str] = frozenset({"text"})  # what its retriever must be able to search
    default_retriever: ClassVar[str | None] = None  # where a config names none; None: that of all methods
    may_miss: bool = False  # some of several first retrievals may fail; else a failed one fails the question
    is_router: ClassVar[bool] = False  # it hands questions to other methods
    routes: Mapping[str, Any] = {}  # the methods that it hands questions to, by name
    index: Any  # set by `build`
    roles: Any  # set by `build`

    async def start(self, question: Question, session: Session) -> State:
        """Prepare a question."""
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
