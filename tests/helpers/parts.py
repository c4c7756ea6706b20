"""Parts for tests: a corpus of letters, a retriever out of a dictionary, roles out of lists, a small real index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.errors import LLMError
from gnnrag.index.index import Index, build_index
from gnnrag.index_config import EmbedderConfig, IndexConfig, TextConfig
from gnnrag.methods.base import Method, State
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.base import Answer, Chain, ReaderTask, Role, Thoughts, Verdict
from gnnrag.run.loop import Loop
from gnnrag.session import Budget, Session
from gnnrag.types import Evidence, GoldHop, Passage, Prediction, Query, Question, Ranking

Scores = Mapping[str, float]


def ranking(scores: Scores, top_k: int = 200, whole: bool = True) -> Ranking:
    """Turn a dictionary into a ranking; `whole` says that it covers the corpus, so that its range is known."""
    ids = sorted(scores, key=lambda i: -scores[i])
    values = np.array([scores[i] for i in ids], dtype=np.float64)
    low, high = (float(values.min()), float(values.max())) if whole and len(values) else (None, None)
    return Ranking(tuple(ids[:top_k]), values[:top_k], branch="toy", low=low, high=high)


class ToyIndex:
    """An index of passages that exist as soon as somebody asks for them."""

    def lookup(self, ids: Iterable[str]) -> tuple[Passage, ...]:
        """Return a passage for every id."""
        return tuple(Passage(i, i.upper(), f"text of {i}") for i in ids)


class ToyRetriever(Retriever):
    """Query text to scores; an exception instead of scores is raised, an unknown query finds nothing.

    Attributes:
        asked: all query texts that reached it, in order.
        batches: sizes of the batches.
    """

    channels = frozenset({"text"})

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table
        self.asked: list[str] = []
        self.batches: list[int] = []

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`."""
        self.batches.append(len(queries))
        out = []
        for query in queries:
            self.asked.append(query.text)
            scores = self.table.get(query.text, {})
            if isinstance(scores, BaseException):
                raise scores
            out.append(ranking(scores, query.top_k))
        return out


class Asks(Method):
    """A method that sends given queries, one list a round, and selects all it found."""

    def __init__(self, *rounds: Sequence[Query], answer: str | None = None) -> None:
        self.rounds, self.answer = rounds, answer

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """See `Method`."""
        return list(self.rounds[state.round]) if state.round < len(self.rounds) else []

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """See `Method`."""
        for ranking in rankings:
            state.pool.merge(ranking, "raw")

    async def select(self, state: State) -> Evidence:
        """See `Method`."""
        ranked = state.pool.ranked()
        return Evidence(ranked, ranked, answer=self.answer)


class Scripted(Role[Any, Any]):
    """A role that gives its results one after the other (the last one again and again) and keeps its tasks.

    A result that is an exception is raised; one that is a function is called with the task. Every call counts as one
    language-model call, like a prompted role's.
    """

    def __init__(self, name: str, *results: Any) -> None:
        self.name, self.results = name, results
        self.tasks: list[Any] = []

    async def __call__(self, task: Any, session: Session) -> Any:
        """Give the next result."""
        self.tasks.append(task)
        result = self.results[min(len(self.tasks), len(self.results)) - 1]
        await asyncio.sleep(0)
        if isinstance(result, BaseException):
            raise result
        session.add_call(self.name, 10, 1)
        return result(task) if callable(result) else result


def scripted_roles(
    thoughts: Sequence[Any] = (Thoughts("fast", "slow"),),
    chain: Sequence[Any] = (Chain("a - b - c"),),
    verifier: Sequence[Any] = (Verdict(),),
    reader: Sequence[Any] = (Answer("yes"),),
) -> dict[str, Scripted]:
    """Return the four roles of BDTR, each with its results."""
    given = {"thoughts": thoughts, "chain": chain, "verifier": verifier, "reader": reader}
    return {name: Scripted(name, *results) for name, results in given.items()}


async def read_nothing(task: ReaderTask, session: Session) -> Answer:
    """A reader that needs no model."""
    return Answer(" ".join(p.id for p in task.passages) or "nothing")


def answer_all(
    method: Any,
    retriever: Any,
    questions: Sequence[Question],
    reader: Callable[..., Any] = read_nothing,
    concurrency: int = 16,
    budget: Budget | None = None,
) -> list[tuple[Prediction, Session]]:
    """Run questions through the loop; results in question order."""
    found: dict[str, tuple[Prediction, Session]] = {}
    loop = Loop(method, retriever, reader, ToyIndex().lookup, budget, concurrency)
    asyncio.run(loop.run(questions, lambda p, s: found.update({p.question_id: (p, s)})))
    assert len(found) == len(questions), "every question has a row"
    return [found[q.id] for q in questions]


def answer_one(
    method: Any, retriever: Any, reader: Callable[..., Any] = read_nothing, budget: Budget | None = None
) -> tuple[Prediction, Session]:
    """Run the question `Q` through the loop."""
    return answer_all(method, retriever, [Question("q", "Q", ("yes",))], reader, budget=budget)[0]


def broken(kind: str = "llm") -> Exception:
    """An error as a role or a retriever would raise it."""
    return LLMError("the server is down") if kind == "llm" else RuntimeError("bug")


# Questions on CORPUS.
COMPOSITIONAL = "Where was the director of the film Night Harbour born?"
COMPARISON = "Who was born first, the director of Night Harbour or the director of Copper Road?"
MUSIQUE = Question(
    "q", COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1"),
    decomposition=(
        GoldHop("Night Harbour >> director", "Vera Lindqvist", "p0"), GoldHop("Where was #1 born?", "Kalmar", "p1")
    ),
)  # fmt: skip

CORPUS = [
    Passage("p0", "Night Harbour", "Night Harbour is a film directed by Vera Lindqvist. It was shot in Tromso."),
    Passage("p1", "Vera Lindqvist", "Vera Lindqvist was a Swedish director. She was born in the town of Kalmar."),
    Passage("p2", "Kalmar", "Kalmar is a town on the Baltic coast, known for its castle and its cathedral."),
    Passage("p3", "Copper Road", "Copper Road is a film directed by Otto Brandt. Its music is by Ines Faro."),
    Passage("p4", "Otto Brandt", "Otto Brandt was a German director, born in Lubeck in 1931."),
    Passage("p5", "Tromso", "Tromso is a city in northern Norway, far beyond the Arctic Circle."),
    Passage("p6", "Night Harbour (novel)", "Night Harbour is a novel by Pia Holm about a lighthouse keeper."),
    Passage("p7", "Baking", "Baking is a way of preparing food that uses dry heat, often in an oven."),
]


def small_index(root: Path, passages: Sequence[Passage] = CORPUS) -> Index:
    """Build an index with the hash embedder and rules for phrases: no weights, no models."""
    config = IndexConfig(embedder=EmbedderConfig(model="hash"), text=TextConfig(language="blank:en"))
    build_index(root, passages, config)
    return Index(root)
