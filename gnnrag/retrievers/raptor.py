"""RAPTOR: a tree of summaries, searched as one list or from the top down, as a ranking of passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.common.files import digest
from gnnrag.errors import ConfigError
from gnnrag.graphs.tree import SummaryTree
from gnnrag.index.index import Index
from gnnrag.retrievers.base import Retriever, best_positions, rank_passages
from gnnrag.types import Query, Ranking

_UNREACHED = 2.0  # what a passage that the walk never saw loses: more than two cosines can differ


@dataclass
class RaptorConfig:
    """Constants of `RaptorRetriever`; the defaults are the paper's, the release has `nodes=10 tokens=3500`."""

    mode: str = "collapsed"  # collapsed: all nodes as one list; traverse: layer by layer from the top
    nodes: int = 20  # collapsed: how many nodes are selected at most
    tokens: int = 2000  # collapsed: how long they may be together; the first that does not fit ends the selection
    per_layer: int = 5  # traverse: nodes kept in each layer
    start_layer: int | None = None  # traverse: where it starts; 0 are the passages, null is the top
    num_layers: int | None = None  # traverse: how many layers it looks at; null: down to the passages
    gamma: float = 0.5  # weight of a selected summary's score against that of a passage below it; 0: plain dense
    summary_in_context: bool = (
        False  # graph hits carry the text of their summaries, for methods that show it to readers
    )


@dataclass(frozen=True)
class Selection:
    """Nodes in order of selection, and the passages that the search could see, ascending; None for all."""

    nodes: np.ndarray
    reached: np.ndarray | None = None


class RaptorRetriever(Retriever):
    """Summaries lift the passages below them (Sarthi et al., ICLR 2024; as a passage ranking for BDTR's comparison).

    With b(p) the cosine of query and passage and s(a) that of a selected summary, score(p) = max(b(p), max over
    selected a above p of (1 - gamma) b(p) + gamma s(a)). All passages are ranked; a traversal ranks what it did not
    reach last, by b(p) - 2. The channel `graph` holds the selected summaries, of kind `community`, with the passages
    below them. ConfigError: an unknown `mode`, or a number out of its range.
    """

    channels = frozenset({"text", "graph"})
    stages = ("tree", "embeddings")
    config_class = RaptorConfig

    def __init__(self, index: Index, config: RaptorConfig | None = None) -> None:
        self._index, self._config = index, config or RaptorConfig()
        self._tree: SummaryTree = index.read("tree")
        c, top = self._config, len(self._tree.layers) - 1
        if c.mode not in ("collapsed", "traverse"):
            raise ConfigError(f"retriever.mode={c.mode!r}: allowed are collapsed, traverse")
        if not 0 <= c.gamma <= 1:
            raise ConfigError(f"retriever.gamma={c.gamma}: give a number from 0 to 1")
        for name in ("nodes", "tokens", "per_layer", "num_layers"):
            value = getattr(c, name)
            if value is not None and value < 1:
                raise ConfigError(f"retriever.{name}={value}: must be at least 1")
        if c.start_layer is not None and not 0 <= c.start_layer <= top:
            raise ConfigError(f"retriever.start_layer={c.start_layer}: this index has the layers 0 to {top}")

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query: of passages, or of summaries where its channel is `graph`."""
        out = []
        for query, vector in zip(queries, self._encode(queries), strict=True):
            # One product a query: the rounding of a matrix-matrix product depends on the batch.
            parts = (self._index.passage_vectors @ vector, self._tree.vectors @ vector)
            scores = np.concatenate(parts).astype(np.float64)
            selection = self.select(scores)
            if query.channel == "graph":
                out.append(self._summaries(selection, scores, query.top_k))
            else:
                passages = self._lift(selection, scores)
                out.append(rank_passages(passages, self._index.ids, query.top_k, self._config.mode))
        return out

    def select(self, scores: np.ndarray) -> Selection:
        """Select nodes by their scores, (num_nodes,): passages, then summaries."""
        return self._walk(scores) if self._config.mode == "traverse" else self._collapsed(scores)

    def _encode(self, queries: Sequence[Query]) -> np.ndarray:
        return self._index.embedder.encode([q.text for q in queries], is_query=True) if queries else np.zeros((0, 0))

    def _collapsed(self, scores: np.ndarray) -> Selection:
        """The best nodes of all layers, as long as the budget lasts; none is skipped for a shorter one."""
        best = best_positions(scores, self._config.nodes)
        return Selection(best[np.cumsum(self._tree.tokens[best]) <= self._config.tokens])

    def _walk(self, scores: np.ndarray) -> Selection:
        """The best of a layer, then the best of what is below them, and so on."""
        c, tree = self._config, self._tree
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
        tree, gamma = self._tree, self._config.gamma
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
        shown = self._config.summary_in_context
        return Ranking(
            tuple(ids),
            scores[chosen] if chosen else np.zeros(0),
            kind="community",
            branch=self._config.mode,
            low=float(all_summaries.min()) if chosen else None,
            high=float(all_summaries.max()) if chosen else None,
            texts=tuple(tree.texts[n - tree.num_leaves] if shown else "" for n in chosen),
            sources=tuple(tuple(self._index.ids[p] for p in tree.leaves(n).tolist()) for n in chosen),
        )
