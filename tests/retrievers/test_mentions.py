from __future__ import annotations

import asyncio

import pytest

from gnnrag.index.index import Index
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.retrievers.hypergraphrag import (
    HyperQuery,
    HyperQueryTask,
    OfflineHyperQuery,
    PromptedHyperQuery,
    clauses,
    parse_hyper_query,
)
from gnnrag.retrievers.minirag import (
    OfflineMentions,
    PromptedMentions,
    guessed_types,
    parse_mentions,
)
from gnnrag.roles.base import Mentions, MentionsTask
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session
from tests.helpers.parts import COMPOSITIONAL


def ask(role, task, session: Session | None = None):
    return asyncio.run(role(task, session or Session("q")))


@pytest.mark.parametrize(
    "reply, names, types",
    [
        ('{"answer_types": ["person"], "entities": ["A B", "C"]}', ["A B", "C"], ["person"]),
        ('```json\n{"Answer Types": ["x"], "Entities": []}\n```', [], ["x"]),
        ('{"answer_type_keywords": ["PERSON"], "entities_from_query": ["A"]}', ["A"], ["PERSON"]),
        ("{'answer_types': ['x',], 'entities': ['A'", ["A"], ["x"]),
        (
            '<think>{"entities": ["no"]}</think>{"entities": [" A ", "A", "", 1984, true, null, ["B"]]}',
            ["A", "1984"],
            [],
        ),
        ('{"note": 1} {"entities": "A"}', ["A"], []),
        ('{"entities": ["' + "x" * 500 + '"]}', ["x" * 200], []),
    ],
)
def test_parse_mentions(reply: str, names: list[str], types: list[str]) -> None:
    assert parse_mentions(reply) == (names, types)


@pytest.mark.parametrize("reply", ["", "Ann", "[]", "{}", '["A"]', '{"other": ["A"]}', '{"entities": {"a": 1}}'])
def test_parse_mentions_refuses(reply: str) -> None:
    with pytest.raises(MalformedError):
        parse_mentions(reply)


def test_prompted_mentions_keep_the_first_five_names() -> None:
    llm = ScriptedBackend.of((".", '{"answer_types": ["b", "zzz"], "entities": ["1", "2", "3", "4", "5", "6"]}'))
    task = MentionsTask("Who [INST] is\nit?", ("a", "b", "c"))
    assert ask(ready(PromptedMentions(), backend=llm), task) == Mentions(("1", "2", "3", "4", "5"), ("b", "zzz"))
    prompt = llm.requests[0].messages[-1].content
    assert prompt == "Types: a, b, c\n\nQuery: Who &#91;INST] is it?"
    ask(ready(PromptedMentions(max_types=1), backend=llm), task)
    ask(ready(PromptedMentions(), backend=llm), MentionsTask("q"))
    assert [r.messages[-1].content.split("\n")[0] for r in llm.requests[1:]] == ["Types: a", "Types: (none given)"]


def test_prompted_mentions_ask_once_more_and_then_give_up() -> None:
    llm, session = ScriptedBackend.of((".", "never")), Session("q")
    assert ask(ready(PromptedMentions(), backend=llm), MentionsTask("q"), session) == Mentions(
        flags=("mentions_failed",)
    )
    assert len(llm.requests) == 2 and session.usage()["roles"]["mentions"]["parse_failure"] == 2


@pytest.mark.parametrize(
    "query, types",
    [
        ("Who directed Night Harbour?", ("person",)),
        ("Where was she born?", ("location",)),
        ("When did it open?", ("date",)),
        ("What year did it open?", ("date",)),
        ("How many people live there?", ("number",)),
        ("What country is it in?", ("location", "nationality")),
        ("What language is spoken there?", ("language",)),
        ("Which band recorded it?", ("organization",)),
        ("What film came first?", ("work",)),
        ("What is the county seat of X?", ("location",)),
        ("Is Night Harbour older than Copper Road?", ()),
        ("What is the meaning of life?", ()),
        ("", ()),
    ],
)
def test_guessed_types(query: str, types: tuple[str, ...]) -> None:
    assert guessed_types(query) == types


def test_offline_mentions_name_what_the_question_names(index: Index) -> None:
    role = ready(OfflineMentions(), index=index)
    asked = "In which town was the director of Night Harbour and of Copper Road born?"
    found = ask(role, MentionsTask(asked, ("Location", "work")))
    assert found == Mentions(("Night Harbour", "Copper Road"), ("Location",))
    assert ask(role, MentionsTask(asked, ("work",))).answer_types == ()
    assert ask(role, MentionsTask(asked)).answer_types == ("LOCATION",), "as the released examples write them"
    many = ", ".join(f"Qwert{i} Zuiop{i}" for i in "abcdefg")
    assert len(ask(role, MentionsTask(f"Who knows {many}?")).names) == 5


REPLY = (
    '("hyper-relation"<|>A person founded the Ferry.<|>5)##\n'
    '("entity"<|>"Ferry"<|>organization<|>It was founded.<|>90)##\n'
    "(hyper-relation<|>B &amp; C met.<|>9)##"
    '("entity"<|>Ferry<|>organization<|>Again.<|>60)##<|COMPLETE|>'
)


def test_parse_hyper_query() -> None:
    found = parse_hyper_query(f"<think>x</think>Here you are: {REPLY} (entity<|>late<|>x<|>y<|>1)")
    assert found == HyperQuery(("A person founded the Ferry.", "B & C met."), ("Ferry",))


@pytest.mark.parametrize(
    "record",
    [
        '("hyper-relation"<|>two fields)',
        '("hyper-relation"<|>four<|>5<|>6)',
        '("entity"<|>four<|>person<|>fields)',
        '("entity"<|>six<|>person<|>fields<|>1<|>2)',
        '("entity"<|> <|>person<|>blank<|>1)',
        '("relationship"<|>three<|>5)',
        "no record",
    ],
)
def test_only_records_of_three_or_five_fields_count(record: str) -> None:
    assert parse_hyper_query(f"{record}##{REPLY}").entities == ("Ferry",)
    assert len(parse_hyper_query(f"{record}##{REPLY}").sentences) == 2
    assert parse_hyper_query(f"{record}<|COMPLETE|>") == HyperQuery()
    with pytest.raises(MalformedError):
        parse_hyper_query(record)


def test_prompted_hyper_query() -> None:
    llm, session = ScriptedBackend.of((".", REPLY)), Session("q")
    found = ask(ready(PromptedHyperQuery(), backend=llm), HyperQueryTask("Who\nfounded it?"), session)
    assert found.entities == ("Ferry",) and llm.requests[0].messages[-1].content == "Query: Who founded it?"
    failed = ask(ready(PromptedHyperQuery(), backend=ScriptedBackend.of((".", "?"))), HyperQueryTask("q"), session)
    assert failed == HyperQuery(flags=("hyper_query_failed",))


def test_offline_hyper_query(index: Index) -> None:
    found = ask(ready(OfflineHyperQuery(), index=index), HyperQueryTask(COMPOSITIONAL))
    assert found == HyperQuery((COMPOSITIONAL,), ("Night Harbour",))


def test_clauses() -> None:
    query = "Which town has the castle that Vera Lindqvist visited, and which river flows there?"
    parts = ("Which town has the castle", "that Vera Lindqvist visited", "which river flows there")
    assert clauses(query) == (query, *parts)
    assert clauses("Who  is it,  then?") == ("Who is it, then?",)
