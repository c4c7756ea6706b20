"""S4 of DotRAG, aggregation: what all DOTs found, as the passages, paths and nodes that the reader gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.methods.base import Pool
from gnnrag.methods.dotrag.paths import AcceptedPath, best_of_each, describe
from gnnrag.methods.dotrag.search import Dot
from gnnrag.session import Session
from gnnrag.text.tokens import estimate_tokens
from gnnrag.types import Evidence


@dataclass(frozen=True)
class Findings:
    """What all DOTs found together, best first."""

    paths: tuple[AcceptedPath, ...]  # complete ones first, grouped by where they end
    terminal: tuple[int, ...]  # last nodes of complete paths
    nodes: tuple[int, ...]  # all nodes of all paths, ends first: they are what is most likely asked for


def aggregate(accepted: Sequence[AcceptedPath], by_support: bool) -> Findings:
    """Unite the accepted paths of all DOTs; equal ones are one. `by_support`: ends of several DOTs come first."""
    paths = sorted(best_of_each(accepted), key=lambda path: (*path.rank, path.dot, path.nodes))
    if by_support:
        support = Counter(node for node, _ in {(path.nodes[-1], path.dot) for path in accepted})
        paths.sort(key=lambda path: (not path.complete, -support[path.nodes[-1]]))
    groups: dict[tuple[bool, int], list[AcceptedPath]] = {}
    for path in paths:
        groups.setdefault((path.complete, path.nodes[-1]), []).append(path)
    paths = [path for group in groups.values() for path in group]
    return Findings(
        tuple(paths),
        tuple(dict.fromkeys(path.nodes[-1] for path in paths if path.complete)),
        tuple(dict.fromkeys([*(p.nodes[-1] for p in paths), *(node for p in paths for node in p.nodes)])),
    )


def unite(dots: Sequence[Dot]) -> Findings:
    """Return what all DOTs found. The anchors of a DOT without neighbours are paths of their own."""
    accepted = [path for dot in dots for path in dot.accepted]
    for dot in dots:
        if dot.is_isolated:
            accepted += [AcceptedPath((a,), False, 0.0, "no neighbours", dot.number) for a in dot.near.anchors]
    return aggregate(accepted, by_support=len(dots) > 1)


def rank_passages(
    graph: KnowledgeGraph, paths: Sequence[AcceptedPath], ids: Sequence[str], cosines: np.ndarray | None, pool: Pool,
    settings: Any,
) -> list[str]:  # fmt: skip
    """Return passage ids, best first: those of entities on accepted paths, then the pool's (`settings.order`).

    A passage's score is its similarity to the question (`cosines` (num_passages,), or its score in the pool), plus
    `edge_bonus` where it states an edge of an accepted path.
    """
    touched, stated = np.zeros(graph.num_passages, dtype=bool), np.zeros(graph.num_passages)
    for path in paths:
        for node in path.nodes:
            touched[graph.entity_passages[node]] = True
        for a, b in pairwise(path.nodes):
            for relation in graph.edges.relations_between(a, b):
                stated[graph.relation_passages[relation]] = 1
    base = [pool.scores.get(id_, 0.0) for id_ in ids] if cosines is None else cosines
    scores = np.asarray(base, dtype=np.float64) + settings.edge_bonus * stated
    position = {ids[i]: i for i in np.flatnonzero(touched).tolist()}
    rest = [id_ for id_ in pool.ranked() if id_ not in position] if settings.order != "paths_only" else []
    if settings.order == "mixed":
        known = {id_: i for i, id_ in enumerate(ids)}
        position |= {id_: known[id_] for id_ in rest}
        rest = []
    return [*sorted(position, key=lambda id_: (-scores[position[id_]], position[id_])), *rest]


def _is_stated(graph: KnowledgeGraph, nodes: Sequence[int], mask: np.ndarray) -> bool:
    """Tell whether passages that pass a filter (num_passages,) state each edge of a path."""
    edges = (graph.edges.relations_between(a, b) for a, b in pairwise(nodes))
    return all(any(mask[graph.relation_passages[relation]].any() for relation in edge) for edge in edges)


def num_fitting(texts: Sequence[str], tokens: int) -> int:
    """Return how many texts, from the first, fit a budget; one fits always."""
    total = np.cumsum([estimate_tokens(text) for text in texts])
    return max(int((total <= tokens).sum()), min(1, len(texts)))


def gather(
    index: Any, findings: Findings, cosines: np.ndarray | None, pool: Pool, settings: Any, session: Session
) -> Evidence:
    """Return passages, notes and nodes; all three node sets go into the trace."""
    graph = index.knowledge
    if session.filter:
        mask = index.matching(session.filter)
        kept = tuple(p for p in findings.paths if _is_stated(graph, p.nodes, mask))
        findings = replace(findings, paths=kept)
    ranking = rank_passages(graph, findings.paths, index.ids, cosines, pool, settings)
    if session.filter:
        ranking = [id_ for id_ in ranking if mask[index.position[id_]]]
    context = ranking[: settings.passages]
    context = context[: num_fitting([passage.content for passage in index.lookup(context)], settings.tokens)]
    lines = [f"{'complete' if p.complete else 'partial'}: {describe(graph, p.nodes)}" for p in findings.paths]
    lines = lines[: num_fitting(lines, settings.tokens)][::-1]  # the most relevant stand next to the question
    notes = "\n".join(["Paths in the knowledge graph, the most relevant last:", *lines]) if lines else ""
    resolved = dict.fromkeys(findings.nodes)
    for id_ in context:
        resolved |= dict.fromkeys(graph.passage_entities[index.position[id_]].tolist())
    sets = {"terminal": findings.terminal, "path": findings.nodes, "resolved": tuple(resolved)}
    named = {name: [graph.names[node] for node in nodes] for name, nodes in sets.items()}
    session.record("nodes", **named)
    return Evidence(ranking, context, notes, nodes=named[settings.nodes])
