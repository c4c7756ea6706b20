"""GraphSearch without a language model: the offline and the oracle's roles, alone and through the loop."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnrag.index.index import Index
from gnnrag.methods.graphsearch.offline import (
    OfflineDrafter,
    OfflineEvidenceCheck,
    OfflineExpander,
    OfflineGrounder,
    OfflineRefiner,
    OfflineSubAnswerer,
    OracleDrafter,
    OracleEvidenceCheck,
    OracleExpander,
    OracleRefiner,
    OracleSubAnswerer,
)
from gnnrag.methods.graphsearch.roles import ContextTask, SubQueryTask, View, parse_triples
from gnnrag.parts import set_up
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.decomposer import OfflineDecomposer
from gnnrag.roles.oracle import OracleDecomposer
from gnnrag.roles.tuned.reader import OfflineReader
from gnnrag.run.loop import Loop
from gnnrag.session import Session
from gnnrag.text.normalise import words
from gnnrag.text.subqueries import HistoryItem
from gnnrag.types import GoldHop, Prediction, Query, Question, Ranking
from tests.helpers.parts import COMPOSITIONAL, CORPUS, read_nothing
from tests.helpers.search import events, opened, search

HOPS = (
    GoldHop('Who directed the film "Night Harbour"?', "Vera Lindqvist", "p0"),
    GoldHop("Where was #1 born?", "Kalmar", "p1"),
)
QUESTION = Question("q", COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1"), decomposition=HOPS)


class Overlap(Retriever):
    """A retriever by shared words: passages, or their sentences as relations."""

    channels = frozenset({"text", "graph"})

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`."""
        return [self._rank(query) for query in queries]

    def _rank(self, query: Query) -> Ranking:
        wanted = set(words(query.text))
        if query.channel == "text":
            rows = [(p.id, p.content, (p.id,)) for p in CORPUS]
        else:
            rows = [(f"{p.id}-{i}", s, (p.id,)) for p in CORPUS for i, s in enumerate(p.text.split(". "))]
        counts = [len(wanted & set(words(text))) for _, text, _ in rows]
        order = [i for i in sorted(range(len(rows)), key=lambda i: -counts[i]) if counts[i]][: min(query.top_k, 3)]
        ids, scores = tuple(rows[i][0] for i in order), np.array([counts[i] for i in order], dtype=np.float64)
        if query.channel == "text":
            return Ranking(ids, scores, branch="overlap", low=0.0)
        texts, sources = tuple(rows[i][1] for i in order), tuple(rows[i][2] for i in order)
        return Ranking(ids, scores, "relation", "overlap", 0.0, texts=texts, sources=sources)


def call(cls: Any, task: Any, index: Any = None) -> Any:
    return asyncio.run(opened(cls, index=index)(task, Session("q")))


def offline(index: Index) -> dict[str, Any]:
    reader = {"reader": opened(OfflineReader, index=index)}
    return {
        **reader,
        "decomposer": opened(OfflineDecomposer, index=index),
        "grounder": opened(OfflineGrounder, index=index),
        "refiner": opened(OfflineRefiner, index=index),
        "sub_answerer": set_up(OfflineSubAnswerer(), index=index, roles=reader),
        "drafter": set_up(OfflineDrafter(), index=index, roles=reader),
        "evidence_check": opened(OfflineEvidenceCheck, index=index),
        "expander": opened(OfflineExpander, index=index),
    }


def oracle(index: Index) -> dict[str, Any]:
    return {
        "decomposer": opened(OracleDecomposer, index=index),
        "grounder": opened(OfflineGrounder, index=index),
        "refiner": opened(OracleRefiner, index=index),
        "sub_answerer": opened(OracleSubAnswerer, index=index),
        "drafter": opened(OracleDrafter, index=index),
        "evidence_check": opened(OracleEvidenceCheck, index=index),
        "expander": opened(OracleExpander, index=index),
    }


def run(
    index: Index, roles: dict[str, Any], question: Question = QUESTION, **dotted: Any
) -> tuple[Prediction, Session]:
    loop = Loop(set_up(search(**dotted), index=index, roles=roles), Overlap(), read_nothing, index.lookup)
    return asyncio.run(loop.answer(question))


