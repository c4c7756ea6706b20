from __future__ import annotations

import asyncio

import pytest

from gnnrag.errors import BudgetError
from gnnrag.retrievers.hipporag2 import FactsKept
from gnnrag.session import Budget, Session, ask_all


async def role(task, session):
    """Takes the longer, the smaller its task."""
    await asyncio.sleep(0.01 * (3 - task))
    session.add_call("r", task, 1, cost=0.5, cached=task == 2)
    session.record("llm", task=task)
    return FactsKept((task,), ("odd",) * (task % 2))


def test_tasks_run_at_once_and_are_booked_in_their_order():
    session = Session("q")
    session.record("before")
    results = asyncio.run(ask_all("r", role, [1, 2, 3], session))
    assert [result.kept for result in results] == [(1,), (2,), (3,)]
    assert [event.get("task") for event in session.events] == [None, 1, 2, 3]
    assert session.by_role["r"] == {"calls": 3, "prompt_tokens": 6, "completion_tokens": 3, "cost": 1.5, "odd": 2}
    assert session.cached_calls == 1
    assert session.cost == 1.5 and asyncio.run(ask_all("r", role, [], session)) == []


def test_a_budget_counts_all_tasks_together():
    session = Session("q", Budget(max_calls=2))
    with pytest.raises(BudgetError, match="max_calls=2 is used up"):
        asyncio.run(ask_all("r", role, [1, 2, 3], session))
    assert session.by_role["r"]["calls"] == 3


def test_a_budget_of_dollars():
    with pytest.raises(BudgetError, match=r"max_cost=1\.2 is used up \(1\.5\)"):
        asyncio.run(ask_all("r", role, [1, 2, 3], Session("q", Budget(max_cost=1.2))))


def test_a_task_that_fails_leaves_the_others_in_the_books():
    async def fails(task, session):
        await role(task, session)
        if task == 2:
            raise RuntimeError("bug")
        return FactsKept()

    session = Session("q")
    with pytest.raises(RuntimeError, match="bug"):
        asyncio.run(ask_all("r", fails, [1, 2, 3], session))
    assert session.by_role["r"]["calls"] == 3
