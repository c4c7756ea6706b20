"""The search in one DOT, round after round: its queries, its candidate paths, what it keeps (DotRAG, specification 4).

`Dot` is the state of one search. It asks nobody: the method embeds its queries and brings the judge's verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np

from gnnrag.graphs.dotbridge import Sides, bridging_paths, far_anchors, touches
from gnnrag.graphs.dotpaths import (
    MAX_EXTENDED,
    Accepted,
    Judgement,
    Pattern,
    best_of_each,
    candidates,
    fits,
    matching_paths,
    node_scores,
    path_score,
    paths_to,
    pattern_of,
    round_robin,
    without_prefixes,
)
from gnnrag.graphs.dots import Region
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Path
from gnnrag.session import folded

PATIENCE = 2  # rounds in a row that accept nothing end a search


@dataclass
class SearchConfig:
    """Settings of the search; DotRAG's paper gives only `rounds`, and no bounds where it says "all"."""

    rounds: int = 3  # T_max
    top_nodes: int = 20  # K: destinations a round
    top_nodes_set: int = 50  # the same where the question asks for a set
    paths_per_target: int = 3  # P: from each anchor to each destination
    paths_per_round: int = 30  # C: paths that are judged
    spread_paths: bool = True  # one of each destination before any second; False: all of the best ones (the paper)
    node_score: str = "relations"  # node: cosine of the node alone, as in the paper; relations: or 0.9 of a relation's
    min_cosine: float = 0.2  # least score of a destination, with early_stop
    min_confidence: float = 0.3  # less is not accepted
    duplicate_cosine: float = 0.95  # a query this near to an earlier one is not sent
    follow_ups: int = 5  # queries a round
    lift_filter: bool = True  # a search that accepts nothing in two rounds goes on without the filter of types
    pattern_judge: str = "auto"  # always, never, auto: where the question asks for a set
    exemplars: int = 3  # paths judged of each pattern
    early_stop: bool = True  # False: all rounds, as in the paper
    max_complete: int = 50  # complete paths that end a search, with early_stop
    drop_complete_prefix: bool = False  # True: a complete path goes if a longer accepted one contains it (the paper)


@dataclass(frozen=True, slots=True)
class Found:
    """The paths of a round: those to judge, with the pattern of each where verdicts are for patterns."""

    paths: tuple[Path, ...]
    patterns: tuple[Pattern, ...] = ()
    groups: tuple[tuple[Pattern, tuple[Path, ...]], ...] = ()


