"""What LightRAG and PathRAG do with the two sides of a search: by the names in a query, and by its themes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.picking import classic_passages, distinct, passages_in_order, pick, round_robin
from gnnrag.graphs.rendering import Shown


@dataclass(frozen=True)
class Found:
    """Positions of entities and edges, best first."""

    entities: Sequence[int] = ()
    edges: Sequence[int] = ()


def merge(local: Found, other: Found, classic: bool = False) -> Found:
    """Merge the local and the global side: position by position, local first; classic: all of the global side first."""
    if classic:
        return Found(distinct([*other.entities, *local.entities]), distinct([*other.edges, *local.edges]))
    return Found(round_robin(local.entities, other.entities), round_robin(local.edges, other.edges))


def cut(shown: Shown, found: Found, entity_tokens: int, relation_tokens: int) -> Found:
    """Keep the longest prefixes that fit the budgets."""
    return Found(shown.fit_entities(found.entities, entity_tokens), shown.fit_edges(found.edges, relation_tokens))


def current_passages(
    shown: Shown,
    found: Found,
    near: Sequence[int],
    cosines: np.ndarray | None,
    per_item: int,
    shared: bool = False,
) -> list[int]:
    """Return the passages of the vector search, of entities and of edges, merged position by position.

    Args:
        shown: the graph and its texts.
        found: what was kept.
        near: passages of the vector search, best first.
        cosines: (num_passages,) of the query and each passage, to pick by vector; None picks by weight.
        per_item: largest share of one entity or edge.
        shared: edges pick among all their passages; else, as released, among those that no entity has picked, so that
            what both levels point at stands no higher than what one does.
    """
    edges = shown.edges
    ours = pick([edges.graph.entity_passages[e].tolist() for e in found.entities], cosines, per_item)
    theirs = pick([edges.passages[e].tolist() for e in found.edges], cosines, per_item, () if shared else ours)
    return round_robin(near, ours, theirs)


def classic_sides(shown: Shown, local: Found, other: Found, tokens: int, summed: bool = False) -> list[int]:
    """Return the passages of the global side's edges, then those of the local side's entities, each within a budget.

    `summed`: see `classic_passages`.
    """
    edges = shown.edges
    ranked = classic_passages(local.entities, edges.graph.entity_passages, edges.neighbours, summed=summed)
    stated = passages_in_order(other.edges, edges.passages)
    return distinct([*shown.fit_passages(stated, tokens), *shown.fit_passages(ranked, tokens)])
