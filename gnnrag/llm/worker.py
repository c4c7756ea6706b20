"""A model in a thread of its own: coroutines of any event loop hand it requests, and none of them blocks its loop."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from gnnrag.cluster.standstill import moved
from gnnrag.errors import GnnragError, LLMError
from gnnrag.llm.base import Reply
from gnnrag.llm.tickets import Job, Model, Ticket

logger = logging.getLogger(__name__)
T = TypeVar("T")
_GOODBYE_S = 2.0  # how long the end of the program waits for the thread


class ModelThread:
    """Loads a model on the first request, in a thread, and answers there.

    Args:
        load: makes the model; called once. Its failure is the answer to every request, so that a run of 500 questions
            does not try 500 times.
        window_s: before each `advance`, wait so long for further requests. Answered coroutines come back with their
            next request within milliseconds, and are worth waiting for where a batch cannot grow once it runs.
    """

    def __init__(self, load: Callable[[], Model], window_s: float = 0.0) -> None:
        self._load, self._window_s = load, window_s
        self._inbox: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    async def ask(self, job: Job) -> Reply:
        """Answer one job.

        Raises:
            LLMError: no reply. ContextLengthError: the prompt is too long. ConfigError: the model cannot be loaded.
        """
        ticket = Ticket(job)
        self._start()
        self._inbox.put(ticket)
        return await asyncio.wrap_future(ticket.future)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                # The thread knows the inbox, not this object: when the last backend is gone, so is the model.
                arguments = (self._inbox, self._load, self._window_s)
                self._thread = threading.Thread(target=_serve, args=arguments, name="gnnrag-llm", daemon=True)
                weakref.finalize(self, _end, self._inbox, self._thread)
                self._thread.start()


_SHARED: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
_SHARING = threading.Lock()


def shared(key: Hashable, make: Callable[[], T]) -> T:
    """Return the object of this key that some backend of the process still holds, else a new one.

    Weights fill the memory of the process, whoever asks for them; two roles with one model must not load it twice.
    """
    with _SHARING:
        found = _SHARED.get(key)
        if found is None:
            found = _SHARED[key] = make()
        return found


def _end(inbox: queue.SimpleQueue[Ticket | None], thread: threading.Thread) -> None:
    inbox.put(None)
    if thread is not threading.current_thread():
        thread.join(_GOODBYE_S)


def _serve(inbox: queue.SimpleQueue[Ticket | None], load: Callable[[], Model], window_s: float) -> None:
    """The thread: wait, gather, work, until told to end."""
    model: Model | None = None
    failure: Exception | None = None
    open_tickets: list[Ticket] = []
    while True:
        is_idle = model is None or not model.is_busy
        arrived, is_ending = _gather(inbox, window_s, is_idle)
        if is_ending:
            return
        open_tickets = [t for t in (*open_tickets, *arrived) if not t.is_over]
        try:
            if failure is not None:
                raise failure
            model = model or _loaded(load)
            model.take(arrived)
            if model.is_busy:
                model.advance()
                moved()
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            failure = error if isinstance(error, GnnragError) else LLMError(f"{type(error).__name__}: {error}")
            model = None
            for ticket in open_tickets:
                ticket.finish(failure)


def _loaded(load: Callable[[], Model]) -> Model:
    started = time.perf_counter()
    model = load()
    logger.info("model loaded in %.1f s", time.perf_counter() - started)
    return model


def _gather(inbox: queue.SimpleQueue[Ticket | None], window_s: float, is_idle: bool) -> tuple[list[Ticket], bool]:
    """Return the tickets that arrive within the window, and whether to end; with nothing to do, wait for the first."""
    tickets: list[Ticket] = []
    until = time.monotonic() + window_s
    while True:
        try:
            if is_idle and not tickets:
                ticket = inbox.get()
                until = time.monotonic() + window_s
            else:
                left = until - time.monotonic()
                ticket = inbox.get(timeout=left) if left > 0 else inbox.get_nowait()
        except queue.Empty:
            return tickets, False
        if ticket is None:
            return tickets, True
        tickets.append(ticket)
