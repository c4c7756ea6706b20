"""What an index holds and what is wrong with it: sizes, graphs and their hubs, gaps in the extraction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from gnnrag.extract.base import Extraction
from gnnrag.index.artefacts import ARTEFACTS
from gnnrag.index.index import Index
from gnnrag.index.tables import ValueTable

_TOP = 10  # hubs that are named


def inspect_index(root: Path | str) -> dict[str, Any]:
    """Return what an index holds, ready for JSON: `stages`, `tables`, `graphs` (`summarise_graph`), gaps of the
    `extraction`, and what is `stale`: artefacts of earlier passages or settings alone, and how many values of texts
    making them anew would have to compute (null: not known before).

    Raises ArtefactError where there is no index.
    """
    index, stages, gaps = Index(root), [], {}
    for name in index.fingerprint:
        record = index.record(name)
        size = sum(file.stat().st_size for file in index.folder(name).rglob("*") if file.is_file())
        stages.append({"name": name, "counts": record["counts"], "bytes": size, "seconds": record["seconds"]})
    if index.has("extraction"):
        counts = index.record("extraction")["counts"]
        extractions: list[Extraction] = index.read("extraction")
        empty = sum(not (e.triples or e.relations or e.hyperedges) for e in extractions)
        gaps = {
            "passages": len(extractions),
            "malformed": counts["malformed triples"],
            "without_record": counts["passages without a record"],
            "without_triples": empty,
        }
    return {
        "root": str(root), "stages": stages, "tables": _tables(index), "stale": _stale(index),
        "graphs": _graphs(index), "extraction": gaps,
    }  # fmt: skip


def _tables(index: Index) -> list[dict[str, Any]]:
    tables = []
    for path in sorted(index.local.glob("*.lance")):
        dataset = lance.dataset(str(path))
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        tables.append({"name": path.stem, "rows": dataset.count_rows(), "bytes": size, "versions": dataset.version})
    return tables


def _stale(index: Index) -> list[dict[str, Any]]:
    names = {path.name.rpartition("-")[0] for path in index.local.iterdir() if path.suffix != ".lance"}
    stale = []
    for name in (name for name in ARTEFACTS if name in names and not index.has(name)):
        missing = None
        if name in ("text", "embeddings"):  # their tables are keyed by what a passage says
            tables = [ValueTable(str(path)) for path in index.local.glob(f"{name}-*.lance")]
            missing = min((len(table.missing(index.table.keys.to_pylist())) for table in tables), default=None)
        stale.append({"name": name, "values to compute": missing})
    return stale


def summarise_graph(
    name: str, num_nodes: int, edges: np.ndarray, describe: Callable[[int], tuple[str, str]]
) -> dict[str, Any]:
    """Return the shape of a graph of `num_nodes` nodes, isolated ones included, without loops and repeated edges.

    `describe` gives the name and kind of a node.
    """
    low, high = edges.min(axis=1, initial=num_nodes), edges.max(axis=1, initial=-1)
    codes = np.unique((low.astype(np.int64) * max(num_nodes, 1) + high)[low != high])
    first, second = np.divmod(codes, max(num_nodes, 1))
    degrees = np.bincount(np.concatenate([first, second]), minlength=num_nodes)
    matrix = sparse.coo_array((np.ones(len(codes), dtype=np.int8), (first, second)), shape=(num_nodes, num_nodes))

    def hubs(nodes: np.ndarray) -> list[dict[str, Any]]:
        described = [(*describe(node), int(degrees[node])) for node in nodes[:_TOP].tolist() if degrees[node]]
        return [{"name": name, "kind": kind, "degree": degree} for name, kind, degree in described]

    return {
        "name": name,
        "nodes": num_nodes,
        "edges": len(codes),
        "isolated": int((degrees == 0).sum()),
        "components": int(csgraph.connected_components(matrix, directed=False)[0]) if num_nodes else 0,
        "mean_degree": round(2 * len(codes) / max(num_nodes, 1), 2),
        "hubs": hubs(np.argsort(-degrees, kind="stable")),
    }


def _graphs(index: Index) -> list[dict[str, Any]]:
    graphs = []
    if index.has("knowledge"):
        knowledge = index.knowledge
        kinds = [kind or "entity" for kind in knowledge.types]
        describe = list(zip(knowledge.names, kinds, strict=True)).__getitem__
        graphs.append(summarise_graph("knowledge", knowledge.num_entities, knowledge.pairs[0], describe))
    if index.has("entity_graph"):
        facts = index.entity_graph.graph
        describe = [(name, "entity") for name in facts.entities].__getitem__
        graphs.append(summarise_graph("entity_graph", facts.num_entities, facts.fact_entities, describe))
    if index.has("hierarchy"):
        tree = index.hierarchy
        nodes = [(passage.title or passage.id, "passage") for passage in index.passages]
        nodes += [(text, "sentence") for text in tree.sentences] + [(name, "phrase") for name in tree.phrases]
        graphs.append(summarise_graph("hierarchy", tree.num_nodes, tree.edges, nodes.__getitem__))
    return graphs