@dataclass
class Dot:
    """One division of thought: anchors in a region, and what the search has done so far.

    Attributes:
        number: position among the DOTs of the question.
        concept: what its anchors stand for.
        region: where it may go.
        rules: what the judge is told; opaque here.
        many: the question asks for a set.
        pending: (confidence, query) for the next round.
        queries: texts of this round.
        issued: queries so far with their vectors.
        visited: nodes that were destinations.
        judged: sequences of nodes that were judged.
        accepted: paths kept so far.
        idle: rounds in a row without an accepted path.
        round: rounds searched.
        done: nothing more to do.
        sides: of a bridging DOT, the anchors of the two concepts that its paths must touch.
    """

    number: int
    concept: str
    region: Region
    rules: Any
    many: bool = False
    pending: list[tuple[float, str]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    issued: list[tuple[str, np.ndarray]] = field(default_factory=list)
    visited: set[int] = field(default_factory=set)
    judged: set[Path] = field(default_factory=set)
    accepted: list[Accepted] = field(default_factory=list)
    idle: int = 0
    round: int = 0
    done: bool = False
    sides: Sides = ()

    def admit(self, text: str, vector: np.ndarray, config: SearchConfig) -> bool:
        """Take a query into this round unless it, or one that means the same, was sent before or the round is full."""
        if len(self.queries) >= config.follow_ups or not (key := plain(text)):
            return False
        for earlier, known in self.issued:
            if plain(earlier) == key or float(known @ vector) >= config.duplicate_cosine:
                return False
        self.issued.append((text, vector))
        self.queries.append(text)
        return True

    def find(self, graph: KnowledgeGraph, nodes: np.ndarray, relations: np.ndarray, config: SearchConfig) -> Found:
        """Return this round's paths: the nearest unseen nodes, and the shortest paths to them.

        Args:
            graph: the graph.
            nodes: best cosine of each node with a query of the round. Shape (num_entities,).
            relations: the same of each relation. Shape (num_relations,).
            config: see `SearchConfig`.
        """
        near = self.region.near
        scores = node_scores(near, nodes, relations if config.node_score == "relations" else None)
        count = config.top_nodes_set if self.many else config.top_nodes
        floor = config.min_cosine if config.early_stop else -math.inf
        targets = candidates(near, scores, self.visited, count, floor)
        targets = (far_anchors(self.sides, self.visited) + targets)[:count]
        self.visited.update(targets)
        score = path_score(near, relations)
        groups = [self._paths_to(target, config.paths_per_target, score) for target in targets]
        fresh = [[path for path in group if path not in self.judged] for group in groups]
        if not self.by_pattern(config):
            spread = round_robin(fresh, config.paths_per_round) if config.spread_paths else chain.from_iterable(fresh)
            return Found(tuple(islice(spread, config.paths_per_round)))
        return _grouped(graph, round_robin(fresh, sum(map(len, fresh))), config)

    def _paths_to(self, target: int, count: int, score: Callable[[Path], float]) -> list[Path]:
        if self.sides:
            return bridging_paths(self.region.near, self.sides, target, count, score)
        return paths_to(self.region.near, target, count, score)

    def by_pattern(self, config: SearchConfig) -> bool:
        """Tell whether verdicts are for patterns of predicates rather than for single paths."""
        return config.pattern_judge == "always" or (config.pattern_judge == "auto" and self.many)

    def take(self, found: Found, verdicts: Sequence[Judgement], graph: KnowledgeGraph, config: SearchConfig) -> int:
        """Keep what was accepted of a round; returns how many paths that are.

        Queries of partial paths wait for the next round, if their ends lead anywhere new.
        """
        fresh: list[Accepted] = []
        self.judged.update(found.paths)
        for path, verdict in zip(found.paths, verdicts, strict=True):
            if verdict.label == "irrelevant" or (verdict.confidence < config.min_confidence and not verdict.guessed):
                continue
            is_complete = verdict.label == "complete"
            fresh.append(Accepted(path, is_complete, verdict.confidence, verdict.why, self.number, self.round))
            if not is_complete and verdict.next_question and self._leads_on(path[-1]):
                self.pending.append((verdict.confidence, verdict.next_question))
        for pattern, members in found.groups:
            fresh += self._extended(pattern, members, found, fresh, graph, config)
        known = {path.nodes for path in self.accepted}
        new = [path for path in best_of_each(fresh) if path.nodes not in known]
        self.visited.update(path.nodes[-1] for path in new)
        # What was partial may turn out complete: a person who directed one film on the way and wrote another.
        self.accepted = without_prefixes(best_of_each([*self.accepted, *fresh]), config.drop_complete_prefix)
        self.idle = 0 if new else self.idle + 1
        self.round += 1
        if config.early_stop:
            self.done = self.is_exhausted(config, len(new))
        return len(new)

    def is_exhausted(self, config: SearchConfig, new: int) -> bool:
        """Tell whether the search may end before its last round."""
        complete = sum(path.complete for path in self.accepted)
        is_settled = self.round == 1 and not self.many and 0 < complete == len(self.accepted)
        return self.idle >= PATIENCE or complete >= config.max_complete or is_settled or not self.has_unvisited

    @property
    def has_unvisited(self) -> bool:
        """Whether a node is left that was no destination yet."""
        left = self.region.near.mask.copy()
        left[[*self.region.near.anchors, *self.visited]] = False
        return bool(left.any())

    def _leads_on(self, node: int) -> bool:
        near = self.region.near
        around = near.adjacency.neighbours_of(node)
        return any(near.mask[n] and n not in self.visited and n not in near.anchors for n in around.tolist())

    def _extended(
        self,
        pattern: Pattern,
        members: Sequence[Path],
        found: Found,
        fresh: Sequence[Accepted],
        graph: KnowledgeGraph,
        config: SearchConfig,
    ) -> list[Accepted]:
        """Extend the verdict of a pattern's exemplars to the other candidates; a complete one to the whole DOT.

        It needs the majority of the exemplars.
        """
        shown = {path for path, own in zip(found.paths, found.patterns, strict=True) if own == pattern}
        kept = [path for path in fresh if path.nodes in shown]
        complete = [path for path in kept if path.complete]
        if len(complete) * 2 > len(shown):
            walks = matching_paths(self.region.near, graph, pattern, may_return=True)
            paths, model = list(islice(walks, MAX_EXTENDED)), complete
        elif len(kept) * 2 > len(shown):
            paths, model = list(members), [path for path in kept if not path.complete]
        else:
            return []
        confidence = sum(path.confidence for path in model) / len(model) if model else 0.0
        per_end: dict[int, int] = {}
        more = []
        for path in paths:
            if path in shown or per_end.get(path[-1], 0) >= config.paths_per_target or not model:
                continue
            if not touches(path, self.sides):
                continue
            per_end[path[-1]] = per_end.get(path[-1], 0) + 1
            why = f"as {model[0].why}" if model[0].why else "same pattern"
            walked = pattern if len(path) <= len(pattern) else ()
            more.append(Accepted(path, model is complete, confidence, why, self.number, self.round, walked))
        return more


def plain(text: str) -> str:
    """Return a query without case, punctuation and extra spaces: what makes two queries the same."""
    return folded("".join(c if c.isalnum() else " " for c in text))


def _grouped(graph: KnowledgeGraph, paths: Sequence[Path], config: SearchConfig) -> Found:
    """Group paths by pattern, and choose exemplars: patterns in order of their first path, one of each in turn."""
    groups: dict[Pattern, list[Path]] = {}
    for path in paths:
        groups.setdefault(pattern_of(graph, path), []).append(path)
    shown = round_robin([group[: config.exemplars] for group in groups.values()], config.paths_per_round)
    patterns = tuple(pattern_of(graph, path) for path in shown)
    judged = set(patterns)
    return Found(tuple(shown), patterns, tuple((p, tuple(g)) for p, g in groups.items() if p in judged))


def satisfied(pattern: Pattern, wanted: Sequence[str]) -> bool:
    """Tell whether a pattern states a sequence of predicates, one an edge."""
    return fits(pattern, tuple((step,) for step in wanted))
