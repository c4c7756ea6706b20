"""How `chg` opens and answers at scale, exactly and near the seeds, in one run.

    python inference/clone.py path=../shared/data/2wiki out=data/made/2wiki-100k clones=16
    python inference/index.py build data.path=data/made/2wiki-100k index.path=indexes/100k index.embedder.model=hash \
        index.text.language=blank:en index.stages=passages,text,hierarchy,lexical,embeddings
    python tests/benchmarks/bench_scale.py indexes/100k data/made/2wiki-100k [QUESTIONS]
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

from gnnrag.index.index import Index
from gnnrag.retrievers.chg import CHGConfig, CHGRetriever
from gnnrag.types import Query, Ranking


def ask(index: Index, precision: str, texts: list[str]) -> list[Ranking]:
    """Answer each query alone, after a first pass that fills the caches of links, and print times."""
    before = time.process_time()
    retriever = CHGRetriever(index, CHGConfig(precision=precision))
    made = time.process_time() - before
    retriever.retrieve([Query(text) for text in texts])
    found, walls, works = [], [], []
    for text in texts:
        wall, work = time.perf_counter(), time.process_time()
        found += retriever.retrieve([Query(text)])
        walls.append(1000 * (time.perf_counter() - wall))
        works.append(1000 * (time.process_time() - work))
    shown = " / ".join("{:.1f}, {:.1f}".format(*np.percentile(row, [50, 95])) for row in (walls, works))
    print(f"{precision}: made in {made:.2f} s; ms a query, p50 and p95, wall / processor: {shown}")
    return found


def main(root: str, data: str, count: int = 100) -> None:
    """Print times, memory and agreement."""
    rows = [json.loads(line) for line in (Path(data) / "questions.dev.jsonl").open(encoding="utf-8")]
    rows = rows[:: max(1, len(rows) // count)][:count]
    texts = [row["question"] for row in rows]
    before = time.process_time()
    index = Index(root)
    assert index.titles
    print(f"{len(index.ids):,} passages, load {os.getloadavg()[0]:.1f}; opened in {time.process_time() - before:.1f} s")
    exact, fast = (ask(index, precision, texts) for precision in ("exact", "fast"))
    for depth in (5, 200):
        shared = [len({*a.ids[:depth]} & {*b.ids[:depth]}) / depth for a, b in zip(exact, fast, strict=True)]
        print(f"share of the first {depth} in common: {np.mean(shared):.3f}")
    for name, rankings in (("exact", exact), ("fast", fast)):
        golds = [set(row["gold"]) for row in rows]
        print(
            name,
            f"Recall@5 {np.mean([len(g & {*r.ids[:5]}) / len(g) for g, r in zip(golds, rankings, strict=True)]):.4f}",
        )
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB resident at most")


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
