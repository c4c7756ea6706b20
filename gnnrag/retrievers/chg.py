"""Retrieval over the contextual hierarchical graph, without a language model and without training."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from scipy import sparse

from gnnrag.graphs.linking import LinkedQuestion, LinkWeigher, link_question, stems
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, best_positions, rank_passages, vectors_of
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-6
_NEAR = 500  # passages of a large corpus whose cosines count
_FEW = 8  # a name or term found in more than this many other passages links none of them


@part("retriever", "chg")
class CHGRetriever(Retriever):
    """Personalised PageRank over passages, sentences and phrases, seeded by names, search scores and bridges.

    The graph and the ranking by PageRank are MGranRAG's (AAAI 2026), the seeds are not. The reset of a query holds
    1. the passages that dense and lexical search score highest (the prior);
    2. the names in the query: the passages with these titles, and the phrase nodes of the names;
    3. the bridges: each of the best-seeded passages passes mass to the passages whose titles its text mentions. A
       mention counts more the nearer it stands to the query's other words (`director`, `born`), the rarer its phrase
       is, and the surer its link is. This is the second hop.
    An untitled passage also passes mass to the passages that share a rare name or term with it. Each passage of a
    document passes mass to the next passage of its document. A passage's prior grows with the share of the prior that
    its section holds. A title that the query names with certainty, and whose words are the rarest, gets mass 1.
    """

    damping: float = 0.5  # probability of following an edge
    prior_mass: float = 1.8  # seed mass shared by the passages with the best prior
    prior_passages: int = 50  # how many passages share it
    prior_power: float = 4.0  # exponent on scores in [0, 1]: the larger, the more the top few get
    lexical_share: float = 0.5  # weight of BM25 in the prior; the embedder has the rest
    phrase_mass: float = 0.5  # seed mass of a linked phrase
    bridge_share: float = 1.0  # share of a passage's seed mass that it passes along its links, at most
    bridge_passages: int = 8  # how many passages pass mass on
    bridge_floor: float = 0.02  # seed mass that a passage needs to pass mass on
    bridge_doubt: float = 1.0  # added to the sum of link weights that mass is divided by: a lone weak link gets little
    name_share: float = 0.25  # weight of a link by a shared name or term, relative to a link by title
    section_gain: float = 1.0  # gain in prior of a passage whose section holds the whole prior
    follow_share: float = 0.3  # share of a passage's seed mass that it passes to the next one of its document
    context_weight: float = 2.0  # gain of a link whose mention stands near the question's other words
    context_reach: float = 4.0  # distance in words at which that nearness has fallen to 1/e
    # exact: PageRank of the whole graph; fast: near the seeds; auto: fast for large graphs, whose
    # cosines come from the index of vectors
    precision: Literal["auto", "exact", "fast"] = "auto"

    reads = ("hierarchy", "titles", "embeddings", "lexical")
    accepts_vectors = True

    def setup(self) -> None:
        self.graph, self.layout, self.titles = self.index.hierarchy, self.index.layout, self.index.titles
        self.links = LinkWeigher(self.graph, self.titles, self.context_weight, self.context_reach)
        self.walk = PageRankOperator(self.graph.adjacency, self.damping, self.precision)
        self._holders: dict[str, list[int]] = {}  # passages that hold a name, looked up on first use

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query; scores are PageRank values."""
        if not queries or not self.graph.num_passages:
            return [rank_passages(np.zeros(0), (), query.top_k, "ppr") for query in queries]
        texts = [query.text for query in queries]
        masks = [self.mask(query) for query in queries]
        near = [0 if query.filter or self.precision == "exact" else _NEAR for query in queries]
        cosines = map(self.index.cosines, vectors_of(queries, self.index.embedder), near)
        searches = zip(texts, cosines, self.index.bm25_scores(texts), masks, strict=True)
        seeds = [self._seeds(text, self._prior(dense, lexical, mask)) for text, dense, lexical, mask in searches]
        reset = sparse.hstack([_column(masses, self.graph.num_nodes) for masses in seeds], format="csc")
        scores = self.walk.solve(reset, _TOLERANCE, rows=slice(0, self.graph.num_passages))
        rows = zip(queries, scores.T, masks, strict=True)
        return [rank_passages(row, self.index.ids, query.top_k, "ppr", mask=mask) for query, row, mask in rows]

    def _prior(self, dense: np.ndarray, lexical: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Scale scores to [0, 1], raise them to `prior_power`, mix, and apply `section_gain`. Shape (num_passages,).

        Passages outside `mask` (a filter) get no prior: their seeds might reach no passage that passes.
        """
        prior = (1 - self.lexical_share) * _power(_scaled(dense), self.prior_power)
        prior += self.lexical_share * _power(_scaled(lexical), self.prior_power)
        if mask is not None:
            prior = np.where(mask, prior, 0.0)
        if not prior.any():
            return np.ones_like(prior) if mask is None or not mask.any() else mask.astype(np.float64)
        sections = self.layout.sections  # 0: the passage is in no section
        if not sections.any():
            return prior
        best = best_positions(prior, self.prior_passages)
        shares = np.bincount(sections[best], prior[best], sections.max() + 1) / prior[best].sum()
        shares[0] = 0.0
        return prior * (1 + self.section_gain * shares[sections])

    def _seeds(self, text: str, prior: np.ndarray) -> dict[int, float]:
        """Return the reset of one query: node to mass, for nodes with any."""
        best = best_positions(prior, self.prior_passages)
        masses = prior[best]
        reset = dict(zip(best.tolist(), (self.prior_mass * masses / masses.sum()).tolist(), strict=True))
        question = link_question(text, self.graph, self.titles)
        self._add_names(reset, question, prior)
        seeded = {node: mass for node, mass in reset.items() if node < self.graph.num_passages}
        flow = self._bridges(seeded, question, prior)
        for passage, mass in seeded.items():
            if (after := int(self.layout.following[passage])) >= 0:
                flow[after] = flow.get(after, 0.0) + self.follow_share * mass
        for passage, mass in flow.items():
            reset[passage] = reset.get(passage, 0.0) + mass
        return reset

    def _add_names(self, reset: dict[int, float], question: LinkedQuestion, prior: np.ndarray) -> None:
        degrees = self.graph.degrees
        for name in question.names:
            rarity = self.titles.rarity(name.key.split())
            if name.title:
                _share(reset, self.titles.passages(name.title.form), rarity * name.title.confidence, prior)
            if nodes := list(self.graph.phrase_nodes(name.key)):
                # The more sentences contain a phrase that is no title, the less mass it gets.
                mass = rarity if name.title else rarity / math.log2(2 + degrees[nodes].sum())
                shares = 1.0 / degrees[nodes]
                _add(reset, nodes, self.phrase_mass * mass * shares / shares.sum())

    def _bridges(self, masses: Mapping[int, float], question: LinkedQuestion, prior: np.ndarray) -> dict[int, float]:
        """Return the mass that each passage receives along links by title and by shared name; `masses`: seed masses."""
        wanted = frozenset(stems(question.rest))
        asked = frozenset(word for name in question.names for word in name.key.split())
        flow: dict[int, float] = {}
        best = sorted(masses.items(), key=lambda item: (-item[1], item[0]))[: self.bridge_passages]
        for passage, mass in best:
            if mass < self.bridge_floor:
                break
            weights = self.links.weights(passage, wanted)
            links = [(weight, self.titles.passages(form)) for form, weight in weights.items()]
            shared = self._shared_names(passage, wanted, asked)
            total = sum(weight for weight, _ in links) + sum(weight for weight, _ in shared)
            scale = self.bridge_share * mass / (total + self.bridge_doubt)
            for weight, passages in (*links, *shared):
                _share(flow, passages, scale * weight, prior)
        return flow

    def _shared_names(
        self, passage: int, wanted: Collection[str], asked: frozenset[str]
    ) -> list[tuple[float, list[int]]]:
        """Return a weight and the other passages for each rare name or term of a passage, except titles.

        A passage with a title gets none: its title links suffice. Names made of words of the query's names are skipped.
        """
        if self.titles.tables.is_titled[passage] or not self.name_share:
            return []
        graph, weights = self.graph, dict[str, float]()
        for sentence in graph.passage_sentences[passage].tolist():
            for phrase in graph.sentence_phrases[sentence].tolist():
                key = graph.phrase_keys[phrase]
                is_new = key and not key.isdecimal() and not asked.issuperset(key.split())
                if is_new and self._others(passage, key):
                    weights[key] = max(weights.get(key, 0.0), self.links.weight(sentence, phrase, wanted))
        return [(self.name_share * weight, self._others(passage, key)) for key, weight in weights.items()]

    def _others(self, passage: int, key: str) -> list[int]:
        """Return the other passages that contain a name; none if they are many or the name is a title."""
        if key not in self._holders:
            nodes = self.graph.phrase_nodes(key) if not self.titles.match(key) else ()
            holders = {p for node in nodes for p in self.graph.passages_with(node - self.graph.first_phrase)}
            self._holders[key] = sorted(holders) if len(holders) <= _FEW + 1 else []
        return [other for other in self._holders[key] if other != passage]


def _column(masses: Mapping[int, float], size: int) -> sparse.csc_array:
    nodes = sorted(masses)
    return sparse.csc_array(([masses[node] for node in nodes], (nodes, [0] * len(nodes))), shape=(size, 1))


def _add(reset: dict[int, float], nodes: Sequence[int], masses: np.ndarray) -> None:
    for node, mass in zip(nodes, masses.tolist(), strict=True):
        reset[node] = reset.get(node, 0.0) + mass


def _share(reset: dict[int, float], passages: Sequence[int], mass: float, prior: np.ndarray) -> None:
    """Split mass among passages in proportion to their prior."""
    shares = prior[list(passages)] + 1e-6
    _add(reset, passages, mass * shares / shares.sum())


def _scaled(scores: Any) -> np.ndarray:
    """Scale scores to [0, 1]; equal scores all become 0. float64."""
    scores = np.asarray(scores, dtype=np.float64)
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.zeros_like(scores)


def _power(scores: np.ndarray, exponent: float) -> np.ndarray:
    """Raise scores in [0, 1] to a power; most are 0, which numpy's `power` takes no less time for."""
    return np.power(scores, exponent, out=scores, where=scores > 0)
