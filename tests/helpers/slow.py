"""A question that goes on until it is cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from gnnrag.methods.baselines import Single


def slow_questions(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Have `single` wait for a minute; returns what is set when a question has begun and when it has ended."""
    began, ended = threading.Event(), threading.Event()

    async def select(self: Single, state: Any) -> Any:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    monkeypatch.setattr(Single, "select", select)
    return began, ended
