"""Edits of a large index: seconds of adding and removing, and what readers notice of a writer.

    python tests/benchmarks/bench_edits.py change INDEX CORPUS.jsonl [count=1000] [questions=QUESTIONS.jsonl]
    python tests/benchmarks/bench_edits.py readers INDEX CORPUS.jsonl [count=100] [seconds=600] [readers=4]

`change` adds passages of CORPUS, removes them again, and removes as many of the index's own; with `questions`, the
first 200 are asked by `bm25` and `chg` before, between and after: what is added and removed leaves no trace. `readers`
adds and removes without pause in one process, while others ask, opening the index again whenever it has changed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.errors import GnnragError
from gnnrag.index.build import stored_passages, update_index
from gnnrag.index.index import Index
from gnnrag.index.passages import positions_of
from gnnrag.index.store import Store
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.types import Passage, Query

DEFAULTS = {"count": "1000", "questions": "", "seconds": "600", "readers": "4"}
MARK = "zqwertyround"  # a word that no passage has but those that are added


def passages_of(path: str, count: int) -> list[Passage]:
    """Return the first passages of a corpus, under ids of their own."""
    with Path(path).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]
    return [Passage(f"edit-{i}", row.get("title", ""), row["text"]) for i, row in enumerate(rows)]


def change(root: Path, corpus: str, options: dict[str, str]) -> None:
    """Print the seconds of each change, and whether rankings are those of before."""
    new = passages_of(corpus, int(options["count"]))
    before = rankings(root, options["questions"])
    own = list(positions_of(stored_passages(Store(root))))
    gone = random.Random(1).sample(own, len(new))
    for what, add, remove in (("add", new, []), ("remove", [], [p.id for p in new]), ("remove own", [], gone)):
        wall, spent = time.perf_counter(), time.process_time()
        made = update_index(root, add, remove)
        wall, spent = time.perf_counter() - wall, time.process_time() - spent
        seconds = {name: Store(root).info(name)["seconds"] for name in made}
        print(f"{what} {len(new):,}: {wall:.1f} s, processor {spent:.1f} s, load {os.getloadavg()[0]:.1f}; {seconds}")
        after = rankings(root, options["questions"])
        same = {name: sum(a == b for a, b in zip(before[name], after[name], strict=True)) for name in before}
        print(f"rankings as before the first change: {same} of {len(next(iter(before.values()), []))}", flush=True)


def rankings(root: Path, questions: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the first 20 ids that retrievers give for each question."""
    if not questions:
        return {}
    with Path(questions).open(encoding="utf-8") as lines:
        asked = [Query(json.loads(line)["question"], top_k=20) for line, _ in zip(lines, range(200), strict=False)]
    index = Index(root)
    return {name: [r.ids for r in retriever(index, name).retrieve(asked)] for name in ("bm25", "chg")}


def retriever(index: Index, name: str) -> Any:
    """Open a retriever as it is by default."""
    kind: Any = resolve("retriever", name, RETRIEVERS)
    return kind(index, kind.config_class() if getattr(kind, "config_class", None) else None)


def read(root: Path, corpus: str, until: float, seed: int) -> dict[str, Any]:
    """Ask until a moment; returns the milliseconds of each question, reopening included, and what was wrong."""
    texts = [p.text[:80] for p in passages_of(corpus, 200)]
    draw, waits, errors, mixed, opened, seen = random.Random(seed), [], [], 0, 0, -1
    index, parts = Index(root), {}
    while time.time() < until:
        started = time.perf_counter()
        try:
            if (changed := (root / "manifest.json").stat().st_mtime_ns) != seen:
                index, seen, opened = Index(root), changed, opened + 1
                parts = {name: retriever(index, name) for name in ("bm25", "chg")}
            parts["chg"].retrieve([Query(draw.choice(texts))])
            (found,) = parts["bm25"].retrieve([Query(MARK, top_k=50)])
            rounds = {p.title for p in index.lookup(found.ids) if MARK in p.text}
            mixed += len(rounds) > 1
        except (GnnragError, OSError, ValueError, LookupError) as error:
            errors.append(f"{type(error).__name__}: {error}"[:300])
            break
        waits.append(1000 * (time.perf_counter() - started))
    return {"waits": waits, "errors": errors, "mixed": mixed, "opened": opened}


def readers(root: Path, corpus: str, options: dict[str, str]) -> None:
    """Print how long readers waited while a writer changed the index, and what they met."""
    new = passages_of(corpus, int(options["count"]))
    until = time.time() + float(options["seconds"])
    with get_context("spawn").Pool(int(options["readers"])) as pool:
        asked = [pool.apply_async(read, (root, corpus, until, seed)) for seed in range(int(options["readers"]))]
        changes = 0
        while time.time() < until:
            changes += 1
            update_index(root, [Passage(p.id, f"Round {changes}", f"{MARK} {p.text}") for p in new])
        found = [one.get() for one in asked]
    errors = [error for one in found for error in one["errors"]]
    waits = np.concatenate([one["waits"] for one in found])
    p50, p95, p99 = np.percentile(waits, [50, 95, 99])
    print(
        f"{changes} changes of {len(new)} passages in {options['seconds']} s; {len(waits):,} questions of "
        f"{options['readers']} readers, which opened {sum(one['opened'] for one in found)} times: p50 {p50:.0f}, "
        f"p95 {p95:.0f}, p99 {p99:.0f}, longest {waits.max():.0f} ms; errors {errors}; "
        f"of two generations {sum(one['mixed'] for one in found)}; load {os.getloadavg()[0]:.1f}"
    )


def main(what: str, root: str, corpus: str, *dots: str) -> None:
    """Print what was measured."""
    options = DEFAULTS | dict(dot.split("=", 1) for dot in dots)
    {"change": change, "readers": readers}[what](Path(root), corpus, options)


if __name__ == "__main__":
    main(*sys.argv[1:])
