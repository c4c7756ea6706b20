"""MGranRAG: iterative multi-granular retrieval on the contextual hierarchical graph (AAAI 2026)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from gnnrag.batching import Worker
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.methods.base import Method, State
from gnnrag.methods.mgranrag.evidence import EvidenceTask, ExtractedEvidence, ShownSentence
from gnnrag.methods.mgranrag.graph import (
    EvidenceMemory,
    Overlay,
    PhraseAligner,
    SeedConstants,
    Seeds,
    confidence,
    is_kept,
    reset_of,
)
from gnnrag.parts import part
from gnnrag.roles.base import DecomposeTask
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking

TOP_K, READER_TOP_K, DAMPING = 200, 5, 0.5


@part("method", "mgranrag")
class MGranRAG(Method):
    """Reads the best passages for evidence, and ranks all passages by PageRank from that evidence.

    The settings are the released code's with its defects repaired. `preset=official` is the released code, defects
    included, `preset=paper` equations 1 to 5 as printed.
    """

    iterations: Annotated[int, Ge(0)] = 1  # T: how many times evidence is read and ranked; 0 is dense retrieval
    candidates: Annotated[int, Ge(1)] = 10  # M: passages read in an iteration
    # what is read next: the best by PageRank, or by the augmented query
    next_candidates: Literal["ppr", "dense_aug"] = "ppr"
    # none: all candidates are read; skip: those read before are dropped, which takes fewer tokens; refill: they are
    # dropped, and the next in rank are taken
    skip_read: Literal["none", "skip", "refill"] = "skip"
    # what phrases named as evidence add to the graph. off: nothing; edges: to existing nodes; both: new nodes, too
    expand_graph: Literal["off", "edges", "both"] = "both"
    psi_norm: Literal["supported", "all"] = "supported"  # sub-questions of the mean in eq. 1: supported ones, or all
    keep_rule: bool = True  # drop weak evidence
    sentence_scope: Literal["memory", "new"] = "memory"  # evidence that seeds: all, or this round's
    merge_keywords: Literal["union", "replace"] = "union"  # phrases of a sentence extracted again
    augment_new: bool = False  # the augmented query takes all new evidence, not only what fully supports (`chosen`)
    similar: Annotated[int, Ge(1)] | None = 400  # passages whose similarity counts (eq. 2); null: all
    # true, as in the released code: (1) sub-questions are sorted; (2) the augmented query is labelled as there;
    # (3) phrases that differ in case are different unless their vectors agree
    released: bool = False
    # named phrases are aligned with graph nodes by vector and text, or by text alone
    phrase_match: Literal["embedding", "exact"] = "embedding"
    phrase_same: float = 0.9  # least cosine of two spellings of one phrase; depends on the embedder
    ablate: list[Literal["decomposition", "augmentation", "ppr"]] = field(default_factory=list)  # Table 4
    weights: SeedConstants = field(default_factory=SeedConstants)

    role_names = ("decomposer", "evidence_extractor")
    reads = ("hierarchy", "phrase_vectors", "embeddings")

    def setup(self) -> None:
        self.graph = self.index.hierarchy
        vectors = self.index.phrase_vectors if self.phrase_match == "embedding" else None
        self.aligner = PhraseAligner(self.graph, vectors, self.index.embedder, self.phrase_same, not self.released)
        self.walk = PageRankOperator(self.graph.adjacency, DAMPING)
        self.worker = Worker()

    async def start(self, question: Question, session: Session) -> State:
        """Decompose the question into sub-questions, and find the phrases that it names."""
        state = State(question, session)
        parts: tuple[str, ...] = ()
        if "decomposition" not in self.ablate:
            decomposition = await self.roles["decomposer"](DecomposeTask(question), session)
            session.flag("decomposer", *decomposition.flags)
            parts = tuple(sorted(decomposition.parts)) if self.released else decomposition.parts
        overlay, phrases = Overlay(self.graph.num_nodes), self.index.question_phrases(question.text)
        state.memory.update(parts=parts, phrases=phrases, evidence=EvidenceMemory(), overlay=overlay)
        session.record("decomposition", parts=list(parts))
        return state

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question. Then read, and ask the question augmented with the evidence."""
        if state.round == 0:
            return [Query(state.question.text, top_k=TOP_K)]
        if state.round > self.iterations:
            return []
        evidence: EvidenceMemory = state.memory["evidence"]
        before = (state.memory.get("read_now"), dict(evidence.units))
        await self._read(state)
        if before == (state.memory["read_now"], evidence.units):
            return []  # the same passages gave the same evidence: the round would repeat itself
        text = state.question.text
        if "augmentation" not in self.ablate:
            text = evidence.augment(text, len(state.memory["parts"]), self.released, self.augment_new)
        return [Query(text, top_k=self.similar or self.graph.num_passages, origin="augmented")]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Rank all passages by PageRank from the evidence (eq. 5); without evidence the ranking stays as it is."""
        ranking, memory = rankings[0], state.memory
        memory["ranked"] = memory["next"] = list(ranking.ids)
        if state.round == 0 or not memory["evidence"].units:
            return
        cosines = ranking.scores if ranking.branch == "cosine" else ranking.normalised()
        similarity = {self.index.position[i]: float(s) for i, s in zip(ranking.ids, cosines, strict=True)}

        def score_nodes() -> np.ndarray:  # shape (num_nodes,), or (0,) if no node has weight
            reset, walk = self.reset_and_walk(state, similarity)
            if "ppr" in self.ablate:
                return reset
            return walk.solve(reset, 1e-8) if reset.sum() > 0 else np.zeros(0)

        scores, overlay = await self.worker(score_nodes), memory["overlay"]
        state.session.record("expansion", nodes=len(overlay.phrases), edges=len(overlay.edges))
        if "ppr" not in self.ablate:
            memory["previous"] = scores[: self.graph.num_nodes] if len(scores) else None
        if len(scores):
            order = np.argsort(-scores[: self.graph.num_passages], kind="stable")
            if state.session.filter:
                order = order[self.index.matching(state.session.filter)[order]]
            order = order[:TOP_K]
            memory["ranked"] = [self.index.ids[p] for p in order.tolist()]
        if self.next_candidates == "ppr":
            memory["next"] = memory["ranked"]
        state.session.record("mgranrag", round=state.round, before=list(ranking.ids[:10]), after=memory["ranked"][:10])

    async def select(self, state: State) -> Evidence:
        """Return the last round's ranking; the reader sees its first passages."""
        ranked = state.memory.get("ranked", [])
        return Evidence(ranked[:TOP_K], ranked[:READER_TOP_K])

    async def _read(self, state: State) -> None:
        """Extract the evidence in the candidates, compute its confidence (eq. 1), and add it to the memory."""
        memory, graph = state.memory, self.graph
        evidence: EvidenceMemory = memory["evidence"]
        chosen = [self.index.position[i] for i in memory["next"]]
        if self.skip_read == "skip":
            chosen = chosen[: self.candidates]
        if self.skip_read != "none":
            chosen = [p for p in chosen if p not in evidence.read_so_far]
        chosen = memory["read_now"] = chosen[: self.candidates]
        nodes = [(p, s) for p in chosen for s in graph.passage_sentences[p].tolist()]
        shown = tuple(ShownSentence(graph.sentences[s], self.index.ids[p]) for p, s in nodes)
        extracted = ExtractedEvidence()
        if shown:
            facts = tuple(unit.text for unit in evidence.ranked())
            task = EvidenceTask(state.question, memory["parts"], shown, facts)
            extracted = await self.roles["evidence_extractor"](task, state.session)
        state.session.flag("evidence_extractor", *extracted.flags)
        units = []
        for item in extracted.items:
            psi = confidence(item.labels, len(memory["parts"]), self.psi_norm)
            if not self.keep_rule or is_kept(item.labels):
                units.append(replace(item, node=graph.first_sentence + nodes[item.node][1], psi=psi))
        evidence.merge(units, self.merge_keywords)
        evidence.read_so_far.update(chosen)

    def reset_and_walk(self, state: State, similarity: dict[int, float]) -> tuple[np.ndarray, PageRankOperator]:
        """Return the reset (eqs. 2 to 4), shape (num_nodes,), and the walk on the graph with this question's additions.

        `similarity` maps passage positions to their cosine with the augmented query.
        """
        memory, graph = state.memory, self.graph
        evidence: EvidenceMemory = memory["evidence"]
        overlay: Overlay = memory["overlay"]
        units = [u for u in evidence.units.values() if self.sentence_scope == "memory" or u.node in evidence.new]
        named = self.aligner.named(units, overlay, self.expand_graph)
        unnamed = [self.aligner.entities_of(u.node, nodes) for u, nodes in zip(units, named, strict=True)]
        read = {graph.first_sentence + s for p in evidence.read_so_far for s in graph.passage_sentences[p].tolist()}
        is_released = self.weights.form == "released"
        asked = self.aligner.asked(memory["phrases"], units if is_released else None)
        best = max((unit.psi for unit in evidence.units.values()), default=0.0)
        unused = sorted(read - evidence.units.keys())
        seeds = Seeds(similarity, units, named, unnamed, asked, best, memory.get("previous"), unused)
        reset = reset_of(seeds, overlay.degrees(graph.degrees), graph.num_passages, self.weights)
        walk = PageRankOperator(overlay.adjacency(graph.adjacency), DAMPING) if overlay.edges else self.walk
        return reset, walk
