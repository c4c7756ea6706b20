"""How well the loop hides a language model's latency. Run from the repository's root:

    python benchmarks/bench_throughput.py data.path=FOLDER [overrides of inference/evaluate.py]

A scripted model answers every prompted role after 200 ms. The first table has 200 questions at concurrency 64, against
the bound of list scheduling (Graham 1966): the calls of all questions by 64, plus those of the longest question. The
last line has BDTR with 16 questions in flight against one at a time (Table 4 of its paper: 5.7 times faster).

Seconds are those of `benchmarks/virtual_clock.py`, as on cores that nobody else uses; `--real` waits, and takes the
real clock. `processor` are the seconds of all threads, with the scoring after the last question.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.virtual_clock import virtual_clock
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import Dataset
from gnnrag.index.index import Index
from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.run.evaluate import Observer, evaluate, load_data_for, open_index
from gnnrag.types import Prediction
from tests.helpers.replies import good, prompt_of, user

LATENCY = 0.2  # seconds
METHODS = ("single", "bdtr", "ircot", "react")
QUESTIONS, WIDE, IN_FLIGHT, SERIAL = 200, 64, 16, 32
DOTS = ["retriever=dense", "roles=prompted", "llm=scripted", "llm_cache=null", f"llm.latency_s={LATENCY}",
        f"data.limit={QUESTIONS}", "llm.default=''"]  # fmt: skip


@dataclass
class Measured:
    """Seconds of a run by its clock, of the processor in it, and of the calls of each question."""

    seconds: float
    processor: float
    calls: list[float]

    def bound(self, concurrency: int) -> float:
        """Return the seconds that list scheduling needs at most."""
        return sum(self.calls) / concurrency + max(self.calls)


class Asks(ScriptedBackend):
    """Answers by rule; queries differ from question to question, so that none is ranked for another."""

    def _choose(self, request: Request) -> str:
        name, text = prompt_of(request), user(request)
        asked = text.rpartition("Question: ")[2].partition("\n")[0]
        title = re.search(r'title="([^"]*)"', text)
        about = f"{asked[:60]} {title[1] if title else ''}"
        if name == "thoughts":
            return f"Fast Thought: Who is meant by {about}?\nSlow Thought: What else is said on {about}?"
        if name == "reason_ircot":
            return f"It is about {about}."
        if name == "agent_react" and "Observation 1" not in text:
            return f"Thought: who?\nAction: Search[{about}]"
        return good(request)


def measure(index: Index, data: Dataset, dots: list[str], concurrency: int, real: bool = False) -> Measured:
    """Run the questions once, records and traces included; the clock runs from the first question to the last."""
    rows: list[Prediction] = []
    ends: list[float] = []

    def done(prediction: Prediction) -> None:
        rows.append(prediction)
        ends.append(time.perf_counter() if real else asyncio.get_running_loop().time())

    with TemporaryDirectory() as folder, nullcontext() if real else virtual_clock():
        config = load_config(EvaluateConfig, None, [*dots, f"concurrency={concurrency}", f"run.root={folder}"])
        starts: list[tuple[float, float]] = []

        def begin(_: int) -> None:
            starts.append((time.perf_counter() if real else time.thread_time(), time.process_time()))

        evaluate(config, Observer(on_start=begin, on_question=done), index=index, data=data)
    assert all(row.error is None for row in rows), next(row.error for row in rows if row.error)
    processor = time.process_time() - starts[0][1]
    return Measured(ends[-1] - starts[0][0], processor, [row.usage["llm_calls"] * LATENCY for row in rows])


def main(arguments: list[str]) -> None:
    """Measure and print."""
    real, dots = "--real" in arguments, [*DOTS, *(a for a in arguments if a != "--real")]
    ScriptedBackend._choose = Asks._choose  # type: ignore[method-assign]
    config = load_config(EvaluateConfig, None, dots)
    data = load_data_for(config)
    index = open_index([config], data.name, data.passages)
    few = replace(data, questions=data.questions[:SERIAL])
    measure(index, few, [*dots, "method=bdtr"], WIDE)  # what is loaded once
    print(f"{'method':10}{'calls':>7}{'seconds':>9}{'bound':>9}{'ratio':>7}{'processor':>11}")
    for method in METHODS:
        found = measure(index, data, [*dots, f"method={method}"], WIDE, real)
        bound, calls = found.bound(WIDE), round(sum(found.calls) / LATENCY)
        print(
            f"{method:10}{calls:7}{found.seconds:9.2f}{bound:9.2f}{found.seconds / bound:7.2f}{found.processor:11.2f}"
        )
    one, many = (measure(index, few, [*dots, "method=bdtr"], n, real).seconds for n in (1, IN_FLIGHT))
    print(f"\nbdtr, {SERIAL} questions: one at a time {one:.2f} s, {IN_FLIGHT} in flight {many:.2f} s", end=", ")
    print(f"{one / many:.1f} times faster")


if __name__ == "__main__":
    from running import run

    run(lambda: main(sys.argv[1:]), __doc__)
