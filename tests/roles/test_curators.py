"""Which names mean one thing, and of which type each entity is: by rules and by a model."""

from __future__ import annotations

from typing import Any

import pytest

from gnnrag.roles.writers.base import Curated, CurateTask
from gnnrag.roles.writers.entities import OfflineCurator, PromptedCurator
from tests.helpers.roles import ask

PLANS = ("DEVELOPMENT PLAN", "PLANNING OFFICE", "DEVELOPMENT PLANS")


def task(*names: str, kind: str = "") -> CurateTask:
    return CurateTask(tuple((name, name, kind, "") for name in names))


@pytest.mark.parametrize(
    "given, groups",
    [
        (task(*PLANS), (("DEVELOPMENT PLAN", "DEVELOPMENT PLANS"), ("PLANNING OFFICE",))),  # golden: OFFICE goes
        (task("John Smith", "Smith, John", "J. Smith", "Williams", "William"),
         (("John Smith", "Smith, John"), ("J. Smith",), ("Williams",), ("William",))),
        (task("1824", "1825", "?"), (("1824",), ("1825",), ("?",))),
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
