"""The base class of roles, and the tasks and results that roles and methods exchange."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, Literal, TypeVar

from gnnrag.parts import Part
from gnnrag.session import Session
from gnnrag.types import Passage, Question

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")
QUERY_CLASSES = ("passage_local", "multi_hop", "thematic")  # by the retrieval that a question needs, cheapest first


class Role(Part, Generic[TaskT, ResultT]):
    """One job in a method: `prompted`, `offline`, `tuned` or `oracle`. Calls may run for many questions at once."""

    prompters: Sequence[Any] = ()  # its calls to a language model; a run records their prompts and model
    fingerprint: str = ""  # of the weights of a tuned role
    is_guess: bool = False  # its queries come from rules: methods score their hits by rank, with a lower weight
    keeps_all: bool = False  # a role that filters never drops anything, so it need not be asked
    index: Any  # set by `build`
    backend: Any  # of a prompted role: its language model, set by `build`
    version: int = 1  # of a writer: raised when a code change alters its results

    async def close(self) -> None:
        """Release what it holds."""

    async def __call__(self, task: TaskT, session: Session) -> ResultT:
        """Do the job for one question; usage, failures and messages are recorded in `session`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ThoughtsTask:
    question: Question
    passages: tuple[Passage, ...]  # the pool's best, best first
    scores: tuple[float, ...] = ()  # of the passages in the pool, normalised
    earlier: tuple[str, ...] = ()  # queries already sent, oldest first
    round: int = 1  # 1-based
    with_chain: bool = False  # also write the reasoning chain (BDTR's `chain_from=last_round_joint`)
    may_stop: bool = False  # the role may reply that no evidence is missing


@dataclass(frozen=True, slots=True)
class Thoughts:
    """A short direct follow-up (`fast`) and one that names a bridge (`slow`); `sufficient`: no evidence is missing."""

    fast: str | None = None
    slow: str | None = None
    sufficient: bool = False
    chain: str | None = None
    flags: tuple[str, ...] = ()
    # Unit vectors (dim,) that replace the embeddings of the texts in search; a thought may have none
    vectors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # by `fast` and `slow`


