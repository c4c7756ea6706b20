"""Milliseconds of one query of `retriever=gfm` in a batch of 8, by part; the bar is 150 on 2wiki's graph.

    python tests/benchmarks/bench_gfm.py INDEX QUESTIONS.jsonl [--checkpoint DIR]

INDEX is an index with the stages of a network of mode `node`, such as an evaluation with retriever=gfm leaves. Without
a checkpoint the network has random weights, which takes as long. Queries are embedded anew each time: none is cached.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from running import run

from gnnrag.gnn import GNNConfig
from gnnrag.gnn.checkpoint import Checkpoint, save_checkpoint
from gnnrag.gnn.features import DEFAULT_NODE, EDGE_FEATURES, encoder_record
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.subgraph import join
from gnnrag.index.index import Index
from gnnrag.parts import ready
from gnnrag.retrievers.gfm import GFMRetriever
from gnnrag.types import Query

BATCH, BATCHES = 8, 8


def main() -> None:
    """Print medians over batches; exit with an error if a query takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("questions")
    parser.add_argument("--checkpoint")
    parser.add_argument("--max-ms", type=float, default=150.0, help="fail above this, embedding included")
    args = parser.parse_args()

    index = Index(args.index)
    with Path(args.questions).open(encoding="utf-8") as lines:
        texts = [json.loads(line)["question"] for line in lines][: BATCH * (BATCHES + 1)]
    folder = args.checkpoint or random_network(index, Path(tempfile.mkdtemp()))
    started = time.perf_counter()
    retriever = ready(GFMRetriever(folder), index=index)
    retriever.retrieve([Query("a first query that loads everything")])
    print(f"loading: {time.perf_counter() - started:.2f} s; {torch.get_num_threads()} threads")
    whole, parts = [], {"embedding": [], "subgraph": [], "network": []}  # type: ignore[var-annotated]
    for number in range(1, BATCHES + 1):
        batch = texts[number * BATCH : (number + 1) * BATCH]
        started = time.perf_counter()
        retriever.retrieve([Query(text) for text in batch])
        whole.append(time.perf_counter() - started)
        index.embedder._cache.clear()  # type: ignore[attr-defined]
        started = time.perf_counter()
        index.embedder.encode(batch, is_query=True)
        parts["embedding"].append(time.perf_counter() - started)
        started = time.perf_counter()
        found = retriever.scorer.graphs.prepare(batch)
        parts["subgraph"].append(time.perf_counter() - started)
        started = time.perf_counter()
        with torch.no_grad():
            for part in found:
                retriever.scorer.model(join([part]))
        parts["network"].append(time.perf_counter() - started)
    nodes, edges = len(found[0].nodes), len(found[0].source)
    print(f"one query in a batch of {BATCH}: {1e3 * median(whole) / BATCH:.1f} ms; e.g. {nodes} nodes, {edges} edges")
    for name, seconds in parts.items():
        print(f"  {name}: {1e3 * median(seconds) / BATCH:.1f} ms")
    if 1e3 * median(whole) / BATCH > args.max_ms:
        sys.exit(f"more than {args.max_ms:g} ms")


def random_network(index: Index, folder: Path) -> str:
    """Save a network of the default architecture, untrained, and return where."""
    config = GNNConfig(features=list(DEFAULT_NODE), edge_features=list(EDGE_FEATURES))
    model = QueryGNN(config, index.passage_vectors.shape[1])
    save_checkpoint(folder, Checkpoint(model, encoder=encoder_record(index.embedder)))
    return str(folder)


if __name__ == "__main__":
    run(main, __doc__)
