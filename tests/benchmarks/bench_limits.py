"""Functions that must stay linear in what they read, each against the seconds that it may take at most.

python tests/benchmarks/bench_limits.py [--data ../shared/data/2wiki]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from running import run, timed

from gnnrag.datasets.base import load_passages
from gnnrag.datasets.canonical import load_passages as load_lines
from gnnrag.datasets.chunk import chunk_text
from gnnrag.errors import DataError
from gnnrag.graphs.hierarchy import build_hierarchy
from gnnrag.metrics.statistics import bootstrap_interval
from gnnrag.text.analyse import analyse

UNITS = ("Word after word. ", "\n", "a\n\n", ". ", '."', "( ", "- x\n", "A. ", "\n \t")


def main() -> None:
    """Print a line for each; exit with an error where one takes longer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a corpus of about 6,000 passages for the graph of its sentences and phrases")
    missed = []
    for name, limit, work in limits(parser.parse_args().data):
        seconds, _ = timed(work, time.process_time)
        print(f"{name:60} {seconds:6.2f} s of at most {limit:g} s", flush=True)
        missed += [name] if seconds > limit else []
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


def limits(data: str | None) -> Iterator[tuple[str, float, Callable[[], object]]]:
    """Yield what is measured, its limit in seconds of the processor, and the call."""
    for unit in UNITS:
        yield (
            f"cut 400,000 characters of {unit!r} into passages",
            10,
            lambda u=unit: chunk_text(u * (400_000 // len(u))),
        )
    values = np.random.default_rng(0).random(1000)
    yield "bootstrap the mean of 1,000 questions", 0.5, lambda: bootstrap_interval(values)
    yield "refuse a line of 50 MB", 2, long_line
    if data:
        texts = analyse(load_passages(data).passages)
        yield f"passage-sentence-phrase graph of {len(texts):,} passages", 0.5, lambda: build_hierarchy(texts)


def long_line() -> None:
    """Read a corpus whose one line is far beyond what a line may have."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        Path(file.name).write_bytes(b'{"id": "big", "text": "' + b"x" * 50_000_000)
        try:
            load_lines(Path(file.name))
        except DataError:
            return
    raise AssertionError("it was read")


if __name__ == "__main__":
    run(main, __doc__)
