"""The inference loop of all methods. It handles concurrency, batching, budgets, tracing and error isolation."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gnnrag.batching import MicroBatcher
from gnnrag.errors import BudgetError, GnnragError, described
from gnnrag.roles.base import WORDS, Answer, AnswerStyle, ReaderTask
from gnnrag.session import Budget, Session, query_key
from gnnrag.types import Evidence, Passage, Prediction, Query, Question, Ranking, to_dict

if TYPE_CHECKING:
    from gnnrag.methods.base import Method
    from gnnrag.retrievers.base import Retriever

logger = logging.getLogger(__name__)
Reader = Callable[[ReaderTask, Session], Awaitable[Answer]]
Lookup = Callable[[Iterable[str]], tuple[Passage, ...]]
_LONGEST_TRACEBACK = 20_000  # characters
FOUND_BY_READER = 6  # passages that a search of the reader gives
TRACE_DEPTH = 50  # hits of a ranking that a trace keeps


class Loop:
    """Runs questions through a method; `others` are retrievers that queries may name instead of `retriever`.

    `concurrency` has no influence on any result. `max_rounds` is a limit for all methods, besides their own.
    A question that reaches it gets the flag `round_limit`. `style` and `words` of the answers: see `ReaderTask`.
    `filter` applies to each question that brings no session; `Question.scope` is a further condition.
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
        others: Mapping[str, Retriever] | None = None,
        style: AnswerStyle | None = "short",
        words: int = WORDS,
        filter: str | None = None,
    ) -> None:
        self.method, self.reader, self.lookup = method, reader, lookup
        self.style, self.words, self.filter = style, words, filter
        self.retrievers: dict[str | None, Retriever] = {None: retriever} | dict(others or {})
        self.budget, self.concurrency, self.max_rounds = budget or Budget(), concurrency, max_rounds
        self._batchers: dict[str | None, MicroBatcher[Query, Ranking]] = {
            name: MicroBatcher(each.retrieve) for name, each in self.retrievers.items()
        }
        self._has_shown = False  # a traceback

    async def run(
        self,
        questions: Sequence[Question],
        done: Callable[[Prediction, Session], None],
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Answer all questions. `done` is called as each one ends; the prediction of a failed one has an `error`.

        Once `stop()` is true, no further question is begun. Cancelling this coroutine cancels the questions in flight;
        those already passed to `done` are unaffected.
        """
        left = iter(questions)

        async def work() -> None:
            for question in left:  # the iterator is shared: each worker takes the next question
                if stop():
                    return
                done(*await self.answer(question))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.concurrency, len(questions))):
                    group.create_task(work())
        finally:
            self.close()

    def close(self) -> None:
        """Stop the threads of the retrievers. The next question starts them again."""
        for batcher in self._batchers.values():
            batcher.close()

    async def answer(self, question: Question, session: Session | None = None) -> tuple[Prediction, Session]:
        """Answer one question, recorded in `session` or a new one. An exception becomes the prediction's `error`."""
        filters = [f"({part})" for part in (self.filter, question.scope) if part]
        session = session or Session(question.id, self.budget, " AND ".join(filters) or None)
        evidence, answer, rounds, error = Evidence(), "", 0, None
        limit = asyncio.timeout(session.budget.max_seconds)
        try:
            async with limit:
                evidence, rounds = await self._gather(question, session)
                answer, evidence = await self._read(question, evidence, session, rounds + 1)
            error = session.failed_calls()
        except BaseException as problem:  # whatever happens to one question must not stop the others
            task: Any = asyncio.current_task()
            is_stopped = isinstance(problem, asyncio.CancelledError) and task.cancelling()  # not by a part itself
            if is_stopped or isinstance(problem, KeyboardInterrupt | GeneratorExit):
                raise
            if limit.expired():
                error = f"budget.max_seconds={session.budget.max_seconds} is used up; raise it or set it to null"
            else:
                error = described(problem)
                self._keep_traceback(problem, session)
            session.record("error", message=error)
        ranking, context, nodes = (tuple(part) for part in (evidence.ranking, evidence.context, evidence.nodes))
        usage, seconds = session.usage(), time.monotonic() - session.started
        return Prediction(question.id, answer, ranking, context, rounds, usage, seconds, error, nodes), session

    def _keep_traceback(self, problem: BaseException, session: Session) -> None:
        """Keep the traceback of an unexpected exception for the log; the first one of a run is also shown."""
        if isinstance(problem, GnnragError):
            return
        text = "".join(traceback.format_exception(problem))[-_LONGEST_TRACEBACK:]
        session.traceback = session.traceback or text
        if not self._has_shown:
            self._has_shown = True
            logger.error("question %s: unexpected exception; later ones: see log.jsonl\n%s", session.question_id, text)

    async def _gather(self, question: Question, session: Session) -> tuple[Evidence, int]:
        """Propose, retrieve, absorb; then select. Returns the evidence, and how many rounds followed the first."""
        state = await self.method.start(question, session)
        while not state.done:
            if state.round >= self.max_rounds:
                session.counts["round_limit"] += 1  # stopped by the loop's limit, not the method's
                break
            session.check()
            queries = await self.method.propose(state)
            if not queries:
                break
            rankings = await self._retrieve(queries, question, session, state.round)
            state.queries += [query.text for query in queries]
            await self.method.absorb(state, queries, rankings)
            state.round += 1
        evidence = await self.method.select(state)
        if passes := self.retrievers[None].passes(Query("", filter=session.filter)) if session.filter else None:
            ranking, context = (list(filter(passes, ids)) for ids in (evidence.ranking, evidence.context))
            evidence = replace(evidence, ranking=ranking, context=context)
        session.record("evidence", **{k: v for k, v in to_dict(evidence).items() if k != "ranking"})
        return evidence, max(0, state.round - 1)

    async def _retrieve(
        self, queries: Sequence[Query], question: Question, session: Session, round_: int
    ) -> list[Ranking]:
        """Rank each query, counted and traced."""
        queries = [replace(q, seeds=question.seeds or q.seeds, filter=session.filter or q.filter) for q in queries]
        session.count_queries(queries)
        rankings = await self.search(queries, session)
        for query, ranking in zip(queries, rankings, strict=True):
            # If a retriever fell back to another one, the counts must show it.
            if ranking.branch.endswith(("_fallback", "unknown_terms")):
                session.counts[ranking.branch] += 1
            excerpt = {
                "branch": ranking.branch,
                "kind": ranking.kind,
                "ids": list(ranking.ids[:TRACE_DEPTH]),
                **({"sources": [list(ids) for ids in ranking.sources[:TRACE_DEPTH]]} if ranking.sources else {}),
                "scores": [round(s, 6) for s in ranking.scores[:TRACE_DEPTH].tolist()],
                "range": [ranking.low, ranking.high],
            }
            event = to_dict(query) | {"vector": query.vector is not None, "ranking": excerpt}
            session.record("query", round=round_, **event)
        return rankings

    async def search(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        """Rank queries without counting or tracing them (`_retrieve` does that).

        Retrievers are asked one after the other, so that traces keep their order. Those that ask roles are not batched.
        Of the equal queries of a question (`query_key`) only the first is ranked.
        """
        for query in queries:
            if not query.text.strip() or query.channel not in self.retrievers[query.retriever].channels:
                raise ValueError(f"a method proposed what its retriever cannot search: {query}")
        keys = [query_key(query) for query in queries]
        new: dict[Query, Query] = {}
        for key, query in zip(keys, queries, strict=True):
            if key not in session.rankings:
                new.setdefault(key, query)
        for name in dict.fromkeys(query.retriever for query in new.values()):
            mine = {key: query for key, query in new.items() if query.retriever == name}
            asked, retriever, batcher = [*mine.values()], self.retrievers[name], self._batchers[name]
            rankings = await (retriever.retrieve_for(asked, session) if retriever.asks_roles else batcher(asked))
            session.rankings.update(zip(mine, rankings, strict=True))
        return [session.rankings[key] for key in keys]

    async def _read(
        self, question: Question, evidence: Evidence, session: Session, round_: int
    ) -> tuple[str, Evidence]:
        """Return the answer, and the evidence with the passages that the reader searched for itself."""
        if evidence.answer is not None:
            return evidence.answer, evidence
        context = list(evidence.context)

        async def search(text: str) -> tuple[Passage, ...]:
            session.check()
            try:
                (ranking,) = await self._retrieve([Query(text, origin="reader")], question, session, round_)
            except BudgetError:
                raise
            except Exception as problem:  # noqa: BLE001 - the reader goes on with the passages that it has
                session.counts["reader_search_failed"] += 1
                session.record("reader_search_failed", query=text, message=described(problem))
                self._keep_traceback(problem, session)
                return ()
            ids = [hit.id for hit in ranking.hits if hit.kind == "passage"][:FOUND_BY_READER]
            context.extend(id_ for id_ in ids if id_ not in context)
            return self.lookup(ids)

        is_open = self.style in (None, "long")  # where a short answer is forced, the method alone decides what is read
        task = ReaderTask(
            question,
            self.lookup(context),
            evidence.notes,
            self.style,
            self.words,
            search if is_open and "text" in self.retrievers[None].channels else None,
        )
        answer = await self.reader(task, session)
        session.record("answer", **asdict(answer))
        abstains = not answer.text and "reader_failed" not in answer.flags
        session.flag("reader", *dict.fromkeys([*answer.flags, *(["abstained"] if abstains else [])]))
        return answer.text, replace(evidence, context=context)
