"""Sub-queries of GraphSearch as strings, and the parsers of specs/graphsearch.md 2.2."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.methods.graphsearch import GraphSearch, SideState
from gnnrag.methods.graphsearch.roles import cited_numbers, parse_draft, parse_expansion, parse_triples, parse_verdict
from gnnrag.parts import from_settings
from gnnrag.roles.decomposer import parse_linked, parse_triple_parts
from gnnrag.roles.prompting import MalformedError
from gnnrag.text.subqueries import (
    DROPPED,
    HistoryItem,
    answers_by_reference,
    answers_by_variable,
    bracketed,
    fill,
    fit_history,
    is_no_answer,
    letters_only,
    read_triples,
    references,
    render_triples,
    verbalise,
)

PAPER = GraphSearch()
OFFICIAL = from_settings(GraphSearch, {"preset": "official"}, "method")


# ---------------------------------------------------------------------------------------- decompositions as questions
@pytest.mark.parametrize(
    "text",
    [
        '{"Sub-query 1": "Who made it?", "Sub-query 2": "Where was #1 born?"}',
        '{"Sub-query 2": "Where was #1 born?", "Sub-query 1": "Who made it?"}',  # by number, not by place
        "{'Sub-query 1': 'Who made it?', 'Sub-query 2': 'Where was #1 born?'}",
        '{"SUB-QUERY 1": "Who made it?", "sub-query 2": "Where was #1 born?"}',
        '```json\n{"Sub-query 1": "Who made it?", "Sub-query 2": "Where was #1 born?"}\n```',
        'Here it is: {"Sub-query 1": "Who made it?", "Sub-query 2": "Where was #1 born?", "note": "done"} Good luck.',
        '<think>{"Sub-query 1": "no"}</think>{"Sub-query 1": "Who made it?", "Sub-query 2": "Where was #1 born?"}',
        '"Sub-query 1": "Who made it?",\n"Sub-query 2": "Where was #1 born?"',  # no object: the released pattern
        '{"Sub-query 1": "Who made it?", "Sub-query 2": "Where was #1 born?"',  # cut off
    ],
)
def test_decompositions_that_say_the_same(text: str) -> None:
    assert parse_linked(text) == ("Who made it?", "Where was #1 born?")


def test_an_escaped_quote_stays_and_values_that_are_no_texts_go() -> None:
    assert parse_linked(r'{"Sub-query 1": "Who wrote \"Tin\" {1}?"}') == ('Who wrote "Tin" {1}?',)
    assert parse_linked('{"Sub-query 1": "a?", "Sub-query 2": 7, "Sub-query 3": " ", "other": "b"}') == ("a?",)


# ------------------------------------------------------------------------------------------ decompositions as triples
TWO = '[("Entity#3","flows in","Entity#2"),("Entity#3","has length","Entity#4")]'


@pytest.mark.parametrize(
    "value",
    [
        '[("Entity#3", "flows in", "Entity#2"), ("Entity#3", "has length", "Entity#4")]',
        '[["Entity#3", "flows in", "Entity#2"], ["Entity#3", "has length", "Entity#4"]]',
        "[('Entity#3', 'flows in', 'Entity#2'), ('Entity#3', 'has length', 'Entity#4')]",
        '(("Entity#3", "flows in", "Entity#2"), ("Entity#3", "has length", "Entity#4"))',
        "\"[('Entity#3', 'flows in', 'Entity#2'), ('Entity#3', 'has length', 'Entity#4')]\"",
    ],
)
def test_triples_in_all_notations(value: str) -> None:
    parts, dropped = parse_triple_parts('{"Sub-query 1": ' + value + "}")
    assert parts == (TWO,) and dropped == 0


def test_one_bare_triple_and_brackets_in_names() -> None:
    for value in ('("a","b","c")', '["a","b","c"]', '[("a","b","c")]', '[["a","b","c"]]'):
        assert parse_triple_parts('{"sub-query 1": ' + value + "}") == (('[("a","b","c")]',), 0), value
    for name in ("List [2] (old)", "Renn's yard (old)"):
        parts, _ = parse_triple_parts('{"Sub-query 1": [("' + name + '", "is", "x")]}')
        assert parts == (f'[("{name}","is","x")]',)


def test_what_is_no_triple_is_dropped_and_counted() -> None:
    value = '{"Sub-query 1": [("a","b"), ("a","b","c"), ("a",1,"c"), ("a","b","c","d")], "Sub-query 2": []}'
    assert parse_triple_parts(value) == (('[("a","b","c")]',), 3)


def test_a_list_of_triples_as_a_reply() -> None:
    assert parse_triples('```python\n[("a","b","c")]\n```') == [("a", "b", "c")]
    assert parse_triples('The sub-query is: [("a","b","c")] .') == [("a", "b", "c")]
    for text in ("", "[]", "unchanged", '[("a","b")]'):
        with pytest.raises(MalformedError):
            parse_triples(text)


@given(st.lists(st.tuples(*[st.text("ab\"'\\[](){},:;#Éß北-", max_size=8)] * 3), max_size=3))
def test_any_triples_are_read_again(triples: list[tuple[str, str, str]]) -> None:
    value = json.loads(bracketed(render_triples(triples)))
    found, bad = read_triples(value)
    assert bad == 0 and found == [tuple(part.strip() for part in triple) for triple in triples]


# -------------------------------------------------------------------------------------------------------- verdicts
@pytest.mark.parametrize(
    "text, last, anywhere",
    [
        ("**Yes**", "accept", "accept"),
        ("Conclusion: No.", "reject", "reject"),
        ("Conclusion:No", "reject", "reject"),
        ("Yes at first sight, but finally: No", "reject", "accept"),
        ("No: a plain yes is not justified", "accept", "accept"),  # a known weakness of both
        ("", "unknown", "reject"),
        ("yes-and-no", "unknown", "reject"),
        ("The answer is a yes.", "accept", "accept"),
        ("I accept this", "accept", "reject"),
        ("Reject", "reject", "reject"),
        ("Nobody knows; eyes and noses.", "unknown", "reject"),
        ('"Yes."', "accept", "accept"),
        ("Supported.\n\n### Yes", "accept", "accept"),
        ("Verdict:\n**No**\n", "reject", "reject"),
        ("well supported — Yes", "accept", "accept"),
        ("<verdict>Yes</verdict>", "accept", "reject"),
        ("Verdict=Yes", "accept", "reject"),
    ],
)
def test_verdicts(text: str, last: str, anywhere: str) -> None:
    assert parse_verdict(text) == last
    assert parse_verdict(text, released=True) == anywhere


# ------------------------------------------------------------------------------------------------------ expansions
@pytest.mark.parametrize(
    "text, queries",
    [
        ("[]", ()),
        ("Nothing is missing: []", ()),
        ('["a?", "b?"]', ("a?", "b?")),
        ("['a?', 'b?']", ("a?", "b?")),
        ('```python\n["a?", "b?"]\n```', ("a?", "b?")),
        ('["What is [X]?", "b?"]', ("What is [X]?", "b?")),
        ('I need ["a?", "b?"] for this.', ("a?", "b?")),
        ('["a?", 7, null, "", " a? ", "b?"]', ("a?", "b?")),
        ('("a?", "b?")', ("a?", "b?")),
    ],
)
def test_expansions(text: str, queries: tuple[str, ...]) -> None:
    assert parse_expansion(text) == queries


# --------------------------------------------------------------------------------------------- answers, citations
@pytest.mark.parametrize(
    "text, answer",
    [
        ("1. so\nAnswer: 212 km", "212 km"),
        ("Answer: 1\n**Final answer:** 2", "2"),
        ("so it is\n212 km", "212 km"),
        ("so it is\n**Answer:**\n212 km", "212 km"),
        ('```json\n{"answer": "212 km", "why": "a, b"}\n```', "212 km"),
    ],
)
def test_answer_lines(text: str, answer: str) -> None:
    assert parse_draft(text, answer_line=True).answer == answer


def test_citations() -> None:
    assert cited_numbers("a [2], b [1, 3] c [2] d [x] e (4)") == [2, 1, 3]


# ---------------------------------------------------------------------------------------------------- placeholders
def test_references() -> None:
    expected = {
        "Where was #1 born?": [1],
        "Is #2's town in #1 or in #2?": [2, 1],
        "Who made C#?": [],
        "Is C#2 a note?": [],
        "Who began #MeToo?": [],
        "Entity#3": [],
        "#12": [12],
    }
    assert {text: references(text) for text in expected} == expected


def test_filling_in_keeps_what_has_no_answer() -> None:
    assert fill("#1 and #2 and #10", {1: "x", 10: "z"}) == "x and #2 and z"
    assert fill("Entity#1 #1", {1: r"\1 \g<0>"}, of_variables=True) == r"\1 \g<0> #1"
    assert fill("#1", {1: ""}) == "#1"


def grounds(query: str, index: int, side: str = "semantic", earlier: str = "x", config: GraphSearch = PAPER) -> bool:
    items = [HistoryItem(i, earlier, earlier) for i in range(1, index)] + [HistoryItem(index, query, query)]
    return config.must_ground(SideState(side, "text", items=items), index - 1)


def test_when_a_sub_query_is_grounded() -> None:
    assert grounds("where was #1 born?", 2) and not grounds("where was #2 born?", 2) and not grounds("#2?", 1)
    assert not grounds("who made C#?", 2) and grounds("who made C#?", 2, config=OFFICIAL)
    assert grounds('[("Entity#1","a","Entity#2")]', 2, "relational", '[("x","y","Entity#1")]')
    assert not grounds('[("Entity#2","a","Entity#3")]', 2, "relational", '[("x","y","Entity#1")]')
    assert grounds('[("a","b","c")]', 2, "relational", config=OFFICIAL)
    assert not grounds('[("a","b","c")]', 1, "relational", config=OFFICIAL)


def test_answers_behind_placeholders() -> None:
    items = [
        HistoryItem(1, '[("a","by","Entity#1")]', "", answer="Ada"),
        HistoryItem(2, '[("Entity#1","in","Entity#2")]', "", answer="not stated in the context"),
        HistoryItem(3, '[("Entity#1","of","Entity#3")]', "", answer="Oslo"),
    ]
    assert answers_by_reference(items) == {1: "Ada", 3: "Oslo"}
    assert answers_by_variable(items) == {1: "Ada", 3: "Oslo"}
    two = HistoryItem(4, '[("Entity#4","in","Oslo"),("Entity#4","has","Entity#5")]', "", answer="Aker")
    assert answers_by_variable([*items, two]) == {1: "Ada", 3: "Oslo", 4: "Aker"}, "the first of two unknowns"


def test_refusals() -> None:
    refusals = ("", "  ", "The length is not given.", "unknown", "There is no information on it")
    answers = ("Esker Vale", "no", "Nottingham", "212 km", "Notre-Dame")
    expected = {**dict.fromkeys(refusals, True), **dict.fromkeys(answers, False)}
    assert {text: is_no_answer(text) for text in expected} == expected


# ----------------------------------------------------------------------------------------------- retrieval strings
PRICE = [("Ünal Café", "sold in 1974 for", "$1,200"), ("Entity#3", "owned by", "Entity#4")]


def test_retrieval_strings_of_triples() -> None:
    assert verbalise(PRICE) == "Ünal Café sold in 1974 for $1,200 owned by"
    assert letters_only(render_triples(PRICE)) == "nal Caf sold in for Entity owned by Entity"
    item = HistoryItem(1, "", render_triples(PRICE))
    assert PAPER.retrieval_string(item, "relational") == verbalise(PRICE)
    assert OFFICIAL.retrieval_string(item, "relational") == letters_only(render_triples(PRICE))


# --------------------------------------------------------------------------------------------------------- history
ITEMS = [
    HistoryItem(1, "a?", "a?", context="raw one", refined="one " * 50, answer="A"),
    HistoryItem(2, "b?", "b?", context="raw two", refined="two", answer="B"),
    HistoryItem(3, "c?", "c?", "expanded", context="raw three", refined="three", answer=""),
]


def test_the_oldest_contexts_go_first_and_answers_stay() -> None:
    kept, dropped = fit_history(ITEMS, 40, lambda text: len(text.split()))
    assert dropped == 1 and kept[0].refined == DROPPED and kept[0].answer == "A" and kept[1:] == ITEMS[1:]
    assert fit_history(ITEMS, 1000, len) == (ITEMS, 0)
    kept, dropped = fit_history(ITEMS, 1, len)
    assert dropped == 3 and [item.answer for item in kept] == ["A", "B", ""]
