"""What the iterative baselines ask a language model for: one more step of reasoning. Tasks and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnrag.types import Passage, Question

Style = Literal["ircot", "irgs", "gcot", "tog"]


@dataclass(frozen=True, slots=True)
class ReasonTask:
    """Ask for the next step.

    Attributes:
        question: the question.
        passages: the pool's best, best first.
        steps: earlier steps, oldest first.
        style: `ircot`: the next fact; `irgs`: an answer with short reasoning; `gcot`: what is missing; `tog`: links
            between things, and where to look next.
    """

    question: Question
    passages: tuple[Passage, ...]
    steps: tuple[str, ...]
    style: Style


@dataclass(frozen=True, slots=True)
class Step:
    """One step of reasoning.

    Attributes:
        text: what was written.
        query: what to search for next; None where the step names nothing.
        done: the step says that it is the last.
        answer: the answer, where it states one.
    """

    text: str = ""
    query: str | None = None
    done: bool = False
    answer: str | None = None
    flags: tuple[str, ...] = ()
