"""The contextual hierarchical graph: passages, their sentences, the phrases of those (MGranRAG, AAAI 2026)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from gnnrag.arrays import Lists, Rows, distinct, texts
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import phrase_key


@dataclass(frozen=True)
class PhraseNames:
    """Tables to look up phrases by name and by word."""

    keys: Rows[str]  # the spelling-insensitive form (`phrase_key`) of each phrase; empty for punctuation
    order: np.ndarray  # (num_phrases,) int32 positions of the phrases by their forms, equal ones ascending
    words: Rows[str]  # the words of the forms, sorted
    counts: np.ndarray  # (num_words,) int64, how often sentences hold a phrase with each word


@dataclass(frozen=True)
class HierarchyGraph:
    """Passage, sentence and phrase nodes with containment edges: undirected, unweighted, no two alike.

    Node ids: passages in the order given, then sentences, then phrases, both by first appearance. Equal sentences are
    one node, and so are equal phrases (case-sensitive); passages are never merged: node i is passage i.
    """

    sentences: Sequence[str]
    phrases: Sequence[str]
    passage_sentences: Lists  # positions in `sentences` of each passage's, in reading order, repeats included
    sentence_phrases: Lists  # positions in `phrases` of each sentence's, distinct
    neighbours: Lists  # ids of the neighbours of each node, ascending
    names: PhraseNames

    @classmethod
    def joined(
        cls,
        sentences: Sequence[str],
        phrases: Sequence[str],
        passage_sentences: Lists,
        sentence_phrases: Lists,
        keys: Rows[str] | None = None,
    ) -> HierarchyGraph:
        """Make the graph of these lists; `keys` are the `phrase_key` of each phrase, None: they are computed."""
        below, within = passage_sentences.matrix(len(sentences)), sentence_phrases.matrix(len(phrases))
        blocks = [[None, below, None], [below.T, None, within], [None, within.T, None]]
        neighbours = Lists.of_matrix(sparse.block_array(blocks, format="csr"))
        keys = texts(map(phrase_key, phrases)) if keys is None else keys
        names = _names_by(keys, neighbours.sizes[len(passage_sentences) + len(sentences) :])
        return cls(sentences, phrases, passage_sentences, sentence_phrases, neighbours, names)

    @property
    def num_passages(self) -> int:
        return len(self.passage_sentences)

    @property
    def num_nodes(self) -> int:
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
    def adjacency(self) -> sparse.csr_array:
        """Symmetric 0/1 matrix. Shape (num_nodes, num_nodes), float64."""
        near, shape = self.neighbours, (self.num_nodes, self.num_nodes)
        return sparse.csr_array((np.ones(len(near.values)), near.values, near.indptr), shape=shape)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Number of neighbours of each node. Shape (num_nodes,), int64."""
        return self.neighbours.sizes

    @property
    def phrase_keys(self) -> Rows[str]:
        """The spelling-insensitive form of each phrase; empty for punctuation."""
        return self.names.keys

    def phrase_nodes(self, key: str) -> tuple[int, ...]:
        """Return the node ids of the phrases of a spelling-insensitive form, ascending."""
        first, order = bisect_left(self.names.order, key, key=self.phrase_keys.__getitem__), self.names.order
        alike = takewhile(lambda phrase: key and self.phrase_keys[phrase] == key, order[first:])
        return tuple(self.first_phrase + int(phrase) for phrase in alike)

    def word_count(self, word: str) -> int:
        """Return how often sentences hold a phrase whose form has a word."""
        at = bisect_left(self.names.words, word)
        return int(self.names.counts[at]) if at < len(self.names.words) and self.names.words[at] == word else 0

    def passages_with(self, phrase: int) -> list[int]:
        """Return the passages that have a phrase (a position in `phrases`), in corpus order."""
        around = (self.neighbours[sentence].tolist() for sentence in self.neighbours[self.first_phrase + phrase])
        return sorted({p for row in around for p in row if p < self.num_passages})


