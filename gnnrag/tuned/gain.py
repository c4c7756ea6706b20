"""What a query gains: how much further up it brings gold passages than the pool that it was asked for had them.

The pool is what a verifier sees of it, its first `DEPTH` passages, before the decision. A gold passage at rank r counts
1/r, in the query's own ranking: unlike its place in the pool after merging, that does not depend on how a method weighs
its queries, so that candidates that nobody sent are labelled as those that were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gnnrag.tuned.rows import ThoughtsRow
from gnnrag.types import Query, Ranking

DEPTH = 50  # passages of a pool and of a ranking that count


@dataclass(frozen=True, slots=True)
class Gain:
    """What one query gained.

    Attributes:
        value: sum over gold passages of what their reciprocal rank rises by, at least 0.
        new: gold passages that it brought and the pool lacked, in their order of rank.
    """

    value: float = 0.0
    new: tuple[str, ...] = ()

    @property
    def helped(self) -> bool:
        """Whether it brought a missing gold passage or raised the rank of one."""
        return self.value > 0


def gold_ranks(ranking: Sequence[str], gold: Collection[str], depth: int = DEPTH) -> dict[str, int]:
    """Return the 1-based ranks of the gold passages among the first `depth` of a ranking, best first."""
    return {id_: rank for rank, id_ in enumerate(ranking[:depth], start=1) if id_ in gold}


def gain_of(ranks: dict[str, int], pool: Sequence[str], depth: int = DEPTH) -> Gain:
    """Return what a query gained over a pool.

    Args:
        ranks: of the gold passages in its ranking, see `gold_ranks`.
        pool: ids of the pool before, best first.
        depth: passages of the pool that count.
    """
    before = gold_ranks(pool, ranks.keys(), depth)
    value = sum(max(0.0, 1.0 / rank - (1.0 / before[id_] if id_ in before else 0.0)) for id_, rank in ranks.items())
    return Gain(value, tuple(id_ for id_ in ranks if id_ not in before))


def gain(ranking: Sequence[str], pool: Sequence[str], gold: Collection[str], depth: int = DEPTH) -> Gain:
    """Return what a query with this ranking gained over a pool; see `gain_of`."""
    return gain_of(gold_ranks(ranking, gold, depth), pool, depth)


def query_gains(
    row: ThoughtsRow, queries: Sequence[str], retrieve: Callable[[Sequence[Query]], Sequence[Ranking]]
) -> list[Gain]:
    """Return what each query would gain at a recorded decision.

    Args:
        row: the decision; it must know its `pool` and its `gold`.
        queries: texts; an empty one gains nothing.
        retrieve: a retriever's verb; asked for the first `DEPTH` passages of each query, all at once.
    """
    asked = [Query(text, top_k=DEPTH) for text in queries if text.strip()]
    rankings = iter(retrieve(asked) if asked else ())
    return [gain(next(rankings).ids, row.pool, row.gold) if text.strip() else Gain() for text in queries]
