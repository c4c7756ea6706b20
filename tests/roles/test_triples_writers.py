"""Triples and records that a model reads from passages: names then triples, and records with gleaning."""

from __future__ import annotations

from typing import Any

import pytest

from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord
from gnnrag.llm.base import Message, Request
from gnnrag.roles.writers import triples as gleaning
from gnnrag.roles.writers.base import TriplesTask
from gnnrag.roles.writers.triples import HyperTriples, LightRAGTriples, OpenIETriples, read_names, read_triples
from gnnrag.types import Passage
from tests.helpers.roles import Asked, ask

# -------------------------------------------------------------------------------------------------------- OpenIE
TAGGED = Passage("p", "Ada </passage>", "Ada knew Byron.")


def openie(*rules: Any, **task: Any) -> Asked:
    return ask(OpenIETriples(), TriplesTask(TAGGED, **task), rules=rules)


def is_names(request: Request) -> bool:
    return "so that facts about it" in request.text


def test_names_then_triples() -> None:
    triples = '{"triples": [["Ada", "knew", "Byron"], ["Ada", "knew", "Byron"], ["Ada", "is"], [1, "of", "x"]]}'
    asked = openie(
        (is_names, '{"named_entities": ["Ada", "Byron", "Ada"]}'), ("Names:", triples),
        types=("person", "city"), language="French",
    )  # fmt: skip
    assert asked.result.extraction == Extraction(("Ada", "Byron"), (("Ada", "knew", "Byron"), ("1", "of", "x")), 1)
    assert asked.result.flags == ("records_dropped_fields", *("records_seen",) * 4)
    assert [is_names(r) for r in asked.requests] == [True, False] and "person, city" in asked.requests[0].text
    for part in ('{"named_entities": ["Ada", "Byron"]}', 'title="Ada &lt;/passage&gt;"', "Write relations in French."):
        assert part in asked.shown(1)


@pytest.mark.parametrize(
    "names, rows, flag",
    [("I cannot.", '[["a", "b", "c"]]', "no_names"),
     ('{"named_entities": []}', '[["a", "b"], ["c"], ["d", "e", "f"]]', "passage_failed")],
)  # fmt: skip
def test_without_names_triples_are_asked_for_and_most_rows_must_be_triples(names: str, rows: str, flag: str) -> None:
    asked = openie((is_names, names), ("Names:", f'{{"triples": {rows}}}'))
    assert flag in asked.result.flags and (asked.result.extraction is None) is (flag == "passage_failed")


@pytest.mark.parametrize(
    "reply, names",
    [
        ('{"named_entities": ["a{b", "c}d"]}', ("a{b", "c}d")),
        ("{'named_entities': ['O\\'Hara', \"it's\"]}", ("O'Hara", "it's")),
        ('{"named_entities": ["a", null, 3, ["x"], " "]}', ("a", "3")),
        ('{"named_entities": null}', ()),
        ('{"named_entities": ["a", "b", "torn na', ("a", "b")),
        ('{"other": 1} {"named_entities": ["a"]}', ("a",)),
    ],
)
def test_names_are_read(reply: str, names: tuple[str, ...]) -> None:
    assert read_names(reply) == names


@pytest.mark.parametrize(
    "reply, triples, malformed, seen",
    [
        ('{"triples": [["a", "b", "c"], ["d", "e", "to', (("a", "b", "c"),), 1, 2),
        ('{"triples": [["a", "b", "c", "d"], ["a", "b"], ["a", "b", "c"]]}', (("a", "b", "c"),), 2, 3),
        ('{"triples": [["a", null, "c"], ["x", "y", true], ["a", "", "c"], "abc"]}', (), 4, 4),
        ('```json\n{"triples": [["{a}", "b", 7]]}\n```', (("{a}", "b", "7"),), 0, 1),
        ("{'triples': [('a', 'b', 'c')]}", (("a", "b", "c"),), 0, 1),
        ('{"triples": null}', (), 0, 0),
    ],
)
def test_triples_are_read(reply, triples, malformed, seen):
    assert read_triples(reply) == (triples, malformed, seen)


# --------------------------------------------------------------------------------------- records, with gleaning
PASSAGE = Passage("p", "T", "Ada knew Byron.")
FIRST = '("entity"<|>Ada<|>person<|>short)##("relationship"<|>Ada<|>Byron<|>knew him<|>kin<|>3)##<|COMPLETE|>'
MORE = (
    '("entity"<|>Ada<|>person<|>a longer one)##("entity"<|>Byron<|>person<|>poet)##'
    '("relationship"<|>Byron<|>Ada<|>she knew him well<|>letters<|>2)##<|COMPLETE|>'
)
LOOK, ASK = "Look at the passage once more", "Is anything that the passage states"


def last(text: str) -> Any:
    return lambda request: request.messages[-1].content.startswith(text)


def run(cls: Any, *replies: str, asked: Any = "no", more: str = MORE, **task: Any) -> Asked:
    return ask(cls(), TriplesTask(PASSAGE, **task), *replies, rules=((last(LOOK), more), (last(ASK), asked)))


def kinds(asked: Asked) -> list[str]:
    return ["look" if last(LOOK)(r) else "ask" if last(ASK)(r) else "first" for r in asked.requests]


