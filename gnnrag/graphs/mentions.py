"""Where a corpus mentions things, word by word: how near each mention stands to a question's words, in one pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnrag.graphs.bridging import stems
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.knowledge import Lists
from gnnrag.text.normalise import words


@dataclass(frozen=True)
class MentionTable:
    """The stems of every sentence, and every place where one of its phrases stands.

    Attributes:
        stems: distinct stems, sorted.
        sentence_stems: stems of each sentence in reading order, as positions in `stems`.
        starts, lengths: (num_mentions,) int32 first word and number of words; mentions are sorted by sentence.
        owners: (num_mentions,) int32 sentence of each.
        phrases: (num_mentions,) int32 phrase of each, a position in the hierarchy graph's `phrases`.
    """

    stems: tuple[str, ...]
    sentence_stems: Lists
    starts: np.ndarray
    lengths: np.ndarray
    owners: np.ndarray
    phrases: np.ndarray

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
        """Return how near the wanted stems stand to each mention: an adjacent word counts 1, farther ones less.

        The sum over wanted words of exp(-gap / reach), as `LinkWeigher` weighs links, but for many mentions at once.

        Args:
            mentions: positions of mentions. Shape (n,).
            wanted: stems of the question's words that are no names.
            reach: distance in words at which nearness has fallen to 1/e.

        Returns:
            Shape (n,), float64.
        """
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
            found = self.sentence_stems.values[flat]
            column = np.minimum(np.searchsorted(ids, found), len(ids) - 1)
            is_hit = ids[column] == found
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
    found: list[tuple[int, int, int, int]] = []
    for sentence, row in enumerate(tokens):
        for phrase in graph.phrases_of(sentence).tolist():
            name = names[phrase]
            size = len(name)
            for start in range(len(row) - size + 1) if size else ():
                if row[start] == name[0] and tuple(row[start : start + size]) == name:
                    found.append((sentence, phrase, start, size))
    table = np.array(found, dtype=np.int32).reshape(-1, 4)
    rows = Lists.of([[number[stem] for stem in row] for row in tokens])
    return MentionTable(tuple(known), rows, table[:, 2], table[:, 3], table[:, 0], table[:, 1])


def rarity(degrees: np.ndarray) -> np.ndarray:
    """Return 1 / log2(1 + degree): how little a phrase that so many sentences have is worth. Shape of `degrees`."""
    return 1.0 / np.log2(1.0 + np.maximum(degrees, 1))
