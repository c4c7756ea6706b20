"""Work beside the event loop, in batches over many questions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar, cast

T = TypeVar("T")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Worker:
    """Runs jobs one after the other in its own thread; a job must not touch the state of another question."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def __call__(self, job: Callable[[], T]) -> T:
        """Return the job's result, or raise what it raised."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)


class MicroBatcher(Generic[ItemT, ResultT]):
    """Collects the items that coroutines of any event loop ask for, and passes them to `call` in batches, in a thread.

    A batch holds what is there when it begins, after waiting for `window_s`: what arrived while the one before it ran.
    `call` returns a result or an exception for each item, in order, which must not depend on the other items.
    """

    def __init__(
        self, call: Callable[[Sequence[ItemT]], Sequence[ResultT | Exception]], max_batch: int = 32, window_s: float = 0
    ) -> None:
        self.call, self.max_batch, self.window_s = call, max_batch, window_s
        self._waiting: list[tuple[ItemT, Future[ResultT]]] = []
        self._is_at_work = False
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def __call__(self, items: Sequence[ItemT]) -> list[ResultT]:
        """Return one result for each item. An exception is raised only for the items that caused it."""
        futures: list[Future[ResultT]] = [Future() for _ in items]
        with self._lock:
            self._waiting += zip(items, futures, strict=True)
            begins = bool(items) and not self._is_at_work
            self._is_at_work |= begins
        if begins and self.window_s:
            self._begin()
        elif begins:  # soon, so that every question that is ready puts its queries in
            asyncio.get_running_loop().call_soon(self._begin)
        results = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return cast(list[ResultT], results)

    def _begin(self) -> None:
        with self._lock:  # `close` may be changing the thread
            self._thread.submit(self._work)

    def _work(self) -> None:
        time.sleep(self.window_s)
        with self._lock:
            waiting, self._waiting = self._waiting[: self.max_batch], self._waiting[self.max_batch :]
        batch = [(item, future) for item, future in waiting if future.set_running_or_notify_cancel()]
        results = self._run([item for item, _ in batch]) if batch else []
        for (_, future), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        with self._lock:
            self._is_at_work = bool(self._waiting)
            if self._is_at_work:
                self._thread.submit(self._work)

    def _run(self, items: list[ItemT]) -> list[ResultT | Exception]:
        try:
            results: list[ResultT | Exception] = list(self.call(items))
            if len(results) != len(items):
                raise ValueError(f"{len(results)} results for a batch of {len(items)}")
            return results
        except BaseException as error:  # noqa: BLE001 - one item's failure must not fail its neighbours
            if len(items) > 1:
                return [r for item in items for r in self._run([item])]
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                return [error]
            held = RuntimeError(f"{type(error).__name__} was raised")  # no future holds one of these
            held.__cause__ = error
            return [held]

    def close(self) -> None:
        """Let the thread end once its current batch is done; a later call starts another."""
        with self._lock:
            self._thread.shutdown(wait=False)
            self._thread = ThreadPoolExecutor(max_workers=1)
