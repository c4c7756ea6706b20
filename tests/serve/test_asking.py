"""The desk by itself: what it follows, and whose questions it stops."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from gnnrag.serve.asking import Desk, Problem, Served
from gnnrag.serve.settings import Caller, read_service
from tests.helpers.serving import PLAIN


def desk_for(folder: Path, *dots: str) -> Desk:
    return Desk(read_service([str(folder / "mine"), str(folder / "secret"), *PLAIN, *dots]))


def test_one_index_that_fails_does_not_end_the_following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[str] = []

    def tick(self: Served) -> None:
        ticks.append(self.name)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("gnnrag.serve.asking._TICK_S", 0.01)
    monkeypatch.setattr(Served, "tick", tick)

    async def follow() -> None:
        async with desk_for(tmp_path).at_work(), asyncio.timeout(20):
            while ticks.count("secret") < 2:
                await asyncio.sleep(0.01)

    asyncio.run(follow())
    assert ticks[:4] == ["mine", "secret"] * 2


def test_stopping_tells_nobody_of_an_index_that_it_may_not_know(tmp_path: Path) -> None:
    desk, caller = desk_for(tmp_path, "serve.workers=2"), Caller("one", indexes=frozenset({"mine"}))
    assert desk.stop("mine-0", caller) is False  # another worker's, perhaps
    for key in ("secret-0", "none-0"):
        with pytest.raises(Problem, match="no question of yours") as told:
            desk.stop(key, caller)
        assert told.value.status == 404
    assert not desk.served["secret"].state.stops()
    for served in desk.served.values():
        served.close()
