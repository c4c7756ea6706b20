"""Being told to stop by a scheduler: by a signal, or by a file where signals do not reach the process.

SLURM signals some time before the limit (`--signal=B:USR1@60`), with `B:` the batch shell alone, and launchers
(`accelerate launch`, `torchrun`) forward none. So the shell may name a file in `GNNRAG_STOP_FILE` beforehand, make it
when the signal comes, and delete it before it starts the command again.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

STOPPED = 75  # exit code of what was told to stop, and goes on when the same command is started again
STOP_FILE = "GNNRAG_STOP_FILE"  # environment variable: the file whose being there says stop
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
AGAIN_S = 20.0  # after which one more signal interrupts again: longer than any orderly end takes (W&B has 15 s)
POLL_S = 1.0  # between two looks at the stop file: one system call each


def remember() -> list[str]:
    """Return a list that names the signals to stop as they come, which do nothing else: for work that asks each step.

    A stop file is seen within `listening` alone.
    """
    received: list[str] = []
    for number in SIGNALS:
        signal.signal(number, lambda signum, frame: received.append(signal.Signals(signum).name))
    return received


@contextmanager
def listening(told: list[str]) -> Iterator[None]:
    """Take the first signal to stop as Ctrl-C: a KeyboardInterrupt, or cancels what `asyncio` runs. Main thread only.

    One that comes `AGAIN_S` seconds later interrupts again, for code may have swallowed the first; so does a stop file
    still there. `told` then says what it was, to tell it from Ctrl-C.
    """
    file = os.environ.get(STOP_FILE)
    ended = threading.Event()
    interrupted = -math.inf

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        is_file = number == signal.SIGUSR1 and file and Path(file).exists()
        told.append(f"the file {file}" if is_file else signal.Signals(number).name)
        if time.monotonic() - interrupted >= AGAIN_S and not ended.is_set():
            interrupted = time.monotonic()
            _interrupt(frame)

    before = {number: signal.signal(number, take) for number in SIGNALS}
    watcher = threading.Thread(target=_watch, args=(Path(file), ended), daemon=True) if file else None
    try:
        with _interruptible():
            if watcher:
                watcher.start()
            yield
    finally:
        ended.set()
        if watcher and watcher.ident:
            watcher.join()  # before the handlers go: the signal would end the process
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(file: Path, ended: threading.Event) -> None:
    """Send this process SIGUSR1 once the file is there, and again as long as that has not ended it."""
    is_told = False
    while not ended.wait(AGAIN_S + POLL_S if is_told else 0.0 if file.exists() else POLL_S):
        if is_told := file.exists():
            os.kill(os.getpid(), signal.SIGUSR1)


def _interrupt(frame: FrameType | None) -> None:
    """Do what Ctrl-C would do here: `asyncio.run` puts a handler of its own, which cancels what it runs."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have Python's handler for Ctrl-C, which `asyncio.run` needs to cancel, where a shell (`&`) has it ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the signal itself stays without effect
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # also forgets one that waits
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
