"""Roles: the language-model jobs, typed (design 5). A role takes a task and a session and returns a typed result.

Four implementations of a role can exist side by side (`prompted`, `offline`, `tuned`, `oracle`). A method may ask one
whether its thoughts are guesses (`is_guess`), and otherwise never knows which one it talks to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from gnnrag.session import Session
from gnnrag.types import Passage, Question

TaskT = TypeVar("TaskT", contravariant=True)
ResultT = TypeVar("ResultT", covariant=True)


class Role(Protocol[TaskT, ResultT]):
    """One job. Implementations must be safe to call for many questions at once."""

    async def __call__(self, task: TaskT, session: Session) -> ResultT:
        """Do the job for one question; usage, failures and messages are recorded in `session`."""
        ...


@dataclass(frozen=True, slots=True)
class ThoughtsTask:
    """Ask for the next two queries.

    Attributes:
        question: the question.
        passages: the pool's best passages, best first.
        scores: their pool scores, normalised, same length.
        earlier: queries already sent, oldest first.
        round: 1-based round that the thoughts are for.
        with_chain: also write the reasoning chain (BDTR's `chain_from=last_round_joint`).
        may_stop: the role may say that nothing is missing any more.
    """

    question: Question
    passages: tuple[Passage, ...]
    scores: tuple[float, ...] = ()
    earlier: tuple[str, ...] = ()
    round: int = 1
    with_chain: bool = False
    may_stop: bool = False


@dataclass(frozen=True, slots=True)
class Thoughts:
    """A short direct follow-up (`fast`) and one that names a bridge (`slow`); None where missing.

    `sufficient` is set by implementations that can tell that nothing is missing any more.
    """

    fast: str | None = None
    slow: str | None = None
    sufficient: bool = False
    chain: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainTask:
    """Ask for the reasoning chain that the evidence supports so far."""

    question: Question
    passages: tuple[Passage, ...]
    thoughts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """The chain as text (one hop a line), the entities that bridge its hops, and the ids of passages it rests on.

    A language model's chain leaves `support` empty: finding it out is the verifier's job.
    """

    text: str
    bridges: tuple[str, ...] = ()
    support: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifierTask:
    """Ask which passages state or complete a link of the chain."""

    question: Question
    chain: Chain
    passages: tuple[Passage, ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ids of the selected passages. No scores: promotion uses the pool's."""

    selected: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReaderTask:
    """Ask for the answer from passages (best first) and notes."""

    question: Question
    passages: tuple[Passage, ...]
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A short answer; empty text means that the reader says it cannot answer from these passages.

    Attributes:
        text: the answer string.
        support: ids of the passages that it was read from.
        confidence: in [0, 1], comparable within one implementation only.
    """

    text: str
    support: tuple[str, ...] = ()
    confidence: float = 0.0
    thought: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecomposeTask:
    """Ask for the sub-questions of a question."""

    question: Question
    max_parts: int = 4


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Sub-questions in the order in which they must be answered; none where the question is simple."""

    parts: tuple[str, ...] = ()
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
