"""What the stages of an index take, and would take of more passages: two samples, extended by measured growth."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnnrag.config import IndexConfig, read_plain, to_plain
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.index.build import build_index
from gnnrag.index.plan import closure, prompted_writers
from gnnrag.index.store import Store
from gnnrag.types import Passage

# Time grows as n to this power; from 3,000 to 30,000 passages, offline, `static` (docs/benchmarks.md, Growth).
EXPONENTS = {"hierarchy": 1.1, "message_graph": 1.07, "entity_graph": 1.1, "knowledge": 1.05}
OTHERS, DOUBT = 1.03, 0.05  # of other stages; how far exponents may be off
LEAST = 100  # passages of which something can be said


@dataclass(frozen=True)
class Cost:
    """What a stage took in a process of its own, which read its inputs first."""

    seconds: float  # of the processor
    resident: int  # bytes of memory at most
    stored: int  # bytes of its artefact


@dataclass(frozen=True)
class Forecast:
    """What a stage would take."""

    stage: str
    seconds: float  # of the processor
    low: float  # as much, if all of it grows a little slower
    high: float  # as much, if it grows a little faster, and nothing of what the sample took is paid but once
    resident: int
    stored: int


def measure(root: Path, passages: Sequence[Passage], config: IndexConfig, stage: str) -> Cost:
    """Build a stage, whose inputs are there, in a process of its own. Raises GnnragError where it cannot be built."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, root, passages, to_plain(config), stage).result()


def _measured(root: Path, passages: Sequence[Passage], plain: Mapping[str, Any], stage: str) -> Cost:
    config = read_plain(IndexConfig, plain)
    before = time.process_time()
    try:
        build_index(root, passages, config, [stage])
    except GnnragError as error:  # some of its kinds do not travel between processes
        raise GnnragError(str(error)) from None
    files = Store(root).manifest["stages"][stage]["files"].values()
    return Cost(time.process_time() - before, _peak(), sum(file["bytes"] for file in files))


def _peak() -> int:
    """Return the most bytes that this process has held."""
    try:
        # What getrusage tells of a new process is at least what its parent holds.
        with Path("/proc/self/status").open(encoding="ascii") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forecasts(
    passages: Sequence[Passage], config: IndexConfig, stages: Sequence[str], count: int, sample: int
) -> Iterator[Forecast]:
    """Yield what each stage, and each that they need, would take of `count` passages such as these, in building order.

    A sample of the passages, spread evenly, and a quarter of it are indexed in a folder that is deleted. Raises
    ConfigError for fewer than LEAST passages, and where a stage asks a model, which would be asked in earnest.
    """
    names = closure(stages, config)
    for name in names:
        if writers := prompted_writers(name, config):
            raise ConfigError(
                f"the stage {name} asks a model ({', '.join(writers)}), and a plan measures what this machine does: "
                "plan with index.extract.method=offline index.writers=offline; gnnrag index estimate counts calls"
            )
    sizes = (min(sample, len(passages)) // 4, min(sample, len(passages)))
    if sizes[1] < LEAST:
        raise ConfigError(f"{sizes[1]} passages say nothing of how an index grows: a plan needs {LEAST} or more")
    with TemporaryDirectory() as folder:
        spread = [[passages[i * len(passages) // size] for i in range(size)] for size in sizes]
        for name in names:
            costs = [measure(Path(folder) / str(len(some)), some, config, name) for some in spread]
            yield extended(name, sizes, (costs[0], costs[1]), count)


def extended(stage: str, sizes: tuple[int, int], costs: tuple[Cost, Cost], count: int) -> Forecast:
    """Return what a stage would take of `count` passages, by what it took of two numbers of them."""
    small, large = costs
    power = EXPONENTS.get(stage, OTHERS)

    def seconds(power: float) -> float:
        """What grows is the difference, what does not (libraries, a model that is loaded) is paid once."""
        rate = max(large.seconds - small.seconds, 0.0) / (sizes[1] ** power - sizes[0] ** power)
        return rate * count**power + max(0.0, large.seconds - rate * sizes[1] ** power)

    def line(small: int, large: int) -> int:
        return large + max(0, large - small) * (count - sizes[1]) // (sizes[1] - sizes[0])

    return Forecast(
        stage,
        seconds(power),
        seconds(power - DOUBT),
        max(seconds(power + DOUBT), large.seconds * (count / sizes[1]) ** (power + DOUBT)),
        line(small.resident, large.resident),
        line(small.stored, large.stored),
    )
