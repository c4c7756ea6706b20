"""How a benchmark runs: data that are missing end it with one line and exit code 2; the seconds of a call."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gnnrag.errors import GnnragError  # noqa: E402

Result = TypeVar("Result")


def run(main: Callable[[], None], usage: str | None) -> None:
    """Call `main`; of an input that is missing or broken say which, how to get it, and the usage from the docstring."""
    try:
        main()
    except FileNotFoundError as error:
        problem = f"{error.filename}: does not exist; data/README.md says how to get the benchmarks"
    except GnnragError as error:
        problem = str(error)
    else:
        return
    command = next((line.strip() for line in (usage or "").splitlines() if line.strip().startswith("python ")), "")
    print(f"{problem}\nusage: {command}", file=sys.stderr)
    sys.exit(2)


def timed(work: Callable[[], Result], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Result]:
    """Return the seconds of a call, by the clock or of the processor (`time.process_time`), and its result."""
    start = clock()
    result = work()
    return clock() - start, result
