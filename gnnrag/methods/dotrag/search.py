"""S2 and S3 of DotRAG, neighbourhood construction and search: the region of a DOT, and the search in it by rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Neighbourhood, Path, grow, mean_relation_score
from gnnrag.graphs.rendering import round_robin
from gnnrag.methods.dotrag.paths import (
    AcceptedPath,
    PathVerdict,
    Pattern,
    best_of_each,
    candidates,
    matching_paths,
    node_scores,
    paths_to,
    pattern_of,
    without_prefixes,
)
from gnnrag.methods.dotrag.schema import split_types
from gnnrag.session import normalised
from gnnrag.text.normalise import find_words

HUB_PENALTY = 0.01  # times log(1 + degree) of every node inside a path, among paths of equal length
MIN_COSINE = 0.2  # least score of a destination, with `early_stop`
PATIENCE = 2  # rounds in a row that accept nothing end a search
MAX_COMPLETE = 50  # complete paths that end a search
EXEMPLARS = 3  # paths judged of each pattern
MAX_EXTENDED = 5000  # paths of one pattern
# Less confidence is not accepted; a query this near to an earlier one is not sent; queries a round
MIN_CONFIDENCE, DUPLICATE_COSINE, FOLLOW_UPS = 0.3, 0.95, 5


class TypedGraph:
    """A knowledge graph whose nodes can be picked by type."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph, self.edges = graph, graph.edges
        self.kinds = [split_types(types) for types in graph.types]
        self._masks: dict[str, np.ndarray] = {}
        for node, kinds in enumerate(self.kinds):
            for kind in kinds:
                self._masks.setdefault(kind, np.zeros(graph.num_entities, dtype=bool))[node] = True

    def of_types(self, names: Sequence[str]) -> np.ndarray:
        """Return which nodes have any of some types; unknown types have none. Shape (num_entities,), bool."""
        mask = np.zeros(self.graph.num_entities, dtype=bool)
        for name in self._masks.keys() & names:
            mask |= self._masks[name]
        return mask

    def types_of(self, nodes: Sequence[int]) -> list[str]:
        """Return the types of some nodes, each once, by first appearance."""
        return list(dict.fromkeys(kind for node in nodes for kind in self.kinds[node]))

    def region(
        self, anchors: Sequence[int], rules: Any, settings: Any, scope: np.ndarray | None = None
    ) -> Neighbourhood:
        """Grow the region of a DOT from its anchors, which are inside whatever their type.

        Nodes of the answer's types end paths, and so do hubs, unless the rules name their type as one to pass. `rules`
        are `DotRules`, `settings` those of `DotRAG`. `scope` (num_entities,) bool: entities that may appear.
        """
        types = rules.allowed_types if settings.type_filter == "rules" else ()
        terminal, through = (rules.terminal_types, rules.through_types) if settings.terminal_only else ((), None)
        shut = np.zeros(self.graph.num_entities, dtype=bool)
        if settings.hub_degree is not None:
            shut = (self.edges.degrees > settings.hub_degree) & ~self.of_types(through or ())
        if through is None:  # what is allowed and does not end paths; without a filter every type
            through = [kind for kind in types if kind not in terminal] if types else terminal
        shut |= self.of_types(terminal) & ~self.of_types(through)
        allowed = self.of_types(types) if types else scope
        if types and scope is not None:
            allowed = allowed & scope
        return grow(self.edges, list(anchors), settings.hops, allowed, shut)


@dataclass(frozen=True, slots=True)
class RoundPaths:
    """The paths of a round to judge; where verdicts are for patterns, all paths of each pattern."""

    paths: tuple[Path, ...]
    groups: tuple[tuple[Pattern, tuple[Path, ...]], ...] = ()


