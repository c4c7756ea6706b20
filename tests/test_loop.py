from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnrag.errors import ArtefactError
from gnnrag.io import read_journal
from gnnrag.methods.base import State
from gnnrag.methods.baselines import Single
from gnnrag.methods.bdtr import BDTR
from gnnrag.parts import set_up
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.base import Answer, Chain, ReaderTask, Role, Thoughts, ThoughtsTask, Verdict
from gnnrag.run.loop import Loop
from gnnrag.run.rundir import RunDir
from gnnrag.session import Budget, Session
from gnnrag.types import Prediction, Query, Question, Ranking
from tests.helpers.parts import Asks, ToyIndex, ToyRetriever, answer_all, answer_one, read_nothing, scripted_roles

QUESTIONS = [Question(f"q{i:02}", f"question {i}", ("yes",)) for i in range(40)]


class HashRetriever(Retriever):
    """Scores that depend on the query's text and on nothing else."""

    channels = frozenset({"text"})

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        out = []
        for query in queries:
            scores = np.random.default_rng(sum(query.text.encode())).random(30)
            order = np.argsort(-scores)
            ids = tuple(f"p{i:02}" for i in order)
            out.append(Ranking(ids[: query.top_k], scores[order][: query.top_k], "passage", "toy", 0.0, 1.0))
        return out


def jittery_roles() -> dict[str, Any]:
    """Roles that answer by their task alone, after a random while."""
    clock = random.Random(3)

    async def wait() -> None:
        for _ in range(clock.randrange(4)):
            await asyncio.sleep(0)

    class JitteryThoughts(Role[ThoughtsTask, Thoughts]):
        async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
            await wait()
            session.add_call("thoughts", len(task.passages), 1)
            if task.question.id == "q07":
                raise RuntimeError("bug in thoughts")
            best = task.passages[0].id
            return Thoughts(f"about {best}", f"{task.question.text} {best} {task.round}" if task.round == 1 else None)

    async def chain(task: Any, session: Session) -> Chain:
        await wait()
        return Chain("\n".join(task.thoughts))

    async def verifier(task: Any, session: Session) -> Verdict:
        await wait()
        return Verdict(tuple(p.id for p in task.passages if p.id.endswith("3")))

    async def reader(task: ReaderTask, session: Session) -> Answer:
        await wait()
        return Answer(task.passages[0].id if task.question.id != "q11" else "")

    return {"thoughts": JitteryThoughts(), "chain": chain, "verifier": verifier, "reader": reader}


def lines(results: list[tuple[Prediction, Session]]) -> str:
    rows = []
    for prediction, session in results:
        row = asdict(prediction)
        del row["seconds"]
        rows.append(json.dumps([row, session.events]))
    return "\n".join(rows)


# --------------------------------------------------------------------------------- section 19.4: equal bytes
def test_concurrency_changes_no_byte() -> None:
    found = {}
    for concurrency in (1, 8, 64):
        roles = jittery_roles()
        method = set_up(BDTR(top_k=20), index=ToyIndex(), roles=roles)
        results = answer_all(method, HashRetriever(), QUESTIONS, roles["reader"], concurrency)
        found[concurrency] = lines(results)
        assert [p.question_id for p, _ in results if p.error] == ["q07"]
    assert found[1] == found[8] == found[64] and len(found[1]) > 10_000


def test_batches_span_questions() -> None:
    retriever = ToyRetriever({})
    answer_all(set_up(Single(), index=ToyIndex(), roles={}), retriever, QUESTIONS, concurrency=40)
    assert retriever.batches == [32, 8]
    one = ToyRetriever({})
    answer_all(set_up(Single(), index=ToyIndex(), roles={}), one, QUESTIONS, concurrency=1)
    assert set(one.batches) == {1}


@pytest.mark.parametrize("concurrency", [1, 3, 16])
def test_never_more_questions_in_flight_than_allowed(concurrency: int) -> None:
    now, peak = 0, 0

    async def reader(task: ReaderTask, session: Session) -> Answer:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0.002)
        now -= 1
        return Answer("x")

    answer_all(Asks(), ToyRetriever({}), QUESTIONS[:20], reader, concurrency)
    assert peak == concurrency


def test_no_questions() -> None:
    assert answer_all(Asks(), ToyRetriever({}), []) == []


