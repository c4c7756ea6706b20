"""Retrieval over the contextual hierarchical graph, without a language model and without training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from gnnrag.graphs.linking import LinkedQuestion, LinkWeigher, link_question, stems
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.index.index import Index
from gnnrag.retrievers.base import Retriever, rank_passages
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-6


@dataclass
class CHGConfig:
    """Constants of `CHGRetriever`; masses are relative to a linked title, which weighs its rarity (at most 1)."""

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
    context_weight: float = 2.0  # gain of a link whose mention stands near the question's other words
    context_reach: float = 4.0  # distance in words at which that nearness has fallen to 1/e


class CHGRetriever(Retriever):
    """Personalised PageRank over passages, sentences and phrases, seeded by linking, search scores and title links.

    The graph and the ranking by PageRank are MGranRAG's (AAAI 2026), the seeds are not. The reset of a query holds
    1. the passages that dense and lexical search like best (the prior);
    2. the names of the query: the passages that bear them as titles, and their phrase nodes;
    3. the bridges: each well-seeded passage hands as much mass as it has to the passages that its text mentions by
       title, by how near the mention stands to the query's remaining words (`director`, `born`), how rare the phrase
       is, and how sure the link is. This is the second hop.
    """

    channels = frozenset({"text"})
    stages = ("hierarchy", "embeddings", "lexical")
    config_class = CHGConfig

    def __init__(self, index: Index, config: CHGConfig | None = None) -> None:
        self._index, self._config = index, config or CHGConfig()
        self._graph = index.hierarchy
        self._titles = index.titles
        self._links = LinkWeigher(self._graph, self._titles, self._config.context_weight, self._config.context_reach)
        self._walk = PageRankOperator(self._graph.adjacency, self._config.damping)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query; scores are PageRank values."""
        if not queries or not self._graph.num_passages:
            return [rank_passages(np.zeros(0), (), query.top_k, "ppr") for query in queries]
        texts = [query.text for query in queries]
        searches = zip(texts, self._index.dense_scores(texts), self._index.bm25_scores(texts), strict=True)
        seeds = (self._seeds(text, self._prior(dense, lexical)) for text, dense, lexical in searches)
        columns = [sparse.csc_array(seed[:, None]) for seed in seeds]
        reset = sparse.hstack(columns, format="csc")
        scores = self._walk.solve(reset, _TOLERANCE, rows=slice(0, self._graph.num_passages))
        return [rank_passages(s, self._index.ids, q.top_k, "ppr") for q, s in zip(queries, scores.T, strict=True)]

    def _prior(self, dense: np.ndarray, lexical: np.ndarray) -> np.ndarray:
        """Mix both searches' scores, each scaled to [0, 1] over the corpus. Shape (num_passages,)."""
        c = self._config
        dense, lexical = _unit(dense) ** c.prior_power, _unit(lexical) ** c.prior_power
        mixed = (1 - c.lexical_share) * dense + c.lexical_share * lexical
        return mixed if mixed.any() else np.ones_like(mixed)

    def _seeds(self, text: str, prior: np.ndarray) -> np.ndarray:
        """Return the reset of one query. Shape (num_nodes,), float64."""
        reset = np.zeros(self._graph.num_nodes)
        best = np.argsort(-prior, kind="stable")[: self._config.prior_passages]
        reset[best] = self._config.prior_mass * prior[best] / prior[best].sum()
        question = link_question(text, self._graph, self._titles)
        self._add_names(reset, question, prior)
        num_passages = self._graph.num_passages
        reset[:num_passages] += self._bridges(reset[:num_passages], question, prior)
        return reset

    def _add_names(self, reset: np.ndarray, question: LinkedQuestion, prior: np.ndarray) -> None:
        degrees = self._graph.degrees
        for name in question.names:
            rarity = self._titles.rarity(name.key.split())
            if name.title:
                self._spread(reset, name.title.form, rarity * name.title.confidence, prior)
            if nodes := list(self._graph.phrase_nodes.get(name.key, ())):
                # A phrase that is no title is vaguer the more sentences hold it.
                mass = rarity if name.title else rarity / math.log2(2 + degrees[nodes].sum())
                shares = 1.0 / degrees[nodes]
                reset[nodes] += self._config.phrase_mass * mass * shares / shares.sum()

    def _spread(self, reset: np.ndarray, form: str, mass: float, prior: np.ndarray) -> None:
        """Share mass among the passages with one title, by their prior."""
        passages = list(self._titles.passages(form))
        shares = prior[passages] + 1e-6
        reset[passages] += mass * shares / shares.sum()

    def _bridges(self, masses: np.ndarray, question: LinkedQuestion, prior: np.ndarray) -> np.ndarray:
        """Return what flows along title links, given each passage's seed mass. Shape (num_passages,)."""
        c = self._config
        wanted = frozenset(stems(question.rest))
        flow = np.zeros_like(masses)
        for passage in np.argsort(-masses, kind="stable")[: c.bridge_passages].tolist():
            if masses[passage] < c.bridge_floor:
                break
            weights = self._links.weights(passage, wanted)
            if weights:
                scale = c.bridge_mass * masses[passage] / (sum(weights.values()) + c.bridge_doubt)
                for form, weight in weights.items():
                    self._spread(flow, form, scale * weight, prior)
        return flow


def _unit(scores: np.ndarray) -> np.ndarray:
    """Scale to [0, 1]; all equal gives zeros."""
    scores = np.asarray(scores, dtype=np.float64)
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.zeros_like(scores)