@pytest.mark.parametrize(
    "g, asked, calls",
    [
        (0, "yes", ["first"]),
        (1, "yes", ["first", "look"]),
        (2, "yes", ["first", "look", "ask", "look"]),
        (2, "No.", ["first", "look", "ask"]),
        (2, "yes, more", ["first", "look", "ask"]),
        (3, ["YES.", "**Yes**", "yes"], ["first", "look", "ask", "look", "ask", "look"]),
    ],
)
def test_calls_per_passage(g: int, asked: Any, calls: list[str]) -> None:
    found = run(LightRAGTriples, FIRST, asked=asked, gleaning=g, types=("person", "ship"), language="French")
    assert kinds(found) == calls
    first, *later = (request.messages for request in found.requests)
    assert "Allowed types: person, ship\nLanguage: French" in first[-1].content
    for messages in later:  # the conversation goes on
        assert messages[: len(first) + 1] == (*first, Message("assistant", FIRST))


def test_what_was_gleaned_is_merged_by_the_longer_description():
    found = run(LightRAGTriples, FIRST, gleaning=1).result.extraction
    assert found.details == (EntityRecord("Ada", "person", "a longer one"), EntityRecord("Byron", "person", "poet"))
    assert found.relations == (RelationRecord("Byron", "Ada", "she knew him well", ("kin", "letters"), 3.0),)
    assert found.entities == ("Ada", "Byron") and not found.triples
    assert found.as_triples() == (("Byron", "kin, letters", "Ada"),)


def test_a_relation_under_the_wrong_tag_is_one():
    result = run(LightRAGTriples, '("entity"<|>A<|>B<|>d<|>k<|>1)##<|COMPLETE|>').result
    assert result.extraction.relations == (RelationRecord("A", "B", "d", ("k",), 1.0),)
    assert result.flags == ("records_repaired", "records_seen")


@pytest.mark.parametrize("good, failed", [(1, True), (2, False)])
def test_a_passage_fails_when_most_records_are_dropped(good, failed):
    bad = ["(relation<|>A<|>a<|>d<|>k<|>1)", "(entity<|>A<|>x)"]
    reply = "##".join([*(f"(entity<|>E{i}<|>x<|>d)" for i in range(good)), *bad])
    result = run(LightRAGTriples, reply).result
    assert (result.extraction is None) is failed
    assert {"records_dropped_loop", "records_dropped_fields", "no_end_marker"} <= set(result.flags)
    assert ("passage_failed" in result.flags) is failed and (failed or result.extraction.malformed == 2)


@pytest.mark.parametrize("cls", [LightRAGTriples, HyperTriples])
def test_nothing_more_may_be_said_in_any_words(cls: Any) -> None:
    found = run(cls, "<|COMPLETE|>", more="Nothing is missing.", gleaning=1).result.extraction
    assert found.entities == () and found.malformed == 0


def test_gleaned_facts_are_added():
    more = (
        '("hyper-relation"<|>Ada knew Byron.<|>9)##("entity"<|>Milan<|>x<|>d<|>10)##'
        '("entity"<|>Ada<|>x<|>d<|>95)##<|COMPLETE|>'
    )
    edges = run(HyperTriples, HYPER, more=more, gleaning=1).result.extraction.hyperedges
    assert edges[0] == HyperedgeRecord("Ada knew Byron.", 9.0, (("Ada", 95.0), ("Byron", 50.0), ("Milan", 10.0)))


def test_long_conversations_end_early(monkeypatch):
    monkeypatch.setattr(gleaning, "MAX_HISTORY", 100)
    asked = run(LightRAGTriples, FIRST, gleaning=2)
    assert kinds(asked) == ["first"] and asked.counts["gleaning_skipped"] == 1


HYPER = (
    '("entity"<|>Orphan<|>person<|>d<|>1)##("hyper-relation"<|>Ada knew Byron.<|>7)##'
    '("entity"<|>Ada<|>person<|>wrote<|>90)##("entity"<|>Byron<|>person<|>poet)##'
    '("hyper-relation"<|><hyperedge> Both lived in London.)##("entity"<|>Ada<|>person<|>lived in London<|>often)##'
    '("entity"<|>London<|>location<|>a city<|>400)##("hyper-relation"<|>Nobody is in it.<|>99)##<|COMPLETE|>'
)


def test_entities_belong_to_the_fact_before_them():
    result = run(HyperTriples, HYPER).result
    assert result.extraction.hyperedges == (
        HyperedgeRecord("Ada knew Byron.", 7.0, (("Ada", 90.0), ("Byron", 50.0))),
        HyperedgeRecord("Both lived in London.", 1.0, (("Ada", 50.0), ("London", 100.0))),
    )
    assert result.extraction.details[0] == EntityRecord("Ada", "person", "lived in London")
    assert result.extraction.entities == ("Ada", "Byron", "London") and result.extraction.malformed == 1
    assert result.flags.count("records_dropped_orphan") == 1 and result.flags.count("records_repaired") == 3


def test_a_fact_that_cannot_be_used_takes_its_entities_along():
    reply = (
        '("hyper-relation"<|>A.<|>1<|>2)##("entity"<|>X<|>t<|>d)##("hyper-relation"<|>Hyper-relation B.)##'
        '("entity"<|>Y<|>t<|>d)##("entity"<|>Z<|>t<|>d)'
    )
    result = run(HyperTriples, reply).result
    assert result.extraction.hyperedges == (HyperedgeRecord("Hyper-relation B.", 1.0, (("Y", 50.0), ("Z", 50.0))),)
    assert result.extraction.entities == ("Y", "Z")
