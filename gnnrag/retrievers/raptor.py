"""RAPTOR: a tree of summaries, searched as one list or from the top down, as a ranking of passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le

from gnnrag.common.files import digest
from gnnrag.errors import ConfigError
from gnnrag.graphs.tree import SummaryTree
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, best_positions, rank_passages
from gnnrag.types import Query, Ranking

_UNREACHED = 2.0  # what a passage that the walk never saw loses: more than two cosines can differ


@dataclass(frozen=True)
class Selection:
    """Nodes in order of selection, and the passages that the search could see, ascending; None for all."""

    nodes: np.ndarray
    reached: np.ndarray | None = None


@part("retriever", "raptor")
class RaptorRetriever(Retriever):
    """Summaries lift the passages below them (Sarthi et al., ICLR 2024; as a passage ranking for BDTR's comparison).

    With b(p) the cosine of query and passage and s(a) that of a selected summary, score(p) = max(b(p), max over
    selected a above p of (1 - gamma) b(p) + gamma s(a)). All passages are ranked; a traversal ranks what it did not
    reach last, by b(p) - 2. The channel `graph` holds the selected summaries, of kind `community`, with the passages
    below them.
    """

    # collapsed: all nodes as one list; traverse: layer by layer from the top
    mode: Literal["collapsed", "traverse"] = "collapsed"
    nodes: Annotated[int, Ge(1)] = 20  # collapsed: how many nodes are selected at most
    # collapsed: how long they may be together; the first that does not fit ends the selection
    tokens: Annotated[int, Ge(1)] = 2000
    per_layer: Annotated[int, Ge(1)] = 5  # traverse: nodes kept in each layer
    start_layer: Annotated[int, Ge(0)] | None = None  # traverse: where it starts; 0 are the passages, null is the top
    num_layers: Annotated[int, Ge(1)] | None = None  # traverse: how many layers it looks at; null: down to the passages
    # weight of a selected summary's score against that of a passage below it; 0: plain dense
    gamma: Annotated[float, Ge(0), Le(1)] = 0.5
    # graph hits carry the text of their summaries, for methods that show it to readers
    summary_in_context: bool = False

    channels = frozenset({"text", "graph"})
    reads = ("tree", "embeddings")

    def setup(self) -> None:
        """Open what is searched."""
        self._tree: SummaryTree = self.index.read("tree")
        top = len(self._tree.layers) - 1
        if self.start_layer is not None and self.start_layer > top:
            raise ConfigError(f"retriever.start_layer={self.start_layer}: this index has the layers 0 to {top}")

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query: of passages, or of summaries where its channel is `graph`."""
        out = []
        for query, vector in zip(queries, self._encode(queries), strict=True):
            # One product a query: the rounding of a matrix-matrix product depends on the batch.
            parts = (self.index.passage_vectors @ vector, self._tree.vectors @ vector)
            scores = np.concatenate(parts).astype(np.float64)
            selection = self.select(scores)
            if query.channel == "graph":
                out.append(self._summaries(selection, scores, query.top_k))
            else:
                passages = self._lift(selection, scores)
                out.append(rank_passages(passages, self.index.ids, query.top_k, self.mode))
        return out

    def select(self, scores: np.ndarray) -> Selection:
        """Select nodes by their scores, (num_nodes,): passages, then summaries."""
        return self._walk(scores) if self.mode == "traverse" else self._collapsed(scores)

    def _encode(self, queries: Sequence[Query]) -> np.ndarray:
        return self.index.embedder.encode([q.text for q in queries], is_query=True) if queries else np.zeros((0, 0))

    def _collapsed(self, scores: np.ndarray) -> Selection:
        """The best nodes of all layers, as long as the budget lasts; none is skipped for a shorter one."""
        best = best_positions(scores, self.nodes)
        return Selection(best[np.cumsum(self._tree.tokens[best]) <= self.tokens])

    def _walk(self, scores: np.ndarray) -> Selection:
        """The best of a layer, then the best of what is below them, and so on."""
        c, tree = self, self._tree
        start = len(tree.layers) - 1 if c.start_layer is None else c.start_layer
        last = max(0, start + 1 - (c.num_layers or start + 1))
        front, kept = tree.layers[start], []
        for layer in range(start, last - 1, -1):
            best = front[best_positions(scores[front], c.per_layer)]
            kept.append(best)
            if layer > last:
                front = np.unique(np.concatenate([tree.below(n) for n in best.tolist()]))
        reached = front if last == 0 else np.concatenate([tree.leaves(n) for n in kept[-1].tolist()])
        return Selection(np.concatenate(kept), np.unique(reached))

    def _lift(self, selection: Selection, scores: np.ndarray) -> np.ndarray:
        """Return the score of every passage. Shape (num_passages,), float64."""
        tree, gamma = self._tree, self.gamma
        base = scores[: tree.num_leaves]
        lifted = base.copy()
        for node in selection.nodes[selection.nodes >= tree.num_leaves].tolist():
            leaves = tree.leaves(node)
            lifted[leaves] = np.maximum(lifted[leaves], (1 - gamma) * base[leaves] + gamma * scores[node])
        if selection.reached is None:
            return lifted
        out = base - _UNREACHED
        out[selection.reached] = lifted[selection.reached]
        return out

    def _summaries(self, selection: Selection, scores: np.ndarray, top_k: int) -> Ranking:
        """Return the selected summaries, best first; of those of equal text the first."""
        tree = self._tree
        found: dict[str, int] = {}
        nodes = np.sort(selection.nodes[selection.nodes >= tree.num_leaves])
        for node in nodes[np.argsort(-scores[nodes], kind="stable")].tolist():
            found.setdefault(f"summary-{digest(tree.texts[node - tree.num_leaves])[:16]}", node)
        ids = list(found)[:top_k]
        chosen = [found[i] for i in ids]
        all_summaries = scores[tree.num_leaves :]
        shown = self.summary_in_context
        return Ranking(
            tuple(ids),
            scores[chosen] if chosen else np.zeros(0),
            kind="community",
            branch=self.mode,
            low=float(all_summaries.min()) if chosen else None,
            high=float(all_summaries.max()) if chosen else None,
            texts=tuple(tree.texts[n - tree.num_leaves] if shown else "" for n in chosen),
            sources=tuple(tuple(self.index.ids[p] for p in tree.leaves(n).tolist()) for n in chosen),
        )
