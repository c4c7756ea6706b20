"""The graph that messages pass over: entities, passages, mentions and their edge types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from gnnrag.arrays import Lists
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.linking import stems
from gnnrag.graphs.titles import TitleMatcher
from gnnrag.text.normalise import phrase_key, words


@dataclass(frozen=True)
class MessageGraph:
    """Entities, passages and sentences with relations among them.

    Node ids: entities, then passages in corpus order, then sentences (GFM-RAG has entities alone; G-reasoner the others
    as well). Edges are stored once, as stated; the inverse of relation r is `r + num_relations` and is never stored.
    """

    entities: Sequence[str]  # (num_entities,) distinct names
    num_passages: int
    num_sentences: int
    relations: Sequence[str]  # predicates, structural names such as `mentions`, or sentences that join two mentions
    triples: np.ndarray  # (num_triples, 3) int32 rows (head, relation, tail), distinct and sorted
    entity_passages: Lists  # passages (not node ids) that state a fact of each, ascending: GFM-RAG's incidence M

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_nodes(self) -> int:
        return self.num_entities + self.num_passages + self.num_sentences

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @property
    def first_passage(self) -> int:
        """Node id of passage 0."""
        return self.num_entities

    @property
    def first_sentence(self) -> int:
        """Node id of sentence 0."""
        return self.num_entities + self.num_passages

    @cached_property
    def position(self) -> dict[str, int]:
        """Name of an entity to its node id."""
        return {name: i for i, name in enumerate(self.entities)}

    @cached_property
    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both directions of every triple: sources, relation ids (inverses offset by `num_relations`), targets.

        Each has shape (2 * num_triples,), int64; row i + num_triples is the inverse of row i.
        """
        head, relation, tail = self.triples.T.astype(np.int64)
        return (
            np.concatenate([head, tail]),
            np.concatenate([relation, relation + self.num_relations]),
            np.concatenate([tail, head]),
        )


@dataclass(frozen=True)
class StemTable:
    """The stems of every sentence."""

    stems: tuple[str, ...]  # distinct, sorted
    sentence_stems: Lists  # of each sentence in reading order, positions in `stems`

    @classmethod
    def of(cls, sentences: Sequence[str]) -> StemTable:
        """Stem the words of sentences."""
        tokens = [stems(words(sentence)) for sentence in sentences]
        known = sorted({stem for row in tokens for stem in row})
        number = {stem: i for i, stem in enumerate(known)}
        return cls(tuple(known), Lists.of([[number[stem] for stem in row] for row in tokens]))

    @cached_property
    def _matrix(self) -> sparse.csr_array:
        return self.sentence_stems.matrix(len(self.stems))

    @cached_property
    def number(self) -> Mapping[str, int]:
        return {stem: i for i, stem in enumerate(self.stems)}

    def presence(self, sentences: np.ndarray, wanted: Collection[str]) -> np.ndarray:
        """Tell which sentences have which wanted stems that the corpus knows. Shape (len(sentences), n), bool."""
        ids = sorted(self.number[stem] for stem in wanted if stem in self.number)
        return self._matrix[sentences][:, ids].toarray() > 0  # type: ignore[no-any-return]


CONTAINS, MENTIONS, TITLED, NEXT, REFERS, STANDS_FOR, SIMILAR, STATES = range(8)
# The relations that every message graph has, by their number; facts come after them.
STRUCTURE = (
    "passage contains sentence",
    "sentence mentions entity",
    "passage is titled",
    "is followed by sentence",
    "passage refers to passage",
    "name may stand for passage",
    "is spelt like",
    "passage states fact of",
)
EQUIVALENT = "equivalent"  # GFM-RAG's relation of names that are spelt alike
Fact = tuple[str, str, str]


@dataclass(frozen=True)
class Grounding:
    """What the text says of the edges of a message graph."""

    stems: StemTable
    confidence: np.ndarray  # (num_triples,) float32 in (0, 1], how sure the link is
    rarity: np.ndarray  # (num_triples,) float32 in (0, 1], of the mentioned phrase; 1 where none is


