"""The one inference loop. It owns what no method should: concurrency, batching, budgets, tracing, error isolation."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gnnrag.batching import MicroBatcher
from gnnrag.errors import GnnragError
from gnnrag.methods.base import Method
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.base import Answer, ReaderTask
from gnnrag.session import Budget, Session
from gnnrag.types import Evidence, Passage, Prediction, Query, Question, Ranking

Reader = Callable[[ReaderTask, Session], Awaitable[Answer]]
Lookup = Callable[[Iterable[str]], tuple[Passage, ...]]
TRACE_DEPTH = 50  # hits of a ranking that a trace keeps
CACHE_SIZE = 20_000  # rankings kept for queries that come again


class Loop:
    """Runs questions through a method.

    Args:
        method: the algorithm.
        retriever: what its queries go to.
        reader: answers from the selected evidence.
        lookup: ids to passages.
        budget: limits for each question.
        concurrency: how many questions are in flight at once; has no influence on any result.
        max_rounds: a safety net above every method's own limit.
    """

    def __init__(
        self,
        method: Method,
        retriever: Retriever,
        reader: Reader,
        lookup: Lookup,
        budget: Budget | None = None,
        concurrency: int = 16,
        max_rounds: int = 50,
    ) -> None:
        self.method, self.retriever, self.reader, self.lookup = method, retriever, reader, lookup
        self.budget, self.concurrency, self.max_rounds = budget or Budget(), concurrency, max_rounds
        self._batcher: MicroBatcher[Query, Ranking] = MicroBatcher(retriever.retrieve)
        self._cache: OrderedDict[Query, Ranking] = OrderedDict()

    async def run(self, questions: Sequence[Question], done: Callable[[Prediction, Session], None]) -> None:
        """Answer all questions; `done` is called as each one ends, in order of ending.

        A question that fails ends with a row that carries its error. Cancelling this coroutine cancels what is in
        flight; what was reported stays reported.
        """
        waiting = iter(questions)

        async def work() -> None:
            for question in waiting:  # the iterator is shared: each worker takes the next question
                done(*await self.answer(question))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, len(questions))):
                group.create_task(work())

    async def answer(self, question: Question) -> tuple[Prediction, Session]:
        """Answer one question; never raises for what goes wrong inside it."""
        session = Session(question.id, self.budget)
        evidence, answer, rounds, error = Evidence(), "", 0, None
        try:
            evidence, rounds = await self._gather(question, session)
            answer = await self._read(question, evidence, session)
            error = session.failed_calls()
        except Exception as problem:  # noqa: BLE001 - whatever happens to one question must not stop the others
            error = str(problem) if isinstance(problem, GnnragError) else f"{type(problem).__name__}: {problem}"
            session.record("error", message=error)
        prediction = Prediction(
            question.id,
            answer,
            tuple(evidence.ranking),
            tuple(evidence.context),
            rounds,
            session.usage(),
            time.monotonic() - session.started,
            error,
        )
        return prediction, session

    async def _gather(self, question: Question, session: Session) -> tuple[Evidence, int]:
        """The loop of design 3: propose, retrieve, absorb until nothing is left to ask; then select."""
        state = await self.method.start(question, session)
        while not state.done and state.round < self.max_rounds:
            session.check()
            queries = await self.method.propose(state)
            if not queries:
                break
            rankings = await self._retrieve(queries, session, state.round)
            state.queries += [query.text for query in queries]
            await self.method.absorb(state, queries, rankings)
            state.round += 1
        evidence = await self.method.select(state)
        session.record("evidence", **{k: v for k, v in asdict(evidence).items() if k != "ranking"})
        return evidence, max(0, state.round - 1)

    async def _retrieve(self, queries: Sequence[Query], session: Session, round_: int) -> list[Ranking]:
        """Rank each query; one whose retrieval fails gives an empty list, is counted, and the round goes on."""
        for query in queries:
            if not query.text.strip():
                raise ValueError("a method proposed an empty query")
            if query.channel not in self.retriever.channels:
                allowed = ", ".join(sorted(self.retriever.channels))
                raise ValueError(f"the retriever has no channel {query.channel!r}, only {allowed}")
        session.count_queries(queries)
        found: dict[Query, Any] = {q: self._cache[q] for q in queries if q in self._cache}
        new = [q for q in dict.fromkeys(queries) if q not in found]
        found.update(zip(new, await self._batcher(new) if new else [], strict=True))
        rankings = []
        for query in queries:
            result = found[query]
            if isinstance(result, Exception):
                session.counts["retriever_failed"] += 1
                session.record("retriever_failed", query=query.text, message=str(result))
                result = Ranking((), np.zeros(0))
            else:
                self._cache[query] = result
                if result.branch.endswith("_fallback"):  # a retriever that silently became another
                    session.counts[result.branch] += 1
            session.record("query", round=round_, **asdict(query), ranking=_excerpt(result))
            rankings.append(result)
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        return rankings

    async def _read(self, question: Question, evidence: Evidence, session: Session) -> str:
        """Take the method's own answer if it has one, else ask the reader."""
        if evidence.answer is not None:
            return evidence.answer
        answer = await self.reader(ReaderTask(question, self.lookup(evidence.context), evidence.notes), session)
        session.record("answer", **asdict(answer))
        silent = not answer.text and "reader_failed" not in answer.flags
        session.flag("reader", *dict.fromkeys([*answer.flags, *(["abstained"] if silent else [])]))
        return answer.text


def _excerpt(ranking: Ranking) -> dict[str, Any]:
    """What a trace keeps of a ranking."""
    scores = [round(s, 6) for s in ranking.scores[:TRACE_DEPTH].tolist()]
    return {
        "branch": ranking.branch,
        "kind": ranking.kind,
        "ids": list(ranking.ids[:TRACE_DEPTH]),
        "scores": scores,
        "range": [ranking.low, ranking.high],
    }
