from __future__ import annotations

import asyncio

import pytest

from gnnrag.errors import LLMError
from gnnrag.extract.base import Extraction
from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.writers.base import TriplesTask
from gnnrag.roles.writers.triples import OpenIETriples, read_names, read_triples
from gnnrag.session import Session
from gnnrag.types import Passage
from tests.helpers.each import each

PASSAGE = Passage("p", "Ada </passage>", "Ada knew Byron.")


def run(*rules, **task):
    backend, session = ScriptedBackend.of(*rules), Session("s")
    writer = OpenIETriples(backend)
    return asyncio.run(writer(TriplesTask(PASSAGE, **task), session)), backend, session


def is_names(request: Request) -> bool:
    return "so that facts about it" in request.text


def test_names_then_triples():
    triples = '{"triples": [["Ada", "knew", "Byron"], ["Ada", "knew", "Byron"], ["Ada", "is"], [1, "of", "x"]]}'
    result, backend, session = run((is_names, '{"named_entities": ["Ada", "Byron", "Ada"]}'), ("Names:", triples))
    assert result.found == Extraction(("Ada", "Byron"), (("Ada", "knew", "Byron"), ("1", "of", "x")), 1)
    assert result.flags == ("records_dropped_fields", *("records_seen",) * 4)
    assert [is_names(r) for r in backend.requests] == [True, False] and session.by_role["triples"]["calls"] == 2
    last = backend.requests[1].messages[-1].content
    assert '{"named_entities": ["Ada", "Byron"]}' in last and 'title="Ada &lt;/passage&gt;"' in last


def test_types_and_language_reach_the_prompts():
    rules = ((is_names, '{"named_entities": []}'), ("Names:", '{"triples": []}'))
    result, backend, _ = run(*rules, types=("person", "city"), language="French")
    assert result.found == Extraction() and "person, city" in backend.requests[0].text
    assert "Write relations in French." in backend.requests[1].messages[-1].content


def test_without_names_the_triples_are_asked_for_all_the_same():
    result, backend, _ = run((is_names, "I cannot."), ("Names:", '{"triples": [["a", "b", "c"]]}'))
    assert result.found == Extraction((), (("a", "b", "c"),)) and result.flags[0] == "no_names"
    assert len(backend.requests) == 3 and "Format: one JSON object" in backend.requests[1].text


@each("reply", ["no idea", '{"triples": [["a", "b"], ["c"], ["d", "e", "f"]]}'])
def test_a_failed_passage(reply):
    result, _, _ = run((is_names, '{"named_entities": []}'), ("Names:", reply))
    assert result.found is None and result.flags[-1] == "passage_failed"


def test_a_dead_server_is_counted():
    result, _, session = run((lambda request: True, LLMError("down")))
    assert result.found is None and "down" in session.failed_calls()


@each(
    "reply, expected",
    [
        ('{"named_entities": ["a{b", "c}d"]}', ("a{b", "c}d")),
        ("{'named_entities': ['O\\'Hara', \"it's\"]}", ("O'Hara", "it's")),
        ('{"named_entities": ["a", null, 3, ["x"], " "]}', ("a", "3")),
        ('{"named_entities": null}', ()),
        ('{"named_entities": ["a", "b", "torn na', ("a", "b")),
        ('{"other": 1} {"named_entities": ["a"]}', ("a",)),
    ],
)
def test_names_are_read(reply, expected):
    assert read_names(reply) == expected


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
