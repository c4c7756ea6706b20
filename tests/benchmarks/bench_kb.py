"""Loading a knowledge base as an index without vectors, and what is served from it.

python tests/benchmarks/bench_kb.py --data ../shared/data/metaqa
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from running import run

from gnnrag.config import EmbedderConfig, ExtractConfig, IndexConfig
from gnnrag.datasets import load_dataset
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import grow, k_shortest_paths
from gnnrag.index.build import build_index
from gnnrag.index.index import Index

STAGES = ("passages", "extraction", "knowledge")


def main() -> None:
    """Print seconds by stage and milliseconds by question; exit with an error where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with kb.txt and N-hop.questions.dev.jsonl")
    parser.add_argument("--max-s", type=float, default=30.0, help="fail above these CPU seconds of loading")
    parser.add_argument("--max-ms", type=float, default=5.0, help="fail above this median for one question")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cpu, wall = time.process_time(), time.perf_counter()
        graph = load(args.data, Path(folder))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        size = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{graph.num_entities:,} entities, {graph.num_relations:,} triples, {size / 1e6:.0f} MB on disk")
    print(f"loaded in {cpu:.1f} s CPU, {wall:.1f} s on the clock; peak memory {peak:.0f} MB")
    medians = [serve(graph, args.data, hops) for hops in (1, 2, 3)]
    if cpu > args.max_s or max(medians) > args.max_ms:
        sys.exit(f"missed: at most {args.max_s:g} s CPU and {args.max_ms:g} ms expected")


def load(data: Path, root: Path) -> KnowledgeGraph:
    """Return the knowledge graph, from an index built in `root`."""
    start = time.process_time()
    passages = load_dataset(data, limit=1).passages
    print(f"{'read':12} {time.process_time() - start:6.2f} s CPU, {len(passages):,} passages")
    config = IndexConfig(embedder=EmbedderConfig(model="hash"), extract=ExtractConfig("kb", str(data / "kb.txt")))
    for stage in STAGES:
        start = time.process_time()
        build_index(root, passages, config, [stage])
        print(f"{stage:12} {time.process_time() - start:6.2f} s CPU")
    return Index(root).knowledge


def serve(graph: KnowledgeGraph, data: Path, hops: int) -> float:
    """Print milliseconds for the neighbourhood of a question and k=3 paths to one answer; return the median of both."""
    adjacency, seconds = graph.adjacency, []
    for question in load_dataset(data, f"{hops}-hop.dev", limit=300).questions:
        anchor, target = graph.position[question.extra["anchor"]], graph.position[question.extra["nodes"][0]]
        start = time.perf_counter()
        near = grow(adjacency, [anchor], 3)
        paths = k_shortest_paths(adjacency, near.labels(anchor), target, 3)
        seconds.append(time.perf_counter() - start)
        if not paths:
            sys.exit(f"missed: no path to an answer of {question.id}")
    ms = [f"{v * 1e3:.3f}" for v in np.percentile(seconds, [50, 95, 100])]
    print(f"{hops}-hop: 3-hop mask and k=3 paths {' / '.join(ms)} ms (median / 95th percentile / largest)")
    return float(np.median(seconds)) * 1e3


if __name__ == "__main__":
    run(main, __doc__)