# ------------------------------------------------------------------------------------------------------- offline


def test_grounding_puts_answers_in_and_escapes_them() -> None:
    history = (HistoryItem(1, '[("a","by","Entity#1")]', "", answer='Vera "V" \\ Lind'),)
    task = SubQueryTask(QUESTION, "relational", '[("Entity#1","in","Entity#2")]', history=history)
    found = call(OfflineGrounder, task)
    assert parse_triples(found.text) == [('Vera "V" \\ Lind', "in", "Entity#2")]
    text = (HistoryItem(1, "", "", answer="Vera"), HistoryItem(2, "", "", answer="not stated"))
    found = call(OfflineGrounder, SubQueryTask(QUESTION, "semantic", "#1, #2 and #3 in C#?", history=text))
    assert found.text == "Vera, #2 and #3 in C#?"


def test_check_and_expansion_tell_one_story(index: Index) -> None:
    whole, part = (CORPUS[0], CORPUS[1], CORPUS[2]), (CORPUS[7],)
    rejected = call(OfflineEvidenceCheck, ContextTask(QUESTION, "", part), index)
    assert rejected.verdict == "reject" and rejected.analysis.startswith("missing: ")
    queries = call(OfflineExpander, ContextTask(QUESTION, "", part), index).queries
    assert queries and queries[0] == rejected.analysis.removeprefix("missing: ")
    accepted = call(OfflineEvidenceCheck, ContextTask(QUESTION, "", (*whole, *CORPUS[3:])), index)
    assert accepted.verdict == "accept"


def test_offline_through_the_loop(index: Index) -> None:
    prediction, session = run(index, offline(index), Question("q", COMPOSITIONAL, ("Kalmar",)))
    assert prediction.error is None and session.usage()["llm_calls"] == 0
    assert {"p0", "p1"} <= set(prediction.ranking[:4])
    rows = events(session, "sub_query", "semantic")
    assert rows[0]["answer"] == "Vera Lindqvist" and "Vera Lindqvist" in rows[1]["query"]
    assert "Vera Lindqvist" in events(session, "sub_query", "relational")[1]["sent"]
    again, second = run(index, offline(index), Question("q", COMPOSITIONAL, ("Kalmar",)))
    assert dataclasses.replace(again, seconds=0.0) == dataclasses.replace(prediction, seconds=0.0)
    assert second.events == session.events


# -------------------------------------------------------------------------------------------------------- oracle


def test_the_oracle_refines_to_the_gold_sentences_of_a_view(index: Index) -> None:
    for shown, support in (((1, 5), ("p1",)), ((5,), ())):
        view = View(tuple(CORPUS[i] for i in shown))
        refined = call(OracleRefiner, SubQueryTask(QUESTION, "semantic", "x", view), index)
        assert refined.support == support and ("Kalmar" in refined.text) == bool(support)


def test_the_oracle_checks_and_expands_by_the_gold_passages(index: Index) -> None:
    assert call(OracleEvidenceCheck, ContextTask(QUESTION, "", (CORPUS[0],)), index).verdict == "reject"
    assert call(OracleEvidenceCheck, ContextTask(QUESTION, "", (CORPUS[1], CORPUS[0])), index).verdict == "accept"
    task = ContextTask(QUESTION, "", (CORPUS[0],))
    assert call(OracleExpander, task, index).queries == ("Where was Vera Lindqvist born?",)
    again = dataclasses.replace(task, earlier=("Where was Vera Lindqvist born?",))
    assert call(OracleExpander, again, index).queries == ("Where was Vera Lindqvist born? Kalmar Vera Lindqvist",)


def test_the_oracle_through_the_loop(index: Index) -> None:
    prediction, session = run(index, oracle(index))
    assert prediction.error is None and prediction.answer == "Kalmar"
    assert set(prediction.ranking[:2]) == {"p0", "p1"}  # what refinements rest on goes first
    assert {e["verdict"] for e in events(session, "check")} == {"accept"}
    assert [row["answer"] for row in events(session, "sub_query", "relational")] == ["Vera Lindqvist", "Kalmar"]
