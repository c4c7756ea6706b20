"""Retrieval over the contextual hierarchical graph, without a language model and without training."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from gnnrag.datasets.placing import document_of
from gnnrag.graphs.linking import LinkedQuestion, LinkWeigher, link_question, stems
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.index.index import Index
from gnnrag.retrievers.base import Retriever, best_positions, cosines_of, rank_passages
from gnnrag.text.subjects import PATH
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-6
_FEW = 8  # a name or term that more other passages have links none


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
    name_share: float = 0.25  # weight of a link by a name or term that no passage is known by, against one by title
    section_gain: float = 1.0  # gain of a passage whose section holds all that the searches like best
    follow_mass: float = 0.3  # share of a passage's seed mass that goes on to the next part of its document
    context_weight: float = 2.0  # gain of a link whose mention stands near the question's other words
    context_reach: float = 4.0  # distance in words at which that nearness has fallen to 1/e
    precision: str = "auto"  # exact: PageRank of the whole graph; fast: near the seeds; auto: fast for large graphs


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

    channels, accepts_vectors = frozenset({"text"}), True
    stages = ("hierarchy", "embeddings", "lexical")
    config_class = CHGConfig

    def __init__(self, index: Index, config: CHGConfig | None = None) -> None:
        self._index, self._config = index, config or CHGConfig()
        self._graph = index.hierarchy
        self._titles = index.titles
        self._links = LinkWeigher(self._graph, self._titles, self._config.context_weight, self._config.context_reach)
        self._walk = PageRankOperator(self._graph.adjacency, self._config.damping, self._config.precision)
        self._holders: dict[str, list[int]] = {}  # the passages of a name, found on first use
        self._parts, self._following = _following(index)
        self._sections = _sections(index)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query; scores are PageRank values."""
        if not queries or not self._graph.num_passages:
            return [rank_passages(np.zeros(0), (), query.top_k, "ppr") for query in queries]
        texts = [query.text for query in queries]
        searches = zip(texts, cosines_of(queries, self._index), self._index.bm25_scores(texts), strict=True)
        seeds = (self._seeds(text, self._prior(dense, lexical)) for text, dense, lexical in searches)
        columns = [sparse.csc_array(seed[:, None]) for seed in seeds]
        reset = sparse.hstack(columns, format="csc")
        scores = self._walk.solve(reset, _TOLERANCE, rows=slice(0, self._graph.num_passages))
        return [rank_passages(s, self._index.ids, q.top_k, "ppr") for q, s in zip(queries, scores.T, strict=True)]

    def _prior(self, dense: np.ndarray, lexical: np.ndarray) -> np.ndarray:
        """Mix both searches' scores, each scaled to [0, 1], and lift by section. Shape (num_passages,)."""
        c = self._config
        dense, lexical = _unit(dense) ** c.prior_power, _unit(lexical) ** c.prior_power
        mixed = (1 - c.lexical_share) * dense + c.lexical_share * lexical
        if not mixed.any():
            return np.ones_like(mixed)
        if not self._sections.any():
            return mixed
        best = best_positions(mixed, c.prior_passages)
        held = np.bincount(self._sections[best], mixed[best], self._sections.max() + 1) / mixed[best].sum()
        held[0] = 0.0
        return mixed * (1 + c.section_gain * held[self._sections])

    def _seeds(self, text: str, prior: np.ndarray) -> np.ndarray:
        """Return the reset of one query. Shape (num_nodes,), float64."""
        reset = np.zeros(self._graph.num_nodes)
        best = best_positions(prior, self._config.prior_passages)
        reset[best] = self._config.prior_mass * prior[best] / prior[best].sum()
        question = link_question(text, self._graph, self._titles)
        self._add_names(reset, question, prior)
        seeded = reset[: self._graph.num_passages]
        flow = self._bridges(seeded, question, prior)
        flow[self._following] += self._config.follow_mass * seeded[self._parts]
        seeded += flow
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
        _share(reset, list(self._titles.passages(form)), mass, prior)

    def _bridges(self, masses: np.ndarray, question: LinkedQuestion, prior: np.ndarray) -> np.ndarray:
        """Return what flows along title and name links, given each passage's seed mass. Shape (num_passages,)."""
        c = self._config
        wanted = frozenset(stems(question.rest))
        asked = frozenset(word for name in question.names for word in name.key.split())
        flow = np.zeros_like(masses)
        for passage in best_positions(masses, c.bridge_passages).tolist():
            if masses[passage] < c.bridge_floor:
                break
            weights = self._links.weights(passage, wanted)
            shared = self._shared_names(passage, wanted, asked)
            total = sum(weights.values()) + sum(weight for weight, _ in shared)
            scale = c.bridge_mass * masses[passage] / (total + c.bridge_doubt)
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
        if self._titles.is_titled(passage) or not self._config.name_share:
            return []
        graph, found = self._graph, dict[str, float]()
        for sentence in graph.sentences_of(passage).tolist():
            for phrase in graph.phrases_of(sentence).tolist():
                key = graph.phrase_keys[phrase]
                is_new = key and not key.isdecimal() and not asked.issuperset(key.split())
                if is_new and self._others(passage, key):
                    found[key] = max(found.get(key, 0.0), self._links.weight(sentence, phrase, wanted))
        return [(self._config.name_share * weight, self._others(passage, key)) for key, weight in found.items()]

    def _others(self, passage: int, key: str) -> list[int]:
        """Return the passages that share a name with one, empty where they are many or the name is a title."""
        if key not in self._holders:
            graph = self._graph
            nodes = graph.phrase_nodes[key] if not self._titles.match(key) else ()
            held = {p for node in nodes for p in graph.passages_with(node - graph.first_phrase)}
            self._holders[key] = sorted(held) if len(held) <= _FEW + 1 else []
        return [other for other in self._holders[key] if other != passage]


def _share(reset: np.ndarray, passages: list[int], mass: float, prior: np.ndarray) -> None:
    shares = prior[passages] + 1e-6
    reset[passages] += mass * shares / shares.sum()


def _following(index: Index) -> tuple[np.ndarray, np.ndarray]:
    """Return the passages that another part of their document follows, and those parts. Shapes (n,), int64."""
    pairs = []
    for position, id_ in enumerate(index.ids):
        document, mark, number = id_.rpartition("#")
        after = f"{document}#{int(number) + 1}" if mark and number.isdecimal() and len(number) < 10 else ""
        if after in index.position:
            pairs.append((position, index.position[after]))
    parts, following = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return parts, following


def _sections(index: Index) -> np.ndarray:
    """Return the number of each passage's section, from 1: the first heading of its document; 0: there is none."""
    numbers: dict[tuple[str, str], int] = {}
    found = []
    for passage in index.passages:
        heading, is_path, _ = passage.title.partition(PATH)
        section = (document_of(passage.id), heading)
        found.append(numbers.setdefault(section, len(numbers) + 1) if is_path else 0)
    return np.array(found, dtype=np.int64)


def _unit(scores: np.ndarray) -> np.ndarray:
    """Scale to [0, 1]; all equal gives zeros."""
    scores = np.asarray(scores, dtype=np.float64)
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.zeros_like(scores)
