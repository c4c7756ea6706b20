"""GraphSearch: what each switch of its config changes, on the worked trace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gnnrag.methods import graphsearch
from gnnrag.text.subqueries import NOTHING
from tests.helpers.search import (
    ACCEPT,
    PASSAGES,
    QUESTION,
    TABLE,
    TEXT_QUERIES,
    TwoChannels,
    calls,
    events,
    final_prompt,
    flags,
    modules,
    run_search,
    scripted,
    search,
)

LONG = " ".join(f"w{i:03}" for i in range(400))


@pytest.mark.parametrize(
    "expand_on, expanded",
    [("reject", ["relational"]), ("accept", ["semantic"]), ("always", ["semantic", "relational"]), ("never", [])],
)
def test_what_sets_off_an_expansion(expand_on: str, expanded: list[str]) -> None:
    _, session = run_search(scripted(), reflection__expand_on=expand_on)
    assert [row["side"] for row in events(session, "expansion")] == expanded
    assert [row["verdict"] for row in sorted(events(session, "check"), key=lambda r: r["side"])] == ["reject", "accept"]


def test_a_reject_that_expands_nothing_is_recorded() -> None:
    prediction, session = run_search(scripted(expand_graph="[]"))
    assert flags(session, "expander")["reject_without_expansion"] == 1 and prediction.answer == "212 km"


def test_an_expansion_that_was_asked_before_is_dropped_and_the_rest_is_capped() -> None:
    queries = [TEXT_QUERIES[0].upper(), "Where was #1 born?", *(f"gap {i}" for i in range(9))]
    backend, retriever = (
        scripted(check_text="No", expand_text=json.dumps(queries), cr_text="x", **ACCEPT),
        TwoChannels(),
    )
    run_search(backend, retriever)
    asked = [q.text for q in retriever.asked if q.text.startswith("gap")]
    assert asked == [f"gap {i}" for i in range(5)]


def test_released_parsing_asks_in_the_order_written_and_again_and_shows_the_released_labels() -> None:
    plan = '{"Sub-query 2": "second?", "Sub-query 1": "first?"}'
    expand = {"check_text": "No", "expand_text": '["first?", "gap", "gap"]'}
    backend = scripted(qd_text=plan, cr_text="x", ans="said", **expand)
    _, session = run_search(backend, released=True, channels="semantic")
    assert [row["raw_query"] for row in events(session, "sub_query")] == ["second?", "first?", "first?", "gap", "gap"]
    assert "\nSub-query answer: said" in final_prompt(backend)
    assert "Retrieved context:" in calls(backend, "ans")[1]


def test_rounds_of_reflection() -> None:
    backend = scripted(check_graph=["No", "Now complete. Yes"])
    _, session = run_search(backend, reflection__rounds=2)
    assert [row["verdict"] for row in events(session, "check", "relational")] == ["reject", "accept"]
    backend = scripted()
    run_search(backend, reflection__rounds=0)
    assert modules(backend).keys().isdisjoint({"draft_text", "check_text", "expand_text", "draft_graph"})


def test_the_text_side_grounds_only_references_unless_as_released() -> None:
    plan = json.dumps({"Sub-query 1": "What is C# to #2?", "Sub-query 2": "Who began #MeToo?"})
    for preset, expected in (("paper", 0), ("official", 2)):
        backend = scripted(qd_text=plan, qg_text="Who?", cr_text="x", ans="y", final="z\nAnswer: z", **ACCEPT)
        _, session = run_search(backend, preset=preset)
        assert modules(backend)["qg_text"] == expected
        assert flags(session, "decomposer")["unresolvable_reference"] == 1  # the #2 of sub-query 1


def test_a_refusal_grounds_nothing_and_the_reference_is_not_sent() -> None:
    retriever = TwoChannels()
    backend = scripted(qg_text={"Where was #1": "Where was #1 born?", "#2": "How long is #2?"}, cr_text="x")
    run_search(backend, retriever)
    assert "Where was born?" in [q.text for q in retriever.asked]
    assert "Sub-query 2: Where was #1 born?" in final_prompt(backend)


def test_an_empty_view_is_marked_and_not_refined_but_answered() -> None:
    table = {k: v for k, v in TABLE.items() if k != ("text", TEXT_QUERIES[1])}
    backend = scripted(**ACCEPT)
    _, session = run_search(backend, TwoChannels(table))
    assert len(backend.requests) == 24 and flags(session, "refiner")["empty_view"] == 1
    assert events(session, "sub_query", "semantic")[1]["refined"] == NOTHING
    assert modules(backend)["ans"] == 6


@pytest.mark.parametrize("reply", ["{}", "I will not do that.", ""])
def test_an_empty_decomposition_touches_its_own_side_only(reply: str) -> None:
    backend = scripted(qd_graph=reply, ans={"How long is the river that": "?", **_answers()}, draft_graph="d", **ACCEPT)
    _, session = run_search(backend)
    (row,) = events(session, "sub_query", "relational")
    assert row["query"] == QUESTION.text and row["sent"] == QUESTION.text
    assert flags(session, "decomposer")["empty_decomposition"] == 1
    assert len(events(session, "sub_query", "semantic")) == 3
    backend = scripted(qd_graph=reply, draft_text="d", check_text="No", expand_text="[]")
    _, session = run_search(backend, released=True)
    assert events(session, "sub_query", "relational") == []
    assert len(events(session, "draft", "relational")) == 1  # draft and check still run on nothing


def _answers() -> dict[str, str]:
    return {"Who composed": "Maren Tolvik", "Where was": "Esker Vale", "How long": "212 km"}


@pytest.mark.parametrize(
    "how, shown, hidden",
    [("refined", "She was born in Esker Vale [1]", "taught in Port Hallam"), ("raw", "taught in Port Hallam", "[1].")],
)
def test_context_of_the_interim_answer_and_of_the_reflection(how: str, shown: str, hidden: str) -> None:
    backend = scripted(**ACCEPT)
    run_search(backend, context__answer=how, context__reflect="history" if how == "refined" else "raw")
    (asked,) = [t for t in calls(backend, "ans") if t.endswith(f"Query: {TEXT_QUERIES[1]}")]
    assert shown in asked
    if how == "refined":
        assert hidden not in asked
    (draft,) = calls(backend, "draft_text")
    assert shown in draft and hidden not in draft


def test_the_background_can_be_full_aligned_or_off() -> None:
    seen = {}
    for how in ("full", "aligned", "off"):
        backend = scripted(**ACCEPT)
        run_search(backend, views__background=how)
        seen[how] = [t for m in ("cr_text", "cr_graph") for t in calls(backend, m) if QUESTION.text in t]
        assert ("Background information" in final_prompt(backend)) == (how != "off")
        assert len(backend.requests) == (23 if how == "off" else 25)
    assert seen["off"] == []
    assert all(PASSAGES["P1"] in t and "held in" in t for t in seen["full"])
    text, graph = seen["aligned"]
    assert PASSAGES["P1"] in text and "composed by" not in text
    assert PASSAGES["P1"] not in graph and "composed by" in graph


@pytest.mark.parametrize(
    "settings, channels",
    [
        ({}, {"text", "graph"}),
        ({"channels": "semantic"}, {"text"}),
        ({"channels": "relational"}, {"graph"}),
        ({"views__semantic_source": "full", "views__relational_source": "full"}, {"text", "graph"}),
        ({"channels": "semantic", "views__semantic_source": "graph"}, {"graph"}),
        ({"views__relational_source": "text", "views__background": "off"}, {"text"}),
        ({"views__semantic_source": "graph", "views__background": "off"}, {"graph"}),
    ],
)
def test_the_channels_that_a_retriever_must_have(settings: dict[str, Any], channels: set[str]) -> None:
    config = search(**settings)
    assert config.asked_channels == channels
    retriever = TwoChannels()
    replies = {m: "x" for m in ("cr_text", "ans")} | ACCEPT
    prediction, _ = run_search(scripted(**replies), retriever, **settings)
    assert prediction.error is None and {q.channel for q in retriever.asked} == channels


# ---------------------------------------------------------------------------------------------- limits and answers
def test_a_long_history_loses_its_oldest_contexts_and_keeps_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphsearch, "HISTORY_TOKENS", 700)
    backend = scripted(cr_text=LONG, **ACCEPT)
    _, session = run_search(backend)
    prompt = final_prompt(backend)
    assert session.counts["history_cut"] > 0 and QUESTION.text in prompt
    for query in TEXT_QUERIES:
        assert query in prompt
    assert "Answer: Maren Tolvik" in prompt and "(left out: too long)" in prompt


def test_a_view_is_cut_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphsearch, "VIEW_TOKENS", 20)
    backend = scripted(cr_text="x", **ACCEPT)
    _, session = run_search(backend)
    assert session.counts["view_cut"] > 0
    assert not any(PASSAGES["P4"] in text for text in calls(backend, "cr_text"))


def test_the_shared_reader() -> None:
    backend = scripted(**ACCEPT)
    prediction, _ = run_search(backend, answer="reader")
    assert modules(backend)["final"] == 0 and prediction.answer.startswith("P")


def test_passages_that_refinements_cite_go_first() -> None:
    replies = {"cr_text": {TEXT_QUERIES[2]: "in [2]", "": "nothing"}, **ACCEPT}
    prediction, _ = run_search(scripted(**replies))
    assert prediction.ranking[0] == "P2"
    plain, _ = run_search(scripted(**replies), promote="none")
    assert plain.ranking[0] == "P1" and set(plain.ranking) == set(prediction.ranking)
