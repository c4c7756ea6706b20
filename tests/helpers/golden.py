"""The worked example G1 of `specs/backbones_ppr_tree.md` 6."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnrag.graphs.entities import EntityGraph, build_entity_graph

G1_TRIPLES = (
    (("alice", "born in", "springfield"), ("alice", "works for", "acme corp")),
    (("acme corp", "based in", "shelbyville"), ("acme corp", "founded by", "alice")),
    (("springfield town", "twin of", "shelbyville"),),
    (),
)
G1_FACTS = tuple(fact for row in G1_TRIPLES for fact in row)  # F0 to F4
G1_FACT_SCORES = dict(zip(G1_FACTS, (0.62, 0.48, 0.57, 0.41, 0.30), strict=True))
G1_DENSE = np.array([0.52, 0.44, 0.39, 0.47])


def golden_graph() -> EntityGraph:
    """Return the graph with its one pair of synonyms."""
    graph = build_entity_graph(G1_TRIPLES)
    one, other = graph.position["springfield"], graph.position["springfield town"]
    return replace(
        graph, synonyms=np.array([[one, other], [other, one]], np.int32), similarities=np.array([0.87, 0.87])
    )
