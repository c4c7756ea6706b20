"""RAPTOR: a tree of summaries, searched as one list or from the top down, as a ranking of passages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Interval

from gnnrag.graphs.tree import SummaryTree
from gnnrag.io import digest
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, best_positions, rank_passages
from gnnrag.types import Query, Ranking

AtLeast1 = Annotated[int, Ge(1)]
_UNREACHED = 2.0  # what a passage that the walk never saw loses: more than two cosines can differ


@part("retriever", "raptor")
class RaptorRetriever(Retriever):
    """Summaries lift the passages below them (Sarthi et al., ICLR 2024; as a passage ranking for BDTR's comparison).

    With b(p) the cosine of query and passage and s(a) that of a selected summary, score(p) = max(b(p), max over
    selected a above p of (1 - gamma) b(p) + gamma s(a)). All passages are ranked; a traversal ranks what it did not
    reach last, by b(p) - 2. The channel `graph` holds the selected summaries, of kind `community`, with the passages
    below them. The settings are the paper's; the release has `nodes=10 tokens=3500`. With `profile=released` only the
    passages among the selected nodes are ranked, by cosine: they and the summaries are what RAPTOR's reader sees.
    """

    profile: Literal["fixed", "released"] = "fixed"
    mode: Literal["collapsed", "traverse"] = "collapsed"  # all nodes as one list, or layer by layer from the top
    nodes: AtLeast1 = 20  # collapsed: how many nodes are selected at most
    tokens: AtLeast1 = 2000  # collapsed: how long they may be together; the first that does not fit ends the selection
    per_layer: AtLeast1 = 5  # traverse: nodes selected in each layer
    gamma: Annotated[float, Interval(ge=0, le=1)] = 0.5  # weight of a selected summary's score; 0: plain dense

    channels = frozenset({"text", "graph"})
    reads = ("tree", "embeddings")

    def setup(self) -> None:
        self.tree: SummaryTree = self.index.read("tree")

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query: of passages, or of summaries where its channel is `graph`."""
        out = []
        vectors = self.index.embedder.encode([q.text for q in queries], is_query=True) if queries else ()
        for query, vector in zip(queries, vectors, strict=True):
            # One product a query: the rounding of a matrix-matrix product depends on the batch.
            cosines = np.concatenate([self.index.passage_vectors @ vector, self.tree.vectors @ vector])
            scores, mask = cosines.astype(np.float64), self.mask(query)
            if self.mode == "traverse":
                nodes, reached = self.traverse(scores)
            else:
                usable = scores if mask is None else np.where(self._resting_on(mask), scores, -np.inf)
                nodes, reached = self.collapsed(usable), None
            if query.channel == "graph":
                nodes = nodes if mask is None else nodes[self._resting_on(mask)[nodes]]
                out.append(self._summaries(nodes, scores, query.top_k))
            else:
                lifted = self._lift(nodes, reached, scores)
                if self.profile == "released":
                    leaves = np.arange(self.tree.num_leaves)
                    lifted = np.where(np.isin(leaves, nodes), scores[: len(leaves)], np.nan)
                out.append(rank_passages(lifted, self.index.ids, query.top_k, self.mode, mask=mask))
        return out

    def _resting_on(self, mask: np.ndarray) -> np.ndarray:
        """Tell which nodes have only passages of `mask` (num_passages,) below them. Shape (num_nodes,), bool."""
        counts = range(self.tree.num_leaves, self.tree.num_leaves + len(self.tree.texts))
        return np.concatenate([mask, [bool(mask[self.tree.leaves(node)].all()) for node in counts]]).astype(bool)

    def collapsed(self, scores: np.ndarray) -> np.ndarray:
        """Return the best nodes of all layers, as long as the budget lasts; none is skipped for a shorter one."""
        best = best_positions(scores, min(self.nodes, int(np.isfinite(scores).sum())))
        return best[np.cumsum(self.tree.tokens[best]) <= self.tokens]

    def traverse(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best of the top layer, then of what is below them, and so on; and the passages it reached."""
        top = len(self.tree.layers) - 1
        front, selected = self.tree.layers[top], []
        for layer in range(top, -1, -1):
            best = front[best_positions(scores[front], self.per_layer)]
            selected.append(best)
            if layer:
                front = np.unique(np.concatenate([self.tree.below(n) for n in best.tolist()]))
        return np.concatenate(selected), front

    def _lift(self, nodes: np.ndarray, reached: np.ndarray | None, scores: np.ndarray) -> np.ndarray:
        """Return the score of every passage. Shape (num_passages,), float64."""
        tree, base = self.tree, scores[: self.tree.num_leaves]
        lifted = base.copy()
        for node in nodes[nodes >= tree.num_leaves].tolist():
            leaves = tree.leaves(node)
            lifted[leaves] = np.maximum(lifted[leaves], (1 - self.gamma) * base[leaves] + self.gamma * scores[node])
        if reached is None:
            return lifted
        out = base - _UNREACHED
        out[reached] = lifted[reached]
        return out

    def _summaries(self, nodes: np.ndarray, scores: np.ndarray, top_k: int) -> Ranking:
        """Return the selected summaries, best first; of those of equal text the first."""
        tree = self.tree
        nodes = np.sort(nodes[nodes >= tree.num_leaves])
        best: dict[str, int] = {}
        for node in nodes[np.argsort(-scores[nodes], kind="stable")].tolist():
            best.setdefault(tree.texts[node - tree.num_leaves], node)
        chosen = list(best.items())[:top_k]
        cosines = scores[tree.num_leaves :]
        return Ranking(
            tuple(f"summary-{digest(text)[:16]}" for text, _ in chosen),
            np.array([scores[node] for _, node in chosen]),
            kind="community",
            branch=self.mode,
            low=float(cosines.min()) if chosen else None,
            high=float(cosines.max()) if chosen else None,
            texts=tuple(text for text, _ in chosen),
            sources=tuple(tuple(self.index.ids[p] for p in tree.leaves(node).tolist()) for _, node in chosen),
        )
