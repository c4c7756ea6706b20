"""Taking questions apart and reading sentences for evidence: tasks and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnrag.types import Question


@dataclass(frozen=True, slots=True)
class DecomposeTask:
    """Ask for the sub-questions of a question.

    `form` says what they look like: `plain` ones can each be understood alone; `linked` ones refer to the answer of
    part k by `#k`; `triples` are lists of triples with unknowns `Entity#k`, as `render_triples` writes them. `parsing`
    says how a reply of the last two forms is read: `repaired`, or as GraphSearch's `released` code does.
    """

    question: Question
    max_parts: int = 4
    form: Literal["plain", "linked", "triples"] = "plain"
    parsing: str = "repaired"


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Sub-questions in the order in which they must be answered; none where the question is simple.

    `written` is the decomposition as the language model wrote it.
    """

    parts: tuple[str, ...] = ()
    written: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownSentence:
    """A sentence of a passage that is read for evidence."""

    text: str
    passage: str


@dataclass(frozen=True, slots=True)
class EvidenceTask:
    """Ask which sentences support a question or its sub-questions (MGranRAG).

    Attributes:
        question: the question.
        parts: its sub-questions.
        sentences: what is read, passage by passage, best passage first.
        facts: evidence found earlier, best first.
    """

    question: Question
    parts: tuple[str, ...]
    sentences: tuple[ShownSentence, ...]
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundEvidence:
    """A sentence that helps.

    Attributes:
        sentence: position in `EvidenceTask.sentences`.
        text: the sentence with its pronouns resolved.
        phrases: its key phrases.
        labels: (question number, label): 0 is the question, 1 to K the parts; `T` answers it alone, `P` is a clue.
    """

    sentence: int
    text: str
    phrases: tuple[str, ...] = ()
    labels: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EvidenceFound:
    """The sentences that help; none where no sentence does, or where every reply was malformed."""

    items: tuple[FoundEvidence, ...] = ()
    flags: tuple[str, ...] = ()
