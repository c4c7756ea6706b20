"""Retrieval over the contextual hierarchical graph, without a language model and without training."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
from scipy import sparse

from gnnrag.common.tables import distinct
from gnnrag.graphs.linking import LinkedQuestion, LinkWeigher, link_question, stems
from gnnrag.graphs.ppr import PageRankOperator, PushSolver, is_near
from gnnrag.index.index import Index
from gnnrag.index.nearest import largest
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, best_positions, cosines_of, rank_passages, vectors_of
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-6
_POOL = 1000  # passages of each search among which the best of both are looked for, where not all are scored
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

    accepts_vectors = True
    reads = ("hierarchy", "titles", "embeddings", "lexical")

    def setup(self) -> None:
        """Open what is searched."""
        self._graph, self._layout, self._titles = self.index.hierarchy, self.index.layout, self.index.titles
        self._links = LinkWeigher(self._graph, self._titles, self.context_weight, self.context_reach)
        self._holders: dict[str, list[int]] = {}  # the passages of a name, found on first use
        self._has_sections = bool(self._layout.sections.any())
        self._near: PushSolver | None = None
        if is_near(self.precision, self._graph.num_nodes):
            self._near = PushSolver(self._graph.neighbours, self.damping)
        else:
            self._walk = PageRankOperator(self._graph.adjacency, self.damping)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query; scores are PageRank values."""
        if not queries or not self._graph.num_passages:
            return [rank_passages(np.zeros(0), (), query.top_k, "ppr") for query in queries]
        if self._near is not None:
            return self._retrieve_near(queries, self._near)
        texts = [query.text for query in queries]
        searches = zip(texts, cosines_of(queries, self.index), self.index.bm25_scores(texts), strict=True)
        seeds = (self._seeds(text, self._prior(dense, lexical)) for text, dense, lexical in searches)
        columns = [_column(seed, self._graph.num_nodes) for seed in seeds]
        reset = sparse.hstack(columns, format="csc")
        scores = self._walk.solve(reset, _TOLERANCE, rows=slice(0, self._graph.num_passages))
        return [rank_passages(s, self.index.ids, q.top_k, "ppr") for q, s in zip(queries, scores.T, strict=True)]

    def _retrieve_near(self, queries: Sequence[Query], walk: PushSolver) -> list[Ranking]:
        """Return the same, but for passages that mass hardly reaches: no pass over all nodes is made."""
        vectors = vectors_of(queries, self.index.embedder)
        lexical, out = self.index.lexical.rows([query.text for query in queries]), []
        for query, vector, words in zip(queries, vectors, lexical, strict=True):
            prior = _NearPrior(self.index, self, vector, words)
            if self._has_sections:
                prior.lift(self._held(prior.at(best := prior.best(self.prior_passages)), best))
            nodes, scores = walk.walk(self._seeds(query.text, prior), _TOLERANCE)
            count = int(np.searchsorted(nodes, self._graph.num_passages))
            order = best_positions(scores[:count], query.top_k)
            ids = tuple(self.index.ids[i] for i in nodes[order].tolist())
            high = float(scores[order[0]]) if count else None
            out.append(Ranking(ids, scores[order], branch="ppr", low=0.0, high=high))
        return out

    def _prior(self, dense: np.ndarray, lexical: np.ndarray) -> _Prior:
        """Mix both searches' scores, each scaled to [0, 1], and lift by section."""
        dense, lexical = _unit(dense) ** self.prior_power, _unit(lexical) ** self.prior_power
        mixed = (1 - self.lexical_share) * dense + self.lexical_share * lexical
        if not mixed.any():
            return _Prior(np.ones_like(mixed))
        if not self._has_sections:
            return _Prior(mixed)
        best = best_positions(mixed, self.prior_passages)
        held = self._held(mixed[best], best)
        return _Prior(mixed * (1 + self.section_gain * held[self._layout.sections]))

    def _held(self, masses: np.ndarray, passages: np.ndarray) -> np.ndarray:
        """Return the share of what the searches like best that each section holds; 0 for that of no section."""
        sections = self._layout.sections
        held = np.bincount(sections[passages], masses, sections.max() + 1) / masses.sum()
        held[0] = 0.0
        return held

    def _seeds(self, text: str, prior: _Prior | _NearPrior) -> dict[int, float]:
        """Return the reset of one query: the mass of each node that has any."""
        best = prior.best(self.prior_passages)
        masses = prior.at(best)
        reset = dict(zip(best.tolist(), (self.prior_mass * masses / masses.sum()).tolist(), strict=True))
        question = link_question(text, self._graph, self._titles)
        self._add_names(reset, question, prior)
        seeded = {node: mass for node, mass in reset.items() if node < self._graph.num_passages}
        flow = self._bridges(seeded, question, prior)
        for passage, mass in seeded.items():
            if (after := int(self._layout.following[passage])) >= 0:
                flow[after] = flow.get(after, 0.0) + self.follow_mass * mass
        for passage, mass in flow.items():
            reset[passage] = reset.get(passage, 0.0) + mass
        return reset

    def _add_names(self, reset: dict[int, float], question: LinkedQuestion, prior: _Prior | _NearPrior) -> None:
        degrees = self._graph.degrees
        for name in question.names:
            rarity = self._titles.rarity(name.key.split())
            if name.title:
                self._spread(reset, name.title.form, rarity * name.title.confidence, prior)
            if nodes := list(self._graph.phrase_nodes.get(name.key, ())):
                # A phrase that is no title is vaguer the more sentences hold it.
                mass = rarity if name.title else rarity / math.log2(2 + degrees[nodes].sum())
                shares = 1.0 / degrees[nodes]
                _add(reset, nodes, self.phrase_mass * mass * shares / shares.sum())

    def _spread(self, reset: dict[int, float], form: str, mass: float, prior: _Prior | _NearPrior) -> None:
        """Share mass among the passages with one title, by their prior."""
        _share(reset, list(self._titles.passages(form)), mass, prior)

    def _bridges(
        self, masses: dict[int, float], question: LinkedQuestion, prior: _Prior | _NearPrior
    ) -> dict[int, float]:
        """Return what flows along title and name links to each passage, given the seed mass of each."""
        wanted = frozenset(stems(question.rest))
        asked = frozenset(word for name in question.names for word in name.key.split())
        flow: dict[int, float] = {}
        best = sorted(masses.items(), key=lambda item: (-item[1], item[0]))[: self.bridge_passages]
        for passage, mass in best:
            if mass < self.bridge_floor:
                break
            weights = self._links.weights(passage, wanted)
            shared = self._shared_names(passage, wanted, asked)
            total = sum(weights.values()) + sum(weight for weight, _ in shared)
            scale = self.bridge_mass * mass / (total + self.bridge_doubt)
            for form, weight in weights.items():
                self._spread(flow, form, scale * weight, prior)
            for weight, passages in shared:
                _share(flow, passages, scale * weight, prior)
        return flow

    def _shared_names(
        self, passage: int, wanted: Collection[str], asked: frozenset[str]
    ) -> list[tuple[float, list[int]]]:
        """Return weight and other passages of each name or term of a passage that nothing is known by, and few have.

        None of a passage with a title: its links by title say enough. A name of the query's words leads nowhere new.
        """
        if self._titles.is_titled(passage) or not self.name_share:
            return []
        graph, found = self._graph, dict[str, float]()
        for sentence in graph.sentences_of(passage).tolist():
            for phrase in graph.phrases_of(sentence).tolist():
                key = graph.phrase_keys[phrase]
                is_new = key and not key.isdecimal() and not asked.issuperset(key.split())
                if is_new and self._others(passage, key):
                    found[key] = max(found.get(key, 0.0), self._links.weight(sentence, phrase, wanted))
        return [(self.name_share * weight, self._others(passage, key)) for key, weight in found.items()]

    def _others(self, passage: int, key: str) -> list[int]:
        """Return the passages that share a name with one, empty where they are many or the name is a title."""
        if key not in self._holders:
            graph = self._graph
            nodes = graph.phrase_nodes[key] if not self._titles.match(key) else ()
            held = {p for node in nodes for p in graph.passages_with(node - graph.first_phrase)}
            self._holders[key] = sorted(held) if len(held) <= _FEW + 1 else []
        return [other for other in self._holders[key] if other != passage]