@dataclass(frozen=True, slots=True)
class ChainTask:
    question: Question
    passages: tuple[Passage, ...]
    thoughts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """The chain as text (one hop per line), the entities that bridge its hops, and the ids of supporting passages."""

    text: str
    bridges: tuple[str, ...] = ()
    support: tuple[str, ...] = ()  # empty from a language model: the verifier finds it
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifierTask:
    question: Question
    chain: Chain
    passages: tuple[Passage, ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ids of the selected passages. It has no scores, as promotion uses those of the pool."""

    selected: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


AnswerStyle = Literal["short", "sentence", "long"]  # a few words; one or two sentences; up to `words` words
WORDS = 300  # of a long answer, at most
Search = Callable[[str], Awaitable[tuple[Passage, ...]]]  # returns the best passages of a query, best first


@dataclass(frozen=True, slots=True)
class ReaderTask:
    question: Question
    passages: tuple[Passage, ...]  # best first
    notes: str = ""
    style: AnswerStyle | None = "short"  # None: as suits the question (`text.questions.answer_style`)
    words: int = WORDS  # of a long answer, at most
    # Searches for what the passages lack. What it returns and they do not have counts as shown after them, in order.
    search: Search | None = None


@dataclass(frozen=True, slots=True)
class Citation:
    """A sentence of an answer, the ids of the passages that it cites, and of those that support it at least in part.

    `supported`: every part of the sentence is supported.
    """

    sentence: str
    passages: tuple[str, ...]
    borne_out_by: tuple[str, ...]
    supported: bool = True


def with_marks(sentences: Iterable[tuple[str, Sequence[int]]]) -> str:
    """Join sentences, each with the numbers of its passages in brackets before its full stop, as in `it is given [2].`

    Consecutive sentences with the same passages share one mark, in the last of them. A table row or list item has no
    full stop and ends its line.
    """
    text = ""
    for numbers, run in groupby(sentences, key=lambda sentence: tuple(sentence[1])):
        *before, last = [sentence for sentence, _ in run]
        mark = f" [{', '.join(map(str, numbers))}]" if numbers else ""
        has_stop = last.endswith((".", "!", "?", "…"))
        for sentence in (*before, f"{last[:-1]}{mark}{last[-1]}" if has_stop else last + mark):
            text += (" " if text.endswith((".", "!", "?", "…")) else "\n") * bool(text) + sentence
    return text


QUOTED = "statements"  # the thought of an answer that only quotes what is nearest to the question


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; empty text means that the reader says it cannot answer from these passages.

    Answers of style `sentence` or `long` cite passages in brackets: `[2]` is the second one shown to the reader.
    """

    text: str
    support: tuple[str, ...] = ()  # ids of the passages that it is based on
    confidence: float = 0.0  # in [0, 1], comparable within one implementation only
    thought: str = ""
    flags: tuple[str, ...] = ()
    citations: tuple[Citation, ...] = ()  # one for each sentence; a short answer has none


@dataclass(frozen=True, slots=True)
class RouterTask:
    question: Question


@dataclass(frozen=True, slots=True)
class Routing:
    probabilities: Mapping[str, float]  # by class of `QUERY_CLASSES`; they sum to 1, a missing class has 0
    cues: Mapping[str, float] = field(default_factory=dict)  # features that the choice rests on, for the trace
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeywordsTask:
    query: str


@dataclass(frozen=True, slots=True)
class Keywords:
    """`low`: concrete entities and details; `high`: themes, intent, kind of question."""

    low: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MentionsTask:
    query: str
    types: tuple[str, ...] = ()  # entity types to choose from


@dataclass(frozen=True, slots=True)
class Mentions:
    """Names in the query, and types of the answer, most likely first."""

    names: tuple[str, ...] = ()
    answer_types: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecomposeTask:
    """Asks for sub-questions. Each `plain` one can be understood alone; `linked` ones refer to the answer of part k
    by `#k`; `triples` are lists of triples with unknowns `Entity#k`, as `render_triples` writes them.
    """

    question: Question
    max_parts: int = 4
    form: Literal["plain", "linked", "triples"] = "plain"
    parsing: str = "repaired"  # of `linked` and `triples`; `released`: as GraphSearch's code reads replies


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Sub-questions in answering order, empty if the question is simple; `written` is the model's own text."""

    parts: tuple[str, ...] = ()
    written: str = ""
    flags: tuple[str, ...] = ()


# In this order: the next fact; an answer with short reasoning; what is missing; links of entities and the next query.
Style = Literal["ircot", "iter_retgen", "gcot", "tog"]


@dataclass(frozen=True, slots=True)
class ReasonTask:
    question: Question
    passages: tuple[Passage, ...]  # the pool's best, best first
    steps: tuple[str, ...]  # earlier ones, oldest first
    style: Style


@dataclass(frozen=True, slots=True)
class Step:
    """One reasoning step. `done`: the model says that it is the last; `query`: what to search for next, if any."""

    text: str = ""
    query: str | None = None
    done: bool = False
    answer: str | None = None
    flags: tuple[str, ...] = ()


AgentFormat = Literal["react", "search_r1", "r1_searcher"]
Move = Literal["search", "lookup", "finish", "invalid"]


@dataclass(frozen=True, slots=True)
class Turn:
    written: str  # what the model wrote, up to and including its action
    move: Move
    argument: str = ""  # query, string to look up, or answer
    passages: tuple[Passage, ...] = ()  # what a search found
    note: str = ""  # what else the agent was told: a sentence looked up, or why the move was invalid


@dataclass(frozen=True, slots=True)
class MoveTask:
    question: Question
    turns: tuple[Turn, ...]  # oldest first
    protocol: AgentFormat  # the agent whose tags or actions the model writes
    may_search: bool = True
    released: bool = False  # as the agent's released code: passages are not cut; a tag left open is no move


@dataclass(frozen=True, slots=True)
class NextMove:
    move: Move  # `finish` with an empty argument gives up
    argument: str = ""
    written: str = ""
    flags: tuple[str, ...] = ()
