"""Retrieval hop by hop with the trained next-hop encoder: a beam of chains of passages, ranked by the best chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Interval

from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, best_positions, rank_in_order, vectors_of
from gnnrag.types import Query, Ranking

Chain = tuple[int, ...]  # positions of passages, oldest first
Follow = Callable[[Sequence[tuple[int, Chain]]], np.ndarray]  # (number of the query, chain) pairs to (n, dim) queries


@part("retriever", "nexthop")
class NextHopRetriever(Retriever):
    """Multi-hop dense retrieval (arXiv 2009.12756) by beam search, with as many hops as are asked for.

    A chain's score is the sum over its hops of log softmax(cosine / temperature) over the corpus. No passage comes
    twice in a chain, and chains of the same passages are one, with the better score: unlike in the released code, where
    (a, a), and (a, b) beside (b, a), take up beam. Passages follow in the order of their best chain, then by the first
    hop's cosines. ConfigError: no checkpoint; ArtefactError: it is damaged, or was trained on vectors of another
    embedder than the index's.
    """

    checkpoint: str | None = None  # folder that training/train_encoder.py wrote; null: the one that comes with gnnrag
    base: str | None = None  # where the base encoder of the checkpoint lies now, if not embedded
    hops: Annotated[int, Interval(ge=1, le=8)] = 2  # passages of a chain; 1: dense retrieval
    beam: Annotated[int, Interval(ge=1, le=256)] = 4  # chains that go on after each hop
    device: str = "auto"  # where the encoder runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    temperature: Annotated[float, Gt(0)] = 0.05  # of the softmax that makes cosines of different hops comparable

    reads = ("embeddings",)
    accepts_vectors = True

    @property
    def checkpoints(self) -> tuple[Path, ...]:  # type: ignore[override]
        """The folder of the encoder."""
        from gnnrag.roles.tuned.checkpoint import role_folder

        return (role_folder("thoughts", self.checkpoint),)

    def setup(self) -> None:
        from gnnrag.roles.tuned.thoughts import NextHop  # torch: only runs of this retriever pay for it

        self.encoder = NextHop.open(self.index, self.checkpoint, self.base, self.device)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`; a query's vector takes the place of the first hop's."""
        if not queries or not self.index.ids:
            return [rank_in_order((), self.index.ids, query.top_k, "nexthop") for query in queries]
        texts = [query.text for query in queries]
        given, read = vectors_of(queries, self.index.embedder), self.encoder.vectors([(text, ()) for text in texts])
        firsts = np.stack([r if q.vector is None else g for q, g, r in zip(queries, given, read, strict=True)])

        def follow(asked: Sequence[tuple[int, Chain]]) -> np.ndarray:
            return self.encoder.vectors([(texts[number], chain) for number, chain in asked])

        beams = beam_search(self.index.passage_vectors, firsts, follow, self.hops, self.beam, self.temperature)
        rows = zip(queries, beams, firsts, strict=True)
        return [in_order(chains, first, self.index, query.top_k, self.mask(query)) for query, chains, first in rows]


def in_order(
    chains: Sequence[tuple[Chain, float]], first: np.ndarray, index: Any, top_k: int, mask: np.ndarray | None = None
) -> Ranking:
    """Rank passages by their best chain (chains come best first), then by the cosine with the first hop's query."""
    order = list(dict.fromkeys(position for chain, _ in chains for position in chain))
    tail = (index.passage_vectors @ first).astype(np.float64)
    return rank_in_order(order, index.ids, top_k, "nexthop", tail, mask)


def beam_search(
    passages: np.ndarray, firsts: np.ndarray, follow: Follow, hops: int, beam: int, temperature: float
) -> list[list[tuple[Chain, float]]]:
    """Return the chains of each query that were compared at the last hop, best first, with their scores.

    `passages` (P, dim) and `firsts` (n, dim) are unit rows; `follow` gives the queries after chains. Ties go to the
    passage that stands earlier in the corpus.
    """
    beams = [_extended([((), 0.0)], [first], passages, beam, temperature) for first in firsts]
    for _ in range(1, min(hops, len(passages))):
        beams = [chains[:beam] for chains in beams]
        vectors = iter(follow([(number, chain) for number, chains in enumerate(beams) for chain, _ in chains]))
        beams = [_extended(chains, [next(vectors) for _ in chains], passages, beam, temperature) for chains in beams]
    return beams


def _extended(
    chains: Sequence[tuple[Chain, float]],
    vectors: Sequence[np.ndarray],
    passages: np.ndarray,
    beam: int,
    temperature: float,
) -> list[tuple[Chain, float]]:
    """Return each chain with each of the passages that its query likes best, best first; equal sets are one."""
    best: dict[frozenset[int], tuple[Chain, float]] = {}
    for (chain, score), vector in zip(chains, vectors, strict=True):
        logits = (passages @ vector).astype(np.float64) / temperature
        logits -= logits.max()
        chances = logits - np.log(np.exp(logits).sum())
        chances[list(chain)] = -np.inf  # no passage twice
        for position in best_positions(chances, beam).tolist():
            longer, total = (*chain, position), score + float(chances[position])
            known = best.get(frozenset(longer))
            if np.isfinite(total) and (known is None or total > known[1]):
                best[frozenset(longer)] = (longer, total)
    return sorted(best.values(), key=lambda item: -item[1])
