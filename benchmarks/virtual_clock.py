"""A clock that shows what a run takes on a machine that nobody else uses: the loop's own work, threads, and waiting."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_POLL = 0.001  # seconds of real time between two looks at work in threads


class _Selector(selectors.DefaultSelector):
    """Waits for nothing but files and threads; the time until the next timer is skipped."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        """See `BaseSelector`."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if timeout is not None and not self.loop.in_threads:
            self.loop.skipped += timeout
            return super().select(0)
        before = time.process_time() - time.thread_time()
        end, events = self.loop.time() + (timeout or 0.0), super().select(_POLL)
        while True:
            # While the loop waits for threads, time is what they work.
            now = time.process_time() - time.thread_time()
            self.loop.skipped, before = self.loop.skipped + now - before, now
            if events or (timeout is not None and self.loop.time() >= end):
                return events
            events = super().select(_POLL)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop by this clock: its own processor time, that of threads while it waits for them, skipped waiting.

    Attributes:
        skipped: seconds besides its own processor time.
        in_threads: jobs in threads.
    """

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.skipped, self.in_threads = 0.0, 0
        super().__init__(selector)

    def time(self) -> float:
        """Return the seconds of this clock; only for the loop's own thread."""
        return time.thread_time() + self.skipped

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """See `AbstractEventLoop`."""
        future = super().run_in_executor(executor, func, *args)
        self.in_threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: Any) -> None:
        self.in_threads -= 1


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualLoop()


@contextmanager
def virtual_clock() -> Iterator[None]:
    """Let `asyncio.run` use loops by the virtual clock."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_Policy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)
