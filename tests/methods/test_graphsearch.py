"""GraphSearch: the worked trace of specs/graphsearch.md 8, call counts of 2.4, every switch, faults, injections."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from typing import Any

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.graphsearch.config import resolve_search
from gnnrag.methods.graphsearch.method import GraphSearch
from gnnrag.run.loop import Loop
from gnnrag.text.subqueries import NOTHING
from gnnrag.types import Question
from tests.helpers.each import each
from tests.helpers.parts import read_nothing
from tests.helpers.search import (
    LENGTH,
    PASSAGES,
    QUESTION,
    TABLE,
    TEXT_QUERIES,
    SearchIndex,
    TwoChannels,
    events,
    module_of,
    prompted,
    run_search,
    scripted,
    search,
    user_text,
)

ACCEPT = {"check_graph": "All is supported. Yes"}
LONG = " ".join(f"w{i:03}" for i in range(400))
BOTH_EXPAND = {
    "check_text": "Gaps. No", "check_graph": "Gaps. No", "expand_text": '["first gap", "second gap"]',
    "expand_graph": '["third gap", "fourth gap"]', "cr_text": "found [1]", "cr_graph": '[("a","b","c")]',
}  # fmt: skip


def modules(backend: ScriptedBackend) -> Counter[str]:
    return Counter(module_of(request) for request in backend.requests)


def calls(backend: ScriptedBackend, module: str) -> list[str]:
    return [user_text(request) for request in backend.requests if module_of(request) == module]


def final_prompt(backend: ScriptedBackend) -> str:
    (prompt,) = calls(backend, "final")
    return prompt


def flags(session: Any, role: str) -> Counter[str]:
    return session.by_role[role]


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


def test_the_recall_of_the_worked_trace() -> None:
    _, session = run_search(scripted())
    for side in ("semantic", "relational"):
        seen: set[str] = set()
        recalls = []
        for row in events(session, "sub_query", side)[:3]:
            seen |= {*row["context_ids"]} & {*QUESTION.gold}
            recalls.append(len(seen) / 3)
        assert recalls == pytest.approx([1 / 3, 2 / 3, 1.0], abs=1e-6)
    gold, seen, recalls = {"e1", "e2", "e4", "e5"}, set(), []
    for row in events(session, "query"):
        if row["kind"] == "relational":
            seen |= gold & set(row["ranking"]["ids"])
            recalls.append(len(seen) / 4)
    assert recalls == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=1e-6), "by triple; the length comes last"


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


def test_official_26_module_calls_and_7_retrievals() -> None:
    backend, retriever = scripted(final="The Brannock is 212 km long."), TwoChannels()
    prediction, session = run_search(backend, retriever, preset="official")
    assert len(backend.requests) == 26
    assert len({query.text for query in retriever.asked}) == 7
    assert [q.text for q in retriever.asked if q.channel == "graph"][1] == "Lanterns of Orrin composed by Entity"
    assert modules(backend)["expand_text"] == 1 and modules(backend)["expand_graph"] == 0
    assert LENGTH not in {query.text for query in retriever.asked}
    assert "Logic draft" not in final_prompt(backend)
    assert prediction.answer == "The Brannock is 212 km long."
    assert flags(session, "expander")["reject_without_expansion"] == 0  # the verdict was yes


def test_what_the_final_answer_reads_and_in_which_order() -> None:
    backend = scripted()
    run_search(backend)
    prompt = final_prompt(backend)
    parts = [
        "Background information:", "The opera of 1931 is by Maren Tolvik.", '[("Lanterns of Orrin","composed by"',
        f"Sub-query 1: {TEXT_QUERIES[0]}", "Sub-query 3: How long", "Answer: 212 km", "Logic draft:\n1. The opera",
        'Sub-query 1: [("Lanterns', f"Sub-query 4: {LENGTH}", '[("Brannock","length","212 km")]',
        "Logic draft:\n1. The river",
    ]  # fmt: skip
    places = [prompt.find(part) for part in parts]
    assert -1 not in places and places == sorted(places)


# ----------------------------------------------------------------------------------------------- section 2.4
@each("replies, expected, retrievals", [(ACCEPT, 25, 7), (BOTH_EXPAND, 31, 11)])
def test_calls_of_section_2_4(replies: dict[str, Any], expected: int, retrievals: int) -> None:
    gaps = {("text", f"{n} gap"): ["P3"] for n in ("first", "second")}
    gaps |= {("graph", f"{n} gap"): ["e5"] for n in ("third", "fourth")}
    backend, retriever = scripted(**replies), TwoChannels(TABLE | gaps)
    run_search(backend, retriever)
    assert len(backend.requests) == expected
    assert len({query.text for query in retriever.asked}) == retrievals


def test_the_case_study_has_44_module_calls() -> None:
    text = {f"Sub-query {i}": f"thing {i}?" if i <= 3 else f"thing {i} of #{i - 1}?" for i in range(1, 9)}  # p = 5
    chain = [[f"Entity#{i}", "leads to", f"Entity#{i + 1}"] for i in range(5)]  # each uses the one before: g = 4
    graph = {f"Sub-query {i}": [triple] for i, triple in enumerate(chain, start=1)}
    backend, retriever = (
        scripted(
            qd_text=json.dumps(text), qd_graph=json.dumps(graph), qg_text=lambda r: f"grounded {len(r.text)}",
            qg_graph=lambda r: json.dumps([["known", str(len(r.text)), "Entity#9"]]), cr_text="x", cr_graph="[]",
            ans="y", **ACCEPT,
        ),
        TwoChannels(Everything()),
    )  # fmt: skip
    prediction, _ = run_search(backend, retriever)
    assert prediction.error is None
    assert modules(backend)["qg_text"] == 5 and modules(backend)["qg_graph"] == 4
    assert len([q for q in retriever.asked if q.kind != "question"]) + 1 == 14
    assert len(backend.requests) == 44


class Everything(dict[Any, Any]):
    """A table in which every query finds something."""

    def get(self, key: Any, default: Any = None) -> Any:
        return ["P1"] if key[0] == "text" else ["e1"]


@each(
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


def test_without_grounding_all_sub_queries_are_retrieved_at_once() -> None:
    retriever = TwoChannels()
    prediction, session = run_search(
        scripted(cr_text="x"), retriever, ablate=["grounding", "answering", "drafting", "reflection"]
    )
    assert prediction.rounds == 0 and len(retriever.asked) == 2 + 6
    assert [row["answer"] for row in events(session, "sub_query")] == [""] * 6


def test_a_row_without_drafts_in_the_final_answer_asks_the_same_as_the_row_before() -> None:
    prompts = []
    for ablate in (["drafting", "reflection"], ["reflection"]):
        backend = scripted()
        run_search(backend, ablate=ablate, context__drafts_in_final=False)
        prompts.append(final_prompt(backend))
    assert prompts[0] == prompts[1]
    backend = scripted()
    run_search(backend, ablate=["reflection"])
    assert final_prompt(backend) != prompts[0]


# -------------------------------------------------------------------------------------------------- switches
@each(
    "expand_on, expanded",
    [
        ("reject", ["relational"]),
        ("accept", ["semantic"]),
        ("always", ["semantic", "relational"]),
        ("never", []),
    ],
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
    retriever = TwoChannels()
    backend = scripted(check_text="No", expand_text=json.dumps(queries), cr_text="x", **ACCEPT)
    run_search(backend, retriever, reflection__max_expansions=0)
    assert len([q for q in retriever.asked if q.text.startswith("gap")]) == 9


@each("fallback, asked", [("drop", 0), ("raw", 1)])
def test_an_expansion_that_is_no_list(fallback: str, asked: int) -> None:
    retriever = TwoChannels()
    run_search(scripted(expand_graph="Look for its length"), retriever, reflection__expansion_fallback=fallback)
    assert sum(q.text == "Look for its length" for q in retriever.asked) == asked


def test_released_parsing_asks_in_the_order_written_and_again_and_shows_the_released_labels() -> None:
    plan = '{"Sub-query 2": "second?", "Sub-query 1": "first?"}'
    expand = {"check_text": "No", "expand_text": '["first?", "gap", "gap"]'}
    backend = scripted(qd_text=plan, cr_text="x", ans="said", **expand)
    _, session = run_search(backend, parsing="released", context__labels="released", channels="semantic")
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


def test_an_unknown_verdict_counts_as_the_setting_says() -> None:
    for as_, expanded in (("reject", 1), ("accept", 0)):
        _, session = run_search(scripted(check_graph="Perhaps."), reflection__unknown_verdict=as_)
        assert flags(session, "evidence_check")["unknown_verdict"] == 1
        assert len(events(session, "expansion")) == expanded


def test_grounding_of_triples_where_nothing_is_open() -> None:
    plan = '{"Sub-query 1": [("a","b","c")], "Sub-query 2": [("d","e","Entity#5")]}'
    for how, expected in (("bound_only", 0), ("always", 1)):
        backend = scripted(qd_graph=plan, qg_graph='[("d","e","Entity#5")]', cr_graph="[]", ans="x", **ACCEPT)
        run_search(backend, graph_grounding=how)
        assert modules(backend)["qg_graph"] == expected


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


def test_only_placeholders_left_skips_the_retrieval() -> None:
    backend, retriever = scripted(qd_graph='{"Sub-query 1": [("Entity#1","","Entity#2")]}', ans="x"), TwoChannels()
    prediction, session = run_search(backend, retriever, reflection__expand_on="never")
    assert prediction.error is None and flags(session, "grounder")["empty_query"] == 1
    assert [q.text for q in retriever.asked if q.kind == "relational"] == []
    (row,) = events(session, "sub_query", "relational")
    assert row["refined"] == NOTHING


def test_an_empty_view_is_marked_and_not_refined_but_answered() -> None:
    table = {k: v for k, v in TABLE.items() if k != ("text", TEXT_QUERIES[1])}
    backend = scripted(**ACCEPT)
    _, session = run_search(backend, TwoChannels(table))
    assert len(backend.requests) == 24 and flags(session, "refiner")["empty_view"] == 1
    assert events(session, "sub_query", "semantic")[1]["refined"] == NOTHING
    assert modules(backend)["ans"] == 6
    backend = scripted(**ACCEPT)
    run_search(backend, TwoChannels(table), views__if_empty="refine")
    assert len(backend.requests) == 25


@each("reply", ["{}", "I will not do that.", ""])
def test_an_empty_decomposition_touches_its_own_side_only(reply: str) -> None:
    backend = scripted(qd_graph=reply, ans={"How long is the river that": "?", **_answers()}, draft_graph="d", **ACCEPT)
    _, session = run_search(backend)
    (row,) = events(session, "sub_query", "relational")
    assert row["query"] == QUESTION.text and row["sent"] == QUESTION.text
    assert flags(session, "decomposer")["empty_decomposition"] == 1
    assert len(events(session, "sub_query", "semantic")) == 3
    backend = scripted(qd_graph=reply, draft_text="d", check_text="No", expand_text="[]")
    _, session = run_search(backend, on_empty_decomposition="skip")
    assert events(session, "sub_query", "relational") == []
    assert len(events(session, "draft", "relational")) == 1  # draft and check still run on nothing


def _answers() -> dict[str, str]:
    return {"Who composed": "Maren Tolvik", "Where was": "Esker Vale", "How long": "212 km"}


def test_more_sub_queries_than_allowed() -> None:
    plan = json.dumps({f"Sub-query {i}": f"thing {i}?" for i in range(1, 21)})
    replies: dict[str, Any] = {"qd_text": plan, "cr_text": "x", "ans": "y", **ACCEPT}
    _, session = run_search(scripted(**replies))
    assert len(events(session, "sub_query", "semantic")) == 12
    assert flags(session, "decomposer")["too_many_parts"] == 1
    _, session = run_search(scripted(**replies), max_parts=0)
    assert len(events(session, "sub_query", "semantic")) == 20


def test_the_history_goes_by_index() -> None:
    plan = json.dumps({"Sub-query 3": "third?", "Sub-query 1": "first?", "Sub-query 2": "second?"})
    backend = scripted(qd_text=plan, cr_text="x", ans="y", **ACCEPT)
    _, session = run_search(backend)
    assert [r["query"] for r in events(session, "sub_query", "semantic")] == ["first?", "second?", "third?"]
    assert [r["index"] for r in events(session, "sub_query", "semantic")] == [1, 2, 3]
    asked = [text for text in calls(backend, "ans") if "third?" in text.rpartition("Query:")[2]]
    assert "Sub-query 1: first?" in asked[0] and "Sub-query 2: second?" in asked[0]


@each(
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


@each("channels, graph", [("semantic", False), ("relational", True)])
def test_one_channel_alone(channels: str, graph: bool) -> None:
    backend, retriever = scripted(**ACCEPT), TwoChannels()
    prediction, session = run_search(backend, retriever, channels=channels)
    assert prediction.answer == "212 km" and {q.channel for q in retriever.asked} == {"graph" if graph else "text"}
    assert {row["side"] for row in events(session, "sub_query")} == {channels}
    assert len(backend.requests) == 1 + 1 + 3 * 2 + 2 + 2 + 1
    assert len(events(session, "background")) == 1


@each(
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
    assert GraphSearch.channels_for(config) == channels
    retriever = TwoChannels()
    replies = {m: "x" for m in ("cr_text", "ans")} | ACCEPT
    prediction, _ = run_search(scripted(**replies), retriever, **settings)
    assert prediction.error is None and {q.channel for q in retriever.asked} == channels


@each(
    "sources",
    [("text", "graph"), ("graph", "text"), ("text", "text"), ("graph", "graph"),
                                     ("full", "full")],
)  # fmt: skip
def test_the_five_alignments(sources: tuple[str, str]) -> None:
    retriever = TwoChannels()
    backend = scripted(cr_text="x", **ACCEPT)
    run_search(backend, retriever, views__semantic_source=sources[0], views__relational_source=sources[1])
    first = [q for q in retriever.asked if q.kind == "semantic" and q.text == TEXT_QUERIES[0]]
    expected = {"text": ["text"], "graph": ["graph"], "full": ["text", "graph"]}[sources[0]]
    assert [q.channel for q in first] == expected


def test_presets_differ_where_the_specification_says_so() -> None:
    def flat(config: Any) -> dict[str, Any]:
        rows = dataclasses.asdict(resolve_search(config))
        sections = {name: row if isinstance(row, dict) else {"": row} for name, row in rows.items()}
        return {f"{name}.{key}".strip("."): value for name, row in sections.items() for key, value in row.items()}

    paper, official = flat(search()), flat(search(preset="official"))
    assert {name: (value, official[name]) for name, value in paper.items() if value != official[name]} == {
        "preset": ("paper", "official"),
        "reflection.expand_on": ("reject", "accept"),
        "reflection.verdict_parse": ("last", "anywhere"),
        "reflection.expansion_fallback": ("drop", "raw"),
        "reflection.max_expansions": (5, 0),
        "context.drafts_in_final": (True, False),
        "context.answer_line": (True, False),
        "context.labels": ("plain", "released"),
        "views.if_empty": ("skip", "refine"),
        "graph_grounding": ("bound_only", "always"),
        "on_empty_decomposition": ("use_question", "skip"),
        "triple_text": ("verbalised", "letters_only"),
        "parsing": ("repaired", "released"),
        "max_parts": (12, 0),
    }
    mixed = resolve_search(search(preset="official", reflection__expand_on="reject"))
    assert mixed.reflection.expand_on == "reject" and mixed.triple_text == "letters_only"


# ----------------------------------------------------------------------------------- concurrency, faults, attacks
def test_concurrency_changes_no_prompt_prediction_or_trace() -> None:
    questions = [dataclasses.replace(QUESTION, id=f"q{i}") for i in range(5)]
    questions.append(Question("other", "Which town holds a fair?"))
    runs = []
    for concurrency, latency in ((1, 0.0), (16, 0.002)):
        backend, rows = scripted(), {}
        backend.config.latency_s = latency
        index = SearchIndex()
        loop = Loop(GraphSearch(index, prompted(backend), search()), TwoChannels(), read_nothing, index.lookup,
                    concurrency=concurrency)  # fmt: skip
        asyncio.run(loop.run(questions, lambda p, s, rows=rows: rows.update({p.question_id: (p, s.events)})))
        runs.append({id_: (dataclasses.replace(p, seconds=0.0), e) for id_, (p, e) in rows.items()})
        runs.append({"prompts": sorted(r.text for r in backend.requests)})
    assert runs[0] == runs[2] and runs[1] == runs[3]
    assert len(runs[0]) == 6


class Lagging(ScriptedBackend):
    """Lets those requests wait whose prompt begins with one of `late`."""

    late: tuple[str, ...] = ()

    async def generate(self, request: Any) -> Any:
        await asyncio.sleep(0.003 * request.messages[0].content.startswith(self.late))
        return await super().generate(request)


def test_which_side_is_faster_changes_no_trace() -> None:
    traces = []
    for late in (("You extract evidence", "You complete sub"), ("You extract triples", "You are a critical")):
        backend, index = Lagging(scripted().config), SearchIndex()
        backend.late = late
        loop = Loop(GraphSearch(index, prompted(backend), search()), TwoChannels(), read_nothing, index.lookup)
        traces.append(asyncio.run(loop.answer(QUESTION))[1].events)
    assert traces[0] == traces[1] and len(traces[0]) > 30


class Depths(ScriptedBackend):
    """Counts how many calls had to wait for one another, in the longest chain."""

    depth = 0

    async def generate(self, request: Any) -> Any:
        own = self.depth + 1
        reply = await super().generate(request)
        self.depth = max(self.depth, own)
        return reply


def test_the_longest_chain_of_calls() -> None:
    gaps = {("text", f"{n} gap"): ["P3"] for n in ("first", "second")}
    gaps |= {("graph", f"{n} gap"): ["e5"] for n in ("third", "fourth")}
    backend = Depths(scripted(**BOTH_EXPAND).config)
    backend.config.latency_s = 0.01
    prediction, _ = run_search(backend, TwoChannels(TABLE | gaps))
    assert len(backend.requests) == 31
    retrievals = prediction.rounds + 1  # each spends one call of a retriever that reads its query by a model
    assert (backend.depth, backend.depth + retrievals) == (14, 18)


MODULE_NAMES = ["qd_text", "qd_graph", "cr_text", "cr_graph", "qg_text", "qg_graph", "ans", "draft_text",
                "draft_graph", "check_text", "check_graph", "expand_graph", "final"]  # fmt: skip


@each("module", MODULE_NAMES)
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


def test_a_retrieval_that_fails_later_on_is_counted_and_the_question_goes_on() -> None:
    table = TABLE | {("text", TEXT_QUERIES[1]): RuntimeError("the index is gone")}
    prediction, session = run_search(scripted(), TwoChannels(table))
    assert prediction.answer == "212 km" and session.counts["retriever_failed"] == 1
    assert events(session, "sub_query", "semantic")[1]["refined"] == NOTHING


def test_a_long_history_loses_its_oldest_contexts_and_keeps_its_answers() -> None:
    backend = scripted(cr_text=LONG, **ACCEPT)
    _, session = run_search(backend, context__history_tokens=700)
    prompt = final_prompt(backend)
    assert session.counts["history_cut"] > 0 and QUESTION.text in prompt
    for query in TEXT_QUERIES:
        assert query in prompt
    assert "Answer: Maren Tolvik" in prompt and "(left out: too long)" in prompt


def test_a_view_is_cut_to_its_limit() -> None:
    backend = scripted(cr_text="x", **ACCEPT)
    _, session = run_search(backend, views__tokens=20)
    assert session.counts["view_cut"] > 0
    assert not any(PASSAGES["P4"] in text for text in calls(backend, "cr_text"))


def test_short_answers_and_the_shared_reader() -> None:
    backend = scripted(**ACCEPT)
    run_search(backend, context__short_answers=True)
    assert all("Begin with the short answer" in r.text for r in backend.requests if module_of(r) == "ans")
    backend = scripted(**ACCEPT)
    prediction, _ = run_search(backend, answer="reader")
    assert len(backend.requests) == 24 and modules(backend)["final"] == 0
    assert prediction.answer.startswith("P")


def test_passages_that_refinements_cite_go_first() -> None:
    replies = {"cr_text": {TEXT_QUERIES[2]: "in [2]", "": "nothing"}, **ACCEPT}
    prediction, _ = run_search(scripted(**replies))
    assert prediction.ranking[0] == "P2"
    plain, _ = run_search(scripted(**replies), promote="none")
    assert plain.ranking[0] == "P1" and set(plain.ranking) == set(prediction.ranking)


def test_one_of_the_first_retrievals_may_fail_but_not_all() -> None:
    first = {key: RuntimeError("no answer") for key in TABLE if key[1] == QUESTION.text}
    prediction, session = run_search(scripted(), TwoChannels(TABLE | first))
    assert prediction.error is None and prediction.answer == "212 km"
    assert session.counts["retriever_failed"] == len(first) > 0 and events(session, "retriever_failed")
    everything = {key: RuntimeError("no answer") for key in TABLE}
    prediction, session = run_search(scripted(), TwoChannels(everything))
    assert prediction.error == "RuntimeError: no answer", "an answer from nothing is no result"


def test_the_final_context_has_a_limit_of_its_own() -> None:
    replies = {"cr_text": LONG, "ans": "Maren Tolvik", **ACCEPT}
    whole, backend = scripted(**replies), scripted(**replies)
    run_search(whole)
    _, session = run_search(backend, context__final_tokens=900)
    prompt = final_prompt(backend)
    assert session.counts["final_cut"] == 1 and session.counts["history_cut"] == 1
    assert len(prompt) < len(final_prompt(whole)) and prompt.count("(left out: too long)") >= 2
    assert all(query in prompt for query in TEXT_QUERIES) and "Answer: Maren Tolvik" in prompt
    assert QUESTION.text in prompt and "Maren Tolvik" in prompt
    drafts = [text for name in ("draft_text", "draft_graph") for text in calls(backend, name)]
    assert drafts == [text for name in ("draft_text", "draft_graph") for text in calls(whole, name)], "only the last"
