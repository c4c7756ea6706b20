"""The graph that messages pass over: entities, passages, mentions and their edge types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.linking import stems
from gnnrag.graphs.titles import TitleMatcher
from gnnrag.text.normalise import drop_qualifier, phrase_key, words


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
        """Number of entity nodes."""
        return len(self.entities)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.num_entities + self.num_passages + self.num_sentences

    @property
    def num_relations(self) -> int:
        """Number of relations, inverses not counted."""
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
    def document_frequency(self) -> np.ndarray:
        """Number of passages that each entity stands in. Shape (num_entities,), int64."""
        return self.entity_passages.sizes

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
class MentionTable:
    """The stems of every sentence, and every place where one of its phrases stands; mentions are sorted by sentence."""

    stems: tuple[str, ...]  # distinct, sorted
    sentence_stems: Lists  # of each sentence in reading order, positions in `stems`
    starts: np.ndarray  # (num_mentions,) int32, first word
    lengths: np.ndarray  # (num_mentions,) int32, words
    owners: np.ndarray  # (num_mentions,) int32, sentence
    phrases: np.ndarray  # (num_mentions,) int32, position in the hierarchy graph's `phrases`

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Stem to its position."""
        return {stem: i for i, stem in enumerate(self.stems)}

    @cached_property
    def indptr(self) -> np.ndarray:
        """First mention of each sentence. Shape (num_sentences + 1,), int64."""
        return np.searchsorted(self.owners, np.arange(len(self.sentence_stems) + 1))

    def ids(self, wanted: Collection[str]) -> np.ndarray:
        """Return the known stems among `wanted`, as sorted positions."""
        return np.array(sorted(self.number[stem] for stem in wanted if stem in self.number), dtype=np.int64)

    def nearness(self, mentions: np.ndarray, wanted: Collection[str], reach: float = 4.0) -> np.ndarray:
        """Return (n,) float64, the sum over wanted stems of exp(-gap / reach) at each mention (an adjacent word: 1)."""
        out = np.zeros(len(mentions))
        ids = self.ids(wanted)
        if not len(ids) or not len(mentions):
            return out
        sentences, of = np.unique(self.owners[mentions], return_inverse=True)
        flat, row = gather(self.sentence_stems, sentences)
        is_hit = np.isin(self.sentence_stems.values[flat], ids)
        places = (flat - self.sentence_stems.indptr[sentences][row])[is_hit]
        hits = np.bincount(row[is_hit], minlength=len(sentences))
        first = np.cumsum(hits) - hits
        counts = hits[of]
        mention = np.repeat(np.arange(len(mentions)), counts)
        slots = np.repeat(first[of] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        place, start = places[slots], self.starts[mentions][mention]
        gap = np.where(place < start, start - place - 1, place - start - self.lengths[mentions][mention])
        near = np.where(gap >= 0, np.exp(-np.maximum(gap, 0) / reach), 0.0)
        return np.bincount(mention, weights=near, minlength=len(mentions))

    def presence(self, sentences: np.ndarray, wanted: Collection[str]) -> np.ndarray:
        """Tell which sentences have which wanted stems that the corpus knows. Shape (len(sentences), n), bool."""
        ids = self.ids(wanted)
        out = np.zeros((len(sentences), len(ids)), dtype=bool)
        if len(ids) and len(sentences):
            flat, row = gather(self.sentence_stems, sentences)
            stems_there = self.sentence_stems.values[flat]
            column = np.minimum(np.searchsorted(ids, stems_there), len(ids) - 1)
            is_hit = ids[column] == stems_there
            out[row[is_hit], column[is_hit]] = True
        return out


def gather(lists: Lists, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions in `lists.values` of some lists, one after the other, and which of `rows` each is of."""
    return lists.places(rows), np.repeat(np.arange(len(rows)), lists.sizes[rows])


def find_mentions(graph: HierarchyGraph) -> MentionTable:
    """Find every phrase of every sentence in it; a phrase whose words the sentence breaks up has no mention there."""
    tokens = [stems(words(sentence)) for sentence in graph.sentences]
    names = [tuple(stems(key.split())) for key in graph.phrase_keys]
    known = sorted({stem for row in tokens for stem in row})
    number = {stem: i for i, stem in enumerate(known)}
    mentions: list[tuple[int, int, int, int]] = []
    for sentence, row in enumerate(tokens):
        for phrase in graph.phrases_of(sentence).tolist():
            name = names[phrase]
            size = len(name)
            for start in range(len(row) - size + 1) if size else ():
                if row[start] == name[0] and tuple(row[start : start + size]) == name:
                    mentions.append((sentence, phrase, start, size))
    table = np.array(mentions, dtype=np.int32).reshape(-1, 4)
    rows = Lists.of([[number[stem] for stem in row] for row in tokens])
    return MentionTable(tuple(known), rows, table[:, 2], table[:, 3], table[:, 0], table[:, 1])


def rarity(degrees: np.ndarray) -> np.ndarray:
    """Return 1 / log2(1 + degree): how little a phrase that so many sentences have is worth. Shape of `degrees`."""
    return 1.0 / np.log2(1.0 + np.maximum(degrees, 1))


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
    """The text that the edges of a message graph rest on."""

    mentions: MentionTable
    triple_mentions: Lists  # of each triple, the mentions it rests on: of a sentence's phrase, or of a link by title
    confidence: np.ndarray  # (num_triples,) float32 in (0, 1], how sure the link is
    rarity: np.ndarray  # (num_triples,) float32 in (0, 1], of the mentioned phrase; 1 where none is


class _Triples:
    """Collects triples with what they rest on; parallel ones are merged when all are known."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int, int], list[float]] = {}
        self.mentions: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)

    def add(self, row: tuple[int, int, int], confidence: float = 1.0, rare: float = 1.0) -> None:
        best = self.rows.setdefault(row, [0.0, 0.0])
        best[0], best[1] = max(best[0], confidence), max(best[1], rare)


def corpus_graph(
    graph: HierarchyGraph,
    titles: Sequence[str],
    matcher: TitleMatcher,
    facts: Sequence[Iterable[Fact]] = (),
    similar: Iterable[tuple[str, str]] = (),
) -> tuple[MessageGraph, Grounding]:
    """Build the message graph of a corpus.

    Entities are names by their spelling-insensitive form (`phrase_key`): those that two passages share, titles, what
    may stand for a title, and the ends of facts. `facts` has the triples of each passage in corpus order; `similar` has
    pairs of names spelt alike, of which those that are no entities are left out.
    """
    stated = [[(phrase_key(h), r, phrase_key(t)) for h, r, t in rows] for rows in facts]
    stated = [[fact for fact in rows if fact[0] and fact[2] and fact[1].strip()] for rows in stated]
    names = _names(graph, titles, matcher, stated)
    position = {name: i for i, name in enumerate(names)}
    relations = [*STRUCTURE, *sorted({r for rows in stated for _, r, _ in rows} - set(STRUCTURE))]
    mentions = find_mentions(graph)
    edges = _Triples()
    _add_structure(edges, graph, position)
    _add_titles(edges, titles, matcher, position)
    _add_mentions(edges, graph, matcher, mentions, position)
    number = {text: i for i, text in enumerate(relations)}
    for passage, rows in enumerate(stated):
        for head, relation, tail in rows:
            edges.add((position[head], number[relation], position[tail]))
            for entity in (position[head], position[tail]):
                edges.add((len(names) + passage, STATES, entity))
    for one, other in similar:
        ends = position.get(phrase_key(one)), position.get(phrase_key(other))
        if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
            edges.add((ends[0], SIMILAR, ends[1]))
    incidence = _incidence(graph, titles, stated, position)
    order = sorted(edges.rows)
    triples = np.array(order, dtype=np.int32).reshape(-1, 3)
    weights = np.array([edges.rows[row] for row in order], dtype=np.float32).reshape(-1, 2)
    message = MessageGraph(names, graph.num_passages, len(graph.sentences), relations, triples, incidence)
    rests = Lists.of([sorted(set(edges.mentions.get(row, ()))) for row in order])
    return message, Grounding(mentions, rests, weights[:, 0], weights[:, 1])


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
    alike = {fact for fact in alike if fact[0] in position and fact[2] in position}
    every = sorted(alike.union(*stated))
    relations = sorted({relation for _, relation, _ in every})
    number = {r: i for i, r in enumerate(relations)}
    distinct = sorted({(position[h], number[r], position[t]) for h, r, t in every})
    where: list[list[int]] = [[] for _ in names]
    for passage, rows in enumerate(stated):
        for entity in sorted({position[name] for h, _, t in rows for name in (h, t)}):
            where[entity].append(passage)
    triples = np.array(distinct, dtype=np.int32).reshape(-1, 3)
    return MessageGraph(names, len(stated), 0, relations, triples, Lists.of(where))


def _forms(title: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(form for form in (phrase_key(title), phrase_key(drop_qualifier(title))) if form))


def _names(
    graph: HierarchyGraph, titles: Sequence[str], matcher: TitleMatcher, stated: Sequence[Sequence[Fact]]
) -> list[str]:
    names = {form for title in titles for form in _forms(title)}
    names.update(name for rows in stated for head, _, tail in rows for name in (head, tail))
    seen: dict[str, int] = {}  # the passage that has a name, or -1 where several have it
    for passage in range(graph.num_passages):
        for sentence in graph.sentences_of(passage).tolist():
            for phrase in graph.phrases_of(sentence).tolist():
                key = graph.phrase_keys[phrase]
                if key and seen.setdefault(key, passage) != passage:
                    seen[key] = -1
    names.update(key for key, passage in seen.items() if passage < 0 or matcher.match(key))
    return sorted(names)


def _add_structure(edges: _Triples, graph: HierarchyGraph, position: dict[str, int]) -> None:
    first_passage = len(position)
    first_sentence = first_passage + graph.num_passages
    for passage in range(graph.num_passages):
        row = (first_sentence + graph.sentences_of(passage)).tolist()
        for sentence in row:
            edges.add((first_passage + passage, CONTAINS, sentence))
        for one, other in pairwise(row):
            if one != other:
                edges.add((one, NEXT, other))


def _add_titles(edges: _Triples, titles: Sequence[str], matcher: TitleMatcher, position: dict[str, int]) -> None:
    first = len(position)
    for passage, title in enumerate(titles):
        for form in _forms(title):
            edges.add((first + passage, TITLED, position[form]))
    for name, entity in position.items():
        match = matcher.match(name)
        if match and match.form != name:
            for passage in matcher.passages(match.form):
                edges.add((entity, STANDS_FOR, first + passage), match.confidence)


def _add_mentions(
    edges: _Triples, graph: HierarchyGraph, matcher: TitleMatcher, mentions: MentionTable, position: dict[str, int]
) -> None:
    """Add who mentions what, and between passages who refers to whom: a phrase that is or may be another's title."""
    first_passage, first_sentence = len(position), len(position) + graph.num_passages
    rare = rarity(graph.degrees[graph.first_phrase :]).tolist()
    at: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row, pair in enumerate(zip(mentions.owners.tolist(), mentions.phrases.tolist(), strict=True)):
        at[pair].append(row)
    for sentence in range(len(graph.sentences)):
        for phrase in graph.phrases_of(sentence).tolist():
            entity = position.get(graph.phrase_keys[phrase])
            if entity is not None:
                mention = (first_sentence + sentence, MENTIONS, entity)
                edges.add(mention, 1.0, rare[phrase])
                edges.mentions[mention] += at[sentence, phrase]
    for passage in range(graph.num_passages):
        for link in matcher.links(passage):
            there = matcher.passages(link.match.form)
            for other in there:
                if other != passage:
                    refers = (first_passage + passage, REFERS, first_passage + other)
                    edges.add(refers, link.match.confidence / len(there), rare[link.phrase])
                    edges.mentions[refers] += at[link.sentence, link.phrase]


def _incidence(
    graph: HierarchyGraph, titles: Sequence[str], stated: Sequence[Sequence[Fact]], position: dict[str, int]
) -> Lists:
    """Return the passages of each entity: those that name it, bear it as title, or state a fact of it."""
    where: list[set[int]] = [set() for _ in position]
    for passage, title in enumerate(titles):
        for form in _forms(title):
            where[position[form]].add(passage)
        for sentence in graph.sentences_of(passage).tolist():
            for phrase in graph.phrases_of(sentence).tolist():
                entity = position.get(graph.phrase_keys[phrase])
                if entity is not None:
                    where[entity].add(passage)
    for passage, rows in enumerate(stated):
        for head, _, tail in rows:
            where[position[head]].add(passage)
            where[position[tail]].add(passage)
    return Lists.of([sorted(row) for row in where])
