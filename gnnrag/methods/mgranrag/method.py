"""MGranRAG: iterative multi-granular retrieval on the contextual hierarchical graph (AAAI 2026)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from gnnrag.common.batching import Worker
from gnnrag.errors import ConfigError, nearest
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.methods.base import Method, State
from gnnrag.methods.mgranrag.evidence import EvidenceFound, EvidenceTask, ShownSentence
from gnnrag.methods.mgranrag.graph import (
    ALLOWED,
    PRESETS,
    EvidenceMemory,
    EvidenceUnit,
    GranularWeightsConfig,
    Overlay,
    PhraseAligner,
    Seeds,
    confidence,
    is_kept,
    personalisation,
)
from gnnrag.roles.base import DecomposeTask
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking


@dataclass
class MGranRAGConfig:
    """Settings of `MGranRAG`; null takes the preset's value."""

    preset: str = "repaired"  # repaired, official (the released code, defects included) or paper (eqs. 1-5 as printed)
    iterations: int | None = None  # T: evidence is read and ranked so often; 0 is dense retrieval
    next_candidates: str | None = None  # what is read next: the best by PageRank, or by the augmented query
    expand_graph: str | None = None  # phrases that are named: off, edges to nodes there are, both: also new nodes
    psi_norm: str | None = None  # see `graph.confidence`
    keep_rule: bool | None = None  # drop weak evidence
    sentence_scope: str | None = None  # weigh all evidence, or only the round's
    merge_keywords: str | None = None  # phrases of a sentence found again
    subquery_order: str | None = None
    query_form: str | None = None  # of the augmented query: plain, or released with its labels
    phrase_folding: bool | None = None  # a phrase spelt in another case is the same; as released only its vector tells
    candidates: int = 10  # M: passages read in an iteration
    skip_read: str | None = None  # skip: of the candidates only unread ones, fewer tokens; refill: others; or none
    phrase_match: str = "embedding"  # named phrases are aligned with graph nodes by vector and text, or by text alone
    phrase_same: float = 0.9  # least cosine of two spellings of one phrase; depends on the embedder
    ablate: list[str] = field(default_factory=list)  # of decomposition, augmentation, ppr (Table 4)
    weights: GranularWeightsConfig = field(default_factory=GranularWeightsConfig)