# ------------------------------------------------------------------------------------------------- error rows
def test_errors_are_rows() -> None:
    async def reader(task: ReaderTask, session: Session) -> Answer:
        if task.question.id == "q03":
            raise KeyError("x")
        return Answer("fine")

    results = answer_all(set_up(Single(), index=ToyIndex(), roles={}), ToyRetriever({}), QUESTIONS[:6], reader)
    assert [p.error for p, _ in results] == [None, None, None, "KeyError: 'x'", None, None]
    assert [p.answer for p, _ in results] == ["fine"] * 3 + [""] + ["fine"] * 2


def test_calls_that_failed_for_good_are_the_error_of_a_row_that_has_an_answer() -> None:
    async def reader(task: ReaderTask, session: Session) -> Answer:
        session.record("llm", reply=None, problem="the server is down")
        session.flag("reader", "llm_error")
        return Answer("a guess")

    prediction, _ = answer_one(Asks(), ToyRetriever({}), reader)
    assert prediction.answer == "a guess"
    assert prediction.error == "language-model calls failed after retries (reader: 1): the server is down"


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_query_is_an_error_row(text: str) -> None:
    retriever = ToyRetriever({})
    prediction, _ = answer_one(Asks([Query(text)]), retriever)
    assert "a method proposed" in prediction.error and retriever.asked == []


class _UnreadableError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("where", ["start", "propose", "absorb", "select", "reader", "retriever"])
@pytest.mark.parametrize(
    "error", [RuntimeError("x"), asyncio.CancelledError(), SystemExit(3), StopIteration(), _UnreadableError()]
)
def test_a_part_that_raises_costs_its_questions_and_is_shown_once(where: str, error, tmp_path: Path, caplog) -> None:
    async def of_my_own(*_: Any) -> Any:
        raise error

    def in_retriever(*_: Any) -> Any:
        raise error

    method, retriever, reader = Asks([Query("x")]), ToyRetriever({"x": {"a": 1.0}}), read_nothing
    if where == "reader":
        reader = of_my_own
    elif where == "retriever":
        retriever.retrieve = in_retriever
    else:
        setattr(method, where, of_my_own)
    loop, rows = Loop(method, retriever, reader, lambda ids: ()), list[Any]()
    asyncio.run(asyncio.wait_for(loop.run(QUESTIONS[:3], lambda *row: rows.append(row)), 20))
    run = RunDir(tmp_path, "run", {}, {})
    for prediction, session in rows:
        run.add(prediction, session)
        assert prediction.usage["retriever_calls"] == (0 if where in ("start", "propose") else 1)
        assert type(error).__name__ in prediction.error
        assert session.events[-1] == {"event": "error", "message": prediction.error}
    run.close()
    name = "in_retriever" if where == "retriever" else "of_my_own"
    (shown,) = [record.getMessage() for record in caplog.records if "Traceback" in record.getMessage()]
    assert name in shown and "log.jsonl" in shown
    logged = [row for row in read_journal(tmp_path / "run" / "log.jsonl") if row["event"] == "question"]
    assert len(logged) == 3 and all(name in row["traceback"] and __file__ in row["traceback"] for row in logged)


def test_our_own_messages_bring_no_traceback(caplog) -> None:
    method = Asks([Query("x")])

    async def fail(*_: Any) -> None:
        raise ArtefactError("index is damaged")

    method.select = fail
    _, session = answer_one(method, ToyRetriever({"x": {"a": 1.0}}))
    assert session.traceback == "" and "Traceback" not in caplog.text


def test_one_failing_query_of_a_batch_shared_by_all_questions() -> None:
    table: dict[str, Any] = {q.text: {q.id: 1.0} for q in QUESTIONS}
    table["question 5"] = RuntimeError("cannot embed")
    results = answer_all(set_up(Single(), index=ToyIndex(), roles={}), ToyRetriever(table), QUESTIONS, concurrency=40)
    for (prediction, _session), question in zip(results, QUESTIONS, strict=True):
        failed = question.id == "q05"
        assert prediction.error == ("RuntimeError: cannot embed" if failed else None)
        assert prediction.ranking == (() if failed else (question.id,))


def test_rankings_by_a_fallback_are_counted() -> None:
    class Falls(ToyRetriever):
        def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
            branches = ["dense_fallback" if q.text == "x" else "ppr" for q in queries]
            rows = zip(super().retrieve(queries), branches, strict=True)
            return [replace(ranking, branch=branch) for ranking, branch in rows]

    prediction, _ = answer_one(Asks([Query("x"), Query("y")]), Falls({"x": {"a": 1.0}, "y": {"b": 1.0}}))
    assert prediction.usage["flags"] == {"dense_fallback": 1}


