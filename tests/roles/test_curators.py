"""Which names mean one thing, and of which type each entity is: by rules and by a model."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import numpy as np
import pytest

from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.writers.base import Curated, CurateTask, TypesTask
from gnnrag.roles.writers.entities import (
    OfflineCurator,
    OfflineTypes,
    PromptedCurator,
    PromptedTypes,
    read_types,
)
from tests.helpers.roles import ask

PLANS = ("DEVELOPMENT PLAN", "PLANNING OFFICE", "DEVELOPMENT PLANS")
SMITHS = ("John Smith", "Jane Smith", "J. Smith")


def task(*names: str, kind: str = "") -> CurateTask:
    return CurateTask(tuple((name, name, kind, "") for name in names))


@pytest.mark.parametrize(
    "given, groups",
    [
        (task(*PLANS), (("DEVELOPMENT PLAN", "DEVELOPMENT PLANS"), ("PLANNING OFFICE",))),  # golden: OFFICE goes
        (task("John Smith", "J. Smith", kind="person"), (("John Smith", "J. Smith"),)),
        (task(*SMITHS, kind="person"), tuple((name,) for name in SMITHS)),
        (task("1824", "1825"), (("1824",), ("1825",))),
        (CurateTask((("a", "Mercury", "person", ""), ("b", "MERCURY", "planet", ""), ("c", "mercury", "", ""))),
         (("a", "c"), ("b",))),
    ],
)  # fmt: skip
def test_rules_group_variants_of_one_name(given: CurateTask, groups: Any) -> None:
    assert ask(OfflineCurator(), given).result == Curated(groups)


APART = Curated(tuple((name,) for name in PLANS), ("curator_failed",))


@pytest.mark.parametrize(
    "reply, curated, calls",
    [
        ('{"groups": [[3, 1], [2]]}', Curated(((PLANS[0], PLANS[2]), (PLANS[1],))), 1),
        ("so: {'groups': [[1, '3'], 2]}", Curated(((PLANS[0], PLANS[2]), (PLANS[1],))), 1),
        *((reply, APART, 2) for reply in  # these are no partitions
          ('{"groups": [[1, 2]]}', '{"groups": [[1, 2], [2, 3]]}', "all one", '{"groups": [[1, 2], [4]]}')),
    ],
)  # fmt: skip
def test_a_curator_partitions_the_members_or_leaves_them_apart(reply: str, curated: Curated, calls: int) -> None:
    asked = ask(PromptedCurator(), task(*PLANS), reply)
    assert asked.result == curated and len(asked.requests) == calls
    assert "1. DEVELOPMENT PLAN\n2. PLANNING OFFICE\n3. DEVELOPMENT PLANS" in asked.shown()


# ----------------------------------------------------------------------------------------------------------- types
SCHEMA = (("person", "a human being"), ("place", "somewhere one can be"))


def entities(count: int) -> tuple[tuple[str, str, str], ...]:
    return tuple((f"e{i}", f"Name {i}", f"about {i}") for i in range(count))


def typed(request: Any, kind: str = "person") -> str:
    numbers = re.findall(r"^(\d+)\. ", request.messages[-1].content.split("Entities:")[1], re.M)
    return json.dumps({"types": dict.fromkeys(numbers, kind)})


def test_three_tries_then_halves_then_unsure() -> None:
    def answer(request: Any) -> str:
        return "?" if "Name 2:" in request.messages[-1].content else typed(request, "place")

    asked = ask(PromptedTypes(), TypesTask(entities(4), SCHEMA), answer)
    assert dict(asked.result.types) == {"e0": "place", "e1": "place", "e2": "unsure", "e3": "place"}
    assert asked.result.flags == ("types_failed",) and asked.counts["calls"] == 3 + 1 + 3 + 3 + 1
    assert "(Try 3.)" in asked.requests[2].text


@pytest.mark.parametrize(
    "reply",
    ['{"types": {"1": "person"}}', '{"types": {"1": "person", "2": "place", "3": "place"}}',
     '{"types": {"1": "person", "2": "ship"}}', '{"types": ["person", "place"]}'],
)  # fmt: skip
def test_types_that_do_not_fit_are_malformed(reply: str) -> None:
    with pytest.raises(MalformedError):
        read_types(reply, 2, frozenset({"person", "place", "unsure"}))


class Embedder:
    """Known texts as vectors."""

    table: ClassVar = {
        "person: a human being": [1, 0],
        "place: somewhere one can be": [0, 1],
        "Name 0: about 0": [0.9, 0.1],
        "Name 1: about 1": [0.1, 0.2],
        "Name 2": [0.1, 0.05],
    }

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array([self.table[text] for text in texts], dtype=np.float32)


@pytest.mark.parametrize(
    "given, types",
    [
        (TypesTask((*entities(2), ("e2", "Name 2", "")), (*SCHEMA, ("unsure", "else"))), ["person", "place", "unsure"]),
        (TypesTask(entities(1), (("unsure", "x"),)), ["unsure"]),
    ],
)
def test_rules_take_the_nearest_definition(given: TypesTask, types: list[str]) -> None:
    assert [kind for _, kind in ask(OfflineTypes(), given, embedder=Embedder).result.types] == types
