"""Nodes where the network starts: what a question names, and the passages that search likes.

The cascade of specification 3.4: a mention is linked by its spelling, else to the nearest name; a question without
mentions starts at the ends of the nearest facts, else at the nearest names. The branch says which it was.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gnnrag.gnn.config import GNNConfig
from gnnrag.gnn.subgraph import TextGraph
from gnnrag.graphs.linking import LinkedName, LinkedQuestion
from gnnrag.graphs.messages import MessageGraph
from gnnrag.text.normalise import words

LINK_COSINE = 0.6  # least cosine of a mention and the name that it is linked to
NEAREST_FACTS, FACT_ENDS, NEAREST_NAMES = 5, 5, 3
_PRIOR_MASS = 1.8  # of all passages that search likes, against 1 for a passage that the question names
_RUN = re.compile(r"\b[^\W\d_a-z][\w'’.-]*(?:\s+(?:[^\W\d_a-z][\w'’.-]*|of|the|and|de|von|van)(?=\s|$|\W))*")


class NameVectors(Protocol):
    """What linking by vectors reads: a graph, the vectors of its names and relations, and which triples are facts."""

    index: Any
    graph: MessageGraph
    relation_vectors: np.ndarray

    @property
    def entity_vectors(self) -> np.ndarray:
        """(num_entities, F)."""
        ...

    @property
    def fact_rows(self) -> np.ndarray:
        """Rows of triples."""
        ...


@dataclass(frozen=True)
class Seeds:
    """Nodes to start from."""

    nodes: np.ndarray  # distinct, ascending; (n,) int64
    values: np.ndarray  # weights in (0, 1]; (n,) float32
    confidence: Mapping[int, tuple[float, float]]  # by node id: sureness, rarity of the name
    branch: str  # exact, dense_link, facts, names, search (passages alone)

    def weights(self, nodes: np.ndarray) -> np.ndarray:
        """Return the weight of each of some nodes, 0 for those that are no seeds. Shape of `nodes`, float32."""
        if not len(self.nodes):
            return np.zeros(len(nodes), dtype=np.float32)
        where = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
        return np.where(self.nodes[where] == nodes, self.values[where], 0.0).astype(np.float32)


def passage_prior(dense: np.ndarray, lexical: np.ndarray, power: float = 4.0, share: float = 0.5) -> np.ndarray:
    """Mix dense and lexical scores, each scaled to [0, 1] and sharpened as in `chg`. Shape (num_passages,), float64."""
    mixed = np.zeros(len(dense))
    for scores, weight in ((dense, 1 - share), (lexical, share)):
        values = np.asarray(scores, dtype=np.float64)
        span = values.max() - values.min()
        if span > 0:
            mixed += weight * ((values - values.min()) / span) ** power
    return mixed if mixed.any() else np.ones_like(mixed)


def find_seeds(graphs: TextGraph, text: str, linked: LinkedQuestion, vector: np.ndarray, prior: np.ndarray) -> Seeds:
    """Return where a question starts, from its names, (F,) vector and (num_passages,) `passage_prior`."""
    graph = graphs.graph
    found: defaultdict[int, float] = defaultdict(float)
    confidence: dict[int, tuple[float, float]] = {}
    branch = "exact" if linked.names else "search"
    for name in linked.names:
        _add_name(graphs, name, prior, found, confidence)
    if entities := link_by_vector(graphs, text, frozenset(linked.rest)):
        branch = branch if linked.names else "dense_link"
    if not found and not entities:
        entities, branch = nearest_entities(graphs, vector)
    for entity, sure in entities.items():
        found[entity] = max(found[entity], seed_weight(graph, graphs.config, entity) * sure)
        confidence.setdefault(entity, (sure, 0.0))
    best = np.argsort(-prior, kind="stable")[: graphs.sizes.seed_passages]
    for passage, value in zip(best.tolist(), (_PRIOR_MASS * prior[best] / prior[best].sum()).tolist(), strict=True):
        found[graph.first_passage + passage] += value
    nodes = np.array(sorted(found), dtype=np.int64)
    values = np.minimum([found[node] for node in nodes.tolist()], 1.0).astype(np.float32)
    return Seeds(nodes, values, confidence, branch)


def seed_weight(graph: MessageGraph, config: GNNConfig, entity: int) -> float:
    """Return the weight of an entity as a seed: 1 / document frequency, where the settings say so, else 1."""
    return 1.0 / max(int(graph.document_frequency[entity]), 1) if config.seed_weight else 1.0


def _add_name(
    graphs: TextGraph,
    name: LinkedName,
    prior: np.ndarray,
    found: defaultdict[int, float],
    confidence: dict[int, tuple[float, float]],
) -> None:
    """Add the entity of a name, the passages that bear it as title, and the sentences that alone have it."""
    graph = graphs.graph
    rare = graphs.titles.rarity(name.key.split())
    sure = name.title.confidence if name.title else 1.0
    entity = graph.position.get(name.key, graph.position.get(name.title.form) if name.title else None)
    if entity is not None:
        found[entity] = max(found[entity], sure * seed_weight(graph, graphs.config, entity))
        confidence[entity] = max(confidence.get(entity, (0.0, 0.0)), (sure, rare))
    else:
        for phrase in graphs.hierarchy.phrase_nodes.get(name.key, ()):
            around = graphs.hierarchy.adjacency
            for node in around.indices[around.indptr[phrase] : around.indptr[phrase + 1]].tolist():
                sentence = graph.first_sentence + node - graphs.hierarchy.first_sentence
                found[sentence] = max(found[sentence], rare)
    if name.title:
        passages = list(graphs.titles.passages(name.title.form))
        shares = prior[passages] + 1e-6
        for passage, share in zip(passages, (shares / shares.sum()).tolist(), strict=True):
            node = graph.first_passage + passage
            found[node] = max(found[node], sure * share)
            confidence[node] = max(confidence.get(node, (0.0, 0.0)), (sure, rare))


def link_by_vector(graphs: NameVectors, text: str, rest: frozenset[str] | None = None) -> dict[int, float]:
    """Return the nearest name, if near enough, and cosine of capitalised mentions; `rest`: of these words alone."""
    runs = [run.group() for run in _RUN.finditer(text)]
    runs = [run for run in dict.fromkeys(runs) if (parts := words(run)) and (rest is None or rest.issuperset(parts))]
    if not runs or not graphs.graph.num_entities:
        return {}
    found = {}
    for row in graphs.index.embedder.encode(runs, is_query=True):
        cosines = graphs.entity_vectors @ row
        if (best := float(cosines.max())) >= LINK_COSINE:
            found[int(np.argmax(cosines))] = min(best, 1.0)
    return found


def nearest_entities(graphs: NameVectors, vector: np.ndarray) -> tuple[dict[int, float], str]:
    """Return where a question starts that names nothing, and the branch: ends of near facts, or near names."""
    graph, facts = graphs.graph, graphs.fact_rows
    if not graph.num_entities:
        return {}, "search"
    names = graphs.entity_vectors @ vector
    if len(facts):
        head, relation, tail = graph.triples[facts].T
        relations = graphs.relation_vectors[: graph.num_relations] @ vector
        near = names[head] + relations[relation] + names[tail]  # for want of a vector per fact
        order = np.argsort(-near, kind="stable")[:NEAREST_FACTS]
        ends = list(dict.fromkeys(graph.triples[facts[order]][:, [0, 2]].ravel().tolist()))
        return {end: float(np.clip(names[end], 0.01, 1.0)) for end in ends[:FACT_ENDS]}, "facts"
    best = np.argsort(-names, kind="stable")[:NEAREST_NAMES].tolist()
    return {entity: float(np.clip(names[entity], 0.01, 1.0)) for entity in best}, "names"
