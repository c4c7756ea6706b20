"""A scheduler asks a run to stop by SIGTERM or SIGUSR1: what is in flight is finished and saved, nothing new begins."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gnnrag.errors import GnnragError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StoppedError(GnnragError):
    """The run was asked to stop; the same command continues it."""


@contextmanager
def stop_flag() -> Iterator[threading.Event]:
    """Yield an event that the signals set, for loops to read; outside of the main thread nothing sets it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
