"""DotRAG: the worked trace of specs/dotrag.md 13 step by step, faults at each call, injections, properties."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.errors import LLMError
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.dotrag import DotRAG
from gnnrag.methods.dotrag.paths import PathVerdict
from gnnrag.methods.dotrag.roles import (
    Concept,
    Concepts,
    DotRules,
    PathVerdicts,
    PromptedConcepts,
    PromptedPathJudge,
    PromptedRedirect,
    PromptedRules,
    Redirect,
)
from gnnrag.metrics.retrieval import node_scores
from gnnrag.parts import from_settings, set_up
from gnnrag.roles.base import Answer
from gnnrag.run.loop import Loop
from gnnrag.session import Session
from gnnrag.types import Prediction, Question
from tests.helpers.dots import HERON, NAMES, QUESTION, YARD, StubIndex, trace_graph, trace_index, typed_graph
from tests.helpers.parts import Scripted, ToyRetriever

TRACE = {"top_nodes": 3, "paths_per_target": 2, "paths_per_round": 4, "set_questions": "never"}
SELECT = json.dumps({
    "anchors": [{"span": "Ada Renn", "type": "person", "description": "person who founded a yard"}],
    "topics": ["shipbuilding"], "use_anchors": True})  # fmt: skip
RULES = json.dumps({
    "query_constraints": "", "intermediate_rules": "a founding or building link", "terminal_rules": "a first docking",
    "allowed_types": ["person", "company", "ship", "port"], "terminal_types": ["port"]})  # fmt: skip


def verdict(id_: str, label: str, confidence: float = 0.9, follow: str = "") -> dict[str, Any]:
    return {"id": id_, "label": label, "confidence": confidence, "reason": "rule", "next_question": follow}


ROUND_1 = json.dumps({"judgements": [
    verdict("p1", "partial", 0.80, YARD), verdict("p2", "partial", 0.90, HERON),
    verdict("p3", "irrelevant")]})  # fmt: skip
ROUND_2 = json.dumps({"judgements": [
    verdict("p1", "partial", 0.9, "what did MV Plover carry?"), verdict("p2", "complete", 0.95),
    verdict("p3", "complete", 0.93)]})  # fmt: skip
MARKS = {
    "concepts": "You choose where a search",
    "rules": "You write the rules",
    "path_judge": "You judge paths",
    "redirect": "has come to a halt",
}
GOOD = {"concepts": SELECT, "rules": RULES, "path_judge": [ROUND_1, ROUND_2], "redirect": "what else did Ada found?"}


def prompted(**replies: Any) -> tuple[dict[str, Any], ScriptedBackend]:
    llm = ScriptedBackend.of(*((MARKS[role], reply) for role, reply in (GOOD | replies).items()))
    parts = (PromptedConcepts, PromptedRules, PromptedPathJudge, PromptedRedirect)
    return {name: set_up(part(), backend=llm) for name, part in zip(MARKS, parts, strict=True)}, llm


async def read(task: Any, session: Session) -> Answer:
    session.add_call("reader", 10, 1)
    return Answer("PORT OLAV, PORT SABLE")


def run(
    roles: dict[str, Any], index: Any = None, question: Question = QUESTION, **settings: Any
) -> tuple[Prediction, Session, DotRAG]:
    index = index or trace_index()
    method = set_up(from_settings(DotRAG, settings, "method"), index=index, roles=roles)
    retriever = ToyRetriever({question.text: {id_: 1.0 - i / 100 for i, id_ in enumerate(index.ids)}})
    loop = Loop(method, retriever, read, index.lookup)
    prediction, session = asyncio.run(loop.answer(question))
    return prediction, session, method


def events(session: Session, name: str) -> list[dict[str, Any]]:
    return [e for e in session.events if e["event"] == name]


# ------------------------------------------------------------------------------------------------- section 13
def test_the_worked_trace_step_by_step() -> None:
    roles, llm = prompted()
    prediction, session, _ = run(roles, **TRACE)
    assert prediction.error is None
    (dot,) = events(session, "dot")  # steps 1 and 2
    assert dot["anchors"] == ["ADA RENN"] and dot["nodes"] == 7
    assert set(dot["types"]) == {"person", "company", "ship", "port"}
    shown = [r.messages[-1].content for r in llm.requests if MARKS["path_judge"] in r.text]
    assert [line for line in shown[0].splitlines() if line.startswith("<path")] == [  # step 3
        '<path id="p1">ADA RENN (person): ADA RENN founded RENN SHIPYARD.</path>',
        '<path id="p2">ADA RENN (person): ADA RENN founded RENN SHIPYARD. RENN SHIPYARD built MV HERON.</path>',
        '<path id="p3">ADA RENN (person): ADA RENN sibling TOMAS RENN.</path>',
    ]
    sent = [e["text"] for e in events(session, "query")]
    assert sent == [QUESTION.text, HERON, YARD]  # the more confident one first
    ends = [line.rpartition(". ")[2] for line in shown[1].splitlines() if line.startswith("<path")]
    assert ends == [  # step 4: n4 .77, n5 .74, n6 .61
        "RENN SHIPYARD built MV PLOVER.</path>",
        "MV HERON first docked PORT OLAV.</path>",
        "MV PLOVER first docked PORT SABLE.</path>",
    ]
    (nodes,) = events(session, "nodes")  # step 5
    assert nodes["terminal"] == ["PORT OLAV", "PORT SABLE"] == list(prediction.nodes)
    assert sorted(nodes["path"]) == sorted(NAMES[f"n{i}"][0] for i in (1, 2, 3, 4, 5, 6))
    assert prediction.usage["llm_calls"] == 5
    assert {role: row["calls"] for role, row in prediction.usage["roles"].items()} == {
        "concepts": 1, "rules": 1, "path_judge": 2, "reader": 1}  # fmt: skip
    gold = QUESTION.extra["nodes"]
    assert node_scores(nodes["path"], gold) == pytest.approx((1, 1 / 3, 0.5))
    assert node_scores(nodes["path"], [*gold, "ADA RENN"]) == pytest.approx((1, 0.5, 2 / 3))
    assert node_scores(nodes["terminal"], gold) == (1, 1, 1)
    assert node_scores([*nodes["path"], "NORTH SEA"], gold) == pytest.approx((1, 2 / 7, 4 / 9))


def test_the_resolved_set_adds_what_passages_mention() -> None:
    roles, _ = prompted()
    prediction, session, _ = run(roles, **TRACE, nodes="resolved")
    (nodes,) = events(session, "nodes")
    assert set(nodes["path"]) < set(nodes["resolved"]) == set(prediction.nodes)
    assert "NORTH SEA" in nodes["resolved"]
    texts = [p.text for p in trace_index().lookup(prediction.context)]
    assert any("PORT OLAV" in text for text in texts[:5]) and any("PORT SABLE" in text for text in texts[:5])


def test_the_preset_of_the_paper_is_its_letter_and_what_is_given_goes_before_it() -> None:
    letter = from_settings(DotRAG, {"preset": "paper"}, "method")
    assert letter.literal and not letter.by_name and letter.topics_only and letter.hub_degree is None
    given = from_settings(DotRAG, {"preset": "paper", "early_stop": True, "tau": 0.5, "top_k": 7}, "method")
    assert given.early_stop and given.literal and (given.tau, given.top_k) == (0.5, 7)
    assert from_settings(DotRAG, {"preset": "ours"}, "method") == DotRAG() != letter


def test_by_the_letter_the_trace_runs_all_rounds_and_reads_passages_of_paths_alone() -> None:
    index = trace_index()
    index.cosines["Ada Renn\nperson who founded a yard"] = {"ADA RENN": 0.91, "TOMAS RENN": 0.63, "SALT": 0.59}
    roles, _ = prompted(path_judge=[ROUND_1, ROUND_2, json.dumps({"judgements": []})])
    prediction, session, _ = run(roles, index, preset="paper", **TRACE)
    (dot,) = events(session, "dot")
    assert dot["anchors"] == ["ADA RENN", "TOMAS RENN"] and dot["rule"] == "a4", "all above tau"
    assert session.by_role["redirect"]["calls"] == 1, "the last round has nothing left to follow and is searched"
    paths = {passage for e in events(session, "nodes") for passage in e["path"]}
    texts = [p.text for p in index.lookup(prediction.context)]
    assert prediction.ranking == prediction.context and all(any(name in t for name in paths) for t in texts)
    assert set(prediction.nodes) == set(events(session, "nodes")[0]["resolved"])
    roles, _ = prompted(path_judge=ROUND_1.replace("partial", "irrelevant"))
    nothing, _, _ = run(roles, index, preset="paper", **TRACE)
    assert nothing.error is None and nothing.context == nothing.nodes == ()


# --------------------------------------------------------------------------------------------------- faults
FAILED = {"concepts": "concepts_failed", "rules": "rules_failed", "path_judge": "judge_failed",
          "redirect": "redirect_failed"}  # fmt: skip


@pytest.mark.parametrize("role", list(MARKS))
@pytest.mark.parametrize("problem", ["", LLMError("the server is down")])
def test_a_failing_call_never_loses_a_run(role: str, problem: Any) -> None:
    rounds = [ROUND_1.replace(YARD, "").replace(HERON, ""), ROUND_2]
    replies = {role: problem} | ({"path_judge": rounds} if role == "redirect" else {})
    prediction, session, _ = run(prompted(**replies)[0], **TRACE)
    row = session.by_role[role]
    if problem == "":
        assert prediction.error is None and row["parse_failure"] >= 2 and row["calls"] >= 2, "asked once more"
    else:
        assert "the server is down" in str(prediction.error) and row["llm_error"] >= 1
    assert row[FAILED[role]] >= 1 and prediction.ranking, "passages come in any case"


def test_missing_and_unknown_ids() -> None:
    partly = json.dumps({"judgements": [verdict("p2", "complete"), verdict("p99", "complete")]})
    rest = json.dumps({"judgements": [verdict("p1", "partial")]})
    roles, llm = prompted(path_judge=[partly, rest])
    prediction, session, _ = run(roles, **TRACE | {"rounds": 1})
    asked = [r.messages[-1].content for r in llm.requests if MARKS["path_judge"] in r.text]
    assert len(asked) == 2 and "p2" not in asked[1] and 'id="p1"' in asked[1] and 'id="p3"' in asked[1]
    assert session.by_role["path_judge"]["judge_missing"] == 1
    assert [x[0] for x in events(session, "judged")[0]["labels"]] == ["partial", "complete", "irrelevant"]
    assert prediction.nodes == ("MV HERON",)


# --------------------------------------------------------------------------------------------------- starts
def scripted(**given: Any) -> dict[str, Any]:
    results = {
        "concepts": Concepts((Concept("Ada Renn", "person"),)),
        "rules": DotRules("", "way", "end"),
        "path_judge": lambda task: PathVerdicts(tuple(PathVerdict(p.id, "complete", 0.9) for p in task.paths)),
        "redirect": Redirect(None),
    } | given
    return {name: Scripted(name, result) for name, result in results.items()}


def test_nothing_to_start_from_is_naive_retrieval() -> None:
    index = StubIndex(trace_graph(), {QUESTION.text: {"ADA RENN": 0.1}})
    prediction, session, _ = run(scripted(concepts=Concepts()), index)
    assert session.counts["fallback_naive"] == session.counts["anchorless"] == 1
    assert prediction.ranking == tuple(index.ids) and prediction.nodes == () and prediction.error is None
    _, session, _ = run(scripted(concepts=Concepts()))
    assert session.counts["anchorless"] == 1 and not session.counts["fallback_naive"]
    assert events(session, "dot")[0]["anchors"][0] == "RENN SHIPYARD", "the nearest nodes are anchors"


def test_two_concepts_with_the_same_anchors_are_one_dot_and_topics_count_when_broad() -> None:
    both = Concepts((Concept("ADA RENN"), Concept("Ada Renn", "person")), ("shipbuilding",), True)
    _, session, _ = run(scripted(concepts=both))
    assert len(events(session, "dot")) == 1
    _, session, _ = run(scripted(concepts=Concepts((Concept("ADA RENN"),), (QUESTION.text,), False)))
    assert len(events(session, "dot")) == 2
    topics = Concepts((Concept("ADA RENN"),), (QUESTION.text,), False)
    _, session, _ = run(scripted(concepts=topics), topics_only=True)
    assert [d["rule"] for d in events(session, "dot")] == ["top"]


def test_an_isolated_anchor_is_returned_without_a_judge() -> None:
    graph = typed_graph([("LONE", "is", "LONE"), ("A", "knows", "B")], {"LONE": "x", "A": "x", "B": "x"})
    roles = scripted(concepts=Concepts((Concept("LONE"),)))
    prediction, session, _ = run(roles, StubIndex(graph, {}), Question("q", "what is LONE?"))
    assert session.counts["isolated"] == 1 and not roles["path_judge"].tasks
    assert events(session, "nodes")[0]["path"] == ["LONE"] and prediction.ranking[0] == "c0"


# ------------------------------------------------------------------------------------------------- properties
@st.composite
def graphs(draw: Any) -> tuple[StubIndex, dict[str, Any]]:
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    names = [f"N{i}" for i in range(14)]
    triples = [(names[0], "r0", names[1])]
    triples += [(names[a], f"r{int(rng.integers(3))}", names[b]) for a, b in rng.integers(0, 14, (26, 2)) if a != b]
    used = {n for h, _, t in triples for n in (h, t)}
    graph = typed_graph(triples, {n: f"t{int(rng.integers(3))}" for n in used})
    table = {text: {n: float(rng.random()) for n in sorted(used)} for text in ("q?", *(f"f{i}" for i in range(99)))}
    choices = ("complete", "partial", "irrelevant")
    counter = iter(range(10_000))

    def judge(task: Any) -> PathVerdicts:
        return PathVerdicts(tuple(
            PathVerdict(p.id, choices[int(rng.integers(3))], float(rng.random()), "", f"f{next(counter) % 99}")
            for p in task.paths))  # fmt: skip

    anchors = tuple(Concept(n) for n in sorted(used)[: int(rng.integers(1, 3))])
    terminal = tuple(sorted({f"t{i}" for i in rng.integers(0, 3, 1)}))
    return StubIndex(graph, table), scripted(
        concepts=Concepts(anchors), path_judge=judge, redirect=Redirect("f98"),
        rules=DotRules("", "w", "e", ("t0", "t1") if rng.random() < 0.5 else (), terminal),
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(case=graphs(), pattern=st.sampled_from(["always", "never"]), drop=st.booleans(), hops=st.integers(1, 4))
def test_properties(case: Any, pattern: str, drop: bool, hops: int) -> None:
    index, roles = case
    settings = DotRAG(pattern_judge=pattern, literal=drop, hops=hops, top_nodes=4)
    method = set_up(settings, index=index, roles=roles)
    states: list[Any] = []
    start = method.start

    async def keep(question: Question, session: Session) -> Any:
        states.append(await start(question, session))
        return states[-1]

    method.start = keep  # type: ignore[method-assign]
    loop = Loop(method, ToyRetriever({}), read, index.lookup)
    prediction, _ = asyncio.run(loop.answer(Question("q", "q?")))
    assert prediction.error is None
    graph = index.knowledge
    for dot in states[0].memory["dots"]:
        near = dot.near
        accepted = [path.nodes for path in dot.accepted]
        for path in accepted:
            assert path[0] in near.anchors and len(set(path)) == len(path)
            assert near.mask[list(path)].all() and len(path) - 1 <= hops
            assert all(b in graph.edges.neighbours[a] for a, b in pairwise(path))
        if drop:
            assert not any(a != b and b[: len(a)] == a for a in accepted for b in accepted)
        texts = [text.casefold() for text, _ in dot.issued]
        assert len(texts) == len(set(texts))
    judged = [names for task in roles["path_judge"].tasks for names in (p.names for p in task.paths)]
    rounds = [
        {p.names[-1] for p in task.paths} for task in roles["path_judge"].tasks if len(states[0].memory["dots"]) == 1
    ]
    for i, ends in enumerate(rounds):
        assert not any(ends & later for later in rounds[i + 1 :]), "a destination is judged once"
    assert len(states[0].memory["dots"]) > 1 or len(judged) == len(set(judged))
