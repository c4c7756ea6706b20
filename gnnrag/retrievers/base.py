"""What every retriever offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.parts import Part
from gnnrag.session import Session
from gnnrag.types import Hit, Query, Ranking

if TYPE_CHECKING:
    from gnnrag.index.embedder import Embedder

ANSWER = "answer"  # id of the graph hit that holds the retriever's own answer; it is ranked first
_BLOCK = 128  # scores of which `best_positions` takes the maximum


Passes = Callable[[str], bool]  # tells for the id of a passage whether it passes a filter


class Retriever(Part):
    """Ranks passages or graph hits for batches of queries; read-only once built.

    A result must not depend on which other queries share the batch. If `asks_roles` is set, `retrieve_for` is called
    separately for each question, and its rankings are kept for that question only. Otherwise `retrieve` is called with
    batches that mix the queries of all questions. A filter acts before the cut at `top_k` (`mask`): only passages that
    pass are ranked. A graph hit needs one source that passes; a summary needs all of its sources to pass.
    """

    channels: frozenset[str] = frozenset({"text"})  # what it can search (`text`, `graph`)
    role_names: tuple[str, ...] = ()  # the roles that it may ask
    asks_roles: bool = False
    accepts_vectors: bool = False  # a query's vector replaces the embedding of its text; BM25 still reads the text
    checkpoints: tuple[Path, ...] = ()  # folders of the trained models that it uses
    index: Any  # set by `build`
    roles: Any  # set by `build`

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query, in order, of at most `query.top_k` hits."""
        raise NotImplementedError

    def mask(self, query: Query) -> np.ndarray | None:
        """Return which passages pass the filter of a query, (num_passages,) bool; None where it has no filter."""
        return self.index.matching(query.filter) if query.filter else None

    def passes(self, query: Query) -> Passes | None:
        """Return a test of passage ids by the filter of a query, or None if it has no filter."""
        mask = self.mask(query)
        return None if mask is None else lambda id_: bool(mask[self.index.position[id_]])

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> Sequence[Ranking]:
        """Do what `retrieve` does for the queries of one question; roles are called in that question's session."""
        return self.retrieve(queries)


def rank_passages(
    scores: np.ndarray,
    ids: Sequence[str],
    top_k: int,
    branch: str,
    is_last_first: bool = False,
    mask: np.ndarray | None = None,
) -> Ranking:
    """Rank the passages by their scores (num_passages,), best first; ties keep corpus order.

    `is_last_first` reverses the order of ties. Passages with a NaN or infinite score are left out, and those outside
    `mask` (num_passages,). The ranking records `branch`.
    """
    scores = scores if mask is None else np.where(mask, scores, np.nan)
    finite = scores
    if not np.isfinite(scores.sum(dtype=np.float64)):
        finite = scores[np.isfinite(scores)]
        scores = np.where(np.isfinite(scores), scores, -np.inf)
    k = min(top_k, len(finite))
    if k <= 0:
        return Ranking((), np.zeros(0), branch=branch)
    order = len(scores) - 1 - best_positions(scores[::-1], k) if is_last_first else best_positions(scores, k)
    low, high = float(finite.min()), float(finite.max())
    best = scores[order].astype(np.float64)
    return Ranking(tuple(ids[i] for i in order.tolist()), best, branch=branch, low=low, high=high)


