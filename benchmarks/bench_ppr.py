"""Speed of batched personalised PageRank against igraph's PRPACK on a corpus's hierarchy graph, in the same run.

python benchmarks/bench_ppr.py --data ../shared/data/2wiki
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import igraph
import numpy as np
from running import run, timed

from gnnrag.datasets.base import load_passages
from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.text.analyse import analyse

TOLERANCE = 1e-6


def main() -> None:
    """Print the ratio and the largest difference; exit with an error if either misses its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a corpus, as data.path names it")
    parser.add_argument("--batch", type=int, default=64, help="seed vectors in a batch")
    parser.add_argument("--queries", type=int, default=16, help="how many of them igraph solves too")
    parser.add_argument("--rounds", type=int, default=7, help="repetitions; the fastest counts, for both")
    parser.add_argument("--min-ratio", type=float, default=30.0, help="fail below this ratio")
    args = parser.parse_args()

    graph = build_hierarchy(analyse(load_passages(args.data).passages))
    reset = make_reset(graph, args.batch)
    peer = igraph.Graph(n=graph.num_nodes, edges=graph.edges)
    # igraph converts the reset to doubles on every call; plain lists spare it numpy's slow iteration.
    columns = [reset[:, j].tolist() for j in range(args.queries)]
    print(f"{graph.num_nodes:,} nodes, {len(graph.edges):,} edges, batch {args.batch}, damping 0.5, all nodes returned")

    expected: list[Any] = []
    walk = PageRankOperator(graph.adjacency)
    ours, theirs = float("inf"), float("inf")
    for _ in range(args.rounds):  # alternate, so that a busy machine slows both
        seconds, scores = timed(lambda: walk.solve(reset, TOLERANCE))
        ours = min(ours, seconds / args.batch)
        seconds, expected = timed(lambda: [solve_by_igraph(peer, column) for column in columns])
        theirs = min(theirs, seconds / args.queries)
    difference = float(np.abs(scores[:, : args.queries] - np.array(expected).T).max())
    exact = walk.solve(reset[:, : args.queries], 1e-12)
    print(f"igraph prpack     {theirs * 1e3:8.3f} ms a query")
    print(
        f"gnnrag            {ours * 1e3:8.3f} ms a query   ratio {theirs / ours:.1f}   max difference {difference:.1e}"
    )
    print(f"gnnrag, tol 1e-12: max difference {np.abs(exact - np.array(expected).T).max():.1e}")
    if theirs / ours < args.min_ratio or difference > TOLERANCE:
        sys.exit(f"missed: ratio of at least {args.min_ratio:g} and difference of at most {TOLERANCE:g} expected")


def make_reset(graph: HierarchyGraph, batch: int) -> np.ndarray:
    """Seeds as a retriever makes them: some mass on every passage, more on ten phrases. Shape (num_nodes, batch)."""
    rng = np.random.default_rng(0)
    reset = np.zeros((graph.num_nodes, batch))
    reset[: graph.num_passages] = 0.01 * rng.random((graph.num_passages, batch))
    for column in range(batch):
        reset[rng.integers(graph.first_phrase, graph.num_nodes, size=10), column] = rng.random(10)
    return reset


def solve_by_igraph(graph: igraph.Graph, reset: list[float]) -> list[float]:
    """One column by PRPACK."""
    return graph.personalized_pagerank(directed=False, damping=0.5, reset=reset, implementation="prpack")


if __name__ == "__main__":
    run(main, __doc__)
