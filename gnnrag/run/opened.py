"""An index that is open for questions: its pipelines by settings, and the thread that runs them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from gnnrag.config import EvaluateConfig
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.run.evaluate import Pipeline, index_settings

T = TypeVar("T")


class Opened:
    """An index at one version, with a pipeline for each choice of settings. It is used in the index's thread."""

    def __init__(self, path: Path | str, config: EvaluateConfig) -> None:
        self.index = Index(path, index_settings(config))
        self.generation = self.index.generation
        self._pipelines: dict[tuple[str, ...], Pipeline] = {}
        self._turns: dict[tuple[str, ...], asyncio.Semaphore] = {}
        self._asked, self._is_retired = 0, False
        self._opening = asyncio.Lock()
        self._pipeline_lock = threading.Lock()  # the thread of a cancelled question goes on opening

    @asynccontextmanager
    async def turn(
        self, dots: Sequence[str], configure: Callable[[Sequence[str]], EvaluateConfig]
    ) -> AsyncIterator[Pipeline]:
        """Yield the pipeline of some settings as soon as fewer than its `concurrency` questions are in progress."""
        async with self._opening:  # in a thread, because missing artefacts are made now
            pipeline = await asyncio.to_thread(self.pipeline, dots, configure)
        async with self._turns.setdefault(tuple(dots), asyncio.Semaphore(pipeline.loop.concurrency)):
            yield pipeline

    def pipeline(self, dots: Sequence[str], configure: Callable[[Sequence[str]], EvaluateConfig]) -> Pipeline:
        """Return the pipeline of some settings; it is built once."""
        with self._pipeline_lock:
            if tuple(dots) not in self._pipelines:
                self._pipelines[tuple(dots)] = Pipeline(configure(dots), self.index)
            return self._pipelines[tuple(dots)]

    async def __aenter__(self) -> Opened:
        self._asked += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._asked -= 1
        if self._is_retired and not self._asked:
            await self.close()

    async def retire(self) -> None:
        """Close as soon as the last question in progress has ended."""
        self._is_retired = True
        if not self._asked:
            await self.close()

    async def close(self) -> None:
        pipelines, self._pipelines = self._pipelines, {}
        self._turns.clear()  # semaphores belong to this thread's event loop
        for pipeline in pipelines.values():
            pipeline.loop.close()
            await pipeline.roles.close()


LIMITS = {f"budget.max_{name}": f"max_{name}" for name in ("calls", "tokens", "seconds", "cost")}


def split_limits(dots: Sequence[str]) -> tuple[list[str], dict[str, float | None]]:
    """Separate the settings that choose parts from the limits of one question, which need no new pipeline."""
    pairs = [dot.partition("=") for dot in dots]
    limits = {LIMITS[key]: json.loads(value) for key, _, value in pairs if key in LIMITS}
    for name, limit in limits.items():
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
            raise ConfigError(f"budget.{name}={limit!r}: must be a number, or null for no limit")
    return [dot for dot, (key, *_) in zip(dots, pairs, strict=True) if key not in LIMITS], limits


class LoopThread:
    """An event loop in its own thread, so that synchronous and asynchronous callers share batches.

    The first job starts it; after `close`, the next job starts it again.
    """

    def __init__(self) -> None:
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
        self._starting = threading.Lock()

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def submit(self, job: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine there; cancelling the future cancels it."""
        with self._starting:
            if self._running is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name="gnnrag-index", daemon=True)
                thread.start()
                self._running = loop, thread
            return asyncio.run_coroutine_threadsafe(job, self._running[0])

    def wait(self, job: Coroutine[Any, Any, T]) -> T:
        future = self.submit(job)
        try:
            return future.result()
        finally:
            future.cancel()  # Ctrl-C

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel all jobs in progress, await `last`, and end the thread."""
        with self._starting:
            running, self._running = self._running, None
        if running is None:
            return

        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await last()

        loop, thread = running
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
