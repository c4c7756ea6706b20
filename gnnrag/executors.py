"""Map tasks in this process, in processes of this machine, or on a Ray cluster.

    @dataclass(frozen=True)
    class Embed:
        model: str
        gpus: float = 1.0                    # share of a GPU that a worker takes, where there are GPUs

        @cached_property
        def embedder(self): ...              # made in the worker, on its first batch

        def __call__(self, texts): return self.embedder.encode(texts)

    for position, vectors in make_executor(config.executor).map(Embed("e5"), batches): ...

The work is pickled and sent to each worker once, and kept there. Batches are read as workers become free.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from multiprocessing.connection import Connection
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Ge

from gnnrag.devices import visible_gpus
from gnnrag.errors import ConfigError, GnnragError, described

B = TypeVar("B")
R = TypeVar("R")
RETRIES = 3  # of a batch whose worker was killed


@dataclass
class ExecutorConfig:
    """Where the expensive steps run: embedding, extraction and reports of an index, shards of an evaluation."""

    name: Literal["local", "processes", "ray"] = "local"
    workers: Annotated[int, Ge(1)] | None = None  # null: one for each core, or for each GPU where the work asks for one
    address: str | None = None  # of a Ray cluster; null: RAY_ADDRESS, a cluster that runs here, else one is started
    # Of an evaluation:
    shards: Annotated[int, Ge(1)] | None = None  # parts of the questions; null: as they are, else one for each worker
    gpus: Annotated[float, Ge(0)] = 0.0  # share of a GPU that each worker takes, for networks and models in it


class Executor:
    """Runs work on batches: this one in this process, one after the other."""

    def __init__(self, settings: ExecutorConfig) -> None:
        self.settings = settings

    def workers(self, gpus: float = 0.0) -> int:
        """Return how many workers there are for work that takes this share of a GPU."""
        return 1

    def map(self, work: Callable[[B], R], batches: Iterable[B]) -> Iterator[tuple[int, R]]:
        """Yield the position of each batch with its result, in order of completion.

        `work` and what it takes and gives can be pickled. Its exceptions are raised here, and end all workers. A batch
        whose worker was killed is done again. Raises GnnragError where this happens more than `RETRIES` times.
        """
        for position, batch in enumerate(batches):
            yield position, work(batch)

    def _needed(self, work: Any, batches: Iterable[Any]) -> int:
        count = self.workers(getattr(work, "gpus", 0.0))
        return max(1, min(count, len(batches))) if isinstance(batches, Sized) else count


def make_executor(settings: ExecutorConfig) -> Executor:
    """Return the executor of some settings. Raises ConfigError for Ray where it is not installed."""
    return {"local": Executor, "processes": ProcessExecutor, "ray": RayExecutor}[settings.name](settings)


# ---------------------------------------------------------------------------------------------------- in each worker
def _attempt(work: Callable[[Any], Any], batch: Any) -> tuple[Any, Exception | None]:
    """Return the result of a batch, or the exception; raised, it would arrive as another type on some executors."""
    try:
        return work(batch), None
    except Exception as error:  # noqa: BLE001 - the driver raises it
        error.add_note(f"in worker {os.getpid()}: {traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001 - whatever an exception does when it is copied
            return None, RuntimeError(described(error))
        return None, error


def _result(outcome: tuple[Any, Exception | None]) -> Any:
    result, error = outcome
    if error is not None:
        raise error
    return result


# -------------------------------------------------------------------------------------------- processes of this machine
class ProcessExecutor(Executor):
    """Spawned processes of this machine, each with its share of the cores and of the GPUs."""

    def workers(self, gpus: float = 0.0) -> int:
        if self.settings.workers:
            return self.settings.workers
        return int(len(_groups(gpus)) / min(gpus, 1)) if _groups(gpus) else _cores()

    def map(self, work: Callable[[B], R], batches: Iterable[B]) -> Iterator[tuple[int, R]]:
        count, groups = self._needed(work, batches), _groups(getattr(work, "gpus", 0.0))
        devices = [",".join(groups[i % len(groups)]) if groups else None for i in range(count)]
        sent, threads = pickle.dumps(work), max(1, _cores() // count)
        numbered, killed = enumerate(batches), 0
        waiting: deque[tuple[int, B]] = deque()
        while True:
            # However the driver ends, this pipe closes with it, and that ends the workers.
            theirs, mine = multiprocessing.Pipe(duplex=False)
            context = multiprocessing.get_context("spawn")
            queue = context.SimpleQueue()
            for device in devices:
                queue.put(device)
            running: dict[Future[Any], tuple[int, B]] = {}
            pool = ProcessPoolExecutor(count, context, _begin, (sent, threads, queue, theirs))
            try:
                while True:
                    waiting.extend(islice(numbered, max(0, 2 * count - len(running) - len(waiting))))
                    if not waiting and not running:
                        return
                    while waiting:
                        running[pool.submit(_attempt_here, waiting[0][1])] = waiting[0]
                        waiting.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        outcome = future.result()
                        position, _ = running.pop(future)
                        killed = 0
                        yield position, _result(outcome)
            except BrokenProcessPool as error:
                killed += 1
                if killed > RETRIES:
                    positions = ", ".join(str(position) for position, _ in running.values())
                    problem = f"a worker was killed {killed} times in a row, with one of the batches {positions}"
                    raise GnnragError(f"{problem}; out of memory? give a smaller executor.workers") from error
                waiting.extend(running.values())
            finally:
                mine.close()
                pool.shutdown(cancel_futures=True)
                theirs.close()


_SENT: list[bytes] = []  # the work of a worker process


def _begin(work: bytes, threads: int, devices: Any, driver: Connection) -> None:
    """Set up a worker process. The work is unpickled later, so that the libraries that it imports see their share."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C: the driver ends the workers
    threading.Thread(target=_end_with, args=(driver,), daemon=True).start()
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    if (device := devices.get()) is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    _SENT.append(work)


