"""The subgraph of a question in a graph of passages, sentences and names: where it starts, its nodes and features."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.special import expit

from gnnrag.arrays import Lists
from gnnrag.errors import ConfigError, nearest
from gnnrag.gnn import GNNConfig, PruneConfig
from gnnrag.gnn.edges import Subgraph
from gnnrag.gnn.features import (
    NODE_FEATURES,
    QuestionView,
    Seeds,
    as_feature,
    find_seeds,
    leads_of,
    nearness,
    node_features,
    passage_prior,
)
from gnnrag.graphs.linking import link_question
from gnnrag.graphs.messages import REFERS, STRUCTURE, MessageKnowledge
from gnnrag.index.index import Index


class QuestionGraphs:
    """Cuts the subgraph of each question, with features, out of an index that has the stages `NODE_STAGES`.

    Raises ConfigError for an index of facts alone.
    """

    def __init__(self, index: Index, config: GNNConfig | None = None, prune: PruneConfig | None = None) -> None:
        self.index, self.config, self.sizes = index, config or GNNConfig(), prune or PruneConfig()
        knowledge: MessageKnowledge = index.read("message_graph")
        if knowledge.grounding is None:
            raise ConfigError(
                "the index holds facts alone, no passages to walk over: give index.gnn.structure=true, or for "
                "retriever=gfm a checkpoint of mode 'entity'"
            )
        self.graph, self.grounding = knowledge.graph, knowledge.grounding
        self.entity_vectors = as_rows(index.read("entity_vectors"), index)
        ends = self.graph.triples[:, [0, 2]].ravel()
        self.degrees = np.bincount(ends, minlength=self.graph.num_nodes)
        self.columns = feature_columns(self.config.features)
        heads = self.graph.triples[:, 0]
        first = np.searchsorted(heads, np.arange(self.graph.num_nodes + 1))
        self._triples_of = Lists(first, np.arange(len(heads)))  # the triples that each node is the head of

    @cached_property
    def relation_vectors(self) -> np.ndarray:
        """(2R, F) vectors of the relations and their inverses."""
        return self.index.read("relation_vectors")

    @cached_property
    def sentence_vectors(self) -> np.ndarray:
        """(num_sentences, F) vectors."""
        return as_rows(self.index.read("sentence_vectors"), self.index)

    @cached_property
    def fact_rows(self) -> np.ndarray:
        return np.flatnonzero(self.graph.triples[:, 1] >= len(STRUCTURE))

    @cached_property
    def passage_entities(self) -> Lists:
        """Entities of each passage, ascending."""
        turned = self._incidence.T.tocsr()
        turned.sort_indices()
        return Lists(turned.indptr.astype(np.int64), turned.indices)

    @cached_property
    def _incidence(self) -> sparse.csr_array:
        """1 where a passage has an entity. Shape (num_entities, num_passages), float64."""
        rows = self.graph.entity_passages
        shape = (self.graph.num_entities, self.graph.num_passages)
        return sparse.csr_array((np.ones(len(rows.values)), rows.values, rows.indptr), shape=shape)

    @cached_property
    def _transitions(self) -> tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array, sparse.csr_array]:
        """Ways between passages: along references, against them, to the names they share, and back."""
        graph, count = self.graph, self.graph.num_passages
        rows = np.flatnonzero(graph.triples[:, 1] == REFERS)
        source, target = (graph.triples[rows][:, [0, 2]] - graph.first_passage).T
        weights = (self.grounding.confidence * self.grounding.rarity)[rows].astype(np.float64)
        refers = sparse.csr_array((weights, (source, target)), shape=(count, count))
        frequency = graph.entity_passages.sizes
        worth = np.where((frequency > 1) & (frequency <= self.sizes.hub), 1 / np.log2(2.0 + frequency), 0.0)
        names = sparse.csr_array(sparse.diags_array(worth) @ self._incidence)
        back = sparse.csr_array(sparse.diags_array(1.0 / np.maximum(frequency, 1)) @ self._incidence)
        # What flows out of a passage is at most what it has; a lone weak way does not get all of it.
        along, against = (_row_shares(m) for m in (refers, sparse.csr_array(refers.T)))
        return along.T.tocsr(), against.T.tocsr(), _row_shares(sparse.csr_array(names.T)).T.tocsr(), back.T.tocsr()

    def prepare(self, queries: Sequence[str]) -> list[Subgraph]:
        """Return one subgraph for each query; none depends on the others."""
        if not queries:
            return []
        vectors = self.index.embedder.encode(list(queries), is_query=True)
        lexical = self.index.bm25_scores(queries)
        return [self._prepare(*row) for row in zip(queries, vectors, lexical, strict=True)]

    def view(self, text: str, vector: np.ndarray, lexical: np.ndarray) -> QuestionView:
        """Return what search and the two walks say of all passages, from the question's (F,) vector and BM25 scores."""
        dense = self.index.passage_vectors @ vector
        prior = passage_prior(dense, lexical)
        linked = link_question(text, self.index.hierarchy, self.index.titles)
        seeds = find_seeds(self, text, linked, vector, prior)
        walk = self._walk(seeds)
        passages = self._passages(walk)
        near = nearness(walk, dense, passages)
        leads, follow = self._follow(near, passages)
        return QuestionView(text, vector, linked, seeds, dense, lexical, prior, passages, walk, near, leads, follow)

    def _prepare(self, text: str, vector: np.ndarray, lexical: np.ndarray) -> Subgraph:
        view = self.view(text, vector, lexical)
        nodes = self._nodes(view.passages, view.seeds)
        is_passage = (nodes >= self.graph.first_passage) & (nodes < self.graph.first_sentence)
        local = np.full(self.graph.num_nodes, -1, dtype=np.int64)
        local[nodes] = np.arange(len(nodes))
        triples = self._triples(nodes, local)
        head, relation, tail = self.graph.triples[triples].T.astype(np.int64)
        both_ways = np.concatenate([relation, relation + self.graph.num_relations])
        relations, relation = np.unique(both_ways, return_inverse=True)
        return Subgraph(
            nodes=nodes,
            passages=np.where(is_passage, nodes - self.graph.first_passage, -1),
            source=np.concatenate([local[head], local[tail]]),
            relation=relation,
            target=np.concatenate([local[tail], local[head]]),
            relations=relations,
            relation_vectors=self.relation_vectors[relations],
            question=vector.astype(np.float32),
            seeds=view.seeds.weights(nodes),
            features=node_features(self, view, nodes)[:, self.columns],
            node_vectors=self.node_vectors(nodes),
            prior=view.prior.astype(np.float32),
            branch=view.seeds.branch,
        )

    def _walk(self, seeds: Seeds) -> np.ndarray:
        """Return how much of the seeds' mass a short walk leaves at each passage. Shape (num_passages,), float64."""
        along, against, names, back = self._transitions
        graph = self.graph
        flow = seeds.weights(np.arange(graph.first_passage, graph.first_sentence)).astype(np.float64)
        flow += back @ seeds.weights(np.arange(graph.num_entities)).astype(np.float64)
        total = flow.copy()
        for _ in range(self.sizes.steps):
            flow = 0.6 * (along @ flow) + 0.3 * (against @ flow) + 0.3 * (back @ (names @ flow))
            total += flow
        return total

    def _follow(self, near: np.ndarray, passages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where a second walk starts, best first, and what it leaves at each passage (`as_feature`)."""
        leads, weights = leads_of(near, passages)
        order = np.argsort(leads)
        starts = Seeds(self.graph.first_passage + leads[order], weights[order].astype(np.float32), "search")
        return leads, as_feature(self._walk(starts), leads)

    def _passages(self, walk: np.ndarray) -> np.ndarray:
        """Return the passages to look at, ascending."""
        order = np.argsort(-walk, kind="stable")[: self.sizes.passages]
        sentences = np.cumsum(self.index.hierarchy.passage_sentences.sizes[order])
        return np.sort(order[: max(int(np.searchsorted(sentences, self.sizes.sentences, side="right")), 1)])

    def _nodes(self, passages: np.ndarray, seeds: Seeds) -> np.ndarray:
        graph = self.graph
        owned = np.concatenate([self.passage_entities[p] for p in passages.tolist()])
        shared = np.bincount(owned, minlength=graph.num_entities)
        frequency = graph.entity_passages.sizes
        keep = np.flatnonzero((shared > 1) & (frequency <= self.sizes.hub))
        rarest = keep[np.argsort(frequency[keep], kind="stable")][: self.sizes.entities]
        named = seeds.nodes[seeds.nodes < graph.num_entities]
        sentences = np.concatenate([self.index.hierarchy.passage_sentences[p] for p in passages.tolist()])
        parts = (rarest, named, graph.first_passage + passages, graph.first_sentence + sentences)
        return np.unique(np.concatenate(parts).astype(np.int64))

    def _triples(self, nodes: np.ndarray, local: np.ndarray) -> np.ndarray:
        """Return the rows of the triples between some nodes, ascending."""
        rows = self._triples_of.places(nodes)
        return rows[local[self.graph.triples[rows, 2]] >= 0]

    def node_vectors(self, nodes: np.ndarray) -> np.ndarray:
        """Return the text vectors of nodes, ascending. Shape (len(nodes), F), float16."""
        graph = self.graph
        one, two = np.searchsorted(nodes, [graph.first_passage, graph.first_sentence])
        rows = (
            self.entity_vectors[nodes[:one]],
            self.index.passage_vectors[nodes[one:two] - graph.first_passage],
            self.sentence_vectors[nodes[two:] - graph.first_sentence],
        )
        return np.concatenate(rows).astype(np.float16)


def _row_shares(ways: sparse.csr_array) -> sparse.csr_array:
    """Return the weights of each row as shares of their sum and a doubt of 1/4."""
    totals = np.asarray(ways.sum(axis=1)).ravel() + 0.25
    return sparse.csr_array(sparse.diags_array(1.0 / totals) @ ways)


def feature_columns(names: Sequence[str]) -> list[int]:
    """Return the columns of features, all where none is named. Raises ConfigError for an unknown name."""
    for name in names:
        if name not in NODE_FEATURES:
            raise ConfigError(f"features: {name!r} is unknown. {nearest(name, NODE_FEATURES)}")
    return [NODE_FEATURES.index(name) for name in names or NODE_FEATURES]


def as_rows(vectors: np.ndarray, index: Index) -> np.ndarray:
    """Return vectors as they are, or (0, F) where there are none: an empty artefact knows no F."""
    return vectors if len(vectors) else np.zeros((0, index.passage_vectors.shape[1]), np.float32)


def passage_scores(prior: np.ndarray, inside: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return scores of all passages, (num_passages,) float64: those `inside` a subgraph by their logits.

    The others follow by the `prior` of search, (num_passages,) in [0, 1]; `inside` holds positions.
    """
    known = expit(logits)
    scores = prior.astype(np.float64) * (known.min() if len(known) else 1.0) * 0.999
    scores[inside] = known
    return scores
