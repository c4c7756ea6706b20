"""From a question to what a network sees: entity graphs and their relations, and the small part of a corpus or graph.

A network that learned on neighbourhoods ranks hubs first on the whole graph: their states are sums over neighbours that
no question reaches. So it answers on neighbourhoods too, as NSM and GNN-RAG do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from gnnrag.arrays import Lists
from gnnrag.errors import ConfigError
from gnnrag.gnn import GNNConfig
from gnnrag.gnn.features import (
    EDGE_FEATURES,
    NODE_FEATURES,
    QuestionView,
    Seeds,
    as_feature,
    edge_features,
    find_seeds,
    leads_of,
    link_by_vector,
    nearest_entities,
    node_features,
    passage_prior,
    pick,
    seed_weight,
)
from gnnrag.gnn.subgraph import PruneConfig, Subgraph, TextGraph, with_inverses
from gnnrag.graphs.linking import link_question
from gnnrag.graphs.messages import REFERS, SIMILAR, STRUCTURE
from gnnrag.graphs.rendering import gathered
from gnnrag.index.index import Index
from gnnrag.index.message_stages import MessageKnowledge
from gnnrag.text.normalise import FUNCTION_WORDS, phrase_key, words

_WORD = re.compile(r"\S+")
_EDGE = "?!.,;:'\"()"  # what may stand at the edge of a name without being part of it
Span = tuple[int, int]


class NameFinder:
    """Finds names in questions, in any case; of graphs of text (`is_normalised`) by their `phrase_key` forms.

    A name written with a capital or a digit goes before one that is not, one spelt as in the graph before one that is
    not; of those the longest, then the first. Names in lower case are mostly words of the question (`director`), so one
    counts only where there is no other.
    """

    def __init__(self, names: Iterable[str], is_normalised: bool = False) -> None:
        self.is_normalised = is_normalised
        self.longest = 1
        self.names: dict[str, str] = {}  # a name by its spelling, and by its spelling in lower case
        for name in names:
            self.names.setdefault(name.casefold(), name)
            self.longest = max(self.longest, len(name.split()) + 1)
        self.names |= {name: name for name in names}

    def find_all(self, text: str) -> list[tuple[str, Span]]:
        """Return the names in a text with where they stand, best first, no two overlapping."""
        ranked = []
        for start, stop in _spans(text, self.longest):
            shown = text[start:stop]
            if name := self._named(shown):
                is_marked = any(c.isupper() or c.isdigit() for c in shown)
                is_folded = not self.is_normalised and shown not in self.names
                ranked.append((not is_marked, is_folded, start - stop, start, name, (start, stop)))
        kept: list[tuple[str, Span]] = []
        for is_plain, _, _, _, name, span in sorted(ranked):
            if is_plain and kept:
                break
            if all(span[1] <= other[0] or span[0] >= other[1] for _, other in kept):
                kept.append((name, span))
        return kept

    def _named(self, shown: str) -> str | None:
        if not self.is_normalised:
            return self.names.get(shown) or self.names.get(shown.casefold())
        key = phrase_key(shown)
        return None if FUNCTION_WORDS.issuperset(key.split()) else self.names.get(key)


def _spans(text: str, longest: int) -> Iterator[Span]:
    """Yield every run of up to `longest` words, as it is and without punctuation and a possessive at its edges."""
    words = [found.span() for found in _WORD.finditer(text)]
    for i, (start, _) in enumerate(words):
        for _, stop in words[i : i + longest]:
            yield start, stop
            bare = text[start:stop].strip(_EDGE)
            first = text.index(bare, start)
            if bare and stop - start > len(bare):
                yield first, first + len(bare)
            if bare.endswith(("'s", "’s")):
                yield first, first + len(bare) - 2


STAND_IN = "X"  # what takes the place of a name that is left out of a question


@dataclass(frozen=True)
class EntityQuestion:
    """A question and where it starts."""

    text: str  # what is embedded
    seeds: dict[int, float]  # entities, and how surely the question names them
    branch: str  # exact, dense_link, facts, names; none: nothing is named and vectors do not link


class EntityQuestions:
    """Finds where questions start in an index's graph of facts; ConfigError where the message graph has none.

    Needs the stages `message_graph` and `relation_vectors`, and `entity_vectors` where `config.link_vectors`.
    """

    def __init__(self, index: Index, config: GNNConfig) -> None:
        self.index, self.config = index, config
        knowledge: MessageKnowledge = index.read("message_graph")
        self.whole = knowledge.graph
        self.is_kb = index.config.extract.method == "kb"
        first = 0 if knowledge.grounding is None else len(STRUCTURE)
        kept = self.whole.triples
        kept = kept[(kept[:, 1] >= first) | (first > 0) & (kept[:, 1] == SIMILAR)]
        if not len(kept):
            raise ConfigError(
                f"index {index.root} has no facts for a network of mode 'entity': build it with triples "
                "(index.extract.method=precomputed, kb or prompted), or use a checkpoint of mode 'node'"
            )
        self.graph = replace(self.whole, triples=kept)
        self.relation_vectors = with_inverses(index.read("relation_vectors"), self.graph, config)

    @cached_property
    def names(self) -> NameFinder:
        """Finds entities by name."""
        return NameFinder(self.graph.entities, is_normalised=not self.is_kb)

    @cached_property
    def entity_vectors(self) -> np.ndarray:
        """(num_entities, F) vectors of names."""
        return self.index.read("entity_vectors")

    @cached_property
    def fact_rows(self) -> np.ndarray:
        """Rows of the triples that are facts."""
        return np.arange(len(self.graph.triples))

    def find(self, text: str) -> EntityQuestion:
        """Return where a question starts (specification 3.4) and the text to embed."""
        found = self.names.find_all(text)[: 1 if self.is_kb else None]
        if found:
            shown = text
            if self.config.delexicalise:
                for _, (start, stop) in sorted(found, key=lambda row: -row[1][0]):
                    shown = shown[:start] + STAND_IN + shown[stop:]
            seeds = {self.graph.position[name]: 1.0 for name, _ in found}
            return EntityQuestion(shown, {**self._linked(text, [name for name, _ in found]), **seeds}, "exact")
        if self.config.link_vectors:
            if seeds := link_by_vector(self, text, None):
                return EntityQuestion(text, seeds, "dense_link")
            vector = self.index.embedder.encode([text], is_query=True)[0]
            return EntityQuestion(text, *nearest_entities(self, vector))
        return EntityQuestion(text, {}, "none")

    def _linked(self, text: str, names: Sequence[str]) -> dict[int, float]:
        """Return what other mentions are linked to, by vectors; of a knowledge base, a question has one name."""
        if self.is_kb or not self.config.link_vectors:
            return {}
        return link_by_vector(self, text, frozenset(words(text)).difference(*(words(name) for name in names)))


# ----------------------------------------------------------------------------------------- the part that is looked at
class QuestionGraphs(TextGraph):
    """Cuts the subgraph of each question, with features, out of an index that has the stages `NODE_STAGES`."""

    def __init__(self, index: Index, config: GNNConfig | None = None, prune: PruneConfig | None = None) -> None:
        super().__init__(index, config, prune)
        self.node_columns = pick(self.config.features, NODE_FEATURES, "features")
        self.edge_columns = pick(self.config.edge_features, EDGE_FEATURES, "edge_features")
        heads = self.graph.triples[:, 0]
        self._first = np.searchsorted(heads, np.arange(self.graph.num_nodes + 1))

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
    def _steps(self) -> tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array, sparse.csr_array]:
        """Ways between passages: along references, against them, to the names they share, and back."""
        graph, count = self.graph, self.graph.num_passages
        rows = np.flatnonzero(graph.triples[:, 1] == REFERS)
        source, target = (graph.triples[rows][:, [0, 2]] - graph.first_passage).T
        weights = (self.grounding.confidence * self.grounding.rarity)[rows].astype(np.float64)
        refers = sparse.csr_array((weights, (source, target)), shape=(count, count))
        frequency = graph.document_frequency
        worth = np.where((frequency > 1) & (frequency <= self.sizes.hub), 1 / np.log2(2.0 + frequency), 0.0)
        names = sparse.csr_array(sparse.diags_array(worth) @ self._incidence)
        back = sparse.csr_array(sparse.diags_array(1.0 / np.maximum(frequency, 1)) @ self._incidence)
        # What flows out of a passage is at most what it has; a lone weak way does not get all of it.
        along, against = (_shares(m) for m in (refers, sparse.csr_array(refers.T)))
        return along.T.tocsr(), against.T.tocsr(), _shares(sparse.csr_array(names.T)).T.tocsr(), back.T.tocsr()

    def prepare(self, queries: Sequence[str]) -> list[Subgraph]:
        """Return one subgraph for each query; none depends on the others."""
        if not queries:
            return []
        vectors = self.index.embedder.encode(list(queries), is_query=True)
        lexical = self.index.bm25_scores(queries)
        return [self._prepare(*row) for row in zip(queries, vectors, lexical, strict=True)]

    def _prepare(self, text: str, vector: np.ndarray, lexical: np.ndarray) -> Subgraph:
        dense = self.index.passage_vectors @ vector
        prior = passage_prior(dense, lexical)
        linked = link_question(text, self.hierarchy, self.titles)
        seeds = find_seeds(self, text, linked, vector, prior)
        walk = self._walk(seeds)
        passages = self._passages(walk)
        leads, follow = self._follow(walk, dense, passages)
        view = QuestionView(text, vector, linked, seeds, dense, lexical, prior, walk, leads, follow)
        nodes = self._nodes(passages, seeds)
        local = np.full(self.graph.num_nodes, -1, dtype=np.int64)
        local[nodes] = np.arange(len(nodes))
        triples = self._triples(nodes, local)
        head, relation, tail = self.graph.triples[triples].T.astype(np.int64)
        node_values = node_features(self, view, nodes)
        edge_values = edge_features(self, view, triples, nodes, node_values)
        relations = np.unique(np.concatenate([relation, relation + self.graph.num_relations]))
        edges = np.concatenate([relation, relation + self.graph.num_relations])
        return Subgraph(
            nodes=nodes,
            passages=np.where(self._is_passage(nodes), nodes - self.graph.first_passage, -1),
            source=np.concatenate([local[head], local[tail]]),
            relation=np.searchsorted(relations, edges),
            target=np.concatenate([local[tail], local[head]]),
            relations=relations,
            relation_vectors=self.relation_vectors[relations],
            question=vector.astype(np.float32),
            seeds=seeds.weights(nodes),
            features=node_values[:, self.node_columns],
            edge_features=np.concatenate([edge_values, edge_values])[:, self.edge_columns],
            node_vectors=self.node_vectors(nodes),
            prior=prior.astype(np.float32),
            branch=seeds.branch,
        )

    def _walk(self, seeds: Seeds) -> np.ndarray:
        """Return how much of the seeds' mass a short walk leaves at each passage. Shape (num_passages,), float64."""
        along, against, names, back = self._steps
        graph = self.graph
        flow = seeds.weights(np.arange(graph.first_passage, graph.first_sentence)).astype(np.float64)
        flow += back @ seeds.weights(np.arange(graph.num_entities)).astype(np.float64)
        total = flow.copy()
        for _ in range(self.sizes.steps):
            flow = 0.6 * (along @ flow) + 0.3 * (against @ flow) + 0.3 * (back @ (names @ flow))
            total += flow
        return total

    def _follow(self, walk: np.ndarray, dense: np.ndarray, passages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where a second walk starts, best first, and what it leaves at each passage (`as_feature`)."""
        leads, weights = leads_of(walk, dense, passages)
        order = np.argsort(leads)
        starts = Seeds(self.graph.first_passage + leads[order], weights[order].astype(np.float32), {}, "search")
        return leads, as_feature(self._walk(starts), leads)

    def _passages(self, walk: np.ndarray) -> np.ndarray:
        """Return the passages to look at, ascending."""
        order = np.argsort(-walk, kind="stable")[: self.sizes.passages]
        sentences = np.cumsum(np.diff(self.hierarchy.passage_indptr)[order])
        return np.sort(order[: max(int(np.searchsorted(sentences, self.sizes.sentences, side="right")), 1)])

    def _nodes(self, passages: np.ndarray, seeds: Seeds) -> np.ndarray:
        graph = self.graph
        owned = np.concatenate([self.passage_entities[p] for p in passages.tolist()])
        shared = np.bincount(owned, minlength=graph.num_entities)
        keep = np.flatnonzero((shared > 1) & (graph.document_frequency <= self.sizes.hub))
        rarest = keep[np.argsort(graph.document_frequency[keep], kind="stable")][: self.sizes.entities]
        named = seeds.nodes[seeds.nodes < graph.num_entities]
        sentences = np.concatenate([self.hierarchy.sentences_of(p) for p in passages.tolist()])
        parts = (rarest, named, graph.first_passage + passages, graph.first_sentence + sentences)
        return np.unique(np.concatenate(parts).astype(np.int64))

    def _triples(self, nodes: np.ndarray, local: np.ndarray) -> np.ndarray:
        """Return the rows of the triples between some nodes, ascending."""
        starts, counts = self._first[nodes], self._first[nodes + 1] - self._first[nodes]
        rows = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        return rows[local[self.graph.triples[rows, 2]] >= 0]

    def _is_passage(self, nodes: np.ndarray) -> np.ndarray:
        return (nodes >= self.graph.first_passage) & (nodes < self.graph.first_sentence)

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


def _shares(ways: sparse.csr_array) -> sparse.csr_array:
    """Return the weights of each row as shares of their sum and a doubt of 1/4."""
    totals = np.asarray(ways.sum(axis=1)).ravel() + 0.25
    return sparse.csr_array(sparse.diags_array(1.0 / totals) @ ways)


# ---------------------------------------------------------------------------------------------------- graphs of facts
@dataclass
class NeighbourhoodConfig:
    """How much of the graph a question about entities sees."""

    hops: int | None = 3  # from the seeds; null: the whole graph, as GFM-RAG
    fan: int = 60  # edges at most by which one node leads on, drawn once for the graph; seeds lead to all neighbours


class Neighbourhoods:
    """Cuts the neighbourhood of each question out of a graph of facts."""

    def __init__(self, source: EntityQuestions, config: NeighbourhoodConfig | None = None) -> None:
        self.source, self.config = source, config or NeighbourhoodConfig()
        edges = np.stack(source.graph.edges)
        self._edges = edges[:, np.lexsort((edges[2], edges[1], edges[0]))]
        first = np.searchsorted(self._edges[0], np.arange(source.graph.num_nodes + 1))
        self._ends = Lists(first, self._edges[2])  # where the edges of each node lead

    def nodes(self, seeds: Sequence[int]) -> np.ndarray:
        """Return the nodes within reach, ascending; a hub leads to a sample of its neighbours, always the same."""
        if self.config.hops is None:
            return np.arange(self.source.graph.num_entities)
        reached = front = np.array(seeds, dtype=np.int64)
        for hop in range(self.config.hops):
            found = np.unique(gathered(self._ends if hop == 0 else self._sampled, front))
            front = np.setdiff1d(found, reached, assume_unique=True)
            reached = np.union1d(reached, front)
        return reached

    @cached_property
    def _sampled(self) -> Lists:
        """Where the edges of each node lead, `fan` of them at most."""
        counts, first = self._ends.sizes, self._ends.indptr
        rank = np.arange(len(self._edges[0])) - first[self._edges[0]]
        for hub in np.flatnonzero(counts > self.config.fan).tolist():
            rank[first[hub] : first[hub + 1]] = np.random.default_rng(hub).permutation(counts[hub])
        kept = np.concatenate([[0], np.cumsum(np.minimum(counts, self.config.fan))])
        return Lists(kept, self._ends.values[rank < self.config.fan])

    def cut(self, found: EntityQuestion, vector: np.ndarray) -> Subgraph:
        """Return what the network sees of a question with an (F,) text vector: all edges among its nodes."""
        nodes = self.nodes(sorted(found.seeds))
        rows = self._ends.places(nodes)
        place = np.minimum(np.searchsorted(nodes, self._edges[2][rows]), max(len(nodes) - 1, 0))
        rows, place = (part[nodes[place] == self._edges[2][rows]] for part in (rows, place))
        relations = np.unique(self._edges[1][rows])
        graph, config, vectors = self.source.graph, self.source.config, self.source.relation_vectors
        seeds = np.zeros(len(nodes), dtype=np.float32)
        for entity, sure in found.seeds.items():
            seeds[np.searchsorted(nodes, entity)] = sure * seed_weight(graph, config, entity)
        return Subgraph(
            nodes=nodes,
            passages=np.full(len(nodes), -1),
            source=np.searchsorted(nodes, self._edges[0][rows]),
            relation=np.searchsorted(relations, self._edges[1][rows]),
            target=place,
            relations=relations,
            relation_vectors=np.asarray(vectors[relations], dtype=np.float32),
            question=vector.astype(np.float32),
            seeds=seeds,
            features=np.zeros((len(nodes), 0), np.float32),
            edge_features=np.zeros((len(rows), 0), np.float32),
            node_vectors=np.zeros((0, vectors.shape[1]), np.float16),
        )
