"""Triples and records that a model reads from passages: names then triples, and records with gleaning."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.errors import LLMError
from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord
from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.writers import triples as gleaning
from gnnrag.roles.writers.base import TriplesTask
from gnnrag.roles.writers.triples import (
    HyperTriples,
    LightRAGTriples,
    OpenIETriples,
    is_yes,
    merged,
    read_names,
    read_triples,
)
from gnnrag.session import Session
from gnnrag.types import Passage
from tests.helpers.each import each

# -------------------------------------------------------------------------------------------------------- OpenIE
TAGGED = Passage("p", "Ada </passage>", "Ada knew Byron.")


def ask(*rules, **task):
    backend, session = ScriptedBackend.of(*rules), Session("s")
    writer = ready(OpenIETriples(), backend=backend)
    return asyncio.run(writer(TriplesTask(TAGGED, **task), session)), backend, session


def is_names(request: Request) -> bool:
    return "so that facts about it" in request.text


def test_names_then_triples():
    triples = '{"triples": [["Ada", "knew", "Byron"], ["Ada", "knew", "Byron"], ["Ada", "is"], [1, "of", "x"]]}'
    result, backend, session = ask((is_names, '{"named_entities": ["Ada", "Byron", "Ada"]}'), ("Names:", triples))
    assert result.found == Extraction(("Ada", "Byron"), (("Ada", "knew", "Byron"), ("1", "of", "x")), 1)
    assert result.flags == ("records_dropped_fields", *("records_seen",) * 4)
    assert [is_names(r) for r in backend.requests] == [True, False] and session.by_role["triples"]["calls"] == 2
    content = backend.requests[1].messages[-1].content
    assert '{"named_entities": ["Ada", "Byron"]}' in content and 'title="Ada &lt;/passage&gt;"' in content


def test_types_and_language_reach_the_prompts():
    rules = ((is_names, '{"named_entities": []}'), ("Names:", '{"triples": []}'))
    result, backend, _ = ask(*rules, types=("person", "city"), language="French")
    assert result.found == Extraction() and "person, city" in backend.requests[0].text
    assert "Write relations in French." in backend.requests[1].messages[-1].content


def test_without_names_the_triples_are_asked_for_all_the_same():
    result, backend, _ = ask((is_names, "I cannot."), ("Names:", '{"triples": [["a", "b", "c"]]}'))
    assert result.found == Extraction((), (("a", "b", "c"),)) and result.flags[0] == "no_names"
    assert len(backend.requests) == 3 and "Format: one JSON object" in backend.requests[1].text


@each("reply", ["no idea", '{"triples": [["a", "b"], ["c"], ["d", "e", "f"]]}'])
def test_a_failed_passage(reply):
    result, _, _ = ask((is_names, '{"named_entities": []}'), ("Names:", reply))
    assert result.found is None and result.flags[-1] == "passage_failed"


def test_a_dead_server_is_counted():
    result, _, session = ask((lambda request: True, LLMError("down")))
    assert result.found is None and "down" in session.failed_calls()


def test_names_are_read():
    expected = {
        '{"named_entities": ["a{b", "c}d"]}': ("a{b", "c}d"),
        "{'named_entities': ['O\\'Hara', \"it's\"]}": ("O'Hara", "it's"),
        '{"named_entities": ["a", null, 3, ["x"], " "]}': ("a", "3"),
        '{"named_entities": null}': (),
        '{"named_entities": ["a", "b", "torn na': ("a", "b"),
        '{"other": 1} {"named_entities": ["a"]}': ("a",),
    }
    assert {reply: read_names(reply) for reply in expected} == expected


@each(
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


def test_prose_is_malformed():
    with pytest.raises(MalformedError, match="'triples'"):
        read_triples("There are no triples here.")


# --------------------------------------------------------------------------------------- records, with gleaning
PASSAGE = Passage("p", "T", "Ada knew Byron.")
FIRST = '("entity"<|>Ada<|>person<|>short)##("relationship"<|>Ada<|>Byron<|>knew him<|>kin<|>3)##<|COMPLETE|>'
MORE = (
    '("entity"<|>Ada<|>person<|>a longer one)##("entity"<|>Byron<|>person<|>poet)##'
    '("relationship"<|>Byron<|>Ada<|>she knew him well<|>letters<|>2)##<|COMPLETE|>'
)
LOOK, ASK = "Look at the passage once more", "Is anything that the passage states"


def last(text):
    return lambda request: request.messages[-1].content.startswith(text)


def run(cls, *replies, asked="no", more=MORE, **task):
    backend = ScriptedBackend.of((last(LOOK), more), (last(ASK), asked), (lambda r: True, list(replies)))
    session = Session("s")
    return asyncio.run(ready(cls(), backend=backend)(TriplesTask(PASSAGE, **task), session)), backend, session


def kinds(backend):
    return ["look" if last(LOOK)(r) else "ask" if last(ASK)(r) else "first" for r in backend.requests]


@each(
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
def test_calls_per_passage(g, asked, calls):
    _, backend, session = run(LightRAGTriples, FIRST, asked=asked, gleaning=g)
    assert kinds(backend) == calls and session.by_role["triples"]["calls"] == len(calls)


def test_the_conversation_goes_on():
    _, backend, _ = run(LightRAGTriples, FIRST, gleaning=1, types=("person", "ship"), language="French")
    first, look = (r.messages for r in backend.requests)
    assert look[: len(first)] == first and [m.role for m in look[len(first) :]] == ["assistant", "user"]
    assert look[-2].content == FIRST and "Allowed types: person, ship\nLanguage: French" in first[-1].content


def test_what_was_gleaned_is_merged_by_the_longer_description():
    found = run(LightRAGTriples, FIRST, gleaning=1)[0].found
    assert found.details == (EntityRecord("Ada", "person", "a longer one"), EntityRecord("Byron", "person", "poet"))
    assert found.relations == (RelationRecord("Byron", "Ada", "she knew him well", ("kin", "letters"), 3.0),)
    assert found.entities == ("Ada", "Byron") and not found.triples
    assert found.as_triples() == (("Byron", "kin, letters", "Ada"),)


def test_of_equal_descriptions_the_first_stays():
    one, two = RelationRecord("A", "B", "x"), RelationRecord("A", "B", "y", ("k",), 5.0)
    assert merged([one, two]) == (RelationRecord("A", "B", "x", ("k",), 5.0),)


def test_a_relation_under_the_wrong_tag_is_one():
    result = run(LightRAGTriples, "entity<|#|>A<|#|>B<|#|>k<|#|>d\n<|COMPLETE|>")[0]
    assert result.found.relations == (RelationRecord("A", "B", "d", ("k",)),)
    assert result.flags == ("records_repaired", "records_seen")


@each("good, failed", [(1, True), (2, False)])
def test_a_passage_fails_when_most_records_are_dropped(good, failed):
    bad = ["relation<|#|>A<|#|>a<|#|>k<|#|>d", "entity<|#|>A<|#|>x"]
    reply = "\n".join([*(f"entity<|#|>E{i}<|#|>x<|#|>d" for i in range(good)), *bad])
    result = run(LightRAGTriples, reply)[0]
    assert (result.found is None) is failed
    assert {"records_dropped_loop", "records_dropped_fields", "no_end_marker"} <= set(result.flags)
    assert ("passage_failed" in result.flags) is failed and (failed or result.found.malformed == 2)


@each("cls", [LightRAGTriples, HyperTriples])
def test_prose_is_asked_for_again_and_then_a_failure(cls):
    result, backend, session = run(cls, "I see a passage.", gleaning=2)
    assert result.found is None and kinds(backend) == ["first", "first"]
    assert session.by_role["triples"]["parse_failure"] == 2
    result, _, _ = run(cls, "<|COMPLETE|>", more="Nothing is missing.", gleaning=1)
    assert result.found.entities == () and result.found.malformed == 0


def test_long_conversations_end_early(monkeypatch):
    monkeypatch.setattr(gleaning, "MAX_HISTORY", 100)
    _, backend, session = run(LightRAGTriples, FIRST, gleaning=2)
    assert kinds(backend) == ["first"] and session.by_role["triples"]["gleaning_skipped"] == 1


def test_only_yes_is_yes():
    expected = {"yes": True, "Yes.": True, "yes and no": False, "": False}
    assert {reply: is_yes(reply) for reply in expected} == expected


HYPER = (
    '("entity"<|>Orphan<|>person<|>d<|>1)##("hyper-relation"<|>Ada knew Byron.<|>7)##'
    '("entity"<|>Ada<|>person<|>wrote<|>90)##("entity"<|>Byron<|>person<|>poet)##'
    '("hyper-relation"<|><hyperedge> Both lived in London.)##("entity"<|>Ada<|>person<|>lived in London<|>often)##'
    '("entity"<|>London<|>location<|>a city<|>400)##("hyper-relation"<|>Nobody is in it.<|>99)##<|COMPLETE|>'
)


def test_entities_belong_to_the_fact_before_them():
    result = run(HyperTriples, HYPER)[0]
    assert result.found.hyperedges == (
        HyperedgeRecord("Ada knew Byron.", 7.0, (("Ada", 90.0), ("Byron", 50.0))),
        HyperedgeRecord("Both lived in London.", 1.0, (("Ada", 50.0), ("London", 100.0))),
    )
    assert result.found.details[0] == EntityRecord("Ada", "person", "lived in London")
    assert result.found.entities == ("Ada", "Byron", "London") and result.found.malformed == 1
    assert result.flags.count("records_dropped_orphan") == 1 and result.flags.count("records_repaired") == 3


def test_a_fact_that_cannot_be_used_takes_its_entities_along():
    reply = (
        '("hyper-relation"<|>A.<|>1<|>2)##("entity"<|>X<|>t<|>d)##("hyper-relation"<|>B.)##'
        '("entity"<|>Y<|>t<|>d)##("entity"<|>Z<|>t<|>d)'
    )
    result = run(HyperTriples, reply)[0]
    assert [h.members for h in result.found.hyperedges] == [(("Y", 50.0), ("Z", 50.0))]
    assert result.found.entities == ("Y", "Z")


def test_a_sentence_about_hyper_relations_keeps_its_words():
    reply = '("hyper-relation"<|>Hyper-relation extraction helps.<|>3)##("entity"<|>X<|>t<|>d)##<|COMPLETE|>'
    assert run(HyperTriples, reply)[0].found.hyperedges[0].text == "Hyper-relation extraction helps."


def test_gleaned_facts_are_added():
    more = (
        '("hyper-relation"<|>Ada knew Byron.<|>9)##("entity"<|>Milan<|>x<|>d<|>10)##'
        '("entity"<|>Ada<|>x<|>d<|>95)##<|COMPLETE|>'
    )
    edges = run(HyperTriples, HYPER, more=more, gleaning=1)[0].found.hyperedges
    assert edges[0] == HyperedgeRecord("Ada knew Byron.", 9.0, (("Ada", 95.0), ("Byron", 50.0), ("Milan", 10.0)))