def test_a_retrieval_that_fails_is_the_questions_error() -> None:
    table: dict[str, Any] = {"y": {"b": 1.0}, "x": ArtefactError("bm25 is damaged")}
    prediction, _ = answer_one(Asks([Query("y")], [Query("x")]), ToyRetriever(table))
    assert prediction.error == "bm25 is damaged"


# ------------------------------------------------------------------------------------------------- repeated queries
def test_repeats_are_counted_per_question() -> None:
    retriever = ToyRetriever({"x": {"a": 1.0}})
    method = Asks([Query("x"), Query("y")], [Query("x", origin="fast"), Query(" X ")])
    results = answer_all(method, retriever, QUESTIONS[:2], concurrency=1)
    for prediction, _ in results:
        assert prediction.usage["retriever_calls"] == 4 and prediction.usage["flags"] == {"duplicate_query": 2}


def test_equal_queries_reach_a_retriever_once_in_a_question() -> None:
    retriever = ToyRetriever({"x": {"a": 1.0}})
    method = Asks([Query("x", origin="fast"), Query("x", origin="slow")], [Query(" X "), Query("y")])
    answer_all(method, retriever, QUESTIONS[:2], concurrency=1)
    assert retriever.asked == ["x", "y"] * 2


def test_a_search_of_the_reader_has_the_seeds_and_may_fail() -> None:
    seen = []

    class Seeded(ToyRetriever):
        def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
            seen.extend((query.text, query.seeds) for query in queries)
            return super().retrieve(queries)

    async def reader(task: ReaderTask, session: Session) -> Answer:
        assert task.search is not None and await task.search("more") == ()
        return Answer("what was there")

    retriever = Seeded({"x": {"a": 1.0}, "more": RuntimeError("no such table")})
    loop = Loop(Asks([Query("x")]), retriever, reader, ToyIndex().lookup, style=None)
    prediction, session = asyncio.run(loop.answer(Question("q", "x", seeds=("e1",))))
    assert (prediction.answer, prediction.error) == ("what was there", None)
    assert seen == [("x", ("e1",)), ("more", ("e1",))]
    assert [e["message"] for e in session.events if e["event"] == "reader_search_failed"] == [
        "RuntimeError: no such table"
    ]


def test_a_query_that_asks_for_more_is_another_query() -> None:
    method = Asks([Query("x", top_k=2)], [Query("x", top_k=4)])
    prediction, _ = answer_one(method, ToyRetriever({"x": {f"d{i}": 9.0 - i for i in range(9)}}))
    assert prediction.ranking == ("d0", "d1", "d2", "d3")


# ------------------------------------------------------------------------------------------------------- rounds
def test_rounds_are_counted_without_the_first() -> None:
    def rounds(*queries: Sequence[Query]) -> int:
        return answer_one(Asks(*queries), ToyRetriever({}))[0].rounds

    assert [rounds(), rounds([Query("x")]), rounds([Query("x")], [Query("y")])] == [0, 0, 1]


def test_a_method_that_never_ends_meets_the_safety_net() -> None:
    method = Asks(*[[Query(f"x{i}")] for i in range(99)])
    loop = Loop(method, ToyRetriever({}), read_nothing, ToyIndex().lookup, max_rounds=5)
    prediction, _ = asyncio.run(loop.answer(QUESTIONS[0]))
    assert prediction.error is None and prediction.usage["retriever_calls"] == 5
    assert prediction.usage["flags"] == {"round_limit": 1}


def test_done_ends_the_loop() -> None:
    class Content(Asks):
        async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
            state.done = state.round == 1

    prediction, _ = answer_one(Content(*[[Query(f"x{i}")] for i in range(9)]), ToyRetriever({}))
    assert prediction.usage["retriever_calls"] == 2


def test_the_methods_own_answer_goes_past_the_reader() -> None:
    prediction, _ = answer_one(Asks(answer="mine"), ToyRetriever({}))
    assert prediction.answer == "mine"
    assert answer_one(Asks(answer=""), ToyRetriever({}))[0].answer == ""