@dataclass
class Dot:
    """One division of thought: anchors in a region, and what the search has done so far."""

    number: int  # position among the DOTs of the question
    concept: str  # what its anchors stand for
    near: Neighbourhood  # its region
    rules: Any  # `DotRules`, for the judge; not read here
    graph: KnowledgeGraph
    settings: Any  # those of `DotRAG`
    many: bool = False  # the question asks for a set
    pending: list[tuple[float, str]] = field(default_factory=list)  # (confidence, query) for the next round
    queries: list[str] = field(default_factory=list)  # texts of this round
    issued: list[tuple[str, np.ndarray]] = field(default_factory=list)  # queries so far with their vectors
    visited: set[int] = field(default_factory=set)  # nodes that were destinations
    judged: set[Path] = field(default_factory=set)
    accepted: list[AcceptedPath] = field(default_factory=list)
    idle: int = 0  # rounds in a row without an accepted path
    round: int = 0  # rounds searched
    done: bool = False

    def admit(self, text: str, vector: np.ndarray) -> bool:
        """Take a query into this round unless it, or one that means the same, was sent before or the round is full."""
        bounded = not self.settings.literal
        if not (key := folded_query(text)) or (bounded and len(self.queries) >= FOLLOW_UPS):
            return False
        for earlier, known in self.issued:
            if folded_query(earlier) == key or (bounded and float(known @ vector) >= DUPLICATE_COSINE):
                return False
        self.issued.append((text, vector))
        self.queries.append(text)
        return True

    def follow_up(self, vector: Callable[[str], np.ndarray]) -> None:
        """Begin a round with the questions of partial paths, most confident first; `vector` embeds a query."""
        self.queries = []
        for _, text in sorted(self.pending, key=lambda pair: -pair[0]):
            self.admit(text, vector(text))
        self.pending = []

    def find_paths(self, nodes: np.ndarray, relations: np.ndarray) -> RoundPaths:
        """Return this round's paths: the nearest unseen nodes, and the shortest paths to them.

        `nodes` (num_entities,) and `relations` (num_relations,): best cosine of each with a query of the round. Paths
        of equal length are ordered by the mean similarity of their edges, minus a penalty for hubs on the way.
        """
        s, near = self.settings, self.near
        scores = node_scores(near, nodes, relations if s.node_score == "relations" else None)
        floor = MIN_COSINE if s.early_stop else -math.inf
        targets = candidates(near, scores, self.visited, s.top_nodes or (50 if self.many else 20), floor)
        self.visited.update(targets)
        similarity, degree = mean_relation_score(near.edges, relations), near.edges.degrees

        def score(path: Path) -> float:
            return similarity(path) - HUB_PENALTY * float(np.log1p(degree[list(path[1:-1])]).sum())

        fresh = [
            [path for path in paths_to(near, target, s.paths_per_target, score) if path not in self.judged]
            for target in targets
        ]
        if s.pattern_judge == "never" or (s.pattern_judge == "auto" and not self.many):
            in_turn = round_robin(*fresh) if s.spread_paths else chain.from_iterable(fresh)
            return RoundPaths(tuple(islice(in_turn, s.paths_per_round)))
        # Exemplars: patterns in order of their first path, one of each in turn.
        groups: dict[Pattern, list[Path]] = {}
        for path in round_robin(*fresh):
            groups.setdefault(pattern_of(self.graph, path), []).append(path)
        shown = round_robin(*(group[:EXEMPLARS] for group in groups.values()))[: s.paths_per_round]
        seen = {pattern_of(self.graph, path) for path in shown}
        return RoundPaths(tuple(shown), tuple((p, tuple(group)) for p, group in groups.items() if p in seen))

    def accept(self, round_paths: RoundPaths, verdicts: Sequence[PathVerdict]) -> int:
        """Keep the accepted paths; return how many are new. Partial ones that lead on leave their question pending."""
        fresh: list[AcceptedPath] = []
        self.judged.update(round_paths.paths)
        least = 0.0 if self.settings.literal else MIN_CONFIDENCE
        for path, verdict in zip(round_paths.paths, verdicts, strict=True):
            if verdict.label == "irrelevant" or (verdict.confidence < least and not verdict.guessed):
                continue
            is_complete = verdict.label == "complete"
            fresh.append(AcceptedPath(path, is_complete, verdict.confidence, verdict.why, self.number, self.round))
            if not is_complete and verdict.next_question and self._leads_on(path[-1]):
                self.pending.append((verdict.confidence, verdict.next_question))
        for pattern, members in round_paths.groups:
            fresh += self._extended(pattern, members, set(round_paths.paths).intersection(members), fresh)
        known = {path.nodes for path in self.accepted}
        new = [path for path in best_of_each(fresh) if path.nodes not in known]
        self.visited.update(path.nodes[-1] for path in new)
        # What was partial may turn out complete: a person who directed one film on the way and wrote another.
        self.accepted = without_prefixes(best_of_each([*self.accepted, *fresh]), self.settings.literal)
        self.idle = 0 if new else self.idle + 1
        self.round += 1
        if self.settings.early_stop:
            complete = sum(path.complete for path in self.accepted)
            is_settled = self.round == 1 and not self.many and 0 < complete == len(self.accepted)
            is_over = self.idle >= PATIENCE or complete >= MAX_COMPLETE
            self.done = is_over or is_settled or not self.has_unvisited
        return len(new)

    @property
    def is_isolated(self) -> bool:
        """Whether no anchor has a neighbour in the graph."""
        return not self.near.edges.degrees[list(self.near.anchors)].any()

    @property
    def has_unvisited(self) -> bool:
        """Whether a node is left that was no destination yet."""
        left = self.near.mask.copy()
        left[[*self.near.anchors, *self.visited]] = False
        return bool(left.any())

    def _leads_on(self, node: int) -> bool:
        near = self.near
        around = near.edges.neighbours[node]
        return any(near.mask[n] and n not in self.visited and n not in near.anchors for n in around.tolist())

    def _extended(
        self, pattern: Pattern, members: Sequence[Path], shown: set[Path], fresh: Sequence[AcceptedPath]
    ) -> list[AcceptedPath]:
        """Extend the majority verdict of a pattern's exemplars to other candidates; if complete, to the DOT."""
        accepted = [path for path in fresh if path.nodes in shown]
        is_complete = 2 * sum(path.complete for path in accepted) > len(shown)
        models = [path for path in accepted if path.complete == is_complete]
        if not models or 2 * len(accepted) <= len(shown):
            return []
        paths = islice(matching_paths(self.near, self.graph, pattern), MAX_EXTENDED) if is_complete else members
        confidence = sum(path.confidence for path in models) / len(models)
        why = f"as {models[0].why}" if models[0].why else "same pattern"
        per_end: dict[int, int] = {}
        extended = []
        for path in paths:
            if path not in shown and per_end.get(path[-1], 0) < self.settings.paths_per_target:
                per_end[path[-1]] = per_end.get(path[-1], 0) + 1
                extended.append(AcceptedPath(path, is_complete, confidence, why, self.number, self.round))
        return extended


def folded_query(text: str) -> str:
    """Return a query without case, punctuation and extra spaces: what makes two queries the same."""
    return normalised(" ".join(find_words(text)))
