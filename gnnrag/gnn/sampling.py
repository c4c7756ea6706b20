"""What a training step draws: which graph, which question, which triple, and which negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.errors import DataError
from gnnrag.graphs.messages import MessageGraph


class Draws:
    """Items that each place of each batch takes: several sets by the square root of their size, each without repeats.

    A set used up is shuffled anew. A step's batch is a pure function of seed and step: the same for a resumed run and
    in every process. `shares` are factors of the sets' probabilities, 1 if missing; `together`: one set a batch.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        batch_size: int,
        steps: int,
        seed: int,
        shares: Mapping[str, float] | None = None,
        together: bool = False,
    ) -> None:
        self._names = [name for name, size in sizes.items() if size > 0]
        if not self._names:
            raise DataError("training data", f"there is nothing to train on in {', '.join(sizes) or 'no sets at all'}")
        weights = np.sqrt([sizes[name] for name in self._names]) * [(shares or {}).get(n, 1.0) for n in self._names]
        rng = np.random.default_rng(seed)
        shape = (steps, 1) if together else (steps, batch_size)
        chosen = np.broadcast_to(rng.choice(len(weights), size=shape, p=weights / weights.sum()), (steps, batch_size))
        self._chosen = chosen
        self._items = np.zeros(chosen.shape, dtype=np.int64)
        for number, name in enumerate(self._names):
            places = np.flatnonzero(chosen.ravel() == number)
            rounds = -(-len(places) // sizes[name])
            order = [np.random.default_rng([seed, number, i]).permutation(sizes[name]) for i in range(rounds)]
            self._items.reshape(-1)[places] = np.concatenate(order)[: len(places)] if order else 0

    def __getitem__(self, step: int) -> list[tuple[str, int]]:
        """Return set and item of each place of a batch."""
        rows = zip(self._chosen[step].tolist(), self._items[step].tolist(), strict=True)
        return [(self._names[number], item) for number, item in rows]


@dataclass(frozen=True)
class TripleQuery:
    """An incomplete triple (head, relation, ?) in tail form: a lost head is the tail of the inverse relation."""

    triple: int  # row in the graph's `triples`
    head: int
    relation: int  # inverses are offset by the number of relations
    tail: int
    negatives: np.ndarray  # (n,) int64 nodes that no known triple makes an answer


class TripleTable:
    """The triples of a graph, without duplicates, with known answers, negatives, and edges that give answers away."""

    def __init__(self, graph: MessageGraph) -> None:
        self.graph = graph
        source, relation, target = graph.edges
        self._keys = source * (2 * graph.num_relations) + relation
        self._order = np.lexsort((target, self._keys))
        self._keys, self._tails = self._keys[self._order], target[self._order]
        pairs = source * graph.num_nodes + target
        self._pair_order = np.argsort(pairs, kind="stable")
        self._pairs = pairs[self._pair_order]

    def tails(self, head: int, relation: int) -> np.ndarray:
        """Return the known answers of (head, relation, ?), ascending and distinct."""
        key = head * (2 * self.graph.num_relations) + relation
        low, high = np.searchsorted(self._keys, [key, key + 1])
        return np.unique(self._tails[low:high])

    def complete(self, triple: int, lost_head: bool, count: int, rng: np.random.Generator) -> TripleQuery | None:
        """Make a query of a triple, negatives drawn with replacement; None where every node is an answer."""
        head, relation, tail = self.graph.triples[triple].astype(np.int64).tolist()
        if lost_head:
            head, relation, tail = tail, relation + self.graph.num_relations, head
        known = self.tails(head, relation)
        left = self.graph.num_nodes - len(known)
        if left <= 0:
            return None
        # The k-th node that is not known: k plus the known ones at or before it.
        ranks = np.floor(rng.random(count) * left).astype(np.int64)
        negatives = ranks + np.searchsorted(known - np.arange(len(known)), ranks, side="right")
        return TripleQuery(triple, head, relation, tail, negatives)

    def hidden(self, queries: Sequence[TripleQuery], one_hop: bool = False) -> np.ndarray:
        """Return ascending positions in `graph.edges` of the triples, both ways; `one_hop`: all edges of their ends."""
        number = len(self.graph.triples)
        if not one_hop:
            found = [row for q in queries for row in (q.triple, q.triple + number)]
            return np.unique(np.array(found, dtype=np.int64))
        keys = [
            k for q in queries for k in (q.head * self.graph.num_nodes + q.tail, q.tail * self.graph.num_nodes + q.head)
        ]
        spans = zip(np.searchsorted(self._pairs, keys), np.searchsorted(self._pairs, keys, side="right"), strict=True)
        return np.unique(np.concatenate([self._pair_order[a:b] for a, b in spans] or [np.zeros(0, dtype=np.int64)]))
