from __future__ import annotations

from typing import Any

import pytest

from gnnrag.audit import COSTS, AuditConfig, adopted, read_cell, verdict
from gnnrag.types import Question


def cell(right: int, n: int, calls: float = 1.0, usd: float = 0.0, tokens: float = 0.0) -> dict[str, Any]:
    questions = [Question(f"q{i}", "?") for i in range(n)]
    ids = [q.id for q in questions]
    scores = {"answer/f1": {id_: float(i < right) for i, id_ in enumerate(ids)}, "failed": dict.fromkeys(ids, 0.0)}
    values = {"cost/usd": usd, "cost/tokens": tokens, "cost/retriever_calls": calls}
    return read_cell(scores | {m: dict.fromkeys(ids, values.get(m, 0.0)) for m in COSTS}, questions, AuditConfig())


def test_a_cell() -> None:
    found = cell(52, 100, calls=2.5)
    assert (found["n"], found["right"], found["accuracy"], found["failed"]) == (100, 52, 0.52, 0)
    assert (found["low"], found["high"]) == pytest.approx((0.423164, 0.615356), abs=1e-6)
    assert found["cost/retriever_calls"] == 2.5


# --------------------------------------------------------------------------------------------------------- rule 4
LOCAL = cell(176, 200)  # .88 [.828, .918]


@pytest.mark.parametrize(
    "mine, settings, fails, reference",
    [
        (cell(52, 100), {}, True, 0.88),
        (cell(6, 40), {}, True, 0.88),
        (cell(75, 100), {}, True, 0.88),  # [.657, .825] ends just below .828
        (cell(76, 100), {}, False, None),
        (cell(80, 100), {}, False, None),
        (cell(52, 100), {"margin": 0.4}, False, None),
        (cell(52, 100), {"target": 0.7}, True, 0.7),
        (cell(52, 100), {"target": 0.6}, True, 0.88),
        (cell(85, 100), {"target": 0.95}, True, 0.95),
    ],
)
def test_which_classes_fail(mine: Any, settings: dict[str, Any], fails: bool, reference: float | None) -> None:
    found = verdict("multi_hop", {"passage_local": LOCAL, "multi_hop": mine}, AuditConfig(**settings))
    assert (found["fails"], found.get("reference")) == (fails, reference)


def test_disjoint_intervals_are_needed() -> None:
    """Ten points or more under passage_local is not enough with few questions."""
    found = verdict("multi_hop", {"passage_local": LOCAL, "multi_hop": cell(7, 10)}, AuditConfig())
    assert found == {"fails": False, "judged": True, "why": ""}


def test_passage_local_can_only_miss_the_target() -> None:
    flat = {"passage_local": LOCAL, "multi_hop": cell(80, 100)}
    assert not verdict("passage_local", flat, AuditConfig())["judged"]
    assert verdict("passage_local", flat, AuditConfig(target=0.8)) == {"fails": False, "judged": True, "why": ""}
    assert verdict("passage_local", {"passage_local": LOCAL}, AuditConfig(target=0.95))["fails"]
    assert not verdict("passage_local", {"passage_local": LOCAL}, AuditConfig(target=0.9))["fails"]


@pytest.mark.parametrize(
    "local, mine, settings, judged",
    [
        (None, cell(1, 10), {}, False),  # nothing to hold it against
        (cell(0, 3), cell(10, 40), {}, False),  # nothing can be 0.1 under that
        (cell(5, 100), cell(0, 40), {}, False),
        (cell(9, 9), cell(40, 40), {}, False),  # too small a reference
        (cell(20, 100), cell(0, 4), {}, False),  # with none right its upper bound would be 0.490
        (cell(0, 3), cell(0, 2), {"target": 0.6}, False),
        (None, cell(8, 10), {"target": 0.6}, True),
        (cell(9, 10), cell(8, 10), {}, True),
    ],
)
def test_a_class_is_judged_where_it_could_have_failed(
    local: Any, mine: Any, settings: dict[str, Any], judged: bool
) -> None:
    flat = ({} if local is None else {"passage_local": local}) | {"multi_hop": mine}
    found = verdict("multi_hop", flat, AuditConfig(**settings))
    assert not found["fails"] and found["judged"] is judged and bool(found["why"]) is not judged


# --------------------------------------------------------------------------------------------------------- rule 5
def test_the_cheapest_that_closes_half_the_gap() -> None:
    cells = {
        "flat": cell(50, 100), "near": cell(69, 100, 1.0), "cheap": cell(70, 100, 2.0), "dear": cell(90, 100, 5.0)
    }  # fmt: skip
    assert adopted(cells, 0.9, 0.5) == "cheap"
    assert {name: c["recovered"] for name, c in cells.items()} == pytest.approx(
        {"flat": 0.0, "near": 0.475, "cheap": 0.5, "dear": 1.0}
    )
    assert adopted(cells, 0.9, 0.6) == "dear" and adopted(cells, 1.0, 0.9) is None
    # Money goes before tokens, and tokens before calls.
    cells = {"flat": cell(50, 100), "calls": cell(90, 100, calls=9), "tokens": cell(90, 100, tokens=10)}
    cells["money"] = cell(90, 100, usd=0.01)
    assert adopted(dict(cells), 0.9, 0.5) == "calls"
    del cells["calls"]
    assert adopted(cells, 0.9, 0.5) == "tokens"
