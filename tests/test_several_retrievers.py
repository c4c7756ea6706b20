"""One run, several retrievers: each query reaches the one that it names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gnnrag.run.loop import Loop
from gnnrag.session import Session
from gnnrag.types import Prediction, Query, Question
from tests.helpers.parts import Asks, ToyIndex, ToyRetriever, ranking, read_nothing


def run(method: Any, retriever: Any, others: dict[str, Any] | None = None, n: int = 1) -> list[Prediction]:
    found: dict[str, Prediction] = {}
    loop = Loop(method, retriever, read_nothing, ToyIndex().lookup, others=others)
    asyncio.run(loop.run([Question(f"q{i}", "Q") for i in range(n)], lambda p, s: found.update({p.question_id: p})))
    return [found[f"q{i}"] for i in range(n)]


MAIN = {"x": {"main": 0.9}, "y": {"main2": 0.5}}
OTHER = {"x": {"other": 0.8}}


def test_each_query_reaches_its_own() -> None:
    main, other = ToyRetriever(MAIN), ToyRetriever(OTHER)
    queries = [Query("x", retriever="b"), Query("x"), Query("y")]
    (prediction,) = run(Asks(queries), main, {"b": other})
    assert prediction.ranking == ("main", "other", "main2"), "in the order asked, whoever answered"
    assert (main.asked, other.asked) == (["x", "y"], ["x"])


def test_the_same_words_to_another_retriever_are_another_query() -> None:
    main, other = ToyRetriever(MAIN), ToyRetriever(OTHER)
    (prediction,) = run(
        Asks([Query("x")], [Query("x", retriever="b")], [Query("X ", retriever="b")]), main, {"b": other}
    )
    assert prediction.usage["retriever_calls"] == 3 and prediction.usage["flags"] == {"duplicate_query": 1}
    assert (main.asked, other.asked) == (["x"], ["x"])


def test_channels_are_those_of_the_one_that_is_asked() -> None:
    other = ToyRetriever(OTHER)
    other.channels = frozenset({"text", "graph"})
    query = Query("x", channel="graph", retriever="b")
    assert run(Asks([query]), ToyRetriever(MAIN), {"b": other})[0].error is None
    (prediction,) = run(Asks([query]), ToyRetriever(MAIN), {"b": ToyRetriever(OTHER)})
    assert prediction.error.startswith("ValueError") and "channel='graph'" in prediction.error


def test_only_one_of_them_needs_roles() -> None:
    class Needs(ToyRetriever):
        asks_roles = True

        async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Any]:
            session.record("asked", texts=[q.text for q in queries])
            return [ranking({"for": 1.0}) for q in queries]

    needs, main = Needs({}), ToyRetriever(MAIN)
    rounds = ([Query("x"), Query("x", retriever="b")], [Query("y", retriever="b"), Query("y")])
    (prediction,) = run(Asks(*rounds), main, {"b": needs})
    assert prediction.error is None
    assert set(prediction.ranking) == {"main", "for", "main2"} and needs.asked == []
