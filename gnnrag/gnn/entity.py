"""Questions about entities: names in a question, where it starts in a graph of facts, and its neighbourhood there.

A network that learned on neighbourhoods ranks hubs first on the whole graph, because the state of a hub sums over many
neighbours that have nothing to do with the question. So it answers on neighbourhoods too, as NSM and GNN-RAG do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.errors import ConfigError
from gnnrag.gnn import GNNConfig
from gnnrag.gnn.edges import Subgraph
from gnnrag.gnn.features import link_by_vector, nearest_entities, seed_weight
from gnnrag.graphs.messages import SIMILAR, STRUCTURE, MessageKnowledge
from gnnrag.index.index import Index
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

    def __init__(self, names: Collection[str], is_normalised: bool = False) -> None:
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
    text: str  # what is embedded
    seeds: dict[int, float]  # entities, and how surely the question names them
    branch: str  # given, exact, dense_link, facts, names; none: nothing is named and vectors do not link


class EntityQuestions:
    """Finds where questions start in an index's graph of facts; ConfigError where the message graph has none.

    Needs the stages `message_graph` and `relation_vectors`, and `entity_vectors` where `config.link_vectors`.
    """

    def __init__(self, index: Index, config: GNNConfig) -> None:
        self.index, self.config = index, config
        knowledge: MessageKnowledge = index.read("message_graph")
        self.whole = knowledge.graph
        self.is_kb = index.config.extract.is_kb
        first = 0 if knowledge.grounding is None else len(STRUCTURE)
        kept = self.whole.triples
        kept = kept[(kept[:, 1] >= first) | (first > 0) & (kept[:, 1] == SIMILAR)]
        if not len(kept):
            raise ConfigError(
                f"index {index.root} has no facts for a network of mode 'entity': build it with triples "
                "(index.extract.method=precomputed, kb or prompted), or use a checkpoint of mode 'node'"
            )
        self.graph = replace(self.whole, triples=kept)
        self.relation_vectors = index.read("relation_vectors")

    @cached_property
    def names(self) -> NameFinder:
        return NameFinder(self.graph.entities, is_normalised=not self.is_kb)

    @cached_property
    def entity_vectors(self) -> np.ndarray:
        """(num_entities, F) vectors of names."""
        return self.index.read("entity_vectors")

    @cached_property
    def fact_rows(self) -> np.ndarray:
        return np.arange(len(self.graph.triples))

    def facts_of(self, mask: np.ndarray) -> np.ndarray:
        """Return the facts that some passages, (num_passages,) bool, state: a graph of its own. Shape (n, 3), int64."""
        extractions, graph = self.index.read("extraction"), self.graph
        facts = {fact for passage in np.flatnonzero(mask).tolist() for fact in extractions[passage].triples}
        rows = [(graph.position[head], self._relations[name], graph.position[tail]) for head, name, tail in facts]
        return np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)

    @cached_property
    def _relations(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.graph.relations)}

    def find(self, text: str, given: Sequence[str] = ()) -> EntityQuestion:
        """Return where a question starts, at the entities that are `given` if any, and the text to embed."""
        if given:
            for name in given if self.config.delexicalise else ():
                text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", STAND_IN, text, flags=re.IGNORECASE)
            known = {self.graph.position[name]: 1.0 for name in given if name in self.graph.position}
            return EntityQuestion(text, known, "given" if known else "none")
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


@dataclass
class NeighbourhoodConfig:
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
            found = np.unique((self._ends if hop == 0 else self._sampled).at(front))
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

    def cut(self, found: EntityQuestion, vector: np.ndarray, facts: np.ndarray | None = None) -> Subgraph:
        """Return what the network sees of a question with an (F,) text vector: all edges among its nodes.

        `facts`, (n, 3): the graph of the question where it has one of its own, whatever its size.
        """
        graph, config, vectors = self.source.graph, self.source.config, self.source.relation_vectors
        if facts is None:
            nodes = self.nodes(sorted(found.seeds))
            rows = self._ends.places(nodes)
            edges = self._edges[:, rows[np.isin(self._edges[2][rows], nodes)]]
        else:
            head, relation, tail = facts.T
            inverse = np.stack([tail, relation + graph.num_relations, head])
            edges = np.concatenate([facts.T, inverse], axis=1)
            nodes = np.union1d(edges[0], np.array(list(found.seeds), dtype=np.int64))
        relations = np.unique(edges[1])
        seeds = np.zeros(len(nodes), dtype=np.float32)
        for entity, sure in found.seeds.items():
            seeds[np.searchsorted(nodes, entity)] = sure * seed_weight(graph, config, entity)
        return Subgraph(
            nodes=nodes,
            passages=np.full(len(nodes), -1),
            source=np.searchsorted(nodes, edges[0]),
            relation=np.searchsorted(relations, edges[1]),
            target=np.searchsorted(nodes, edges[2]),
            relations=relations,
            relation_vectors=np.asarray(vectors[relations], dtype=np.float32),
            question=vector.astype(np.float32),
            seeds=seeds,
            features=np.zeros((len(nodes), 0), np.float32),
            node_vectors=np.zeros((0, vectors.shape[1]), np.float16),
        )
