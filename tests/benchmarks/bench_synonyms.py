"""Seconds and recall of the search for synonyms in cells, against the exact one, on the entity graph of an index.

python tests/benchmarks/bench_synonyms.py INDEX [--names 10000 20000 40000]

Both searches are made again from the index's vectors. Without `--names`, all of them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from running import run

from gnnrag.graphs import synonyms
from gnnrag.graphs.synonyms import num_directions, num_probes
from gnnrag.index.index import Index


def main() -> None:
    """Print a line per number of names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--names", type=int, nargs="+", help="numbers of names, spread over all")
    args = parser.parse_args()
    index = Index(args.index)
    graph, rules = index.entity_graph.graph, index.config.graph
    for count in args.names or [graph.num_entities]:
        chosen = np.unique(np.linspace(0, graph.num_entities - 1, count).astype(np.int64))
        names = [graph.entities[i] for i in chosen]
        vectors = np.ascontiguousarray(index.entity_graph.entity_vectors[chosen])
        found, seconds = [], []
        for limit in (len(names), 0):
            synonyms.EXACT_UP_TO = limit
            started = time.process_time()
            result = synonyms.find_synonyms(names, vectors, rules.synonym_threshold, rules.synonym_max)
            seconds.append(time.process_time() - started)
            found.append(result.pairs[:, 0].astype(np.int64) * len(names) + result.pairs[:, 1])
        recall = np.isin(found[0], found[1]).mean() if len(found[0]) else 1.0
        directions = num_directions(len(names))
        print(
            f"{len(names):,} names, {len(found[0]):,} edges: exact {seconds[0]:.2f} s, in {directions:,} x "
            f"{directions:,} cells, {num_probes(directions)} each, {seconds[1]:.2f} s, recall {recall:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    run(main, __doc__)
