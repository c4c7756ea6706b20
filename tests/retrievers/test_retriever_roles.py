"""The roles that retrievers ask; what all prompted roles owe is in tests/roles/test_contract.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gnnrag.index.index import Index
from gnnrag.parts import set_up
from gnnrag.retrievers.graphrag.report_roles import (
    OfflineReduce,
    OfflineReportPoints,
    Point,
    PromptedReportPoints,
    ReduceTask,
    ReportPoints,
    ReportPointsTask,
    parse_points,
)
from gnnrag.retrievers.hypergraphrag import (
    HyperQuery,
    HyperQueryTask,
    OfflineHyperQuery,
    PromptedHyperQuery,
    clauses,
    parse_hyper_query,
)
from gnnrag.retrievers.keywords import OfflineKeywords, PromptedKeywords, parse_keywords
from gnnrag.retrievers.minirag import OfflineMentions, PromptedMentions, guessed_types, parse_mentions
from gnnrag.roles.base import Keywords, KeywordsTask, Mentions, MentionsTask
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session
from tests.helpers.parts import COMPOSITIONAL
from tests.helpers.roles import ask


def offline(role: Any, task: Any, index: Index | None = None) -> Any:
    return asyncio.run(set_up(role, index=index)(task, Session("q")))


# ---------------------------------------------------------------------------------------------------------- keywords
@pytest.mark.parametrize(
    "query, low, high",
    [
        ("Where was the director of the film Night Harbour born?", ("Night Harbour",), ("director", "film", "born")),
        ("Who lives in Kalmar, or in Tromso?", ("Kalmar", "Tromso"), ("lives",)),
        ("Which castle did King Zorblax build in 1931?", ("King Zorblax", "1931"), ("castle", "build")),
        ("VERA LINDQVIST", ("VERA LINDQVIST",), ()),
        ("what is the altitude of it", (), ("altitude",)),
        ("who is it?", ("who is it?",), ()),
        ("is “Copper Road” Otto Brandt's film?", ("Copper Road", "Otto Brandt"), ("film",)),
        ("???", ("???",), ()),
    ],
)
def test_keywords_by_rules(index: Index, query: str, low: tuple[str, ...], high: tuple[str, ...]) -> None:
    assert offline(OfflineKeywords(), KeywordsTask(query), index) == Keywords(low, high)


@pytest.mark.parametrize(
    "reply, low, high",
    [
        ('{"low": ["A B"], "high": ["kin"]}', ["A B"], ["kin"]),
        ('{"low_level_keywords": ["a"], "high_level_keywords": []}', ["a"], []),
        ('Sure:\n```json\n{"Low": ["a", "a", " b "], "High": ["c"]}\n```', ["a", "b"], ["c"]),
        ('{"low": [1984, null, true, {"x": 1}, ["y"], "", "none"], "high": []}', ["1984"], []),
        ('<think>{"low": ["x"], "high": []}</think>{"low": ["y"], "high": []}', ["y"], []),
        ('{"low": ["a"]} {"low": ["b"], "high": ["c"]}', ["b"], ["c"]),
    ],
)
def test_keywords_of_a_reply(reply: str, low: list[str], high: list[str]) -> None:
    assert parse_keywords(reply) == (low, high)


def test_keywords_are_bounded() -> None:
    assert len(parse_keywords('{"low": ["' + "x" * 500 + '"], "high": []}')[0][0]) == 200
    reply = '{"low": ["a", "b", "c"], "high": ["d", "e", "f"]}'
    assert ask(PromptedKeywords(max_keywords=2), KeywordsTask("Q?"), reply).result == Keywords(("a", "b"), ("d", "e"))


# ---------------------------------------------------------------------------------------------------------- mentions
@pytest.mark.parametrize(
    "reply, names, types",
    [
        ('{"answer_types": ["person"], "entities": ["A B", "C"]}', ["A B", "C"], ["person"]),
        ('```json\n{"Answer Types": ["x"], "Entities": []}\n```', [], ["x"]),
        ('{"answer_type_keywords": ["PERSON"], "entities_from_query": ["A"]}', ["A"], ["PERSON"]),
        ('{"entities": [" A ", "A", "", 1984, true, null, ["B"]]}', ["A", "1984"], []),
        ('{"note": 1} {"entities": "A"}', ["A"], []),
        ('{"entities": ["' + "x" * 500 + '"]}', ["x" * 200], []),
    ],
)
def test_mentions_of_a_reply(reply: str, names: list[str], types: list[str]) -> None:
    assert parse_mentions(reply) == (names, types)


def test_prompted_mentions_show_types_and_keep_the_first_five_names() -> None:
    reply = '{"answer_types": ["b", "zzz"], "entities": ["1", "2", "3", "4", "5", "6"]}'
    asked = ask(PromptedMentions(max_types=2), MentionsTask("Who [INST] is\nit?", ("a", "b", "c")), reply)
    assert asked.result == Mentions(("1", "2", "3", "4", "5"), ("b", "zzz"))
    assert asked.shown().startswith("Types: a, b\n")


@pytest.mark.parametrize(
    "query, types",
    [
        ("Who directed Night Harbour?", ("person",)),
        ("Where was she born?", ("location",)),
        ("What year did it open?", ("date",)),
        ("How many people live there?", ("number",)),
        ("What country is it in?", ("location", "nationality")),
        ("What language is spoken there?", ("language",)),
        ("Is Night Harbour older than Copper Road?", ()),
        ("What is the meaning of life?", ()),
        ("", ()),
    ],
)
def test_guessed_types(query: str, types: tuple[str, ...]) -> None:
    assert guessed_types(query) == types


@pytest.mark.parametrize("known, spelt", [(("Location", "work"), ("Location",)), (("work",), ()), ((), ("LOCATION",))])
def test_mentions_by_rules(index: Index, known: tuple[str, ...], spelt: tuple[str, ...]) -> None:
    asked = "In which town was the director of Night Harbour and of Copper Road born?"
    assert offline(OfflineMentions(), MentionsTask(asked, known), index) == Mentions(
        ("Night Harbour", "Copper Road"), spelt
    )


# ------------------------------------------------------------------------------------------------------- hyper query
REPLY = (
    '("hyper-relation"<|>A person founded the Ferry.<|>5)##\n'
    '("entity"<|>"Ferry"<|>organization<|>It was founded.<|>90)##\n'
    "(hyper-relation<|>B &amp; C met.<|>9)##"
    '("entity"<|>Ferry<|>organization<|>Again.<|>60)##<|COMPLETE|>'
)


def test_facts_of_a_reply() -> None:
    found = HyperQuery(("A person founded the Ferry.", "B & C met."), ("Ferry",))
    assert parse_hyper_query(f"<think>x</think>Here you are: {REPLY}") == found
    assert ask(PromptedHyperQuery(), HyperQueryTask("Who founded it?"), REPLY).result == found


@pytest.mark.parametrize(
    "record",
    [
        '("hyper-relation"<|>two fields)',
        '("entity"<|>four<|>person<|>fields)',
        '("entity"<|>six<|>person<|>fields<|>1<|>2)',
        '("entity"<|> <|>person<|>blank<|>1)',
        '("relationship"<|>three<|>5)',
        "no record",
    ],
)
def test_only_records_of_three_or_five_fields_count(record: str) -> None:
    assert parse_hyper_query(f"{record}##{REPLY}") == parse_hyper_query(REPLY)
    assert parse_hyper_query(f"{record}<|COMPLETE|>") == HyperQuery()
    with pytest.raises(MalformedError):
        parse_hyper_query(record)


def test_facts_by_rules(index: Index) -> None:
    found = offline(OfflineHyperQuery(), HyperQueryTask(COMPOSITIONAL), index)
    assert found == HyperQuery((COMPOSITIONAL,), ("Night Harbour",))
    query = "Which town has the castle that Vera Lindqvist visited, and which river flows there?"
    parts = ("Which town has the castle", "that Vera Lindqvist visited", "which river flows there")
    assert clauses(query) == (query, *parts) and clauses("Who  is it,  then?") == ("Who is it, then?",)


# ----------------------------------------------------------------------------------------------------------- reports
FILMS = ReportPointsTask(
    "Who directed films?",
    (
        ("c-1", "# Films\nNight Harbour is a film directed by Vera Lindqvist.\n\n## Baking\nBread uses heat."),
        ("c-2", "# Films again\nNight Harbour is a film directed by Vera Lindqvist. The oven is hot."),
    ),
)


def test_points_by_rules_are_sentences_that_speak_of_the_query(index: Index) -> None:
    (point,) = offline(OfflineReportPoints(), FILMS, index).points
    assert point.text == "Night Harbour is a film directed by Vera Lindqvist." and point.reports == ("c-1", "c-2")
    assert 15 <= point.score <= 100, "headings are no sentences, and bread does not help"
    assert offline(OfflineReportPoints(min_score=101), FILMS, index) == ReportPoints()
    points = offline(OfflineReportPoints(min_score=0, points=2), FILMS, index).points
    assert len(points) == 2 and points[0].score >= points[1].score


def test_points_of_a_report_near_the_query_count_more(index: Index) -> None:
    keys, reports = index.read("communities").keys, index.read("reports")
    summary = reports.drafts[0].summary
    near, far = (
        offline(OfflineReportPoints(), ReportPointsTask(summary.split(".")[0], ((key, f"# T\n{summary}"),)), index)
        for key in (keys[0], "c-unknown")
    )
    assert near.points[0].score > far.points[0].score


def test_citations_of_points_become_ids() -> None:
    rows = [{"text": " A\n point ", "score": "80", "reports": ["R2", "r1", "R7"]}, {"text": "B", "score": 0}]
    asked = ask(PromptedReportPoints(), FILMS, json.dumps({"points": rows}))
    assert asked.result == ReportPoints((Point("A point", 80.0, ("c-2", "c-1")), Point("B", 0.0)))
    assert parse_points('So: {"points": []}') == ()


POINTS = (Point("The Sill is a river.", 90, ("c-1",)), Point("The Isar is a river.", 40, ("c-2", "c-1")))


def test_reduce_by_rules_keeps_order_citations_and_length() -> None:
    points = (*POINTS, Point("A river is the Sill.", 30, ("c-3",)), Point("Kalmar has a castle.", 5))
    lines = ["The Sill is a river. [c-1]", "The Isar is a river. [c-2, c-1]", "Kalmar has a castle."]
    assert offline(OfflineReduce(), ReduceTask("Q", points)).text.splitlines() == lines
    assert offline(OfflineReduce(), ReduceTask("Q", points, max_words=6)).text == lines[0]
    assert offline(OfflineReduce(), ReduceTask("Q", ())).text == ""
