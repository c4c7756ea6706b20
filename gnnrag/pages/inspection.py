"""What an index holds and what is wrong with it: sizes, graphs and their hubs, gaps in the extraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from gnnrag.extract.base import Extraction
from gnnrag.graphs.knowledge import hubs_of_everything
from gnnrag.index.index import Index
from gnnrag.index.stages import CACHE

_TOP = 10  # hubs and passages that are named


@dataclass(frozen=True)
class Stage:
    name: str
    facts: dict[str, Any]
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Hub:
    name: str
    kind: str
    degree: int


@dataclass(frozen=True)
class GraphSummary:
    """The shape of a graph without loops and repeated edges."""

    name: str
    nodes: int
    edges: int
    isolated: int
    components: int
    mean_degree: float
    hubs: tuple[Hub, ...]
    joins_everything: tuple[Hub, ...] = ()  # the first of those that join more than a tenth of all others


@dataclass(frozen=True)
class Inspection:
    root: str
    source: dict[str, Any]
    stages: tuple[Stage, ...]
    unfinished: dict[str, int]  # journals of stages that a kill cut off, in bytes
    graphs: tuple[GraphSummary, ...]
    extraction: dict[str, int]  # passages, and where the extraction left gaps; empty without one


def inspect_index(root: Path) -> Inspection:
    """Read an index and return what it holds. Raises ArtefactError where there is no index."""
    index, stages = Index(root), []
    for name in index.fingerprint:
        record = index.record(name)
        size = sum(file.stat().st_size for file in index.folder(name).rglob("*") if file.is_file())
        stages.append(Stage(name, record["counts"], size, record["seconds"]))
    journals = {p.stem: p.stat().st_size for p in sorted((root / CACHE).glob("*.jsonl"))}
    gaps = {}
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
    source = dict(index.manifest["source"])
    return Inspection(str(root), source, tuple(stages), journals, tuple(_graphs(index)), gaps)


def summarise_graph(
    name: str, num_nodes: int, edges: np.ndarray, describe: Callable[[int], tuple[str, str]]
) -> GraphSummary:
    """Return the shape of a graph of `num_nodes` nodes, isolated ones included; `describe` gives name and kind."""
    low, high = edges.min(axis=1, initial=num_nodes), edges.max(axis=1, initial=-1)
    codes = np.unique((low.astype(np.int64) * max(num_nodes, 1) + high)[low != high])
    first, second = np.divmod(codes, max(num_nodes, 1))
    degrees = np.bincount(np.concatenate([first, second]), minlength=num_nodes)
    matrix = sparse.coo_array((np.ones(len(codes), dtype=np.int8), (first, second)), shape=(num_nodes, num_nodes))
    components = csgraph.connected_components(matrix, directed=False)[0] if num_nodes else 0

    def hubs(nodes: np.ndarray) -> tuple[Hub, ...]:
        return tuple(Hub(*describe(i), int(degrees[i])) for i in nodes[:_TOP].tolist() if degrees[i])

    return GraphSummary(
        name,
        num_nodes,
        len(codes),
        int((degrees == 0).sum()),
        int(components),
        round(2 * len(codes) / max(num_nodes, 1), 2),
        hubs(np.argsort(-degrees, kind="stable")),
        hubs(hubs_of_everything(degrees)),
    )


def _graphs(index: Index) -> list[GraphSummary]:
    summaries = []
    if index.has("knowledge"):
        known = index.knowledge
        summaries.append(
            summarise_graph(
                "knowledge", known.num_entities, known.pairs[0], lambda i: (known.names[i], known.types[i] or "entity")
            )
        )
    if index.has("entity_graph"):
        facts = index.entity_graph.graph
        ends, names = facts.fact_entities, facts.entities
        summaries.append(summarise_graph("entity_graph", facts.num_entities, ends, lambda i: (names[i], "entity")))
    if index.has("hierarchy"):
        tree = index.hierarchy

        def describe(node: int) -> tuple[str, str]:
            if node < tree.first_sentence:
                return index.passages[node].title or index.ids[node], "passage"
            if node < tree.first_phrase:
                return tree.sentences[node - tree.first_sentence], "sentence"
            return tree.phrases[node - tree.first_phrase], "phrase"

        summaries.append(summarise_graph("hierarchy", tree.num_nodes, tree.edges, describe))
    return summaries
