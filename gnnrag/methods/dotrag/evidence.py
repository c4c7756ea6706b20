"""From what all DOTs accepted to evidence: passages, paths in words, nodes (DotRAG, specification 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.llm.base import estimate_tokens
from gnnrag.methods.dotrag.paths import Accepted, Findings, aggregate, describe, pattern_of
from gnnrag.methods.dotrag.search import Dot
from gnnrag.pool import Pool
from gnnrag.session import Session
from gnnrag.types import Evidence

MOST_PREDICATES = 100  # of a graph whose relations have names; more are words of a text


@dataclass
class OutputConfig:
    """Settings of the evidence; the bonuses were chosen on MuSiQue's development questions (paper: "top-ranked")."""

    nodes: str = "terminal"  # terminal: ends of complete paths; path: all on accepted paths; resolved: and in passages
    passages: int = 20  # for the reader
    passage_tokens: int = 6000  # of them together
    path_tokens: int = 6000  # of the paths
    passage_score: str = "cosine"  # similarity of question and passage: cosine, or retriever: as it ranks them
    path_bonus: float = 0.0  # for each accepted path through an entity of the passage; 0.05 in the specification: worse
    edge_bonus: float = 0.1  # for a passage that states an edge of an accepted path
    follow_up_weight: float = 0.95  # of passages that only a follow-up query found
    fill: bool = True  # the retriever's passages take what room is left; False: those of paths alone (the paper)
    mix: bool = False  # False: passages of accepted paths come before all others


@dataclass(frozen=True)
class Base:
    """What passages are scored by: their ids, texts, the question's cosine with each (None: the pool's scores)."""

    ids: Sequence[str]
    passages: Sequence[Any]
    cosines: np.ndarray | None = None


def unite(graph: KnowledgeGraph, dots: Sequence[Dot], must_touch: Sequence[Sequence[int]]) -> Findings:
    """Return what all DOTs found.

    A path's end must touch a hub of every concept in `must_touch`: complete paths that meet fewer conditions than the
    best are partial. The anchor of a DOT that had nowhere to go is a path of its own.
    """
    accepted = [path for dot in dots for path in dot.accepted]
    near = [set(hubs).union(*(graph.adjacency.neighbours_of(h).tolist() for h in hubs)) for hubs in must_touch]
    met = [sum(path.nodes[-1] in ends for ends in near) for path in accepted]
    most = max((count for count, path in zip(met, accepted, strict=True) if path.complete), default=0)
    accepted = [replace(p, complete=p.complete and n == most) for p, n in zip(accepted, met, strict=True)]
    for dot in dots:
        if "isolated" in dot.region.notes:
            accepted += [Accepted((a,), False, 0.0, "no neighbours", dot.number) for a in dot.region.near.anchors]
    return aggregate(accepted, by_support=len(dots) > 1)


def rank_path_passages(
    graph: KnowledgeGraph, paths: Sequence[Accepted], base: Base, pool: Pool, config: OutputConfig
) -> list[str]:
    """Return passage ids, best first: those of entities on accepted paths, then, with `fill`, the pool's."""
    # A passage's score is its similarity to the question, plus a bonus for each accepted path through its entities.
    touched, stated = np.zeros(graph.num_passages), np.zeros(graph.num_passages)
    for path in paths:
        touched[np.unique(np.concatenate([graph.entity_passages[node] for node in path.nodes]))] += 1
        for a, b in zip(path.nodes, path.nodes[1:], strict=False):
            for relation in graph.adjacency.relations_between(a, b).tolist():
                stated[graph.relation_passages[relation]] = 1
    if base.cosines is None:
        scores = np.array([pool.scores.get(id_, 0.0) for id_ in base.ids])
    else:
        scores = np.asarray(base.cosines, dtype=np.float64)
    scores = scores + config.path_bonus * touched + config.edge_bonus * stated
    position = {base.ids[i]: i for i in np.flatnonzero(touched).tolist()}
    rest = [id_ for id_ in pool.ranked() if id_ not in position] if config.fill else []
    if config.mix:
        known = {id_: i for i, id_ in enumerate(base.ids)}
        position |= {id_: known[id_] for id_ in rest}
        rest = []
    return [*sorted(position, key=lambda id_: (-scores[position[id_]], position[id_])), *rest]


def within(texts: Sequence[str], tokens: int) -> int:
    """Return how many texts, from the first, fit a budget; one fits always."""
    left, count = tokens, 0
    for text in texts:
        left -= estimate_tokens(text)
        if left < 0 and count:
            break
        count += 1
    return count


def gather_evidence(
    graph: KnowledgeGraph, findings: Findings, base: Base, pool: Pool, config: OutputConfig, session: Session
) -> Evidence:
    """Return passages, notes and nodes; all three node sets and what relations paths follow go into the trace."""
    ranking = rank_path_passages(graph, findings.paths, base, pool, config)
    position = {id_: i for i, id_ in enumerate(base.ids)}
    context = ranking[: config.passages]
    context = context[: within([base.passages[position[id_]].content for id_ in context], config.passage_tokens)]
    lines = [f"{'complete' if p.complete else 'partial'}: {describe(graph, p.nodes)}" for p in findings.paths]
    lines = lines[: within(lines, config.path_tokens)][::-1]  # the most relevant stand next to the question
    notes = "\n".join(["Paths in the knowledge graph, the most relevant last:", *lines]) if lines else ""
    resolved = dict.fromkeys(findings.nodes)
    for id_ in context:
        resolved.update(dict.fromkeys(graph.passage_entities[position[id_]].tolist()))
    sets = {"terminal": findings.terminal, "path": findings.nodes, "resolved": tuple(resolved)}
    named = {name: [graph.names[node] for node in nodes] for name, nodes in sets.items()}
    session.record("nodes", **named)
    complete = Counter(path.walked or pattern_of(graph, path.nodes) for path in findings.paths if path.complete)
    rows = [{"pattern": pattern, "paths": paths} for pattern, paths in sorted(complete.items())]
    predicates = graph.predicates if len(graph.predicates) <= MOST_PREDICATES else ()
    session.record("patterns", complete=rows, predicates=list(predicates))
    return Evidence(ranking, context, notes, nodes=named[config.nodes])
