"""The contextual hierarchical graph: passages, their sentences, the phrases of those (MGranRAG, AAAI 2026)."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import sparse

from gnnrag.common.tables import (
    KeyedLists,
    Keys,
    Lazy,
    Lists,
    Texts,
    check_below,
    load_strings,
    map_array,
    put_arrays_apart,
    read_few,
)
from gnnrag.errors import ArtefactError
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import phrase_key


@dataclass(frozen=True)
class HierarchyGraph:
    """Passage, sentence and phrase nodes with containment edges: undirected, unweighted, no two alike.

    Node ids: passages in the order given, then sentences, then phrases, both by first appearance. Equal sentences are
    one node, and so are equal phrases (case-sensitive); passages are never merged: node i is passage i.
    """

    num_passages: int
    sentences: Sequence[str]
    phrases: Sequence[str]
    passage_indptr: np.ndarray  # with `passage_sentences`: CSR lists of each passage's sentences
    passage_sentences: np.ndarray  # positions in `sentences`, in reading order, repeats included
    sentence_indptr: np.ndarray  # with `sentence_phrases`: CSR lists of each sentence's phrases
    sentence_phrases: np.ndarray  # positions in `phrases`, distinct for each sentence
    stored: Stored | None = None  # of a graph that was read

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.num_passages + len(self.sentences) + len(self.phrases)

    @property
    def first_sentence(self) -> int:
        """Node id of sentence 0."""
        return self.num_passages

    @property
    def first_phrase(self) -> int:
        """Node id of phrase 0."""
        return self.num_passages + len(self.sentences)

    @cached_property
    def edges(self) -> np.ndarray:
        """Distinct (lower, higher) node pairs, sorted. Shape (num_edges, 2), int64."""
        passages = np.repeat(np.arange(self.num_passages), np.diff(self.passage_indptr))
        contains = np.stack([passages, self.first_sentence + self.passage_sentences], axis=1)
        sentences = self.first_sentence + np.repeat(np.arange(len(self.sentences)), np.diff(self.sentence_indptr))
        mentions = np.stack([sentences, self.first_phrase + self.sentence_phrases], axis=1)
        # A sentence that a passage repeats is one edge; sorting pairs as single numbers is what makes this fast.
        codes = np.sort(np.concatenate([contains, mentions]).astype(np.int64) @ [max(self.num_nodes, 1), 1])
        codes = codes[np.diff(codes, prepend=-1) > 0]  # `np.unique` hashes, which takes ten times as long
        return np.stack(np.divmod(codes, max(self.num_nodes, 1)), axis=1)

    @cached_property
    def neighbours(self) -> Lists:
        """The neighbours of each node, ascending, by id."""
        if self.stored is not None:
            return self.stored.neighbours
        below = _matrix(self.passage_indptr, self.passage_sentences, len(self.sentences))
        within = _matrix(self.sentence_indptr, self.sentence_phrases, len(self.phrases))
        above, around = below.T.tocsr(), within.T.tocsr()
        ups, downs = np.diff(above.indptr), np.diff(within.indptr)
        middle = np.empty(above.nnz + within.nnz, dtype=np.int32)  # of a sentence: its passages, then its phrases
        ends = np.cumsum(ups + downs)
        middle[np.arange(above.nnz) + np.repeat(ends - ups - downs - above.indptr[:-1], ups)] = above.indices
        middle[np.arange(within.nnz) + np.repeat(ends - downs - within.indptr[:-1], downs)] = (
            within.indices + self.first_phrase
        )
        sizes = np.concatenate([np.diff(below.indptr), ups + downs, np.diff(around.indptr)])
        values = [below.indices + self.first_sentence, middle, around.indices + self.first_sentence]
        indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        return Lists(indptr, np.concatenate(values).astype(np.int32))

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """Symmetric 0/1 matrix. Shape (num_nodes, num_nodes), float64."""
        near, shape = self.neighbours, (self.num_nodes, self.num_nodes)
        return sparse.csr_array((np.ones(len(near.values)), near.values, near.indptr), shape=shape)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Number of neighbours of each node. Shape (num_nodes,), int64."""
        return self.neighbours.sizes

    @cached_property
    def names(self) -> Names:
        """What phrases are called, however they are spelt."""
        return self.stored.names if self.stored is not None else _names_of(self)

    @cached_property
    def phrase_keys(self) -> Sequence[str]:
        """The spelling-insensitive form (`phrase_key`) of each phrase; empty for punctuation."""
        keys, key_of = self.names.nodes.keys_.strings, self.names.key_of
        found = Lazy(len(key_of), lambda i: keys[at] if (at := int(key_of[i])) >= 0 else "")
        return read_few(found)

    @property
    def phrase_nodes(self) -> Mapping[str, tuple[int, ...]]:
        """Node ids of the phrases that share a spelling-insensitive form."""
        return self.names.nodes

    def sentences_of(self, passage: int) -> np.ndarray:
        """Return the sentences of one passage in reading order, as positions in `sentences`."""
        return self.passage_sentences[self.passage_indptr[passage] : self.passage_indptr[passage + 1]]

    def phrases_of(self, sentence: int) -> np.ndarray:
        """Return the phrases of one sentence (a position in `sentences`), as positions in `phrases`."""
        return self.sentence_phrases[self.sentence_indptr[sentence] : self.sentence_indptr[sentence + 1]]

    def passages_with(self, phrase: int) -> list[int]:
        """Return the passages that have a phrase (a position in `phrases`), in corpus order."""
        around = (self.neighbours[sentence].tolist() for sentence in self.neighbours[self.first_phrase + phrase])
        return sorted({p for row in around for p in row if p < self.num_passages})

    def save(self, folder: Path) -> None:
        """Write the graph, with what is found in it at a query: neighbours, and the phrases of each key."""
        Texts.of(self.sentences).save(folder, "sentences")
        Texts.of(self.phrases).save(folder, "phrases")
        put_arrays_apart(folder, **{name: getattr(self, name) for name in _ARRAYS})
        self.neighbours.save(folder, "neighbours")
        put_arrays_apart(folder, key_of=self.names.key_of, word_counts=self.names.counts)
        self.names.nodes.save(folder, "keys")
        self.names.words.save(folder, "words")

    @classmethod
    def load(cls, folder: Path) -> HierarchyGraph:
        """Map what `save` wrote; ValueError where arrays do not fit each other or the strings."""
        if not (folder / "word_counts.npy").exists():
            raise ArtefactError(f"{folder} is of an earlier version; bring it up to date: gnnrag index build CONFIG")
        sentences, phrases = load_strings(folder, "sentences"), load_strings(folder, "phrases")
        arrays = {name: map_array(folder, name) for name in _ARRAYS}
        num_passages = len(arrays["passage_indptr"]) - 1
        num_nodes = num_passages + len(sentences) + len(phrases)
        lists = (
            (arrays["passage_indptr"], arrays["passage_sentences"], num_passages, len(sentences)),
            (arrays["sentence_indptr"], arrays["sentence_phrases"], len(sentences), len(phrases)),
        )
        near, key_of = Lists.load(folder, "neighbours", num_nodes), map_array(folder, "key_of")
        keys = KeyedLists.load(folder, "keys", num_nodes)
        check_below(key_of + 1, len(keys) + 1)
        words, counts = Keys.load(folder, "words"), map_array(folder, "word_counts")
        check_below(counts, 1 << 62)
        fits = len(near) == num_nodes and key_of.shape == (len(phrases),) and len(words) == len(counts)
        if not fits or not all(_is_valid(*row) for row in lists):
            raise ValueError("the arrays and strings of the hierarchy graph do not belong together")
        return cls(num_passages, sentences, phrases, **arrays, stored=Stored(near, Names(keys, key_of, words, counts)))


