from __future__ import annotations

import asyncio
import json
import re

import numpy as np
import pytest

from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.writers.base import Curated, CurateTask, Typed, TypesTask
from gnnrag.roles.writers.entities import (
    OfflineCurator,
    OfflineTypes,
    PromptedCurator,
    PromptedTypes,
    common,
    read_partition,
    read_types,
)
from gnnrag.session import Session
from tests.helpers.each import each

PLANS = ("DEVELOPMENT PLAN", "PLANNING OFFICE", "DEVELOPMENT PLANS")


def task(*names, kind=""):
    return CurateTask(tuple((name, name, kind, "") for name in names))


def run(role, given):
    session = Session("s")
    return asyncio.run(role(given, session)), session


class TestOfflineCurator:
    @each(
        "names, kind, groups",
        [
            (PLANS, "", (("DEVELOPMENT PLAN", "DEVELOPMENT PLANS"), ("PLANNING OFFICE",))),  # golden: OFFICE goes
            (("John Smith", "J. Smith"), "person", (("John Smith", "J. Smith"),)),
            (("John Smith", "Jane Smith", "J. Smith"), "person", (("John Smith",), ("Jane Smith",), ("J. Smith",))),
            (("1824", "1825"), "", (("1824",), ("1825",))),
        ],
    )
    def test_groups(self, names, kind, groups):
        assert run(ready(OfflineCurator()), task(*names, kind=kind))[0] == Curated(groups)

    def test_things_of_two_types_stay_apart(self):
        given = CurateTask((("a", "Mercury", "person", ""), ("b", "MERCURY", "planet", ""), ("c", "mercury", "", "")))
        assert run(ready(OfflineCurator()), given)[0].groups == (("a", "c"), ("b",))


class TestPromptedCurator:
    def test_small_clusters_are_asked_about_once(self):
        backend = ScriptedBackend.of(("", '{"groups": [[3, 1], [2]]}'))
        result, _ = run(ready(PromptedCurator(), backend=backend), task(*PLANS))
        assert result == Curated(((PLANS[0], PLANS[2]), (PLANS[1],))) and len(backend.requests) == 1
        assert (
            "1. DEVELOPMENT PLAN\n2. PLANNING OFFICE\n3. DEVELOPMENT PLANS" in backend.requests[0].messages[-1].content
        )

    @each(
        "reply",
        ['{"groups": [[1, 2]]}', '{"groups": [[1, 2], [2, 3]]}', "all one", '{"groups": [[1, 2], [4]]}'],
    )
    def test_what_is_no_partition_leaves_all_apart(self, reply):
        backend = ScriptedBackend.of(("", reply))
        result, session = run(ready(PromptedCurator(), backend=backend), task(*PLANS))
        assert result == Curated(tuple((name,) for name in PLANS), ("curator_failed",))
        assert session.by_role["curator"]["parse_failure"] == 2

    def test_large_clusters_are_asked_about_twice_and_only_what_agrees_is_merged(self):
        names = [f"name {i}" for i in range(6)]
        wishes = [
            (("name 0", "name 1", "name 2"), ("name 3", "name 4"), ("name 5",)),
            (("name 0", "name 1"), ("name 2", "name 3", "name 4", "name 5")),
        ]
        orders = []

        def answer(request):
            rows = re.findall(r"(\d)\. (name \d)", request.messages[-1].content)
            orders.append([name for _, name in rows])
            number = {name: int(n) for n, name in rows}
            return json.dumps({"groups": [[number[name] for name in group] for group in wishes[len(orders) - 1]]})

        result, _ = run(ready(PromptedCurator(), backend=ScriptedBackend.of(("", answer))), task(*names))
        assert result.groups == (("name 0", "name 1"), ("name 2",), ("name 3", "name 4"), ("name 5",))
        assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]) == names
        first = list(orders)
        wishes.extend(wishes)
        run(ready(PromptedCurator(), backend=ScriptedBackend.of(("", answer))), task(*names))
        assert orders[2:] == first  # the same cluster is asked about in the same orders

    def test_partitions(self):
        assert read_partition("so: {'groups': [[1, '2'], 3]}", 3) == {frozenset({0, 1}), frozenset({2})}
        with pytest.raises(MalformedError, match="no partition of 1 to 2"):
            read_partition('{"groups": [[1, 2, "x"]]}', 2)
        one, two = ({frozenset({0, 1, 2})}, {frozenset({0, 1}), frozenset({2})})
        assert common([frozenset(one), frozenset(two)]) == two


SCHEMA = (("person", "a human being"), ("place", "somewhere one can be"))


def entities(count):
    return tuple((f"e{i}", f"Name {i}", f"about {i}") for i in range(count))


def typed(request, kind="person"):
    numbers = re.findall(r"^(\d+)\. ", request.messages[-1].content.split("Entities:")[1], re.M)
    return json.dumps({"types": dict.fromkeys(numbers, kind)})


class TestTypes:
    def test_a_batch_is_one_call(self):
        backend = ScriptedBackend.of(("", typed))
        result, _ = run(ready(PromptedTypes(), backend=backend), TypesTask(entities(25), SCHEMA))
        assert result == Typed(tuple((f"e{i}", "person") for i in range(25))) and len(backend.requests) == 1
        shown = backend.requests[0].messages[-1].content
        assert "- place: somewhere one can be\n- unsure: " in shown and "25. Name 24: about 24" in shown

    def test_three_tries_then_halves_then_unsure(self):
        def answer(request):
            shown = request.messages[-1].content
            return "?" if "Name 2:" in shown else typed(request, "place")

        backend = ScriptedBackend.of(("", answer))
        result, session = run(ready(PromptedTypes(), backend=backend), TypesTask(entities(4), SCHEMA))
        assert dict(result.types) == {"e0": "place", "e1": "place", "e2": "unsure", "e3": "place"}
        assert result.flags == ("types_failed",)
        assert len(backend.requests) == 3 + 1 + 3 + 3 + 1 and session.by_role["types"]["calls"] == 11
        assert "(Try 3.)" in backend.requests[2].text

    @each(
        "reply, problem",
        [
            ('{"types": {"1": "person"}}', "not 1 to 2"),
            ('{"types": {"1": "person", "2": "place", "3": "place"}}', "not 1 to 2"),
            ('{"types": {"1": "person", "2": "ship"}}', "does not have: ship"),
            ('{"types": ["person", "place"]}', "types"),
        ],
    )
    def test_malformed(self, reply, problem):
        with pytest.raises(MalformedError, match=problem):
            read_types(reply, 2, frozenset({"person", "place", "unsure"}))

    def test_offline_takes_the_nearest_definition(self):
        table = {
            "person: a human being": [1, 0],
            "place: somewhere one can be": [0, 1],
            "Name 0: about 0": [0.9, 0.1],
            "Name 1: about 1": [0.1, 0.2],
            "Name 2": [0.1, 0.05],
        }

        class Embedder:
            def encode(self, texts):
                return np.array([table[t] for t in texts], dtype=np.float32)

        given = TypesTask((*entities(2), ("e2", "Name 2", "")), (*SCHEMA, ("unsure", "else")))
        result, _ = run(ready(OfflineTypes(0.15), embedder=Embedder), given)
        assert dict(result.types) == {"e0": "person", "e1": "place", "e2": "unsure"}
        unsure = run(ready(OfflineTypes(), embedder=Embedder), TypesTask(entities(1), (("unsure", "x"),)))[0]
        assert unsure.types == (("e0", "unsure"),)
