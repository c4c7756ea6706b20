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
from gnnrag.retrievers.base import Retriever, best_positions, cosines_of, rank_passages
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-6
_FEW = 8  # a name or term that more other passages have links none


@part("retriever", "chg")
class CHGRetriever(Retriever):
    """Personalised PageRank over passages, sentences and phrases, seeded by linking, search scores and title links.

    The graph and the ranking by PageRank are MGranRAG's (AAAI 2026), the seeds are not. The reset of a query holds
    1. the passages that dense and lexical search like best (the prior);
    2. the names of the query: the passages that bear them as titles, and their phrase nodes;
    3. the bridges: each well-seeded passage hands as much mass as it has to the passages that its text mentions by
       title, by how near the mention stands to the query's remaining words (`director`, `born`), how rare the phrase
       is, and how sure the link is. This is the second hop.
    A passage that has no title of its own hands mass on to those that share a rare name or term with it, too. Parts of
    a document hand mass on to the part that follows, and count more the more of the prior their section holds.
    Masses are relative to a linked title, which weighs its rarity (at most 1).
    """

    damping: float = 0.5  # probability of following an edge
    prior_mass: float = 1.8  # seed mass shared by the passages that dense and lexical search like best
    prior_passages: int = 50  # how many those are
    prior_power: float = 4.0  # exponent on scores in [0, 1]: larger trusts the first few more
    lexical_share: float = 0.5  # weight of BM25 against the embedder in the prior
    phrase_mass: float = 0.5  # seed mass of a linked phrase
    bridge_mass: float = 1.0  # share of a passage's seed mass that goes on along its title links
    bridge_passages: int = 8  # how many passages pass mass on
    bridge_floor: float = 0.02  # least seed mass of a passage that passes mass on
    bridge_doubt: float = 1.0  # link weight that is lost; keeps a lone weak link from getting the whole mass
    name_share: float = 0.25  # weight of a link by a name or term that no passage is known by, against one by title
    section_gain: float = 1.0  # gain of a passage whose section holds all that the searches like best
    follow_mass: float = 0.3  # share of a passage's seed mass that goes on to the next part of its document
    context_weight: float = 2.0  # gain of a link whose mention stands near the question's other words
    context_reach: float = 4.0  # distance in words at which that nearness has fallen to 1/e
    # exact: PageRank of the whole graph; fast: near the seeds; auto: fast for large graphs
    precision: Literal["auto", "exact", "fast"] = "auto"

    reads = ("hierarchy", "titles", "embeddings", "lexical")
    accepts_vectors = True

    def setup(self) -> None:
        """Prepare the links and the walk."""
        self.graph, self.layout, self.titles = self.index.hierarchy, self.index.layout, self.index.titles
        self.links = LinkWeigher(self.graph, self.titles, self.context_weight, self.context_reach)
        self.walk = PageRankOperator(self.graph.adjacency, self.damping, self.precision)
        self._holders: dict[str, list[int]] = {}  # passages that hold a name, looked up on first use

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query; scores are PageRank values."""
        if not queries or not self.graph.num_passages:
            return [rank_passages(np.zeros(0), (), query.top_k, "ppr") for query in queries]
        texts = [query.text for query in queries]
        searches = zip(texts, cosines_of(queries, self.index), self.index.bm25_scores(texts), strict=True)
        seeds = [self._seeds(text, self._prior(dense, lexical)) for text, dense, lexical in searches]
        reset = sparse.hstack([_column(masses, self.graph.num_nodes) for masses in seeds], format="csc")
        scores = self.walk.solve(reset, _TOLERANCE, rows=slice(0, self.graph.num_passages))
        return [rank_passages(s, self.index.ids, q.top_k, "ppr") for q, s in zip(queries, scores.T, strict=True)]

    def _prior(self, dense: np.ndarray, lexical: np.ndarray) -> np.ndarray:
        """Mix both searches' scores, each scaled to [0, 1], and lift by section. Shape (num_passages,)."""
        prior = (1 - self.lexical_share) * _unit(dense) ** self.prior_power
        prior = prior + self.lexical_share * _unit(lexical) ** self.prior_power
        if not prior.any():
            return np.ones_like(prior)
        sections = self.layout.sections  # 0: of no section
        if not sections.any():
            return prior
        best = best_positions(prior, self.prior_passages)
        shares = np.bincount(sections[best], prior[best], sections.max() + 1) / prior[best].sum()
        shares[0] = 0.0
        return prior * (1 + self.section_gain * shares[sections])

    def _seeds(self, text: str, prior: np.ndarray) -> dict[int, float]:
        """Return the reset of one query: the mass of each node that has any."""
        best = best_positions(prior, self.prior_passages)
        masses = prior[best]
        reset = dict(zip(best.tolist(), (self.prior_mass * masses / masses.sum()).tolist(), strict=True))
        question = link_question(text, self.graph, self.titles)
        self._add_names(reset, question, prior)
        seeded = {node: mass for node, mass in reset.items() if node < self.graph.num_passages}
        flow = self._bridges(seeded, question, prior)
        for passage, mass in seeded.items():
            if (after := int(self.layout.following[passage])) >= 0:
                flow[after] = flow.get(after, 0.0) + self.follow_mass * mass
        for passage, mass in flow.items():
            reset[passage] = reset.get(passage, 0.0) + mass
        return reset

    def _add_names(self, reset: dict[int, float], question: LinkedQuestion, prior: np.ndarray) -> None:
        degrees = self.graph.degrees
        for name in question.names:
            rarity = self.titles.rarity(name.key.split())
            if name.title:
                _share(reset, self._titled(name.title.form), rarity * name.title.confidence, prior)
            if nodes := list(self.graph.phrase_nodes.get(name.key, ())):
                # A phrase that is no title is vaguer the more sentences hold it.
                mass = rarity if name.title else rarity / math.log2(2 + degrees[nodes].sum())
                shares = 1.0 / degrees[nodes]
                _add(reset, nodes, self.phrase_mass * mass * shares / shares.sum())

    def _titled(self, form: str) -> list[int]:
        return list(self.titles.passages(form))

    def _bridges(self, masses: Mapping[int, float], question: LinkedQuestion, prior: np.ndarray) -> dict[int, float]:
        """Return what flows along title and name links to each passage, given the seed mass of each."""
        wanted = frozenset(stems(question.rest))
        asked = frozenset(word for name in question.names for word in name.key.split())
        flow: dict[int, float] = {}
        best = sorted(masses.items(), key=lambda item: (-item[1], item[0]))[: self.bridge_passages]
        for passage, mass in best:
            if mass < self.bridge_floor:
                break
            links = [(weight, self._titled(form)) for form, weight in self.links.weights(passage, wanted).items()]
            shared = self._shared_names(passage, wanted, asked)
            total = sum(weight for weight, _ in links) + sum(weight for weight, _ in shared)
            scale = self.bridge_mass * mass / (total + self.bridge_doubt)
            for weight, passages in (*links, *shared):
                _share(flow, passages, scale * weight, prior)
        return flow

    def _shared_names(
        self, passage: int, wanted: Collection[str], asked: frozenset[str]
    ) -> list[tuple[float, list[int]]]:
        """Return weight and other passages of each name or term of a passage that nothing is known by, and few have.

        None of a passage with a title: its links by title say enough. A name of the query's words leads nowhere new.
        """
        if self.titles.is_titled(passage) or not self.name_share:
            return []
        graph, weights = self.graph, dict[str, float]()
        for sentence in graph.sentences_of(passage).tolist():
            for phrase in graph.phrases_of(sentence).tolist():
                key = graph.phrase_keys[phrase]
                is_new = key and not key.isdecimal() and not asked.issuperset(key.split())
                if is_new and self._others(passage, key):
                    weights[key] = max(weights.get(key, 0.0), self.links.weight(sentence, phrase, wanted))
        return [(self.name_share * weight, self._others(passage, key)) for key, weight in weights.items()]

    def _others(self, passage: int, key: str) -> list[int]:
        """Return the passages that share a name with one, empty where they are many or the name is a title."""
        if key not in self._holders:
            nodes = self.graph.phrase_nodes[key] if not self.titles.match(key) else ()
            holders = {p for node in nodes for p in self.graph.passages_with(node - self.graph.first_phrase)}
            self._holders[key] = sorted(holders) if len(holders) <= _FEW + 1 else []
        return [other for other in self._holders[key] if other != passage]


def _column(masses: Mapping[int, float], size: int) -> sparse.csc_array:
    nodes = sorted(masses)
    return sparse.csc_array(([masses[node] for node in nodes], (nodes, [0] * len(nodes))), shape=(size, 1))


def _add(reset: dict[int, float], nodes: Sequence[int], masses: np.ndarray) -> None:
    for node, mass in zip(nodes, masses.tolist(), strict=True):
        reset[node] = reset.get(node, 0.0) + mass


def _share(reset: dict[int, float], passages: list[int], mass: float, prior: np.ndarray) -> None:
    """Share mass among passages by their prior."""
    shares = prior[passages] + 1e-6
    _add(reset, passages, mass * shares / shares.sum())


def _unit(scores: Any) -> np.ndarray:
    """Scale to [0, 1]; all equal gives zeros. float64."""
    scores = np.asarray(scores, dtype=np.float64)
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.zeros_like(scores)
