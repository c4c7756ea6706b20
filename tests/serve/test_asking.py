"""The desk by itself: what it follows, and whose questions it stops."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from gnnrag.serve.asking import Asking, Desk, Problem, Served
from gnnrag.serve.rest import EventStream
from gnnrag.serve.settings import LOCAL, Caller, read_service
from tests.helpers.each import each
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


@each("sent", [0, 1])
def test_a_client_that_leaves_before_the_first_event_stops_its_question(sent: int) -> None:
    """The reply begins, and the connection is lost: nobody listens to the events, not even once."""
    stopped: list[bool] = []
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if (message["type"] == "http.response.body") == bool(sent):
            left.set()
            raise OSError

    async def chunks(asking: Asking) -> AsyncIterator[str]:
        yield "first"
        async for _ in asking.events():
            yield "more"

    async def ask() -> None:
        asking = Asking("mine-0", LOCAL)
        asking.task = asyncio.create_task(asyncio.sleep(60))  # type: ignore[arg-type]
        with suppress(ClientDisconnect, OSError):
            await EventStream(chunks(asking), asking)({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
        await asyncio.sleep(0)
        stopped.append(asking.task.cancelled())

    asyncio.run(ask())
    assert stopped == [True]