@dataclass(frozen=True)
class Names:
    """What the phrases of a graph are called."""

    nodes: KeyedLists  # the phrase nodes of each `phrase_key`
    key_of: np.ndarray  # (num_phrases,) int32, the position of each phrase's key; -1: it has none
    words: Keys  # of the keys, sorted
    counts: np.ndarray  # (num_words,) int64, how often sentences hold a phrase whose key has the word


@dataclass(frozen=True)
class Stored:
    """What is derived from a graph when it is written, so that nobody has to when it is opened."""

    neighbours: Lists
    names: Names


def _names_of(graph: HierarchyGraph) -> Names:
    positions, key_of = dict[str, int](), np.full(len(graph.phrases), -1, dtype=np.int32)
    for i, key in enumerate(map(phrase_key, graph.phrases)):
        if key:
            key_of[i] = positions.setdefault(key, len(positions))
    counts: Counter[str] = Counter()
    there = np.flatnonzero(key_of >= 0)
    degrees = np.bincount(key_of[there], graph.degrees[graph.first_phrase + there], len(positions)).astype(int)
    for key, degree in zip(positions, degrees.tolist(), strict=True):
        for word in set(key.split()):
            counts[word] += degree
    words = sorted(counts)
    how_often = np.array([counts[word] for word in words], dtype=np.int64)
    return Names(_nodes(Keys.of(positions), key_of, graph.first_phrase), key_of, Keys.of(words), how_often)