def _end_with(driver: Connection) -> None:
    driver.poll(None)  # nothing is ever sent: this waits for the end of the pipe
    os._exit(1)


@cache
def _work() -> Callable[[Any], Any]:
    return pickle.loads(_SENT[0])


def _attempt_here(batch: Any) -> tuple[Any, Exception | None]:
    return _attempt(lambda rows: _work()(rows), batch)  # an error in unpickling counts as one of the work


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _groups(gpus: float) -> list[Sequence[str]]:
    """Return the GPUs of this machine by as many as a worker takes; none where it takes none."""
    if not gpus:
        return []
    devices, each = visible_gpus(), max(1, round(gpus))
    return [devices[i : i + each] for i in range(0, len(devices) - each + 1, each)]


# ------------------------------------------------------------------------------------------------------- a Ray cluster
class RayExecutor(Executor):
    """Actors of a Ray cluster. The workers read the paths of the driver, so both see one file system."""

    def __init__(self, settings: ExecutorConfig) -> None:
        super().__init__(settings)
        try:
            import ray
        except ImportError as error:
            raise ConfigError("executor.name=ray needs Ray: pip install 'gnnrag[ray]'") from error
        self._ray: Any = ray

    def workers(self, gpus: float = 0.0) -> int:
        if self.settings.workers:
            return self.settings.workers
        resources = self._connect()
        if (share := self._share(gpus)) > 0:
            return int(resources["GPU"] / share)
        return max(1, int(resources.get("CPU", 1)))

    def map(self, work: Callable[[B], R], batches: Iterable[B]) -> Iterator[tuple[int, R]]:
        self._connect()
        count = self._needed(work, batches)
        actor_class = self._ray.remote(
            num_cpus=1, num_gpus=self._share(getattr(work, "gpus", 0.0)), max_restarts=-1, max_task_retries=RETRIES
        )(_Actor)
        sent = self._ray.cloudpickle.dumps(work)  # takes what a script or a notebook defines, too
        folder, numbered = os.getcwd(), enumerate(batches)
        actors = [actor_class.remote(sent, folder) for _ in range(count)]
        # An actor gets its first batch only once it has started: the cluster may have no room for some for long.
        running: dict[Any, tuple[Any, int | None]] = {actor.start.remote(): (actor, None) for actor in actors}
        is_read = False
        try:
            while not is_read or any(position is not None for _, position in running.values()):
                (done, *_), _ = self._ray.wait(list(running))
                actor, position = running.pop(done)
                try:
                    outcome = self._ray.get(done)
                except self._ray.exceptions.RayActorError as error:
                    problem = f"a worker was killed more than {RETRIES} times with batch {position}; out of memory?"
                    raise GnnragError(problem) from error
                batch = next(numbered, None)
                if batch is None:
                    is_read = True
                else:
                    running[actor.attempt.remote(batch[1])] = actor, batch[0]
                if position is not None:
                    yield position, _result(outcome)
        finally:
            for actor in actors:
                self._ray.kill(actor)

    def _connect(self) -> dict[str, float]:
        """Connect to the cluster; returns its resources."""
        if not self._ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to Ray's makers
            self._ray.init(address=self.settings.address, logging_level=logging.WARNING)
        return self._ray.cluster_resources()

    def _share(self, gpus: float) -> float:
        """Return the share of a GPU that a worker takes on this cluster: 0 where it has not so many."""
        return gpus if self._connect().get("GPU", 0) >= gpus else 0.0


class _Actor:
    """A worker on Ray, which restarts it where it was killed and gives it its batch again."""

    def __init__(self, work: bytes, folder: str) -> None:
        if os.path.isdir(folder):
            os.chdir(folder)  # relative paths mean what they do in the driver
        self._sent = work

    def start(self) -> None:
        """Return as soon as this worker runs."""

    def attempt(self, batch: Any) -> tuple[Any, Exception | None]:
        return _attempt(lambda rows: self._work(rows), batch)

    @cached_property
    def _work(self) -> Callable[[Any], Any]:
        return pickle.loads(self._sent)