def rank_in_order(
    order: Sequence[int],
    ids: Sequence[str],
    top_k: int,
    branch: str,
    tail: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> Ranking:
    """Rank distinct passage positions, given best first, with the scores 1, 1/2, 1/3, ...

    The other passages follow by their scores in `tail` (num_passages,), ties in corpus order; None: they do not follow.
    Passages outside `mask` (num_passages,) are left out.
    """
    positions = [p for p in order if mask is None or mask[p]][:top_k]
    if tail is not None and len(positions) < top_k:
        known = set(positions)
        count = len(ids) if mask is None else int(mask.sum())
        rest = tail if mask is None else np.where(mask, tail, -np.inf)
        more = best_positions(rest, min(top_k + len(known), count)).tolist()
        positions += [p for p in more if p not in known][: top_k - len(positions)]
    scores = 1.0 / np.arange(1, len(positions) + 1)
    return Ranking(tuple(ids[p] for p in positions), scores, branch=branch, low=0.0, high=1.0)


def rank_hits_in_order(hits: Sequence[Hit], top_k: int, branch: str, passes: Passes | None = None) -> Ranking:
    """Turn graph hits of a method that defines only an order into a ranking with the scores 1, 1/2, 1/3, ..."""
    ranking = rank_hits(hits, top_k, branch, passes)
    return replace(ranking, scores=1.0 / np.arange(1, len(ranking) + 1), low=0.0, high=1.0)


def rank_hits(hits: Sequence[Hit], top_k: int, branch: str, passes: Passes | None = None) -> Ranking:
    """Turn graph hits, best first, into a ranking for the `graph` channel; the first hit of each id is kept.

    With a filter (`passes`), a hit keeps only the sources that pass. If it loses some, its text becomes its id alone;
    if it loses all, it is left out. A summary that loses any is left out, too.
    """
    first: dict[str, Hit] = {}
    for hit in hits:
        kept = hit
        if passes is not None:
            sources = tuple(filter(passes, hit.sources))
            is_lost = not sources and hit.id != ANSWER  # "no answer" has no sources
            if is_lost or (hit.kind == "community" and sources != hit.sources):
                continue
            # The text about a name may come from any of its sources, also from those that do not pass.
            kept = replace(hit, sources=sources, text=hit.text if sources == hit.sources else hit.id)
        first.setdefault(hit.id, kept)
    best = list(first.values())[:top_k]
    return Ranking(
        tuple(hit.id for hit in best),
        np.array([hit.score for hit in best], dtype=np.float64),
        kind=best[0].kind if best else "entity",
        branch=branch,
        texts=tuple(hit.text for hit in best),
        sources=tuple(hit.sources for hit in best),
        kinds=tuple(hit.kind for hit in best),
    )


def best_positions(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the positions of the `k` largest scores, best first, ties by position. Shape (min(k, len(scores)),)."""
    k = min(k, len(scores))
    if k <= 0:
        return np.zeros(0, dtype=np.int64)
    # The k best are at least as large as the k-th largest maximum of a block. Of many equal scores, such as zeros,
    # numpy's partition takes a hundred times as long.
    tops = np.maximum.reduceat(scores, np.arange(0, len(scores), _BLOCK))
    threshold = np.sort(tops)[-k] if len(tops) >= k else -np.inf
    candidates = np.flatnonzero(scores >= threshold)
    return candidates[np.argsort(-scores[candidates], kind="stable")][:k]


def any_of(lists: Lists, mask: np.ndarray) -> np.ndarray:
    """Tell which lists have a value at which `mask` is true. Shape (len(lists),), bool."""
    return np.bincount(lists.owners, mask[lists.values], len(lists)) > 0


def min_max(scores: np.ndarray) -> np.ndarray:
    """Scale scores to [0, 1], as HippoRAG does; equal scores all become 1. Same shape, float64."""
    scores = np.asarray(scores, dtype=np.float64)
    if not scores.size:
        return scores
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.ones_like(scores)


def query_vectors(embedder: Embedder, rows: Sequence[Sequence[str]]) -> list[list[Any]]:
    """Embed the strings of each row: first the query, even if empty, then others, None if empty. Shape (dim,) each."""
    texts = list(dict.fromkeys(text for row in rows for n, text in enumerate(row) if text or not n))
    vectors = dict(zip(texts, embedder.encode(texts, is_query=True), strict=True)) if texts else {}
    return [[vectors[text] if text or not n else None for n, text in enumerate(row)] for row in rows]


def vectors_of(queries: Sequence[Query], embedder: Embedder) -> np.ndarray:
    """Return a search vector for each query: its own, else the embedding of its text. Shape (n, dim)."""
    texts = [query.text for query in queries if query.vector is None]
    vectors = iter(embedder.encode(texts, is_query=True) if texts else ())
    return np.stack([next(vectors) if q.vector is None else np.array(q.vector, dtype=np.float32) for q in queries])
