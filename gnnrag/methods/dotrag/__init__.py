"""DotRAG: concepts, rules, search by dots, judged paths, redirects, evidence; its settings.

Each concept becomes a division of thought (DOT): anchors, a region of the graph that rules bound, and a search in it
whose whole paths a judge accepts or rejects. Nodes are ranked by one matrix-vector product a query, then masked; the
retriever ranks passages for the same queries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.waiting import Worker
from gnnrag.errors import ConfigError
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.llm.base import estimate_tokens
from gnnrag.methods.base import Method, State
from gnnrag.methods.dotrag.paths import Accepted, Findings, aggregate, describe, pattern_of
from gnnrag.methods.dotrag.roles import ConceptsTask, DotRules, JudgeTask, RedirectTask, RulesTask, path_texts
from gnnrag.methods.dotrag.schema import Schema, draft, load
from gnnrag.methods.dotrag.search import Dot, Filter, Found, Limits, Region, SearchConfig, TypedGraph, completed
from gnnrag.methods.dotrag.start import AnchorSelector, SemanticScorer, Start, StartConfig
from gnnrag.pool import Pool
from gnnrag.session import Session, concurrently
from gnnrag.types import Evidence, Query, Question, Ranking

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


# --------------------------------------------------------------------------------------------------------- the method
CHOICES = {
    "search.node_score": ("node", "relations"),
    "search.pattern_judge": ("auto", "always", "never"),
    "output.nodes": ("terminal", "path", "resolved"),
    "output.passage_score": ("cosine", "retriever"),
    "set_questions": ("auto", "always", "never"),
}
LEAST = {"search.rounds": 1, "search.top_nodes": 1, "search.top_nodes_set": 1, "search.paths_per_target": 1}
LEAST |= {"search.paths_per_round": 1, "search.exemplars": 1, "start.hops": 1, "start.max_nodes": 1, "top_k": 1}
_ALL = 10**9  # more than any graph or search has: no bound
# `paper` is the method by the letter; what has no switch is in configs/papers/dotrag/table1.yaml. Where it only says
# that there is a number (tau, K, P, C, topics, their nodes, passages), it is that of `ours`; K is one for all.
PRESETS: dict[str, dict[str, Any]] = {
    "ours": {},
    "paper": {
        "start": {
            **{"by_name": False, "max_anchors": _ALL, "margin": 2.0, "floor": 2.0, "topics_only": True},
            **{"widen_filter": False, "terminal_only": False, "max_nodes": _ALL, "hub_degree": _ALL},
        },
        "search": {
            **{"top_nodes_set": 20, "node_score": "node", "spread_paths": False, "pattern_judge": "never"},
            **{"follow_ups": _ALL, "duplicate_cosine": 2.0, "early_stop": False, "lift_filter": False},
            **{"min_confidence": 0.0, "drop_complete_prefix": True},
        },
        "output": {
            **{"nodes": "resolved", "passage_score": "cosine", "path_bonus": 0.0, "edge_bonus": 0.0, "fill": False},
        },
        "set_questions": "never",
    },
}


@dataclass
class DotRAGConfig:
    """Settings of `DotRAG`, by step (specification, section 10); those given go before those of a preset."""

    schema_file: str | None = None  # an edited draft of `gnnrag index draft-schema`; null: drafted, without definitions
    start: StartConfig = field(default_factory=StartConfig)  # concepts, anchors, size of a DOT
    search: SearchConfig = field(default_factory=SearchConfig)
    output: OutputConfig = field(default_factory=OutputConfig)  # what comes out, and within which budgets
    set_questions: str = "auto"  # which questions ask for a set: by their wording (auto), always, never
    top_k: int = 200  # passages asked for per query


def check(config: DotRAGConfig) -> None:
    """Raise ConfigError where a switch has an unknown value or a number is too small."""
    for name, allowed in CHOICES.items():
        if (value := _setting(config, name)) not in allowed:
            raise ConfigError(f"method.{name}={value!r}: allowed are {', '.join(allowed)}")
    for name, least in LEAST.items():
        if (value := _setting(config, name)) < least:
            raise ConfigError(f"method.{name}={value}: must be at least {least}")


def _setting(config: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        config = getattr(config, name)
    return config


_ASKS_SET = re.compile(r"\b(?:which|what|list|name all|who (?:are|were|all)|whose|all)\b", re.IGNORECASE)


class DotRAG(Method):
    """Searches the region of each concept by whole paths, and reads what the accepted ones rest on.

    Needs an index with a knowledge graph and its vectors. Raises ConfigError where a setting is out of range, DataError
    where the schema file cannot be read or does not fit the graph.
    """

    config_class, presets, check_settings = DotRAGConfig, PRESETS, staticmethod(check)
    role_names = ("concepts", "rules", "path_judge", "redirect")

    def __init__(self, index: Any, roles: Any, config: DotRAGConfig | None = None) -> None:
        self.index, self.config = index, config or DotRAGConfig()
        check(self.config)
        start = self.config.start
        self.limits = Limits(start.hops, start.max_nodes, start.hub_degree, start.widen_filter)
        self.worker = Worker()
        self.concepts, self.rules, self.judge, self.redirect = (roles[name] for name in self.role_names)

    @staticmethod
    def stages_for(config: DotRAGConfig) -> tuple[str, ...]:
        """Return the stages that settings need: vectors of passages only where passages are ranked by cosine."""
        cosine = config.output.passage_score == "cosine"
        return ("knowledge", "knowledge_vectors", *(("embeddings",) if cosine else ()))

    @cached_property
    def graph(self) -> TypedGraph:
        """The knowledge graph, by type."""
        return TypedGraph(self.index.knowledge)

    @cached_property
    def schema(self) -> Schema:
        """What the roles are told of the graph."""
        file = self.config.schema_file
        return load(Path(file), self.index.knowledge) if file else draft(self.index.knowledge)

    @cached_property
    def meaning(self) -> SemanticScorer:
        """Cosines of texts with nodes and relations."""
        return SemanticScorer(self.index.embedder.encode, self.index.knowledge_vectors.scores)

    @cached_property
    def starter(self) -> AnchorSelector:
        """Concepts to anchors."""
        return AnchorSelector(self.index.knowledge, self.meaning, self.config.start)

    async def start(self, question: Question, session: Session) -> State:
        """S1 and S2: concepts, their anchors, and for each the rules and the region of its DOT."""
        state = State(question, session)
        found = await self.concepts(ConceptsTask(question, self.schema), session)
        session.flag("concepts", *found.flags)
        named = [(concept.span, concept.type, concept.description) for concept in found.named]
        has_names = found.use_anchors and bool(named)
        starts, flags = await self.worker(lambda: self.starter.choose(named, found.topics, question.text, has_names))
        session.counts.update(flags)
        starts, hubs = self.starter.split_hubs(starts)
        session.counts.update(hub_as_constraint=bool(hubs), schema_lacks=len(self.schema.lacking))
        starts = self.starter.with_bridge(starts)
        many = {"always": True, "never": False}.get(self.config.set_questions, bool(_ASKS_SET.search(question.text)))
        state.memory["must_touch"] = hubs
        jobs = [partial(self._open, state, i, s, many) for i, s in enumerate(starts)]
        state.memory["dots"] = await concurrently(session, jobs)
        return state

    async def _open(self, state: State, number: int, start: Start, many: bool, session: Session) -> Dot:
        """S2: the rules of one DOT, and its region."""
        anchors, cfg = start.anchors.nodes, self.config.start
        names, kinds = tuple(self.index.knowledge.names[a] for a in anchors), tuple(self.graph.types_of(anchors))
        rules: DotRules = await self.rules(RulesTask(state.question, self.schema, start.text, names, kinds), session)
        session.flag("rules", *rules.flags)
        wanted = Filter(
            rules.allowed_types if cfg.use_filter else (),
            rules.terminal_types if cfg.terminal_only else (),
            rules.through_types if cfg.terminal_only else None,
        )
        full = completed(wanted, self.schema, kinds, rules.terminal_types, cfg.hops) if cfg.widen_filter else wanted
        session.counts["filter_completed"] += full != wanted
        region = await self.worker(lambda: self._region(anchors, full, state.question.text, rules.terminal))
        session.counts.update(note.partition(":")[0] for note in region.notes)
        session.record("dot", number=number, concept=start.text, anchors=list(names), rule=start.anchors.rule,
                       nodes=len(region.near), notes=list(region.notes), types=list(region.filter.allowed))  # fmt: skip
        done = "isolated" in region.notes
        return Dot(number, start.text, region, rules, many, [(1.0, state.question.text)], done=done, sides=start.sides)

    def _region(self, anchors: Sequence[int], wanted: Filter, *texts: str) -> Region:
        """Return the region around anchors; where it grows too large, the nodes nearest to one of the texts stay."""
        aim = np.max([self.meaning.nodes(text) for text in texts if text], axis=0)
        return self.graph.region(anchors, wanted, self.limits, aim)

    async def propose(self, state: State) -> list[Query]:
        """The queries of all DOTs: at first the question, then what partial paths ask for, or a new direction."""
        cfg, texts = self.config.search, {} if state.round else {state.question.text: "question"}
        active = [dot for dot in state.memory["dots"] if not dot.done and state.round < cfg.rounds]
        await self.worker(lambda: self._follow_up(active))
        await concurrently(state.session, [partial(self._redirect, state, dot) for dot in active if not dot.queries])
        for dot in active:
            dot.done = not dot.queries
            texts |= {text: "followup" for text in dot.queries if text not in texts}
        return [Query(text, top_k=self.config.top_k, kind=kind) for text, kind in texts.items()]

    def _follow_up(self, dots: Sequence[Dot]) -> None:
        """Take what partial paths ask for into the round, the surest first."""
        for dot in dots:
            dot.queries = []
            for _, text in sorted(dot.pending, key=lambda pair: -pair[0]):
                dot.admit(text, self.meaning.vector(text), self.config.search)
            dot.pending = []

    async def _redirect(self, state: State, dot: Dot, session: Session) -> None:
        """Nothing is left to follow: ask once for another direction."""
        history, left = tuple(text for text, _ in dot.issued), self.config.search.rounds - state.round
        accepted = tuple(describe(self.index.knowledge, path.nodes) for path in dot.accepted[:20])
        task = RedirectTask(state.question, dot.rules, dot.concept, history, accepted, left)
        found = await self.redirect(task, session)
        session.flag("redirect", *found.flags)
        if found.query:
            vector = await self.worker(lambda: self.meaning.vector(found.query))
            dot.admit(found.query, vector, self.config.search)

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """S3, one round: search every DOT with its queries; passages of all queries go into the pool."""
        for query, ranking in zip(queries, rankings, strict=True):
            state.pool.merge(ranking, weight=1.0 if query.kind == "question" else self.config.output.follow_up_weight)
        dots = state.memory["dots"]
        await concurrently(state.session, [partial(self._search, state, dot) for dot in dots if not dot.done])
        state.done = all(dot.done for dot in dots)

    async def _search(self, state: State, dot: Dot, session: Session) -> None:
        """Candidates, paths, verdicts, and what follows from them."""
        graph, cfg = self.index.knowledge, self.config.search
        found, nodes = await self.worker(lambda: self._find(dot))
        if not found.paths:
            dot.done = cfg.early_stop
            return
        history = tuple(text for text, _ in dot.issued)
        task = JudgeTask(state.question, self.schema, dot.rules, history, path_texts(graph, found.paths, nodes))
        judged = await self.judge(task, session)
        session.flag("path_judge", *judged.flags)
        kept = await self.worker(lambda: dot.take(found, judged.items, graph, cfg))
        session.record("judged", dot=dot.number, round=state.round, paths=len(found.paths), kept=kept,
                       labels=[[j.label, round(j.confidence, 3)] for j in judged.items])  # fmt: skip
        if cfg.lift_filter and dot.idle == 2 == dot.round and dot.region.filter.allowed:
            anchors = dot.region.near.anchors
            dot.region = await self.worker(lambda: self._region(anchors, Filter(), state.question.text))
            dot.done = not dot.has_unvisited
            session.counts["filter_relaxed"] += 1

    def _find(self, dot: Dot) -> tuple[Found, np.ndarray]:
        """Return the paths of a round, and the best cosine of each node with one of its queries."""
        nodes = np.max([self.meaning.nodes(text) for text in dot.queries], axis=0)
        relations = np.max([self.meaning.relations(text) for text in dot.queries], axis=0)
        return dot.find(self.index.knowledge, nodes, relations, self.config.search), nodes

    async def select(self, state: State) -> Evidence:
        """S4: unite the DOTs; their passages, paths and nodes."""
        scores = None
        if self.config.output.passage_score == "cosine":
            scores = (await self.worker(lambda: self.index.dense_scores([state.question.text])))[0]
        graph, base = self.index.knowledge, Base(self.index.ids, self.index.passages, scores)
        findings = unite(graph, state.memory["dots"], state.memory["must_touch"])
        return gather_evidence(graph, findings, base, state.pool, self.config.output, state.session)
