from __future__ import annotations

import asyncio
import json

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.retrievers.hipporag2 import (
    FactFilterTask,
    FactsKept,
    OfflineFactFilter,
    PromptedFactFilter,
    nearest_fact,
    read_facts,
)
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session
from tests.helpers.each import each

FACTS = (
    ("ada lovelace", "born in", "london"),
    ("lord byron", "father of", "ada lovelace"),
    ("lord byron", "died in", "missolonghi"),
    ("london", "capital of", "england"),
    ("ada lovelace", "wrote", "programs"),
)
TWO = [list(FACTS[1]), list(FACTS[0])]


def run(reply, facts=FACTS, **config):
    backend, session = ScriptedBackend.of(("", reply)), Session("s")
    role = ready(PromptedFactFilter(**config), backend=backend)
    return asyncio.run(role(FactFilterTask("Where was Ada born?", facts), session)), backend, session


@each(
    "reply, kept",
    [
        (json.dumps({"fact": TWO}), (1, 0)),
        (str({"fact": [tuple(f) for f in TWO]}), (1, 0)),
        (f"[[ ## fact_after_filter ## ]]\n{json.dumps({'fact': TWO})}\n[[ ## completed ## ]]", (1, 0)),
        (f"The helpful ones are these: {json.dumps({'facts': TWO})}. I left out the rest.", (1, 0)),
        (json.dumps({"fact": TWO + TWO}), (1, 0)),
        (json.dumps({"fact": [list(f) for f in FACTS]}), (0, 1, 2, 3)),  # at most four
        ('{"fact": []}', ()),
        (json.dumps({"fact": [["Ada  Lovelace", "Born In", "London"]]}), (0,)),
        (json.dumps({"fact": [["lord byron", "was the father of", "ada lovelace"]]}), (1,)),
        (json.dumps({"fact": [["x"], "y", ["a", None, "b"], TWO[0]]}), (1,)),
    ],
)
def test_replies(reply, kept):
    result, backend, session = run(reply)
    assert result == FactsKept(kept) and session.by_role["fact_filter"]["calls"] == 1
    assert backend.requests[0].max_tokens == 512 and json.dumps({"fact": FACTS}) in backend.requests[0].text


def test_an_unknown_fact_is_dropped_unless_anything_goes():
    reply = json.dumps({"fact": [["the moon", "orbits", "the earth"], TWO[0]]})
    assert run(reply)[0] == FactsKept((1,), ("fact_unknown",))
    released = run(reply, floor=0.0)[0]
    assert len(released.kept) == 2 and released.kept[1] == 1 and not released.flags


@each("reply", ["none of them", "{", LLMError("down")])
def test_what_cannot_be_read_keeps_nothing(reply):
    assert run(reply)[0] == FactsKept((), ("filter_failed",))


def test_no_candidates_no_call():
    result, backend, _ = run("x", facts=())
    assert result == FactsKept() and backend.requests == []


def test_of_equally_near_candidates_the_first_is_taken():
    assert nearest_fact(("a", "b", "x"), [("a", "b", "y"), ("a", "b", "z")], 0.6) == 0
    assert nearest_fact(("q", "w", "r"), [("a", "b", "y")], 0.6) is None
    with pytest.raises(MalformedError):
        read_facts("[1, 2]")


def test_offline_keeps_all():
    result = asyncio.run(ready(OfflineFactFilter())(FactFilterTask("q", FACTS), Session("s")))
    assert result == FactsKept((0, 1, 2, 3, 4))
