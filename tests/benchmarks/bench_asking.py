"""Resident memory while many questions are asked at once of one `Index`, and over batches of further questions.

    python tests/benchmarks/bench_asking.py --data ../shared/data/musique --index indexes/musique [--at-once 200]

Each batch asks the questions of the set with a number behind them, so that no ranking of an earlier batch is of use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from pathlib import Path

from gnnrag import Index


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


async def ask(index: Index, questions: list[str], how: dict[str, str]) -> None:
    async def one(question: str) -> str | None:
        return (await index.aask(question, **how)).error

    assert not any(await asyncio.gather(*(one(question) for question in questions)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--method", default="bdtr")
    parser.add_argument("--retriever", default="dense")
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--batches", type=int, default=5)
    given = parser.parse_args()
    how = {"method": given.method, "retriever": given.retriever}
    lines = (given.data / "questions.dev.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines]
    with Index.build(given.data, given.index, **how) as index:
        asyncio.run(ask(index, questions[:1], how))
        before, most, done = resident(), [0.0], threading.Event()

        def watch() -> None:
            while not done.wait(0.01):
                most[0] = max(most[0], resident())

        watcher = threading.Thread(target=watch)
        watcher.start()
        print(f"after one question: {before:.0f} MiB")
        for batch in range(given.batches):
            most[0], started = 0.0, time.perf_counter()
            numbered = [f"{questions[n % len(questions)]} ({batch}-{n})" for n in range(given.at_once)]
            asyncio.run(ask(index, numbered, how))
            seconds = time.perf_counter() - started
            more, then = most[0] - before, resident() - before
            print(f"{given.at_once} more: at most +{more:.0f}, then +{then:.0f} MiB, {seconds:.1f} s")
        done.set()
        watcher.join()


if __name__ == "__main__":
    main()
