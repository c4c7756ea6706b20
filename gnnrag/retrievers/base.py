"""What every retriever offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gnnrag.parts import Part
from gnnrag.session import Session
from gnnrag.types import Hit, Query, Ranking

if TYPE_CHECKING:
    from gnnrag.index.embedder import Embedder
    from gnnrag.index.index import Index

ANSWER = "answer"  # id of the graph hit that holds the retriever's own answer; it is ranked first


class Retriever(Part):
    """Ranks passages or graph hits for batches of queries; read-only once built.

    A result must not depend on which other queries share the batch. If `asks_roles` is set, `retrieve_for` is called
    separately for each question, and its rankings are kept for that question only. Otherwise `retrieve` is called with
    batches that mix the queries of all questions.
    """

    channels: frozenset[str] = frozenset({"text"})  # what it can search (`text`, `graph`)
    role_names: tuple[str, ...] = ()  # the roles that it may ask
    asks_roles: bool = False
    accepts_vectors: bool = False  # a query's own vector replaces the embedding of its text, not its words
    explains: ClassVar[bool] = False  # it has `explain`, which returns the paths behind a score
    checkpoints: tuple[Path, ...] = ()  # folders of the trained models that it uses
    index: Any  # set by `build`
    roles: Any  # set by `build`

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query, in order, of at most `query.top_k` hits."""
        raise NotImplementedError

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> Sequence[Ranking | Exception]:
        """Do what `retrieve` does for the queries of one question; roles are called in that question's session."""
        return self.retrieve(queries)


def rank_passages(
    scores: np.ndarray, ids: Sequence[str], top_k: int, branch: str, is_last_first: bool = False
) -> Ranking:
    """Rank the passages by their scores (num_passages,), best first; ties keep corpus order.

    `is_last_first` reverses the order of ties. NaN and infinite scores are left out. The ranking records `branch`.
    """
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
    order: Sequence[int], ids: Sequence[str], top_k: int, branch: str, tail: np.ndarray | None = None
) -> Ranking:
    """Rank distinct passage positions, given best first, with the scores 1, 1/2, 1/3, ...

    The other passages follow by their scores in `tail` (num_passages,), ties in corpus order. None: none follow.
    """
    positions = list(order[:top_k])
    if tail is not None and len(positions) < top_k:
        known = set(positions)
        more = best_positions(tail, min(top_k + len(known), len(ids))).tolist()
        positions += [p for p in more if p not in known][: top_k - len(positions)]
    scores = 1.0 / np.arange(1, len(positions) + 1)
    return Ranking(tuple(ids[p] for p in positions), scores, branch=branch, low=0.0, high=1.0)


def rank_hits_in_order(hits: Sequence[Hit], top_k: int, branch: str) -> Ranking:
    """Turn graph hits of a method that defines only an order into a ranking with the scores 1, 1/2, 1/3, ..."""
    ranking = rank_hits(hits, top_k, branch)
    return replace(ranking, scores=1.0 / np.arange(1, len(ranking) + 1), low=0.0, high=1.0)


def rank_hits(hits: Sequence[Hit], top_k: int, branch: str) -> Ranking:
    """Turn graph hits, best first, into a ranking for the `graph` channel; the first hit of each id is kept."""
    first: dict[str, Hit] = {}
    for hit in hits:
        first.setdefault(hit.id, hit)
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
    # All entries that tie with the k-th best must be candidates before ties are broken by position.
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= threshold)
    return candidates[np.argsort(-scores[candidates], kind="stable")][:k]


def min_max(scores: np.ndarray) -> np.ndarray:
    """Scale scores to [0, 1], as HippoRAG does; equal scores all become 1. Same shape, float64."""
    scores = np.asarray(scores, dtype=np.float64)
    if not scores.size:
        return scores
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.ones_like(scores)


def query_vectors(embedder: Embedder, rows: Sequence[Sequence[str]]) -> list[list[Any]]:
    """Embed each row's strings: the query, even if empty, then other strings (None where empty). Shape (dim,) each."""
    texts = list(dict.fromkeys(text for row in rows for n, text in enumerate(row) if text or not n))
    of = dict(zip(texts, embedder.encode(texts, is_query=True), strict=True)) if texts else {}
    return [[of[text] if text or not n else None for n, text in enumerate(row)] for row in rows]


def vectors_of(queries: Sequence[Query], embedder: Embedder) -> np.ndarray:
    """Return a search vector for each query: its own, else the embedding of its text. Shape (n, dim)."""
    vectors = iter(embedder.encode([query.text for query in queries if query.vector is None], is_query=True))
    return np.stack([next(vectors) if q.vector is None else np.array(q.vector, dtype=np.float32) for q in queries])


def cosines_of(queries: Sequence[Query], index: Index) -> list[np.ndarray]:
    """Return each query's cosines with all passages, by its own vector or its text's; (num_passages,) for each."""
    cosines = iter(index.dense_scores([query.text for query in queries if query.vector is None]))
    return [
        next(cosines) if q.vector is None else index.passage_vectors @ np.array(q.vector, np.float32) for q in queries
    ]
