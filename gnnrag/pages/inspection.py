"""What an index holds and what is wrong with it: sizes, graphs and their hubs, gaps in the extraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from gnnrag.extract.base import Extraction
from gnnrag.graphs.knowledge import hubs_of_everything
from gnnrag.index.artefacts import CACHE
from gnnrag.index.index import Index

QUANTILES = (0, 25, 50, 75, 90, 99, 100)
_TOP = 10  # hubs and passages that are named
_COMPONENTS = 5


@dataclass(frozen=True)
class StageLine:
    """One artefact: what it recorded of itself, its size, what it took, and `state`: `current`, or why it is not."""

    name: str
    facts: dict[str, Any]
    bytes: int
    seconds: float
    state: str


@dataclass(frozen=True)
class Hub:
    """A node with many neighbours."""

    name: str
    kind: str
    degree: int


@dataclass(frozen=True)
class Component:
    """A connected part: how many nodes it has, and its node of highest degree."""

    nodes: int
    around: str


@dataclass(frozen=True)
class GraphSummary:
    """The shape of a graph without loops and repeated edges; `degrees` maps percentile to number of neighbours."""

    name: str
    nodes: int
    edges: int
    degrees: dict[int, int]
    mean_degree: float
    isolated: int
    isolated_names: tuple[str, ...]
    hubs: tuple[Hub, ...]
    components: int
    largest: tuple[Component, ...]
    joins_everything: tuple[Hub, ...] = ()  # the first of those that join more than a tenth of all others


@dataclass(frozen=True)
class ExtractionSummary:
    """Where extraction left gaps: counts, and the first passages concerned."""

    passages: int
    malformed: int
    without_record: int
    without_triples: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """Everything that `gnnrag index inspect` prints; None where reports or extraction are missing.

    `other_bytes` is what is no artefact; `unfinished` are journals (with bytes) of stages that a kill cut off.
    """

    root: str
    complete: bool
    source: dict[str, Any]
    stages: tuple[StageLine, ...]
    total_bytes: int
    other_bytes: int
    unfinished: dict[str, int]
    graphs: tuple[GraphSummary, ...] = ()
    extraction: ExtractionSummary | None = field(default=None)


def inspect_index(root: Path) -> Inspection:
    """Read an index and return what it holds. Raises ArtefactError where there is no index."""
    index, lines = Index(root), []
    for name in index.fingerprint:
        record = index.record(name)
        size = sum(file.stat().st_size for file in index.folder(name).rglob("*") if file.is_file())
        lines.append(StageLine(name, record["counts"], size, record["seconds"], "current"))
    total = sum(line.bytes for line in lines)
    everything = sum(p.stat().st_size for p in root.rglob("*") if p.is_file())
    journals = {p.stem: p.stat().st_size for p in sorted((root / CACHE).glob("*.jsonl"))}
    plain = (str(root), True, dict(index.manifest["source"]), tuple(lines), total)
    return Inspection(
        *plain,
        everything - total,
        journals,
        tuple(_graphs(index)),
        _extraction(index),
    )


def summarise_graph(
    name: str, num_nodes: int, edges: np.ndarray, describe: Callable[[int], tuple[str, str]]
) -> GraphSummary:
    """Return the shape of a graph of `num_nodes` nodes, isolated ones included; `describe` gives name and kind."""
    low, high = edges.min(axis=1, initial=num_nodes), edges.max(axis=1, initial=-1)
    codes = np.unique((low.astype(np.int64) * max(num_nodes, 1) + high)[low != high])
    first, second = np.divmod(codes, max(num_nodes, 1))
    degrees = np.bincount(np.concatenate([first, second]), minlength=num_nodes)
    shape = (num_nodes, num_nodes)
    matrix = sparse.coo_array((np.ones(len(codes), dtype=np.int8), (first, second)), shape=shape)
    count, of_node = csgraph.connected_components(matrix, directed=False) if num_nodes else (0, np.zeros(0, int))
    sizes = np.bincount(of_node, minlength=count)
    by_degree = np.argsort(-degrees, kind="stable")
    largest = []
    for part in np.argsort(-sizes, kind="stable")[:_COMPONENTS].tolist():
        best = by_degree[np.argmax(of_node[by_degree] == part)]
        largest.append(Component(int(sizes[part]), describe(int(best))[0]))
    alone = np.flatnonzero(degrees == 0)
    spread = np.percentile(degrees, QUANTILES, method="inverted_cdf") if num_nodes else [0] * len(QUANTILES)
    return GraphSummary(
        name,
        num_nodes,
        len(codes),
        {q: int(v) for q, v in zip(QUANTILES, spread, strict=True)},
        round(2 * len(codes) / max(num_nodes, 1), 2),
        len(alone),
        tuple(describe(i)[0] for i in alone[:_TOP].tolist()),
        tuple(Hub(*describe(i), int(degrees[i])) for i in by_degree[:_TOP].tolist() if degrees[i]),
        int(count),
        tuple(largest),
        tuple(Hub(*describe(i), int(degrees[i])) for i in hubs_of_everything(degrees)[:_TOP].tolist()),
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


def _extraction(index: Index) -> ExtractionSummary | None:
    if not index.has("extraction"):
        return None
    info = index.record("extraction")["counts"]
    extractions: list[Extraction] = index.read("extraction")
    empty = [i for i, e in enumerate(extractions) if not (e.triples or e.relations or e.hyperedges)]
    return ExtractionSummary(
        len(extractions),
        info["malformed triples"],
        info["passages without a record"],
        len(empty),
        tuple(index.ids[i] for i in empty[:_TOP]),
    )
