"""DotRAG's search: dots expanded and pruned round by round; the method embeds queries and asks the judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Neighbourhood, Path, Rules, grow
from gnnrag.methods.dotrag.paths import (
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
from gnnrag.methods.dotrag.schema import Schema, split_types
from gnnrag.methods.dotrag.start import Sides, bridging_paths, far_anchors, touches
from gnnrag.session import normalised

_BUSY = 2.0  # a type is a hub's type when its mean degree is this many times the graph's


@dataclass(frozen=True, slots=True)
class Filter:
    """Which types a DOT admits and which it passes through."""

    allowed: tuple[str, ...] = ()  # types that may appear; none is no filter
    terminal: tuple[str, ...] = ()  # types of the answer
    through: tuple[str, ...] | None = None  # types paths may pass through; None: allowed, not terminal

    @property
    def passable(self) -> tuple[str, ...] | None:
        """Types that are passed through; None is every type."""
        if self.through is not None:
            return self.through
        return tuple(kind for kind in self.allowed if kind not in self.terminal) if self.allowed else None


@dataclass(frozen=True, slots=True)
class Limits:
    """How far and how large: a node is a hub from `hub_degree` on; `widen`: a filter that isolates gives way."""

    hops: int = 3
    max_nodes: int = 5000
    hub_degree: int = 500
    widen: bool = True


@dataclass(frozen=True, eq=False)
class Region:
    """A grown DOT: its neighbourhood, the filter it ended up with, and what had to be changed on the way.

    `notes` are `filter_relaxed`, `filter_dropped`, `isolated`, `hub_cut`, and the cuts of the size guard in order:
    `closed:TYPE`, `hops:2`, `layers`.
    """

    near: Neighbourhood
    filter: Filter
    notes: tuple[str, ...] = ()


class TypedGraph:
    """A knowledge graph whose nodes can be picked by type."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph, self.adjacency = graph, graph.adjacency
        self.kinds = [split_types(types) for types in graph.types]
        self._masks: dict[str, np.ndarray] = {}
        for node, kinds in enumerate(self.kinds):
            for kind in kinds:
                if kind not in self._masks:
                    self._masks[kind] = np.zeros(graph.num_entities, dtype=bool)
                self._masks[kind][node] = True

    def of_types(self, names: Sequence[str]) -> np.ndarray:
        """Return which nodes have any of some types; unknown types have none. Shape (num_entities,), bool."""
        mask = np.zeros(self.graph.num_entities, dtype=bool)
        for name in names:
            if name in self._masks:
                mask |= self._masks[name]
        return mask

    def types_of(self, nodes: Sequence[int]) -> list[str]:
        """Return the types of some nodes, each once, by first appearance."""
        return list(dict.fromkeys(kind for node in nodes for kind in self.kinds[node]))

    @cached_property
    def busy_types(self) -> list[str]:
        """Types whose nodes have far more neighbours than others, most first; ties by name."""
        degree = self.adjacency.degree
        overall = float(degree.mean()) if len(degree) else 0.0
        means = {kind: float(degree[mask].mean()) for kind, mask in self._masks.items()}
        return sorted((k for k, mean in means.items() if mean > _BUSY * overall), key=lambda k: (-means[k], k))

    def region(self, anchors: Sequence[int], wanted: Filter, limits: Limits, scores: np.ndarray) -> Region:
        """Grow a DOT from anchors, which are inside whatever their type.

        Nodes of types that are terminal only, and hubs of types that nobody named as passable, end paths but do not
        continue them. `scores` (num_entities,) decide what a hub and the size guard keep.
        """
        wanted, notes = self._loosened(anchors, wanted) if limits.widen else (wanted, [])
        if not self.adjacency.degree[list(anchors)].any():
            notes += ["isolated"]
        near = self._grow(anchors, wanted, limits, scores)
        if any(self.adjacency.degree[a] > limits.hub_degree for a in anchors):
            notes += ["hub_cut"]
        closed: list[str] = []
        for kind in self.busy_types:
            if len(near) <= limits.max_nodes:
                break
            if kind not in (wanted.through or ()):
                closed.append(kind)
                notes.append(f"closed:{kind}")
                near = self._grow(anchors, wanted, limits, scores, closed)
        if len(near) > limits.max_nodes and limits.hops > 2:
            limits = replace(limits, hops=2)
            notes.append("hops:2")
            near = self._grow(anchors, wanted, limits, scores, closed)
        if len(near) > limits.max_nodes:
            notes.append("layers")
            near = near.cut(scores, limits.max_nodes)
        return Region(near, wanted, tuple(notes))

    def _loosened(self, anchors: Sequence[int], wanted: Filter) -> tuple[Filter, list[str]]:
        """Widen a filter that leaves the anchors without a neighbour: by the types next to them, else altogether."""
        if not wanted.allowed:
            return wanted, []
        near = self.adjacency.reach(np.array(anchors, dtype=np.int64))
        if not len(near) or self.of_types(wanted.allowed)[near].any():
            return wanted, []
        more = self.types_of(near.tolist())
        if not more:
            return Filter(), ["filter_dropped"]
        through = wanted.passable or ()
        added = tuple(kind for kind in more if kind not in wanted.allowed)
        return Filter((*wanted.allowed, *added), wanted.terminal, (*through, *added)), ["filter_relaxed"]

    def _grow(
        self,
        anchors: Sequence[int],
        wanted: Filter,
        limits: Limits,
        scores: np.ndarray,
        closed_types: Sequence[str] = (),
    ) -> Neighbourhood:
        degree, passable = self.adjacency.degree, wanted.passable
        named = self.of_types(wanted.through or ())
        shut = (degree > limits.hub_degree) & ~named
        if passable is not None:
            shut |= self.of_types(wanted.terminal) & ~self.of_types(passable)
        shut |= self.of_types(closed_types) & ~named
        rules = Rules(self.of_types(wanted.allowed) if wanted.allowed else None, shut)
        if any(degree[a] > limits.hub_degree for a in anchors):
            rules = replace(rules, hub_degree=limits.hub_degree, hub_keep=limits.hub_degree, scores=scores)
        return grow(self.adjacency, list(anchors), limits.hops, rules)


