"""Work beside the event loop, in batches over many questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """Collects the items that coroutines ask for, and passes them to `call` in batches, in its own thread.

    There is no timer: a batch holds what arrived while the one before it ran. `call` returns a result for each item, in
    order, which must not depend on the other items.
    """

    def __init__(self, call: Callable[[Sequence[ItemT]], Sequence[ResultT]], max_batch: int = 32) -> None:
        self.call, self.max_batch = call, max_batch
        self._waiting: list[tuple[ItemT, asyncio.Future[ResultT]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def __call__(self, items: Sequence[ItemT]) -> list[ResultT]:
        """Return one result for each item. An exception is raised only for the items that caused it."""
        futures = [asyncio.get_running_loop().create_future() for _ in items]
        self._waiting += zip(items, futures, strict=True)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        results = await asyncio.gather(*futures, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return cast(list[ResultT], results)

    async def _work(self) -> None:
        await asyncio.sleep(0)  # let every question that is ready put its queries in
        while self._waiting:
            batch, self._waiting = self._waiting[: self.max_batch], self._waiting[self.max_batch :]
            batch = [(item, future) for item, future in batch if not future.done()]  # cancelled meanwhile
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._run, [b[0] for b in batch])
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
            await asyncio.sleep(0)

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
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread = ThreadPoolExecutor(max_workers=1)
