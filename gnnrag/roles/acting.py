"""What search agents ask a language model for: the next move. Tasks and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnrag.types import Passage, Question

Protocol = Literal["react", "search_r1", "r1_searcher"]
Move = Literal["search", "lookup", "finish", "invalid"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One move that was made, and what came of it.

    Attributes:
        written: what the model wrote, up to and with its action.
        move: what that was.
        argument: query, string to look up, or answer.
        passages: what a search found.
        note: what else the agent was told: a sentence that was looked up, or why the move was invalid.
    """

    written: str
    move: Move
    argument: str = ""
    passages: tuple[Passage, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class MoveTask:
    """Ask for the next move.

    Attributes:
        question: the question.
        turns: the moves so far, oldest first.
        protocol: which agent's tags or actions are spoken.
        may_search: whether a search is still allowed.
    """

    question: Question
    turns: tuple[Turn, ...]
    protocol: Protocol
    may_search: bool = True


@dataclass(frozen=True, slots=True)
class NextMove:
    """The move; `finish` with an empty argument gives up."""

    move: Move
    argument: str = ""
    written: str = ""
    flags: tuple[str, ...] = ()