def test_abstentions_and_flags_of_the_reader_are_counted_once() -> None:
    roles = scripted_roles(reader=[Answer("", flags=("abstained", "answer_unlabelled"))])
    _, session = answer_one(Asks(), ToyRetriever({}), roles["reader"])
    assert session.by_role["reader"]["abstained"] == session.by_role["reader"]["answer_unlabelled"] == 1
    _, session = answer_one(Asks(), ToyRetriever({}), scripted_roles(reader=[Answer("")])["reader"])
    assert session.by_role["reader"]["abstained"] == 1
    failed = scripted_roles(reader=[Answer("", flags=("reader_failed",))])
    _, session = answer_one(Asks(), ToyRetriever({}), failed["reader"])
    assert session.by_role["reader"]["reader_failed"] == 1 and not session.by_role["reader"]["abstained"]


def test_the_trace_keeps_the_head_of_a_ranking() -> None:
    wide = {f"d{i:03}": 1 - i / 300 for i in range(300)}
    _, session = answer_one(Asks([Query("x", origin="fast")]), ToyRetriever({"x": wide}))
    event = session.events[0]
    assert (event["event"], event["text"], event["origin"], event["round"]) == ("query", "x", "fast", 0)
    assert len(event["ranking"]["ids"]) == len(event["ranking"]["scores"]) == 50
    assert event["ranking"]["range"] == [pytest.approx(1 / 300), 1.0] and event["ranking"]["branch"] == "toy"
    json.dumps(session.events, allow_nan=False)


# ------------------------------------------------------------------------------------------------------ budgets
def spend(calls: int, tokens: int = 0, seconds: float = 0.0) -> Any:
    async def reader(task: ReaderTask, session: Session) -> Answer:
        await asyncio.sleep(seconds)
        for _ in range(calls):
            session.add_call("reader", tokens, 0)
        return Answer("fine")

    return reader


@pytest.mark.parametrize(
    "budget, within, beyond, message",
    [
        (Budget(max_calls=2), spend(2), spend(3), "budget.max_calls=2 is used up (3)"),
        (Budget(max_tokens=100), spend(2, 50), spend(3, 50), "budget.max_tokens=100 is used up (150)"),
        (Budget(max_seconds=5), spend(1), None, ""),
    ],
)
def test_budgets(budget: Budget, within: Any, beyond: Any, message: str) -> None:
    prediction, _ = answer_one(Asks(), ToyRetriever({}), within, budget)
    assert prediction.error is None and prediction.answer == "fine"
    if beyond:
        prediction, _ = answer_one(Asks(), ToyRetriever({}), beyond, budget)
        assert prediction.error is not None and prediction.error.startswith(message) and "null" in prediction.error
        assert prediction.usage["llm_calls"] == 3, "what was spent is in the row"


def test_a_budget_of_seconds_ends_the_rounds() -> None:
    class Slow(Asks):
        async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
            await asyncio.sleep(0.05)

    method = Slow(*[[Query(f"x{i}")] for i in range(50)])
    prediction, _ = answer_one(method, ToyRetriever({}), budget=Budget(max_seconds=0.12))
    assert prediction.error is not None and "budget.max_seconds=0.12" in prediction.error
    assert 1 <= prediction.usage["retriever_calls"] <= 4


def test_budgets_are_per_question() -> None:
    results = answer_all(Asks(), ToyRetriever({}), QUESTIONS, spend(2), budget=Budget(max_calls=2))
    assert all(p.error is None for p, _ in results)


# -------------------------------------------------------------------------------------------------- cancellation
def test_cancelling_keeps_what_was_reported_and_stops_the_rest() -> None:
    reported: list[str] = []
    cancelled: list[str] = []

    async def reader(task: ReaderTask, session: Session) -> Answer:
        try:
            await asyncio.sleep(0 if task.question.id < "q05" else 60)
        except asyncio.CancelledError:
            cancelled.append(task.question.id)
            raise
        return Answer("x")

    async def go() -> None:
        loop = Loop(
            set_up(Single(), index=ToyIndex(), roles={}), ToyRetriever({}), reader, ToyIndex().lookup, concurrency=4
        )
        running = asyncio.create_task(loop.run(QUESTIONS, lambda p, s: reported.append(p.question_id)))
        while len(reported) < 5:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(go())
    assert sorted(reported) == ["q00", "q01", "q02", "q03", "q04"]
    assert sorted(cancelled) == ["q05", "q06", "q07", "q08"]
