"""How an index of any size opens and answers: seconds, memory, recall; `exact` beside the default in one run.

    gnnrag clone path=../shared/data/2wiki out=data/made/2wiki-1m clones=164
    gnnrag index build data.path=data/made/2wiki-1m index.path=indexes/1m index.embedder.model=static \\
        index.text.language=blank:en index.stages=titles,lexical,embeddings
    python tests/benchmarks/bench_scale.py indexes/1m data/made/2wiki-1m [questions=100] [retrievers=bm25,dense]

`exact=true` answers exactly, too; `precision=fast` has small graphs walked near the seeds; `peers=true` times bm25s,
faiss and igraph on the same passages. Questions are drawn over all clones alike. Processor time is that of all threads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.index.index import Index
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.types import Query, Ranking

DEFAULTS = {"questions": "100", "retrievers": "bm25,dense,chg", "exact": "false", "precision": "auto", "peers": "false"}


def resident() -> int:
    """Return the megabytes that this process holds now, mapped files that it has touched included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what `work` does, its milliseconds and those of the processor."""
    wall, spent = time.perf_counter(), time.process_time()
    found = work()
    return found, 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - spent)


def retriever(index: Index, name: str, precision: str) -> Any:
    """Open a retriever, of this precision where it has such a setting."""
    kind: Any = resolve("retriever", name, RETRIEVERS)
    config = kind.config_class() if getattr(kind, "config_class", None) else None
    if hasattr(config, "precision"):
        config.precision = precision
    elif precision == "exact" and hasattr(config, "search"):
        config.search = "flat"
    return kind(index, config)


def ask(index: Index, name: str, precision: str, texts: list[str], golds: list[set[str]]) -> list[Ranking]:
    """Answer each query alone, then 64 at once, and print times, memory and recall."""
    part, made, _ = timed(lambda: retriever(index, name, precision))
    found, rows = [], []
    for text in texts:
        (ranking,), wall, spent = timed(lambda text=text: part.retrieve([Query(text)]))  # type: ignore[misc]
        found.append(ranking)
        rows.append((wall, spent))
    batch = (texts * (64 // len(texts) + 1))[:64]
    _, wall, spent = timed(lambda: part.retrieve([Query(text) for text in batch]))
    (wall50, spent50), (wall95, spent95) = np.percentile(rows, [50, 95], axis=0)
    recall = np.mean([len(gold & {*r.ids[:5]}) / len(gold) for gold, r in zip(golds, found, strict=True)])
    print(
        f"{name} {precision}: made in {made:,.0f} ms; one query, wall (processor): p50 {wall50:.1f} ({spent50:.1f}), "
        f"p95 {wall95:.1f} ({spent95:.1f}) ms; of 64 at once: {wall / 64:.1f} ({spent / 64:.1f}) ms; "
        f"Recall@5 {recall:.4f}; {resident():,} MB resident",
        flush=True,
    )
    return found


def peers(index: Index, texts: list[str]) -> None:
    """Print what others take for the same: bm25s as released, faiss over all vectors, igraph's PRPACK on the graph."""
    import bm25s
    import faiss
    import igraph

    contents = [passage.content for passage in index.passages]
    model = bm25s.BM25()
    _, wall, spent = timed(lambda: model.index(bm25s.tokenize(contents, show_progress=False), show_progress=False))
    print(f"bm25s: indexed in {wall / 1000:.1f} ({spent / 1000:.1f}) s; {resident():,} MB resident", flush=True)
    flat: Any = faiss.IndexFlatIP(index.passage_vectors.shape[1])
    flat.add(np.ascontiguousarray(index.passage_vectors))
    vectors = index.embedder.encode(texts, is_query=True)
    near, size = index.hierarchy.neighbours, index.hierarchy.num_nodes
    ends = np.stack([np.repeat(np.arange(size), near.sizes), near.values], axis=1)
    graph, wall, spent = timed(lambda: igraph.Graph(size, ends[ends[:, 0] < ends[:, 1]]))
    print(f"igraph: {size:,} nodes in {wall / 1000:.1f} ({spent / 1000:.1f}) s; {resident():,} MB resident", flush=True)

    def walk(number: int) -> object:
        seeds = flat.search(vectors[number : number + 1], 50)[1][0].tolist()
        return graph.personalized_pagerank(damping=0.5, reset_vertices=seeds, implementation="prpack")

    asks: dict[str, Callable[[int], object]] = {
        "bm25s": lambda number: model.retrieve(
            bm25s.tokenize(texts[number], show_progress=False), k=200, show_progress=False
        ),
        "faiss flat": lambda number: flat.search(vectors[number : number + 1], 200),
        "igraph PRPACK, 50 seeds": walk,
    }
    for name, ask_one in asks.items():
        rows = [timed(partial(ask_one, number))[1:] for number in range(min(len(texts), 20))]
        (wall, spent) = np.percentile(rows, 50, axis=0)
        print(f"{name}: p50 {wall:.1f} ({spent:.1f}) ms a query", flush=True)


def main(root: str, data: str, *dots: str) -> None:
    """Print what was measured."""
    options = DEFAULTS | dict(dot.split("=", 1) for dot in dots)
    rows = [json.loads(line) for line in (Path(data) / "questions.dev.jsonl").open(encoding="utf-8")]
    rows = rows[:: max(1, len(rows) // int(options["questions"]))][: int(options["questions"])]
    texts, golds = [row["question"] for row in rows], [set(row["gold"]) for row in rows]
    before = resident()
    index, wall, spent = timed(lambda: Index(root))
    for part in ("passages", "position", "hierarchy", "titles", "layout", "lexical", "nearest"):
        _, more, work = timed(lambda part=part: getattr(index, part))  # type: ignore[misc]
        wall, spent = wall + more, spent + work
    print(
        f"{len(index.ids):,} passages, load {os.getloadavg()[0]:.1f}; opened in {wall:,.0f} ms "
        f"({spent:,.0f} of the processor); {before:,} MB before, {resident():,} MB resident"
    )
    index.embedder.encode(texts, is_query=True)  # the embedder's own start and work are not the index's
    for name in options["retrievers"].split(","):
        fast = ask(index, name, options["precision"], texts, golds)
        if options["exact"] == "true":
            exact = ask(index, name, "exact", texts, golds)
            for depth in (5, 100):
                pairs = zip(fast, exact, strict=True)
                shared = [len({*a.ids[:depth]} & {*b.ids[:depth]}) / depth for a, b in pairs]
                print(f"{name}: share of the first {depth} in common: {np.mean(shared):.3f}")
    if options["peers"] == "true":
        peers(index, texts)


if __name__ == "__main__":
    main(*sys.argv[1:])
