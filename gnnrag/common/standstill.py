"""What this process waits for, and a line about it where nothing has moved for a minute.

What may hang is done in a `waiting`, of a script inside `told_when_still`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_S = 60.0  # without a move until the first line; each further one takes twice as long as that before it
POLL_S = 5.0
_numbers = itertools.count()
_open: dict[int, tuple[str, float]] = {}  # what is waited for, and since when; by number, oldest first
_moved = [0.0]  # when something last began, went on or ended


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Wait for one thing within the block: `call to 127.0.0.1:8000`, `question`."""
    number = next(_numbers)
    moved()
    _open[number] = (what, time.monotonic())
    try:
        yield
    finally:
        del _open[number]
        moved()


def moved() -> None:
    """Say that something goes on."""
    _moved[0] = time.monotonic()


class Watch:
    """Looks for a standstill, and tells of one at growing distances."""

    def __init__(self) -> None:
        self._seen, self._next = 0.0, FIRST_S

    def look(self, now: float) -> str:
        """Return what is to be told at a time of `time.monotonic`; empty where something moves or nothing is due."""
        if _moved[0] != self._seen:
            self._seen, self._next = _moved[0], FIRST_S
        still, waits = now - self._seen, list(_open.values())
        if not waits or still < self._next:
            return ""
        while self._next <= still:
            self._next *= 2
        return f"nothing has moved for {still:.0f} s; waiting for {described(waits, now)}"


def described(waits: list[tuple[str, float]], now: float) -> str:
    """Return in words what is waited for: `12 calls to host:1, the oldest for 75 s; 3 questions, ...`."""
    groups: dict[str, list[float]] = {}
    for what, since in waits:
        groups.setdefault(what, []).append(now - since)
    told = []
    for what, ages in groups.items():
        noun, _, rest = what.partition(" ")
        told.append(
            f"{len(ages)} {noun}{'s' * (len(ages) > 1)}{' ' * bool(rest)}{rest}, the oldest for {max(ages):.0f} s"
        )
    return "; ".join(told)


@contextmanager
def told_when_still(tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block, `tell` is given a line where nothing moves; it is called in a thread of its own."""
    ended, watch = threading.Event(), Watch()

    def work() -> None:
        while not ended.wait(POLL_S):
            if line := watch.look(time.monotonic()):
                tell(line)

    thread = threading.Thread(target=work, name="gnnrag-standstill", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