class _Prior:
    """How well both searches like passages, known of all."""

    def __init__(self, scores: np.ndarray) -> None:
        self._scores = scores

    def at(self, passages: Any) -> np.ndarray:
        """Return the scores of some passages."""
        return self._scores[passages]

    def best(self, count: int) -> np.ndarray:
        """Return the passages that they like best, best first."""
        return best_positions(self._scores, count)


class _NearPrior:
    """The same, known where it is asked for: the best are looked for among the first of both searches."""

    def __init__(self, index: Index, config: CHGRetriever, vector: np.ndarray, lexical: np.ndarray) -> None:
        self._vectors, self._vector, self._lexical, self._config = index.passage_vectors, vector, lexical, config
        self._sections, self._lift = index.layout.sections, np.ones(1)
        found, cosines, low = index.nearest.search(vector, _POOL)
        self._cosines, self._words = (low, cosines[0]), (lexical.min(), lexical.max())
        has_words = lexical.max() > lexical.min()
        pool = np.concatenate([found, largest(lexical, min(_POOL, len(lexical)))]) if has_words else found
        self._pool = distinct(pool)

    def at(self, passages: Any) -> np.ndarray:
        """See `_Prior`."""
        c = self._config
        if not len(passages):
            return np.zeros(0)
        dense = _within(self._vectors[passages] @ self._vector, *self._cosines) ** c.prior_power
        lexical = _within(self._lexical[passages], *self._words) ** c.prior_power
        mixed = (1 - c.lexical_share) * dense + c.lexical_share * lexical
        return mixed * self._lift[self._sections[passages]] if len(self._lift) > 1 else mixed

    def best(self, count: int) -> np.ndarray:
        """See `_Prior`."""
        return self._pool[best_positions(self.at(self._pool), count)]

    def lift(self, held: np.ndarray) -> None:
        """Lift passages by how much of the best their section holds."""
        self._lift = 1 + self._config.section_gain * held


def _column(masses: dict[int, float], size: int) -> sparse.csc_array:
    nodes = sorted(masses)
    return sparse.csc_array(([masses[node] for node in nodes], (nodes, [0] * len(nodes))), shape=(size, 1))


def _add(reset: dict[int, float], nodes: Sequence[int], masses: np.ndarray) -> None:
    for node, mass in zip(nodes, masses.tolist(), strict=True):
        reset[node] = reset.get(node, 0.0) + mass


def _share(reset: dict[int, float], passages: list[int], mass: float, prior: _Prior | _NearPrior) -> None:
    shares = prior.at(passages) + 1e-6
    _add(reset, passages, mass * shares / shares.sum())


def _unit(scores: np.ndarray) -> np.ndarray:
    """Scale to [0, 1]; all equal gives zeros."""
    return _within(scores, scores.min(), scores.max())


def _within(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    """Scale a range to [0, 1]; an empty one gives zeros. float64."""
    scores, low = np.asarray(scores, dtype=np.float64), float(low)
    span = float(high) - low
    return (scores - low) / span if span > 0 else np.zeros_like(scores)
