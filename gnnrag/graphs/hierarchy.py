"""The contextual hierarchical graph: passages, their sentences, the phrases of those (MGranRAG, AAAI 2026)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

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
    def adjacency(self) -> sparse.csr_array:
        """Symmetric 0/1 matrix. Shape (num_nodes, num_nodes), float64."""
        low, high = self.edges.T
        rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
        shape = (self.num_nodes, self.num_nodes)
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Number of neighbours of each node. Shape (num_nodes,), int64."""
        return np.bincount(self.edges.ravel(), minlength=self.num_nodes)

    @cached_property
    def phrase_keys(self) -> tuple[str, ...]:
        """The spelling-insensitive form (`phrase_key`) of each phrase; empty for punctuation."""
        return tuple(map(phrase_key, self.phrases))

    @cached_property
    def phrase_nodes(self) -> Mapping[str, tuple[int, ...]]:
        """Node ids of the phrases that share a spelling-insensitive form."""
        nodes: dict[str, list[int]] = {}
        for node, key in enumerate(self.phrase_keys, start=self.first_phrase):
            nodes.setdefault(key, []).append(node)
        nodes.pop("", None)
        return {key: tuple(row) for key, row in nodes.items()}

    def sentences_of(self, passage: int) -> np.ndarray:
        """Return the sentences of one passage in reading order, as positions in `sentences`."""
        return self.passage_sentences[self.passage_indptr[passage] : self.passage_indptr[passage + 1]]

    def phrases_of(self, sentence: int) -> np.ndarray:
        """Return the phrases of one sentence (a position in `sentences`), as positions in `phrases`."""
        return self.sentence_phrases[self.sentence_indptr[sentence] : self.sentence_indptr[sentence + 1]]

    def passages_with(self, phrase: int) -> list[int]:
        """Return the passages that have a phrase (a position in `phrases`), in corpus order."""
        graph = self.adjacency
        node = self.first_phrase + phrase
        sentences = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        around = (graph.indices[graph.indptr[s] : graph.indptr[s + 1]] for s in sentences.tolist())
        return sorted({p for row in around for p in row.tolist() if p < self.num_passages})

    def to_arrays(self) -> tuple[dict[str, np.ndarray], list[str]]:
        """Return what `from_arrays` rebuilds the graph from: integer arrays, and sentences followed by phrases."""
        arrays = {
            "sizes": np.array([self.num_passages, len(self.sentences), len(self.phrases)], dtype=np.int64),
            **{name: getattr(self, name) for name in _ARRAYS},
        }
        return arrays, [*self.sentences, *self.phrases]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], strings: Sequence[str]) -> HierarchyGraph:
        """Rebuild a graph from `to_arrays`; ArtefactError where arrays are missing or do not fit the strings."""
        if missing := {"sizes", *_ARRAYS} - set(arrays):
            raise ArtefactError(f"hierarchy graph lacks {', '.join(sorted(missing))}; rebuild the index")
        num_passages, num_sentences, num_phrases = (int(size) for size in arrays["sizes"])
        graph = cls(
            num_passages,
            tuple(strings[:num_sentences]),
            tuple(strings[num_sentences:]),
            **{name: np.asarray(arrays[name], dtype=np.int32) for name in _ARRAYS},
        )
        lists = (
            (graph.passage_indptr, graph.passage_sentences, num_passages, num_sentences),
            (graph.sentence_indptr, graph.sentence_phrases, num_sentences, num_phrases),
        )
        if len(strings) != num_sentences + num_phrases or not all(_is_valid(*row) for row in lists):
            raise ArtefactError("hierarchy graph: its arrays and strings do not belong together; rebuild the index")
        return graph


_ARRAYS = ("passage_indptr", "passage_sentences", "sentence_indptr", "sentence_phrases")


def build_hierarchy(texts: Sequence[PassageText]) -> HierarchyGraph:
    """Build the graph of a corpus in corpus order; a repeated sentence keeps the phrases of its first occurrence."""
    sentences: dict[str, int] = {}
    phrases: dict[str, int] = {}
    sentence_rows: list[list[int]] = []
    passage_rows: list[list[int]] = []
    for text in texts:
        row = []
        for sentence, found in zip(text.sentences, text.phrases, strict=True):
            position = sentences.setdefault(sentence, len(sentences))
            if position == len(sentence_rows):
                sentence_rows.append([phrases.setdefault(p, len(phrases)) for p in dict.fromkeys(found) if p.strip()])
            row.append(position)
        passage_rows.append(row)
    return HierarchyGraph(len(texts), tuple(sentences), tuple(phrases), *_to_csr(passage_rows), *_to_csr(sentence_rows))


def _to_csr(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return (indptr, indices) of a list of lists."""
    indptr = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    flat: Iterable[int] = (i for row in rows for i in row)
    return indptr, np.fromiter(flat, dtype=np.int32, count=int(indptr[-1]))


def _is_valid(indptr: np.ndarray, indices: np.ndarray, num_rows: int, num_columns: int) -> bool:
    """Whether a CSR list has `num_rows` rows of positions below `num_columns`."""
    if indptr.shape != (num_rows + 1,) or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        return False
    return not len(indices) or (indices.min() >= 0 and indices.max() < num_columns)
