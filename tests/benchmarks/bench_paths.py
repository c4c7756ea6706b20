"""Speed of k shortest loopless paths against networkx, and of PathRAG's candidates and flow, in the same run.

python tests/benchmarks/bench_paths.py [--data ../shared/data/metaqa]

Without data: a made graph of 43,000 nodes and 120,000 edges with hubs of thousands of neighbours.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from running import run, timed

from gnnrag.graphs.knowledge import Adjacency
from gnnrag.graphs.paths import grow, k_shortest_paths, label_anchor, paths_between_seeds
from gnnrag.retrievers.pathrag import reliable_paths

HOPS, K = 3, 3
Pairs = dict[str, list[tuple[int, int]]]


def main() -> None:
    """Print the tables; exit with an error where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with kb.txt and N-hop.questions.dev.jsonl")
    parser.add_argument("--questions", type=int, default=300, help="questions of each file, the first ones")
    parser.add_argument("--peer", type=int, default=100, help="how many pairs of each file networkx solves too")
    parser.add_argument("--max-ms", type=float, default=5.0, help="fail above this median, labels included")
    parser.add_argument("--min-ratio", type=float, default=3.0, help="fail below this ratio of medians")
    parser.add_argument("--max-cpu", type=float, default=1.0, help="fail above these CPU seconds for 40 seeds")
    args = parser.parse_args()

    ends, num_nodes, pairs = read(args.data, args.questions) if args.data else made()
    seconds, adjacency = timed(lambda: Adjacency(ends, num_nodes))
    edges = len(adjacency.distinct_neighbours) // 2
    print(f"{num_nodes:,} nodes, {len(ends):,} relations, {edges:,} pairs, largest degree {adjacency.degree.max():,}")
    print(f"adjacency built in {seconds * 1e3:.0f} ms")
    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(e for e in ends.tolist() if e[0] != e[1])
    missed = [m for name, some in pairs.items() for m in compare(adjacency, graph, name, some, args)]
    missed += seeds_in_time(adjacency, args.max_cpu)
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def compare(
    adjacency: Adjacency, graph: nx.Graph, name: str, pairs: list[tuple[int, int]], args: argparse.Namespace
) -> list[str]:
    """Print one table of milliseconds, median / 95th percentile / largest, and return what was missed."""
    anchors = list(dict.fromkeys(anchor for anchor, _ in pairs))
    for hops in (1, 2, 3):
        near = [timed(lambda a=anchor, h=hops: grow(adjacency, [a], h)) for anchor in anchors]
        sizes = [len(found) for _, found in near]
        print(
            f"{name:6} {hops}-hop mask {describe([s for s, _ in near])} ms, {np.median(sizes):.0f} nodes at the median"
        )

    def ours(anchor: int, target: int) -> list[Any]:
        return k_shortest_paths(adjacency, label_anchor(adjacency, anchor, HOPS), target, K)

    mine = [timed(lambda a=a, t=t: ours(a, t)) for a, t in pairs]
    step = max(1, len(pairs) // args.peer)
    sample = list(range(0, len(pairs), step))
    peers = [timed(lambda a=a, t=t: bounded(graph, a, t)) for a, t in (pairs[i] for i in sample)]
    ratio = float(np.median([s for s, _ in peers]) / np.median([mine[i][0] for i in sample]))
    print(f"{name:6} k={K} within {HOPS} hops, labels included: gnnrag {describe([s for s, _ in mine])} ms")
    print(f"{name:6} by networkx ({len(sample)} of the pairs): {describe([s for s, _ in peers])} ms, ratio {ratio:.1f}")
    wrong = sum(lengths(mine[i][1]) != lengths(found) for i, (_, found) in zip(sample, peers, strict=True))
    median = float(np.median([s for s, _ in mine])) * 1e3
    checks = [
        (wrong, f"{name}: {wrong} pairs with other lengths than networkx"),
        (median > args.max_ms, f"{name}: median of {median:.2f} ms"),
        (ratio < args.min_ratio, f"{name}: ratio of {ratio:.1f}"),
    ]
    return [message for failed, message in checks if failed]


def bounded(graph: nx.Graph, anchor: int, target: int) -> list[Any]:
    """Return up to K shortest paths of at most HOPS edges by networkx, which has no bound on their length."""
    found = []
    for path in islice(nx.shortest_simple_paths(graph, anchor, target), K):
        if len(path) > HOPS + 1:
            break
        found.append(path)
    return found


def seeds_in_time(adjacency: Adjacency, max_cpu: float) -> list[str]:
    """Print the CPU seconds of PathRAG's candidates and flow for 40 seeds, and return what was missed."""
    rng = np.random.default_rng(0)
    by_degree = np.argsort(-adjacency.degree, kind="stable")
    choices = {
        "the largest hubs": by_degree[:40],
        "above the median": rng.choice(by_degree[: adjacency.num_nodes // 2], 40, replace=False),
        "any node": rng.choice(adjacency.num_nodes, 40, replace=False),
    }
    missed = []
    for name, seeds in choices.items():
        for flow in ("released", "paper"):
            start = time.process_time()
            pairs = paths_between_seeds(adjacency, seeds.tolist(), HOPS, cap=50, hub_degree=500)
            kept = reliable_paths(pairs, flow)  # type: ignore[arg-type]
            cpu = time.process_time() - start
            paths = sum(map(len, pairs.values()))
            print(f"PathRAG, 40 seeds, {name:16} flow={flow:8}: {cpu:.3f} s CPU, {paths:,} paths, {len(kept)} kept")
            if cpu > max_cpu:
                missed.append(f"{name}, flow={flow}: {cpu:.2f} s CPU")
    return missed


def read(folder: Path, limit: int) -> tuple[np.ndarray, int, Pairs]:
    """Return ends, number of nodes, and the (anchor, answer) pairs of the dev questions of each file."""
    ids: dict[str, int] = {}
    ends = []
    with (folder / "kb.txt").open(encoding="utf-8") as lines:
        for line in lines:
            head, _, tail = line.rstrip("\n").split("|")
            ends.append((ids.setdefault(head, len(ids)), ids.setdefault(tail, len(ids))))
    pairs: Pairs = {}
    for hop in (1, 2, 3):
        with (folder / f"{hop}-hop.questions.dev.jsonl").open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in islice(lines, limit)]
        pairs[f"{hop}-hop"] = [(ids[row["anchor"]], ids[answer]) for row in rows for answer in row["answers"]]
    return np.array(ends, dtype=np.int32), len(ids), pairs


def made() -> tuple[np.ndarray, int, Pairs]:
    """Return a graph whose degrees fall off as a power law, and pairs 1 to 3 hops apart."""
    rng = np.random.default_rng(0)
    n, m = 43_000, 120_000
    weights = np.arange(1, n + 1) ** -0.85
    tails = rng.choice(n, m, p=weights / weights.sum())
    ends = np.stack([rng.integers(0, n, m), tails], axis=1).astype(np.int32)
    adjacency = Adjacency(ends, n)
    pairs: Pairs = {"made": []}
    for anchor in rng.choice(n, 300, replace=False).tolist():
        near = grow(adjacency, [anchor], HOPS)
        others = near.nodes[near.nodes != anchor]
        pairs["made"] += [(anchor, int(t)) for t in rng.choice(others, min(3, len(others)), replace=False)]
    return ends, n, pairs


def describe(seconds: list[float]) -> str:
    """Return median / 95th percentile / largest in milliseconds."""
    return " / ".join(f"{v * 1e3:.3f}" for v in np.percentile(seconds, [50, 95, 100]))


def lengths(paths: list[Any]) -> list[int]:
    """Return the number of edges of each path."""
    return [len(path) - 1 for path in paths]


if __name__ == "__main__":
    run(main, __doc__)
