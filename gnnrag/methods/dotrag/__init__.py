"""DotRAG: retrieval-time reasoning along paths (Moore, Deng, Mihalcea, Jahanbakhsh).

Each concept of a question becomes a division of thought (DOT). The steps are
S1 neighbourhood selection: concepts, and their anchors in the graph (`anchors`);
S2 neighbourhood construction: rules from a model bound a region around the anchors (`search.TypedGraph.region`);
S3 neighbourhood search: a judge accepts or rejects whole paths, in rounds (`search.Dot`, `paths`);
S4 aggregation: what all DOTs found, as passages, paths and nodes (`evidence`);
S5 the answer, by the reader. Beside the paper, the retriever ranks passages for the same queries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from gnnrag.batching import Worker
from gnnrag.methods.base import Method, State
from gnnrag.methods.dotrag.anchors import AnchorFinder, ConceptAnchors, GraphCosines
from gnnrag.methods.dotrag.evidence import gather, unite
from gnnrag.methods.dotrag.paths import describe
from gnnrag.methods.dotrag.roles import ConceptsTask, DotRules, JudgeTask, RedirectTask, RulesTask, path_texts
from gnnrag.methods.dotrag.schema import Schema, draft, load
from gnnrag.methods.dotrag.search import Dot, RoundPaths, TypedGraph
from gnnrag.parts import part
from gnnrag.retrievers.base import any_of
from gnnrag.session import Session, concurrently
from gnnrag.types import Evidence, Query, Question, Ranking

FOLLOW_UP_WEIGHT = 0.95  # of passages that only a follow-up query found
_ASKS_SET = re.compile(r"\b(?:which|what|list|name all|who (?:are|were|all)|whose|all)\b", re.IGNORECASE)
Count = Annotated[int, Ge(1)]


@part("method", "dotrag")
class DotRAG(Method):
    """Searches a region of the graph for each concept, and reads what the accepted paths rest on.

    The paper gives values for `hops`, `rounds` and the number of concepts (three at most). It names `tau`, `top_nodes`
    (K), `paths_per_target` (P) and `paths_per_round` (C) without values. `preset=paper` switches off what the paper
    does not have: anchors by name, hubs, types of the answer, early stops, verdicts for patterns, and passages besides
    those of the paths.
    """

    # An edited draft of `gnnrag index draft-schema`; null: drafted, without definitions
    schema_file: str | None = None
    set_questions: Literal["auto", "always", "never"] = "auto"  # which questions ask for a set: by their wording (auto)
    top_k: Count = 200  # passages asked for per query
    # true, as in the paper: all nodes from tau on are anchors (else at most 5 that are near the best one, which may be
    # below tau); weak verdicts count; a round may have more than five queries, also two that mean the same; a complete
    # path is dropped if a longer accepted one begins with it
    literal: bool = False
    # S1, concepts and their anchors
    by_name: bool = True  # anchors by name before meaning; false: by cosine alone
    tau: float = 0.6  # least cosine of an anchor that is found by meaning
    topics_only: bool = False  # a broad question starts from its topics alone, as in the paper's prompt
    # S2, rules and the region of a DOT
    hops: Count = 3  # h_max, from the anchors
    hub_degree: Count | None = 500  # nodes with more neighbours are hubs: paths do not pass through them
    type_filter: Literal["rules", "off"] = "rules"  # types that may appear: those that the rules allow, or all
    terminal_only: bool = True  # types of the answer end paths; false: they are expanded like any other
    # S3, the search
    rounds: Count = 3  # T_max
    top_nodes: Count | None = None  # K, destinations of a round; null: 20, or 50 if the question asks for a set
    node_score: Literal["relations", "node"] = "relations"  # the node's cosine, or 0.9 of its best relation's if higher
    paths_per_target: Count = 3  # P, from each anchor to each destination
    paths_per_round: Count = 30  # C, paths that are judged
    spread_paths: bool = True  # one path of each destination before any second; false: all of the best destinations
    pattern_judge: Literal["auto", "always", "never"] = "auto"  # verdicts for patterns: where a set is asked for (auto)
    early_stop: bool = True  # false: all rounds, and destinations of any cosine
    # S4, the evidence
    nodes: Literal["terminal", "path", "resolved"] = "terminal"  # ends of complete paths; all on paths; and of passages
    passages: Count = 20  # for the reader
    tokens: Count = 6000  # of the passages together, and of the paths
    passage_score: Literal["cosine", "retriever"] = "cosine"  # with the question; or the retriever's score
    edge_bonus: float = 0.1  # for a passage that states an edge of an accepted path
    # passages of accepted paths come first, are ranked among the retriever's, or are alone
    order: Literal["paths_first", "mixed", "paths_only"] = "paths_first"

    role_names = ("concepts", "rules", "path_judge", "redirect")

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """Vectors of passages only where passages are ranked by cosine."""
        return ("knowledge", "knowledge_vectors", *(("embeddings",) if self.passage_score == "cosine" else ()))

    def setup(self) -> None:
        """Prepare graph, schema and names. Raises DataError where `schema_file` does not fit the graph."""
        graph = self.index.knowledge
        self.worker, self.meaning = Worker(), GraphCosines(self.index)
        self.graph, self.anchors = TypedGraph(graph), AnchorFinder(graph, self)
        self.schema: Schema = load(Path(self.schema_file), graph) if self.schema_file else draft(graph)
        self.concepts, self.rules, self.judge, self.redirect = (self.roles[name] for name in self.role_names)

    async def start(self, question: Question, session: Session) -> State:
        """S1 and S2: concepts, their anchors, and for each the rules and the region of its DOT."""
        state = State(question, session)
        if session.filter:
            passing = self.index.matching(session.filter)
            state.memory["scope"] = any_of(self.index.knowledge.entity_passages, passing)
        position = self.index.knowledge.position
        starts = [ConceptAnchors(s, (position[s],), "given") for s in question.seeds if s in position]
        if not starts:
            concepts = await self.concepts(ConceptsTask(question, self.schema), session)
            session.flag("concepts", *concepts.flags)
            starts, flags = await self.worker(lambda: self.anchors.choose(self.meaning, concepts, question.text))
            session.counts.update(flags)
        session.counts.update(schema_lacks=len(self.schema.lacking))
        many = {"always": True, "never": False}.get(self.set_questions, bool(_ASKS_SET.search(question.text)))
        jobs = [partial(self._open_dot, state, i, s, many) for i, s in enumerate(starts)]
        state.memory["dots"] = await concurrently(session, jobs)
        return state

    async def _open_dot(self, state: State, number: int, start: ConceptAnchors, many: bool, session: Session) -> Dot:
        """S2: the rules of one DOT, and its region."""
        anchors = start.nodes
        names, kinds = tuple(self.index.knowledge.names[a] for a in anchors), tuple(self.graph.types_of(anchors))
        task = RulesTask(state.question, self.schema, start.text, names, kinds)
        rules: DotRules = await self.rules(task, session)
        session.flag("rules", *rules.flags)
        scope = state.memory.get("scope")
        near = await self.worker(lambda: self.graph.region(anchors, rules, self, scope))
        types = rules.allowed_types if self.type_filter == "rules" else ()
        session.record("dot", number=number, concept=start.text, anchors=list(names), rule=start.rule,
                       nodes=len(near), types=list(types))  # fmt: skip
        dot = Dot(number, start.text, near, rules, self.index.knowledge, self, many)
        dot.pending, dot.done = [(1.0, state.question.text)], dot.is_isolated
        session.counts["isolated"] += dot.is_isolated
        return dot

    async def propose(self, state: State) -> list[Query]:
        """The queries of all DOTs: at first the question, then what partial paths ask for, or a new direction."""
        kinds = {} if state.round else {state.question.text: "question"}
        active = [dot for dot in state.memory["dots"] if not dot.done and state.round < self.rounds]
        await self.worker(lambda: [dot.follow_up(self.meaning.vector) for dot in active])
        await concurrently(state.session, [partial(self._redirect, state, dot) for dot in active if not dot.queries])
        for dot in active:
            dot.done = not dot.queries
            kinds |= {text: "followup" for text in dot.queries if text not in kinds}
        return [Query(text, top_k=self.top_k, origin=origin) for text, origin in kinds.items()]

    async def _redirect(self, state: State, dot: Dot, session: Session) -> None:
        """Ask once for a query in a new direction, as no query is left."""
        history = tuple(text for text, _ in dot.issued)
        accepted = tuple(describe(self.index.knowledge, path.nodes) for path in dot.accepted[:20])
        task = RedirectTask(state.question, dot.rules, dot.concept, history, accepted, self.rounds - state.round)
        redirect = await self.redirect(task, session)
        session.flag("redirect", *redirect.flags)
        if redirect.query:
            dot.admit(redirect.query, await self.worker(lambda: self.meaning.vector(redirect.query)))

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """S3, one round: search every DOT with its queries; passages of all queries go into the pool."""
        for query, ranking in zip(queries, rankings, strict=True):
            state.pool.merge(ranking, weight=1.0 if query.origin == "question" else FOLLOW_UP_WEIGHT)
        dots = state.memory["dots"]
        await concurrently(state.session, [partial(self._search, state, dot) for dot in dots if not dot.done])
        state.done = all(dot.done for dot in dots)

    async def _search(self, state: State, dot: Dot, session: Session) -> None:
        """S3, one round of one DOT: destinations, paths to them, the judge's verdicts, and follow-up queries."""

        def find() -> tuple[RoundPaths, np.ndarray]:
            cosines = self.meaning.nodes(*dot.queries)
            return dot.find_paths(cosines, self.meaning.relations(*dot.queries)), cosines

        round_paths, cosines = await self.worker(find)
        if not round_paths.paths:
            dot.done = self.early_stop
            return
        history = tuple(text for text, _ in dot.issued)
        paths = path_texts(self.index.knowledge, round_paths.paths, cosines)
        judged = await self.judge(JudgeTask(state.question, self.schema, dot.rules, history, paths), session)
        session.flag("path_judge", *judged.flags)
        kept = await self.worker(lambda: dot.accept(round_paths, judged.items))
        session.record("judged", dot=dot.number, round=state.round, paths=len(round_paths.paths), kept=kept,
                       labels=[[j.label, round(j.confidence, 3)] for j in judged.items])  # fmt: skip

    async def select(self, state: State) -> Evidence:
        """S4: unite the DOTs, and choose their passages, paths and nodes."""
        cosines: np.ndarray | None = None
        if self.passage_score == "cosine":
            cosines = (await self.worker(lambda: self.index.dense_scores([state.question.text])))[0]
        findings = unite(state.memory["dots"])
        return gather(self.index, findings, cosines, state.pool, self, state.session)
