"""Paths of a knowledge graph that a question can be made of, and what is told of one (DotRAG, specification 8.5)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.index import Index
from gnnrag.prompts.untrusted import inline
from gnnrag.questions.wording import Wording, cue_of, fits, names_fit, wording_of
from gnnrag.text.normalise import phrase_key
from gnnrag.types import Passage

TIMES = frozenset(("date", "year", "number", "rating", "votes"))  # good answers, but nothing leads on from them
UNSURE = "unsure"
_ENDS_WELL = re.compile(r"[\w)\"'’]\.?$")  # a name with a mark of its own at its end spoils the sentence
_GROUPS_TRIED = 4  # relations of a node before a walk is given up


@dataclass(frozen=True, slots=True)
class Step:
    """One edge of a path: `source` and `target` in its direction, `is_forward` where that is from head to tail.

    `wording` is None where only the graph's own text tells it. `is_other`: the relation also leads to an entity of the
    path before, so that the target is "the other" one.
    """

    source: int
    target: int
    relation: int
    is_forward: bool
    wording: Wording | None = None
    is_other: bool = False


@dataclass(frozen=True, slots=True)
class GraphPath:
    """E1 to E(n+1) over n steps; the question starts at the first, its answer is the last."""

    nodes: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """Which paths are taken: of `hops` steps, entities of `min_degree` neighbours or more, none of type `unsure`.

    Entities above `percentile` of the degrees are hubs. `typed`: an entity has a known type, or a passage is about it.
    `worded`: every relation has a wording and leads to one entity alone, so that the question has one answer.
    """

    hops: int = 3
    min_degree: int = 2
    percentile: float = 95.0
    typed: bool = True
    worded: bool = True


class PathSampler:
    """Draws simple paths without shortcuts, none of them through hubs."""

    def __init__(self, graph: KnowledgeGraph, rules: SamplingRules, titles: Iterable[str] = ()) -> None:
        self._graph, self._rules, self._adjacency = graph, rules, graph.adjacency
        degrees = self._adjacency.degree
        joined = degrees[degrees > 0]
        self.max_degree = float(np.percentile(joined, rules.percentile)) if len(joined) else 0.0
        kinds = [set(kind.lower().split("|")) - {""} for kind in graph.types]
        about = set(titles)
        named = [bool(kind) or not rules.typed or name in about for kind, name in zip(kinds, graph.names, strict=True)]
        known = np.array([ok and UNSURE not in kind for ok, kind in zip(named, kinds, strict=True)], dtype=bool)
        self._is_usable = known & (degrees >= rules.min_degree) & (degrees <= self.max_degree)
        self._is_time = np.array([bool(kind & TIMES) for kind in kinds], dtype=bool)
        self._groups = self._worded() if rules.worded else self._plain()
        self._starts = [
            node
            for node in sorted(self._groups)
            if self._is_usable[node] and not self._is_time[node] and _ENDS_WELL.search(graph.names[node])
        ]

    def draw(self, seed: int, attempts: int) -> Iterator[GraphPath]:
        """Yield paths in an order that the seed decides; one may come twice. `attempts` is a number of walks."""
        rng = random.Random(seed)
        for _ in range(attempts if self._starts else 0):
            path = self._walk(rng)
            if path:
                yield path

    def _walk(self, rng: random.Random) -> GraphPath | None:
        nodes, steps = [rng.choice(self._starts)], list[Step]()
        while len(steps) < self._rules.hops:
            step = next((s for s in self._choices(rng, nodes) if self._may_follow(nodes, s.target)), None)
            if step is None or (self._is_time[step.target] and len(steps) + 1 < self._rules.hops):
                return None
            nodes.append(step.target)
            steps.append(step)
        return GraphPath(tuple(nodes), tuple(steps))

    def _choices(self, rng: random.Random, nodes: list[int]) -> Iterator[Step]:
        groups = self._groups.get(nodes[-1], [])
        for wording, is_forward, targets in rng.sample(groups, min(_GROUPS_TRIED, len(groups))):
            new = [(target, relation) for target, relation in targets if target not in nodes]
            if len({target for target, _ in new}) == 1:
                target, relation = new[0]
                yield Step(nodes[-1], target, relation, is_forward, wording, len(new) < len(targets))

    def _may_follow(self, nodes: list[int], target: int) -> bool:
        """Tell whether an entity is usable, and joined to no entity of the path but the last."""
        if not self._is_usable[target]:
            return False
        key = phrase_key(self._graph.names[target])
        if not key or any(key == phrase_key(self._graph.names[node]) for node in nodes):
            return False
        around = self._adjacency.neighbours_of(target)
        return not any(node in around for node in nodes[:-1])

    def _worded(self) -> dict[int, list[tuple[Wording | None, bool, list[tuple[int, int]]]]]:
        """Return for each entity its relations by wording and direction, with all that they lead to."""
        graph = self._graph
        relations: dict[int, dict[tuple[str, bool], tuple[Wording, list[tuple[int, int]]]]] = {}
        for relation, (head, tail) in enumerate(graph.ends.tolist()):
            predicate = graph.labels[relation] or cue_of(graph.texts[relation], graph.names[head], graph.names[tail])
            wording = wording_of(predicate, bool(self._is_time[tail])) if predicate and head != tail else None
            if wording is None or not fits(wording, graph.types[head], graph.types[tail]):
                continue
            if not names_fit(wording, graph.names[head], graph.names[tail]):
                continue
            for source, target, is_forward in ((head, tail, True), (tail, head, False)):
                if wording.is_one_way and not is_forward:
                    continue
                groups = relations.setdefault(source, {})
                groups.setdefault((wording.key, is_forward), (wording, []))[1].append((target, relation))
        return {
            node: [(wording, is_forward, targets) for (_, is_forward), (wording, targets) in groups.items()]
            for node, groups in relations.items()
        }

    def _plain(self) -> dict[int, list[tuple[Wording | None, bool, list[tuple[int, int]]]]]:
        graph = self._graph
        relations: dict[int, list[tuple[Wording | None, bool, list[tuple[int, int]]]]] = {}
        for relation, (head, tail) in enumerate(graph.ends.tolist()):
            if head != tail and (graph.labels[relation] or graph.texts[relation]).strip():
                relations.setdefault(head, []).append((None, True, [(tail, relation)]))
                relations.setdefault(tail, []).append((None, False, [(head, relation)]))
        return relations


# What a question's author is told of a path, and what the question's row says of it.

_DESCRIBED = 200  # characters of a description that are shown


@dataclass(frozen=True, slots=True)
class PathNames:
    """The names of a path's entities, the name first and then its aliases; `names[0]` is E1, the last is the answer."""

    names: tuple[tuple[str, ...], ...]

    @property
    def start(self) -> str:
        """The name that a question must have."""
        return self.names[0][0]

    @property
    def answer(self) -> str:
        """The name of the last entity."""
        return self.names[-1][0]