def completed(wanted: Filter, schema: Schema, starts: Sequence[str], ends: Sequence[str], hops: int) -> Filter:
    """Return a filter with the types added that some walk from the anchors' types to the answer's needs."""
    missing = schema.completion(starts, ends, wanted.allowed, hops) if wanted.allowed else ()
    if not missing:
        return wanted
    through = None if wanted.through is None else (*wanted.through, *missing)
    return Filter((*wanted.allowed, *missing), wanted.terminal, through)


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
    """One division of thought: anchors in a region, and what the search has done so far."""

    number: int  # position among the DOTs of the question
    concept: str  # what its anchors stand for
    region: Region
    rules: Any  # what the judge is told; opaque here
    many: bool = False  # the question asks for a set
    pending: list[tuple[float, str]] = field(default_factory=list)  # (confidence, query) for the next round
    queries: list[str] = field(default_factory=list)  # texts of this round
    issued: list[tuple[str, np.ndarray]] = field(default_factory=list)  # queries so far with their vectors
    visited: set[int] = field(default_factory=set)  # nodes that were destinations
    judged: set[Path] = field(default_factory=set)  # sequences of nodes
    accepted: list[Accepted] = field(default_factory=list)
    idle: int = 0  # rounds in a row without an accepted path
    round: int = 0  # rounds searched
    done: bool = False
    sides: Sides = ()  # of a bridging DOT, the anchors of the two concepts that its paths must touch

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

        `nodes` (num_entities,) and `relations` (num_relations,): best cosine of each with a query of the round.
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
        """Keep what was accepted; returns how many paths. Queries of partial ones wait if their ends are new."""
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
        """Extend the majority verdict of a pattern's exemplars to other candidates; if complete, to the DOT."""
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
    return normalised("".join(c if c.isalnum() else " " for c in text))


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
