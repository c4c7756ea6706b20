"""How often passages hold terms, found from the scores of BM25, and scored again for a corpus that has changed.

The scores of Lucene's BM25 hold the counts: idf and the mean length are known, and counts are whole numbers. Of
thousands in one passage, neighbours may score alike: those are not found.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gnnrag.common.splicing import Kept, in_order, splice_keys, spliced
from gnnrag.common.tables import Keys, Lists

K1, B = 1.5, 0.75
_AT_ONCE = 1 << 22  # postings worked on at a time
_STEP = 2.0**-22  # numbers that differ by this part of themselves are two in float32


@dataclass(frozen=True)
class Postings:
    """The passages that hold each term, ascending; `counts` (num_postings,) int32, how often each does."""

    terms: Keys  # sorted, but for the first, which no passage holds
    passages: Lists
    counts: np.ndarray
    lengths: np.ndarray  # (num_passages,) int32, in terms

    def scores(self) -> np.ndarray:
        """Return what `bm25s` computes for these counts, to the last bit. Shape (num_postings,), float32."""
        out = np.empty(len(self.counts), dtype=np.float32)
        for part, idf, weight in _parts(self.passages, self.lengths):
            out[part] = idf * (self.counts[part] / (weight + self.counts[part]))
        return out

    @classmethod
    def of_scores(cls, terms: Keys, passages: Lists, scores: np.ndarray, lengths: np.ndarray) -> Postings | None:
        """Return the counts that scores are of; None where they are of none, or may be of several."""
        counts = np.empty(len(scores), dtype=np.int32)
        for part, idf, weight in _parts(passages, lengths):
            share = scores[part] / idf.astype(np.float64)
            found = np.rint(weight * share / (1 - share))
            again = (idf * (found / (weight + found))).astype(np.float32)
            is_sole = weight > _STEP * found * (weight + found + 1)  # how much more one more would score
            if not is_sole.all() or not np.array_equal(again, scores[part]):
                return None
            counts[part] = found
        return cls(terms, passages, counts, lengths)

    def spliced(self, kept: Kept, rows: Sequence[Sequence[str]]) -> Postings:
        """Return the postings of a corpus of which these know all but some passages, whose terms `rows` are.

        The passages that stay must stand in the order that they stood in.
        """
        docs = kept.now.astype(np.int32)[self.passages.values]
        stays = docs >= 0
        starts = np.concatenate([[0], np.cumsum(stays)])[self.passages.indptr]
        docs, counts = docs[stays], self.counts[stays]

        number, others = self.terms.numbered(sorted({term for row in rows for term in row}))
        held = zip(kept.missing, map(Counter, rows), strict=True)
        new = np.array(sorted((number[t], p, n) for p, row in held for t, n in row.items()), dtype=np.int64)
        terms, passages, times = new.reshape(-1, 3).T
        starts = np.append(starts, np.full(len(others), len(docs)))
        within = (np.searchsorted(docs[starts[t] : starts[t + 1]], p) for t, p in zip(terms, passages, strict=True))
        places = starts[terms] + np.fromiter(within, dtype=np.int64, count=len(terms))
        sizes = np.diff(starts) + np.bincount(terms, minlength=len(starts) - 1)

        order = in_order(self.terms.strings, others)
        order = order[(sizes[order] > 0) | (order == 0)]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        old_then_new = (np.insert(docs, places, passages), np.insert(counts, places, times))
        both = [spliced(Lists(indptr, values), Lists.of(()), order) for values in old_then_new]
        lengths = np.zeros(len(kept.old), dtype=np.int32)
        lengths[kept.old >= 0] = self.lengths[kept.old[kept.old >= 0]]
        lengths[kept.missing] = [len(row) for row in rows]
        return Postings(splice_keys(self.terms, others, order), both[0], both[1].values, lengths)


def _parts(passages: Lists, lengths: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yield stretches of postings with the idf of each (float32) and what its passage's length adds to its count."""
    frequencies, which = np.unique(passages.sizes, return_inverse=True)
    num = len(lengths)
    idf = np.array([math.log(1 + (num - n + 0.5) / (n + 0.5)) for n in frequencies.tolist()], dtype=np.float32)[which]
    weights = K1 * ((1 - B) + B * lengths / lengths.astype(np.int64).mean())
    cuts = np.searchsorted(passages.indptr, np.arange(_AT_ONCE, len(passages.values), _AT_ONCE)).tolist()
    for first, last in pairwise([0, *cuts, len(passages)]):
        part = slice(int(passages.indptr[first]), int(passages.indptr[last]))
        if part.stop > part.start:
            yield part, np.repeat(idf[first:last], passages.sizes[first:last]), weights[passages.values[part]]


def unmoved(kept: Kept) -> Kept:
    """Return what stays of an earlier corpus without what has moved behind others."""
    old, there = kept.old.copy(), np.flatnonzero(kept.old >= 0)
    old[there[kept.old[there] < np.maximum.accumulate(kept.old[there])]] = -1
    return Kept(old, kept.count)