@dataclass(frozen=True)
class PathView:
    """A path with the names and texts of its graph, and the passages that state it."""

    index: Index
    path: GraphPath

    @property
    def graph(self) -> KnowledgeGraph:
        """The knowledge graph."""
        return self.index.knowledge

    @property
    def names(self) -> PathNames:
        """The names of the entities, E1 first."""
        return PathNames(tuple((self.graph.names[n], *self.graph.aliases[n]) for n in self.path.nodes))

    @property
    def lines(self) -> str:
        """The path for a language model: a line for each entity, and one for each relation."""
        number = {node: f"E{i}" for i, node in enumerate(self.path.nodes, start=1)}
        lines = []
        for node in self.path.nodes:
            kind = self.graph.types[node].replace("|", " or ") or "unknown"
            description = self.graph.descriptions[node][:_DESCRIBED]
            name = f"{number[node]} = {self.graph.names[node]} (type: {kind})"
            lines.append(inline(name + (f": {description}" if description else "")))
        for step in self.path.steps:
            head, tail = (int(n) for n in self.graph.ends[step.relation])
            lines.append(inline(f"{number[head]} -> {number[tail]}: {self.graph.statement(step.relation)}"))
        return "\n".join(lines)

    @property
    def triples(self) -> list[tuple[str, str, str]]:
        """The relations of the path as the graph states them: head, relation, tail."""
        graph, found = self.graph, []
        for step in self.path.steps:
            head, tail = graph.ends[step.relation]
            label = graph.labels[step.relation] or (step.wording.key if step.wording else "")
            label = label or graph.texts[step.relation]
            found.append((graph.names[head], label.replace("_", " "), graph.names[tail]))
        return found

    def gold(self, step: Step) -> str:
        """Return the passage stating a step: the one about its source, else about its target, else the first."""
        rows = [self.index.passages[i] for i in self.graph.relation_passages[step.relation]]
        for node in (step.source, step.target):
            key = phrase_key(self.graph.names[node])
            for passage in rows:
                if phrase_key(passage.title) == key:
                    return passage.id
        return rows[0].id

    def start_passages(self, most: int) -> tuple[Passage, ...]:
        """Return passages that mention E1, those about it first."""
        start = self.path.nodes[0]
        rows = [self.index.passages[i] for i in self.graph.entity_passages[start]]
        key = phrase_key(self.graph.names[start])
        return tuple(sorted(rows, key=lambda p: phrase_key(p.title) != key)[:most])

    def row(self, row_id: str, question: str, parts: list[str], origin: dict[str, Any]) -> dict[str, Any]:
        """Return a line of a canonical questions file."""
        golds = [self.gold(step) for step in self.path.steps]
        names = [self.graph.names[node] for node in self.path.nodes]
        hops = zip(parts, names[1:], golds, strict=True)
        return {
            "id": row_id,
            "question": question,
            "answers": list(dict.fromkeys(self.names.names[-1])),
            "type": f"{len(self.path.steps)}hop",
            "gold": list(dict.fromkeys(golds)),
            "evidence": [list(triple) for triple in self.triples],
            "decomposition": [{"question": q, "answer": a, "gold": g} for q, a, g in hops],
            "hops": len(self.path.steps),
            "anchor": names[0],
            "path": names,
            "generator": origin,
            # Methods are scored by the nodes they find where the nodes are the corpus.
            **({"nodes": [names[-1]]} if self.index.config.extract.method == "kb" else {}),
        }