def _names_by(keys: Rows[str], degrees: np.ndarray) -> PhraseNames:
    """Return the tables for phrases of these forms, each in so many sentences, (num_phrases,)."""
    split = pc.split_pattern(keys.columns[0], " ")
    numbers, words = numbered(pc.list_flatten(split))
    owners = np.repeat(np.arange(len(keys)), np.diff(bounds_of(split)))
    owners, held = np.divmod(distinct(owners * len(words) + numbers), max(len(words), 1))
    counts = np.bincount(held, degrees[owners], len(words)).astype(np.int64)
    ranks = pc.sort_indices(words).to_numpy()
    ranks = ranks[int(bool(keys) and words[int(ranks[0])].as_py() == "") :]  # of empty forms
    order = pc.sort_indices(keys.columns[0]).to_numpy().astype(np.int32)
    return PhraseNames(keys, order, Rows([words.take(pa.array(ranks))]), counts[ranks])


_PHRASES = pa.list_(pa.list_(pa.string()))  # of each sentence
TEXT = pa.struct([("sentences", pa.list_(pa.string())), ("phrases", _PHRASES), ("keys", _PHRASES)])


def text_row(text: PassageText) -> dict[str, Any]:
    """Return what the index keeps of a passage: its sentences, their phrases, and the `phrase_key` of each phrase."""
    keys = [list(map(phrase_key, phrases)) for phrases in text.phrases]
    return {"sentences": text.sentences, "phrases": text.phrases, "keys": keys}


def build_hierarchy(passages: Sequence[PassageText]) -> HierarchyGraph:
    """Build the graph of a corpus in corpus order; a repeated sentence keeps the phrases of its first occurrence."""
    rows = pa.array(map(text_row, passages), TEXT)
    return hierarchy_of(partial(pc.struct_field, rows))


def hierarchy_of(part: Callable[[str], Any]) -> HierarchyGraph:
    """Build the graph from columns of `TEXT` by name; each takes much memory, and is let go before the next is read."""
    in_passages = part("sentences")
    bounds = bounds_of(in_passages)
    spoken, sentences = numbered(pc.list_flatten(in_passages))
    del in_passages
    _, first = np.unique(spoken, return_index=True)
    in_sentences = pc.list_flatten(part("phrases"))
    in_rows = Lists(bounds_of(in_sentences), np.zeros(0, np.int32))
    numbers, phrases = numbered(pc.list_flatten(in_sentences))
    del in_sentences
    values = numbers[in_rows.places(first)]
    owners = np.repeat(np.arange(len(first)), in_rows.sizes_of(first))
    says_something = pc.not_equal(pc.utf8_trim_whitespace(phrases), "").to_numpy(zero_copy_only=False)
    values, owners = values[says_something[values]], owners[says_something[values]]
    _, once = np.unique(owners * len(phrases) + values, return_index=True)  # each phrase once in a sentence
    values, owners = values[np.sort(once)], owners[np.sort(once)]
    known, seen = np.unique(values, return_index=True)
    order = known[np.argsort(seen)]  # by first appearance
    position = np.zeros(len(phrases), dtype=np.int32)
    position[order] = np.arange(len(order))
    _, at = np.unique(numbers, return_index=True)
    keys = pc.list_flatten(pc.list_flatten(part("keys"))).take(pa.array(at[order]))
    return HierarchyGraph.joined(
        Rows([sentences]),
        Rows([phrases.take(pa.array(order, pa.int64()))]),
        Lists(bounds, spoken),
        Lists(np.searchsorted(owners, np.arange(len(first) + 1)), position[values]),
        Rows([_one_array(keys)]),
    )


def numbered(strings: Any) -> tuple[np.ndarray, pa.Array]:
    """Return the number of each string, int32, and the distinct strings, which are numbered by first appearance."""
    encoded = _one_array(strings).dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


def _one_array(strings: Any) -> pa.Array:
    strings = strings.cast(pa.large_string())
    return strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings


def bounds_of(lists: Any) -> np.ndarray:
    """Return where each list begins in the flattened lists, and where the last one ends. Shape (len(lists) + 1,)."""
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False) if len(lists) else np.zeros(0, np.int64)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
