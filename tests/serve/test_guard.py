"""The guard by itself: how many requests pass in a second."""

from __future__ import annotations

import pytest

from gnnrag.serve.asking import Problem
from gnnrag.serve.guard import Guard
from gnnrag.serve.settings import LOCAL, ServeConfig


async def nothing(scope: object, receive: object, send: object) -> None:
    """Stand for the application."""


def test_whoever_goes_on_too_fast_is_refused_what_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("gnnrag.serve.guard.time.monotonic", lambda: now[0])
    guard = Guard(nothing, ServeConfig(rate=10), [LOCAL])
    passed = []
    for _ in range(200):  # twenty a second, for ten seconds
        now[0] += 0.05
        try:
            guard._pace("somebody")
            passed.append(now[0])
        except Problem as problem:
            assert problem.status == 429 and problem.retry_s == 1
    assert 100 <= len(passed) <= 110 and passed[-1] > 9.8
