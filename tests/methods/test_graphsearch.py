"""GraphSearch: the worked trace of specs/graphsearch.md 8, call counts of 2.4, faults, any order of replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gnnrag.errors import LLMError
from gnnrag.parts import set_up
from gnnrag.run.loop import Loop
from tests.helpers.parts import read_nothing
from tests.helpers.search import (
    ACCEPT,
    LENGTH,
    QUESTION,
    TABLE,
    TEXT_QUERIES,
    SearchIndex,
    TwoChannels,
    events,
    modules,
    prompted,
    run_search,
    scripted,
    search,
)

BOTH_EXPAND = {
    "check_text": "Gaps. No", "check_graph": "Gaps. No", "expand_text": '["first gap", "second gap"]',
    "expand_graph": '["third gap", "fourth gap"]', "cr_text": "found [1]", "cr_graph": '[("a","b","c")]',
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- section 8
def test_the_worked_trace() -> None:
    backend, retriever = scripted(), TwoChannels()
    prediction, session = run_search(backend, retriever)
    assert prediction.error is None and prediction.answer == "212 km"
    text, graph = events(session, "sub_query", "semantic"), events(session, "sub_query", "relational")
    assert [row["sent"] for row in text] == list(TEXT_QUERIES)
    assert [row["sent"] for row in graph] == [
        "Lanterns of Orrin composed by",
        "Maren Tolvik was born in",
        "flows through Esker Vale has length",
        LENGTH,
    ]
    assert [row["query"] for row in graph[:3]] == [
        '[("Lanterns of Orrin","composed by","Entity#1")]',
        '[("Maren Tolvik","was born in","Entity#2")]',
        '[("Entity#3","flows through","Esker Vale"),("Entity#3","has length","Entity#4")]',
    ]
    assert [row["raw_query"] for row in text] == [TEXT_QUERIES[0], "Where was #1 born?",
                                                  "How long is the river flowing through #2?"]  # fmt: skip
    assert [row["kind"] for row in graph] == ["decomposed"] * 3 + ["expanded"]
    assert [row["answer"] for row in text] == ["Maren Tolvik", "Esker Vale", "212 km"]
    assert [row["answer"] for row in graph] == ["Maren Tolvik", "Esker Vale",
                                                "the Brannock; its length is not given", ""]  # fmt: skip
    assert {row["side"]: row["verdict"] for row in events(session, "check")} == {
        "semantic": "accept", "relational": "reject"}  # fmt: skip
    assert [row["queries"] for row in events(session, "expansion")] == [[LENGTH]]
    assert set(prediction.ranking[:3]) == {"P1", "P2", "P3"}


def test_guessed_sub_queries_do_not_outrank_the_question() -> None:
    """By rank and weight their first hit comes after the question's second."""
    roles = prompted(scripted())
    roles["decomposer"].is_guess = True
    index = SearchIndex()
    loop = Loop(set_up(search(promote="none"), index=index, roles=roles), TwoChannels(), read_nothing, index.lookup)
    prediction, _ = asyncio.run(loop.answer(QUESTION))
    assert prediction.ranking == ("P1", "P4", "P2", "P3")


def test_27_module_calls_and_8_retrievals() -> None:
    backend, retriever = scripted(), TwoChannels()
    _, session = run_search(backend, retriever)
    assert len(backend.requests) == 27 == session.usage()["llm_calls"]
    assert len(retriever.asked) == 8 + 1  # the full view of the background asks both channels
    assert len({query.text for query in retriever.asked}) == 8
    assert modules(backend) == {
        "qd_text": 1, "qd_graph": 1, "cr_text": 4, "cr_graph": 5, "qg_text": 2, "qg_graph": 2, "ans": 6,
        "draft_text": 1, "draft_graph": 1, "check_text": 1, "check_graph": 1, "expand_graph": 1, "final": 1,
    }  # fmt: skip


def test_the_graph_is_asked_twice_as_deep_as_the_text() -> None:
    retriever = TwoChannels()
    run_search(scripted(), retriever, views__top_k=7)
    assert {(query.channel, query.top_k) for query in retriever.asked} == {("text", 7), ("graph", 14)}


# ----------------------------------------------------------------------------------------------- section 2.4
@pytest.mark.parametrize("replies, expected, retrievals", [(ACCEPT, 25, 7), (BOTH_EXPAND, 31, 11)])
def test_calls_of_section_2_4(replies: dict[str, Any], expected: int, retrievals: int) -> None:
    gaps = {("text", f"{n} gap"): ["P3"] for n in ("first", "second")}
    gaps |= {("graph", f"{n} gap"): ["e5"] for n in ("third", "fourth")}
    backend, retriever = scripted(**replies), TwoChannels(TABLE | gaps)
    run_search(backend, retriever)
    assert len(backend.requests) == expected
    assert len({query.text for query in retriever.asked}) == retrievals


@pytest.mark.parametrize(
    "ablate, expected",
    [
        (["grounding", "answering", "drafting", "reflection"], 11),  # R1
        (["drafting", "reflection"], 21),  # R2
        (["reflection"], 23),  # R3
        ([], 25),  # R4, nothing to expand
        (["refinement"], 25 - 8),
        (["decomposition"], 2 + 2 * 2 + 4 + 1),
    ],
)
def test_rows_of_the_ablation(ablate: list[str], expected: int) -> None:
    table = dict(TABLE)
    if "grounding" in ablate:  # sub-queries go out as they were written, without the references
        table |= {("text", "Where was born?"): ["P2"], ("text", "How long is the river flowing through ?"): ["P3"]}
        table |= {("graph", "was born in"): ["e2"], ("graph", "flows through has length"): ["e4"]}
        replies: dict[str, Any] = {"cr_text": "found [1]", **ACCEPT}
    else:
        replies = dict(ACCEPT)
    if "decomposition" in ablate:
        replies |= {"ans": "212 km", "draft_graph": "a draft", "check_text": "Yes", "draft_text": "a draft"}
    backend = scripted(**replies)
    prediction, _ = run_search(backend, TwoChannels(table), ablate=ablate)
    assert prediction.error is None and prediction.answer == "212 km"
    assert len(backend.requests) == expected


# ----------------------------------------------------------------------------------- concurrency, faults, attacks
MODULE_NAMES = ["qd_text", "qd_graph", "cr_text", "cr_graph", "qg_text", "qg_graph", "ans", "draft_text",
                "draft_graph", "check_text", "check_graph", "expand_graph", "final"]  # fmt: skip


@pytest.mark.parametrize("module", MODULE_NAMES)
def test_a_failing_module_never_stops_a_question(module: str) -> None:
    base: dict[str, Any] = {"cr_text": "x", "ans": "y", "cr_graph": '[("a","b","c")]', "qg_text": "z?"}
    base |= {"draft_graph": "d", "draft_text": "d", "check_text": "Yes", "check_graph": "No", "expand_text": "[]"}
    prediction, session = run_search(scripted(**base | {module: LLMError("the server is down")}))
    assert events(session, "final") and events(session, "evidence")
    assert {row["side"] for row in events(session, "sub_query")} == {"semantic", "relational"}
    assert not events(session, "error")
    assert prediction.answer == ("" if module == "final" else "212 km")
    assert prediction.error is not None and "the server is down" in prediction.error
    assert any("failed" in name for row in session.by_role.values() for name in row)