@dataclass(frozen=True)
class MessageKnowledge:
    """A message graph, and what the text says of its edges."""

    graph: MessageGraph
    grounding: Grounding | None  # None for a graph of facts alone


class _Triples:
    """Collects triples with their confidence and rarity."""

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = [np.zeros((0, 3), dtype=np.int64)]
        self.values: list[np.ndarray] = [np.zeros((0, 2))]

    def add(self, heads: Any, relations: Any, tails: Any, sure: Any = 1.0, rare: Any = 1.0) -> None:
        """Add triples by arrays or single numbers, which hold for all of the call."""
        columns = np.broadcast_arrays(*map(np.atleast_1d, (heads, relations, tails, sure, rare)))
        self.blocks.append(np.stack(columns[:3], axis=1).astype(np.int64))
        self.values.append(np.stack(columns[3:], axis=1).astype(np.float64))

    def merged(self) -> tuple[np.ndarray, np.ndarray]:
        """Return distinct triples, sorted, and the highest confidence and rarity of each."""
        triples, of = np.unique(np.concatenate(self.blocks), axis=0, return_inverse=True)
        best = np.zeros((len(triples), 2))
        np.maximum.at(best, of, np.concatenate(self.values))
        return triples.astype(np.int32), best.astype(np.float32)


def corpus_graph(
    graph: HierarchyGraph,
    matcher: TitleMatcher,
    facts: Sequence[Iterable[Fact]] = (),
    similar: Iterable[tuple[str, str]] = (),
) -> tuple[MessageGraph, Grounding]:
    """Build the message graph of a corpus.

    Entities are names by their spelling-insensitive form (`phrase_key`): those that two passages share, titles, what
    untitled passages are about, and the ends of facts. `facts` has the triples of each passage in corpus order;
    `similar` has pairs of names spelt alike, of which those that are no entities are left out.
    """
    stated = [
        (passage, phrase_key(head), relation, phrase_key(tail))
        for passage, rows in enumerate(facts)
        for head, relation, tail in rows
    ]
    stated = [row for row in stated if row[1] and row[2].strip() and row[3]]
    tables = matcher.tables
    titled = [(passage, tables.forms[form]) for passage, row in enumerate(tables.passage_forms) for form in row]
    # Which passages name which keys: a passage, its sentences, their phrases.
    passage_of, spoken = graph.passage_sentences.owners, graph.passage_sentences.values
    phrases = graph.sentence_phrases
    holders, named = np.repeat(passage_of, phrases.sizes_of(spoken)), phrases.at(spoken)
    known = {key: i for i, key in enumerate(dict.fromkeys(graph.phrase_keys))}
    key_of = np.array([known[key] for key in graph.phrase_keys], dtype=np.int64)
    pairs = np.unique(np.stack([key_of[named], holders], axis=1), axis=0)
    is_shared = (np.bincount(pairs[:, 0], minlength=len(known)) > 1).tolist()

    names = {form for _, form in titled}.union(*((head, tail) for _, head, _, tail in stated))
    names.update(key for key, shared in zip(known, is_shared, strict=True) if key and (shared or matcher.match(key)))
    position = {name: i for i, name in enumerate(sorted(names))}
    relations = [*STRUCTURE, *sorted({relation for _, _, relation, _ in stated} - set(STRUCTURE))]
    number = {text: i for i, text in enumerate(relations)}
    first_passage, first_sentence = len(position), len(position) + graph.num_passages

    edges = _Triples()
    sentences = first_sentence + spoken
    edges.add(first_passage + passage_of, CONTAINS, sentences)
    follows = (passage_of[1:] == passage_of[:-1]) & (sentences[1:] != sentences[:-1])
    edges.add(sentences[:-1][follows], NEXT, sentences[1:][follows])
    for passage, form in titled:
        edges.add(first_passage + passage, TITLED, position[form], tables.sure[tables.position[form]])
    for name, entity in position.items():
        match = matcher.match(name)
        if match and match.form != name:
            edges.add(entity, STANDS_FOR, first_passage + np.array(matcher.passages(match.form)), match.confidence)
    # Who mentions what, and between passages who refers to whom: a phrase that is or may be another's title.
    rare = 1.0 / np.log2(1.0 + np.maximum(graph.degrees[graph.first_phrase :], 1))  # in so many sentences
    entity_of = np.array([position.get(key, -1) for key in graph.phrase_keys], dtype=np.int64)
    at = np.flatnonzero(entity_of[phrases.values] >= 0)
    owners, mentioned = phrases.owners[at], phrases.values[at]
    edges.add(first_sentence + owners, MENTIONS, entity_of[mentioned], 1.0, rare[mentioned])
    for passage in range(graph.num_passages):
        for link in matcher.links(passage):
            there = np.array(matcher.passages(link.match.form))
            sure, others = link.match.confidence / len(there), first_passage + there[there != passage]
            edges.add(first_passage + passage, REFERS, others, sure, rare[link.phrase])
    for passage, head, relation, tail in stated:
        ends = np.array([position[head], position[tail]])
        edges.add(ends[0], number[relation], ends[1])
        edges.add(first_passage + passage, STATES, ends)
    for one, other in ((phrase_key(one), phrase_key(other)) for one, other in similar):
        if one in position and other in position and one != other:
            edges.add(position[one], SIMILAR, position[other])

    # The passages of each entity: those that name it, bear it as title, or state a fact of it.
    where = [(position[name], p) for p, head, _, tail in stated for name in (head, tail)]
    where += [(position[form], passage) for passage, form in titled]
    of_key = np.array([position.get(key, -1) for key in known], dtype=np.int64)
    incidence = np.stack([of_key[pairs[:, 0]], pairs[:, 1]], axis=1)[of_key[pairs[:, 0]] >= 0]
    incidence = np.unique(np.concatenate([incidence, np.array(where, dtype=np.int64).reshape(-1, 2)]), axis=0)
    triples, values = edges.merged()
    message = MessageGraph(
        list(position), graph.num_passages, len(graph.sentences), relations, triples,
        Lists.grouped(incidence[:, 0], incidence[:, 1], len(position)),
    )  # fmt: skip
    return message, Grounding(StemTable.of(graph.sentences), values[:, 0], values[:, 1])