class MGranRAG(Method):
    """Reads the best passages for evidence, and ranks all passages by PageRank from that evidence; T times.

    Needs an index with the hierarchy and, for `phrase_match=embedding`, phrase vectors. Raises ConfigError where a
    switch has an unknown value.
    """

    config_class, role_names = MGranRAGConfig, ("decomposer", "evidence_extractor")
    stages = ("hierarchy", "phrase_vectors", "embeddings")
    top_k, reader_top_k, damping = 200, 5, 0.5
    check_settings = staticmethod(lambda config: resolve_preset(config))

    def __init__(self, index: Any, roles: Any, config: MGranRAGConfig | None = None) -> None:
        c = self.config = resolve_preset(config or MGranRAGConfig())
        self.index, self.graph, self.phrases = index, index.hierarchy, index.question_phrases
        self.decomposer, self.extractor = roles["decomposer"], roles["evidence_extractor"]
        vectors = index.phrase_vectors if c.phrase_match == "embedding" else None
        self.aligner = PhraseAligner(self.graph, vectors, index.embedder, c.phrase_same, bool(c.phrase_folding))
        self.walk = PageRankOperator(self.graph.adjacency, self.damping)
        self.worker = Worker()

    async def start(self, question: Question, session: Session) -> State:
        """Decompose the question."""
        state = State(question, session)
        parts: tuple[str, ...] = ()
        if "decomposition" not in self.config.ablate:
            found = await self.decomposer(DecomposeTask(question), session)
            session.flag("decomposer", *found.flags)
            parts = tuple(sorted(found.parts)) if self.config.subquery_order == "alphabetical" else found.parts
        overlay, phrases = Overlay(self.graph.num_nodes), self.phrases(question.text)
        state.memory.update(parts=parts, phrases=phrases, evidence=EvidenceMemory(), overlay=overlay)
        session.record("decomposition", parts=list(parts))
        return state

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question. Then the question with the evidence read since."""
        if state.round == 0:
            return [Query(state.question.text, top_k=self.top_k)]
        if state.round > int(self.config.iterations or 0):
            return []
        before = (state.memory.get("read"), dict(state.memory["evidence"].units))
        await self._read(state)
        if before == (state.memory["read"], state.memory["evidence"].units):
            return []  # the same passages gave the same evidence: the round would repeat itself
        text = state.question.text
        if "augmentation" not in self.config.ablate:
            count, form = len(state.memory["parts"]), str(self.config.query_form)
            text = state.memory["evidence"].augment(text, self._psi(state), count, form)
        return [Query(text, top_k=int(self.config.weights.sim_top_k or self.top_k), kind="augmented")]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Rank all passages by PageRank from the evidence; without evidence the ranking stays as it is."""
        found, evidence = rankings[0], state.memory["evidence"]
        state.memory["ranked"] = state.memory["next"] = list(found.ids)
        if state.round == 0 or not evidence.units:
            return
        scores = found.scores if found.branch == "cosine" else found.normalised()
        similarity = {self.index.position[i]: float(s) for i, s in zip(found.ids, scores, strict=True)}
        rank, overlay = await self.worker(lambda: self._rank(state, similarity)), state.memory["overlay"]
        state.session.record("expansion", nodes=len(overlay.phrases), edges=len(overlay.edges))
        if "ppr" not in self.config.ablate:
            state.memory["previous"] = rank[: self.graph.num_nodes] if len(rank) else None
        if len(rank):
            order = np.argsort(-rank[: self.graph.num_passages], kind="stable")[: self.top_k]
            state.memory["ranked"] = [self.index.ids[p] for p in order.tolist()]
        ranked = state.memory["ranked"]
        state.memory["next"] = ranked if self.config.next_candidates == "ppr" else state.memory["next"]
        state.session.record("mgranrag", round=state.round, before=list(found.ids[:10]), after=ranked[:10])

    async def select(self, state: State) -> Evidence:
        """The last round's ranking; the reader sees its first passages."""
        ranked = state.memory.get("ranked", [])
        return Evidence(ranked[: self.top_k], ranked[: self.reader_top_k])

    async def _read(self, state: State) -> None:
        """Ask for the evidence in the candidates and take it into memory."""
        memory, evidence, limit = state.memory, state.memory["evidence"], self.config.candidates
        chosen = [self.index.position[i] for i in memory["next"]]
        if self.config.skip_read != "none":
            chosen = chosen[:limit] if self.config.skip_read == "skip" else chosen
            chosen = [p for p in chosen if p not in evidence.read]
        chosen = chosen[:limit]
        memory["read"] = chosen
        nodes = [(p, s) for p in chosen for s in self.graph.sentences_of(p).tolist()]
        shown = tuple(ShownSentence(self.graph.sentences[s], self.index.ids[p]) for p, s in nodes)
        facts = tuple(u.text for u in evidence.ranked(self._psi(state)))
        found = EvidenceFound()
        if shown:
            found = await self.extractor(EvidenceTask(state.question, memory["parts"], shown, facts), state.session)
        state.session.flag("evidence_extractor", *found.flags)
        count, norm = len(memory["parts"]), str(self.config.psi_norm)
        rows = [(self.graph.first_sentence + nodes[e.sentence][1], e, dict(e.labels)) for e in found.items]
        units = [EvidenceUnit(s, e.text, e.phrases, own, confidence(own, count, norm)) for s, e, own in rows]
        evidence.merge([u for u in units if not self.config.keep_rule or is_kept(u.labels)], self.config.merge_keywords)
        evidence.read.update(chosen)

    def _psi(self, state: State) -> dict[int, float]:
        return {sentence: unit.psi for sentence, unit in state.memory["evidence"].units.items()}

    def _rank(self, state: State, similarity: dict[int, float]) -> np.ndarray:
        """Return a score for each node, or for each passage; none where nothing is weighed."""
        weights, walk = self._weights(state, similarity)
        if "ppr" in self.config.ablate:
            return weights[: self.graph.num_passages]
        return walk.solve(weights, 1e-8) if weights.sum() > 0 else np.zeros(0)

    def _weights(self, state: State, similarity: dict[int, float]) -> tuple[np.ndarray, PageRankOperator]:
        """Return the reset, and the walk on the graph with this question's additions."""
        evidence, overlay, graph = state.memory["evidence"], state.memory["overlay"], self.graph
        every = self.config.sentence_scope == "memory"
        units = [u for u in evidence.units.values() if every or u.sentence in evidence.found]
        named = self.aligner.named(units, overlay, str(self.config.expand_graph))
        unnamed = [self.aligner.entities_of(u.sentence, nodes) for u, nodes in zip(units, named, strict=True)]
        unused = {graph.first_sentence + s for p in evidence.read for s in graph.sentences_of(p).tolist()}
        is_released = self.config.weights.query_phrases == "additive"
        asked = self.aligner.asked(state.memory["phrases"], units if is_released else None)
        psi, before, left = self._psi(state), state.memory.get("previous"), sorted(unused - evidence.units.keys())
        seeds = Seeds(similarity, units, psi, named, unnamed, asked, before, left)
        weights = personalisation(seeds, overlay.degrees(graph.degrees), graph.num_passages, self.config.weights)
        walk = PageRankOperator(overlay.adjacency(graph.adjacency), self.damping) if overlay.edges else self.walk
        return weights, walk


def resolve_preset(config: MGranRAGConfig) -> MGranRAGConfig:
    """Return the settings with every null filled from the preset. Raises ConfigError for an unknown value."""
    if config.preset not in PRESETS:
        raise ConfigError(f"method.preset={config.preset!r} is unknown. {nearest(config.preset, PRESETS)}")
    switches, constants = PRESETS[config.preset]
    filled = {name: value for name, value in switches.items() if getattr(config, name) is None}
    own = {f.name: getattr(config.weights, f.name) for f in fields(config.weights)}
    weights = replace(constants, **{name: value for name, value in own.items() if value is not None})
    config = replace(config, **filled, weights=weights)
    for name, allowed in ALLOWED.items():
        if getattr(config, name) not in allowed:
            raise ConfigError(f"method.{name}={getattr(config, name)!r}: allowed are {', '.join(allowed)}")
    if unknown := [a for a in config.ablate if a not in ("decomposition", "augmentation", "ppr")]:
        raise ConfigError(f"method.ablate={unknown}: allowed are decomposition, augmentation, ppr")
    if config.candidates < 1 or int(config.iterations or 0) < 0:
        raise ConfigError("method.candidates must be at least 1 and method.iterations at least 0")
    return config