def _nodes(keys: Keys, key_of: np.ndarray, first_phrase: int) -> KeyedLists:
    nodes = Lists.grouped(key_of, len(keys))
    return KeyedLists(keys, Lists(nodes.indptr, nodes.values + np.int32(first_phrase)))


def _matrix(indptr: np.ndarray, indices: np.ndarray, num_columns: int) -> sparse.csr_array:
    """Return a matrix whose rows hold some columns, each once and ascending."""
    shape = (len(indptr) - 1, num_columns)
    matrix = sparse.csr_array((np.ones(len(indices), dtype=np.int8), indices.copy(), indptr.copy()), shape=shape)
    matrix.sum_duplicates()
    return matrix


_ARRAYS = ("passage_indptr", "passage_sentences", "sentence_indptr", "sentence_phrases")


def build_hierarchy(texts: Iterable[PassageText]) -> HierarchyGraph:
    """Build the graph of a corpus in corpus order; a repeated sentence keeps the phrases of its first occurrence."""
    sentences: dict[str, int] = {}
    phrases: dict[str, int] = {}
    # Plain arrays: as lists, the numbers of millions of sentences take several times the memory of all else.
    in_passages, in_sentences = (array("i"), array("q", [0])), (array("i"), array("q", [0]))
    for text in texts:
        for sentence, found in zip(text.sentences, text.phrases, strict=True):
            position = sentences.setdefault(sentence, len(sentences))
            if position == len(in_sentences[1]) - 1:
                in_sentences[0].extend(phrases.setdefault(p, len(phrases)) for p in dict.fromkeys(found) if p.strip())
                in_sentences[1].append(len(in_sentences[0]))
            in_passages[0].append(position)
        in_passages[1].append(len(in_passages[0]))
    return HierarchyGraph(
        num_passages=len(in_passages[1]) - 1,
        sentences=tuple(sentences),
        phrases=tuple(phrases),
        passage_indptr=np.array(in_passages[1], dtype=np.int32),
        passage_sentences=np.array(in_passages[0], dtype=np.int32),
        sentence_indptr=np.array(in_sentences[1], dtype=np.int32),
        sentence_phrases=np.array(in_sentences[0], dtype=np.int32),
    )


def _is_valid(indptr: np.ndarray, indices: np.ndarray, num_rows: int, num_columns: int) -> bool:
    """Whether a CSR list has `num_rows` rows of positions below `num_columns`."""
    if indptr.shape != (num_rows + 1,) or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        return False
    return not len(indices) or (indices.min() >= 0 and indices.max() < num_columns)