def fact_graph(
    facts: Sequence[Iterable[Fact]], key: Callable[[str], str] = str, similar: Iterable[tuple[str, str]] = ()
) -> MessageGraph:
    """Build the message graph of facts alone, as GFM-RAG's: entities joined by predicates.

    Names of one `key` are one entity; facts with an end of an empty key are left out. Pairs in `similar` become facts
    of a relation `equivalent`.
    """
    stated = [[(key(h), r, key(t)) for h, r, t in rows] for rows in facts]
    stated = [[fact for fact in rows if fact[0] and fact[2]] for rows in stated]
    names = sorted({name for rows in stated for h, _, t in rows for name in (h, t)})
    alike = {(one, EQUIVALENT, other) for one, other in ((key(a), key(b)) for a, b in similar) if one != other}
    position = {n: i for i, n in enumerate(names)}
    every = {fact for fact in alike if fact[0] in position and fact[2] in position}.union(*stated)
    relations = sorted({relation for _, relation, _ in every})
    number = {r: i for i, r in enumerate(relations)}
    triples = np.array(sorted((position[h], number[r], position[t]) for h, r, t in every), dtype=np.int32)
    where = {(position[name], passage) for passage, rows in enumerate(stated) for h, _, t in rows for name in (h, t)}
    owners, passages = np.array(sorted(where), dtype=np.int64).reshape(-1, 2).T
    incidence = Lists.grouped(owners, passages, len(names))
    return MessageGraph(names, len(stated), 0, relations, triples.reshape(-1, 3), incidence)
