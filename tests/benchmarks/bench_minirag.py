"""Speed of MiniRAG's walks as arrays against listing them one by one, in the same run, on a graph with hubs.

python tests/benchmarks/bench_minirag.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
from running import run, timed

from gnnrag.common.tables import Lists
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.rendering import Edges
from gnnrag.retrievers.minirag.walks import MANY, Votes, WalkGraph


def main() -> None:
    """Print seconds and the ratio; exit with an error if the ratio or the seconds a query miss their bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=43_000)
    parser.add_argument("--edges", type=int, default=120_000)
    parser.add_argument("--seeds", type=int, default=40, help="half of them the largest hubs")
    parser.add_argument("--fan-out", type=int, default=200, help="0 for all")
    parser.add_argument("--rounds", type=int, default=1, help="repetitions; the fastest counts, for both")
    parser.add_argument("--min-ratio", type=float, default=50.0, help="fail below this ratio")
    parser.add_argument("--max-seconds", type=float, default=1.0, help="fail above this for all seeds")
    args = parser.parse_args()

    edges = Edges(make_graph(args.nodes, args.edges))
    walks = WalkGraph(edges, args.fan_out or None)
    rng = np.random.default_rng(1)
    hubs = np.argsort(-edges.degrees, kind="stable")[: args.seeds // 2].tolist()
    seeds = [*hubs, *rng.choice(args.nodes, args.seeds - len(hubs), replace=False).tolist()]
    answers = rng.choice(args.nodes, args.nodes // 10, replace=False).tolist()
    votes = Votes.of(answers, rng.choice(len(edges), 300, replace=False).tolist(), (args.nodes, len(edges)))
    cosines = rng.random(edges.graph.num_passages)
    count = sum(len(walks.walks(seed)) for seed in seeds)
    print(f"{args.nodes:,} nodes, {len(edges):,} edges, largest degree {edges.degrees.max():,}, {count:,} walks")

    ours, theirs = float("inf"), float("inf")
    found: Any = None
    expected: Any = None
    for _ in range(args.rounds):  # alternate, so that a busy machine slows both
        seconds, found = timed(lambda: walks.evidence(seeds, votes, cosines).toarray(), time.process_time)
        ours = min(ours, seconds)
        seconds, expected = timed(lambda: [listed(walks, seed, votes, cosines) for seed in seeds], time.process_time)
        theirs = min(theirs, seconds)
    is_equal = all(
        row[list(counts)].tolist() == list(counts.values()) and np.count_nonzero(row) == len(counts)
        for row, counts in zip(found, expected, strict=True)
    )
    print(f"one by one {theirs:8.3f} s   as arrays {ours:8.3f} s   ratio {theirs / ours:.1f}   equal: {is_equal}")
    if not is_equal or theirs / ours < args.min_ratio or ours > args.max_seconds:
        sys.exit(f"missed: equal results, a ratio of {args.min_ratio:g} and {args.max_seconds:g} s expected")


def make_graph(nodes: int, edges: int) -> KnowledgeGraph:
    """Random relations of heads chosen with weights 1 / rank; a tail in five is chosen so too, which joins hubs."""
    rng = np.random.default_rng(0)
    weights = 1.0 / (np.arange(nodes) + 5.0)
    heads, hubs = rng.choice(nodes, (2, edges), p=weights / weights.sum())
    tails = np.where(rng.random(edges) < 0.2, hubs, rng.integers(0, nodes, edges))
    ends = np.stack([heads, tails], axis=1).astype(np.int32)
    held: list[set[int]] = [set() for _ in range(nodes)]
    stated = rng.integers(0, nodes // 3, edges)
    for (head, tail), passage in zip(ends.tolist(), stated.tolist(), strict=True):
        held[head].add(passage)
        held[tail].add(passage)
    names = [f"n{i}" for i in range(nodes)]
    empty, none = [""] * nodes, np.zeros(0)
    return KnowledgeGraph(
        num_passages=nodes // 3,
        names=names,
        types=empty,
        descriptions=empty,
        aliases=[()] * nodes,
        entity_passages=Lists.of([sorted(row) for row in held]),
        ends=ends,
        labels=["r"] * edges,
        texts=[""] * edges,
        weights=rng.random(edges),
        relation_passages=Lists.of([[p] for p in stated.tolist()]),
        hyper_texts=(),
        hyper_scores=none,
        hyper_members=Lists.of([]),
        hyper_importance=none,
        hyper_passages=Lists.of([]),
    )


def listed(graph: WalkGraph, start: int, votes: Votes, cosines: np.ndarray) -> Counter[int]:
    """The evidence of one start, walk by walk, as MiniRAG's code goes about it, with our caps."""
    edges, passages = graph.edges, graph.graph.entity_passages
    nearest: dict[int, list[int]] = {}

    def of(node: int) -> list[int]:
        if node not in nearest:
            rows = passages[node].tolist()
            if len(rows) > MANY:
                rows = sorted(rows, key=lambda p: (-cosines[p], p))[: max(MANY, len(rows) // 2)]
            nearest[node] = rows
        return nearest[node]

    is_answer, rank = votes.is_answer.tolist(), votes.rank.tolist()
    total: Counter[int] = Counter()
    own = passages[start].tolist()
    for middle, near in zip(graph.to[start].tolist(), graph.by[start].tolist(), strict=True):
        onward = zip(graph.to[middle].tolist(), graph.by[middle].tolist(), strict=True)
        for walk in [(middle, end, near, far) for end, far in onward if end != start] or [(middle, near)]:
            nodes, by = (walk[:2], walk[2:]) if len(walk) == 4 else (walk[:1], walk[1:])
            voted = [(rank[edge], edge) for edge in by if rank[edge] < len(edges)]
            weight = 1 + is_answer[start] + sum(is_answer[n] for n in nodes) + len(voted)
            for passage in [*own, *(p for n in nodes for p in of(n))]:
                total[passage] += weight
            for passage in edges.passages[min(voted)[1]].tolist() if voted else ():
                total[passage] += weight
    return total or Counter(own)


if __name__ == "__main__":
    run(main, __doc__)
