"""A tree of summaries over passages (RAPTOR, arXiv 2401.18059): leaves, layers of summaries, and who is below whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnrag.common.files import digest
from gnnrag.config import TreeConfig
from gnnrag.errors import ArtefactError
from gnnrag.graphs.clustering import Layer, check_tree_config, cluster_layer

Summarise = Callable[[list[list[str]]], list[str]]  # the members of each cluster to its summary
Embed = Callable[[list[str]], np.ndarray]  # n texts to (n, dim) unit rows
CountTokens = Callable[[str], int]


@dataclass(frozen=True)
class SummaryTree:
    """Nodes are numbered: the leaves (passages) in corpus order, then the summaries, layer by layer.

    Clusters overlap, so that this is a directed acyclic graph: a node may have several parents. A node that is alone in
    its cluster is a node of the next layer too, instead of being summarised.

    Attributes:
        num_leaves: passages.
        layers: the node numbers of each layer, ascending; layer 0 holds the leaves.
        children: of each summary, ascending node numbers.
        tokens: (num_nodes,) lengths.
        texts: the summaries.
        vectors: (num_summaries, dim) float32 unit rows.
    """

    num_leaves: int
    layers: tuple[np.ndarray, ...]
    children: tuple[np.ndarray, ...]
    tokens: np.ndarray
    texts: tuple[str, ...]
    vectors: np.ndarray
    _leaves: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_summaries(self) -> int:
        """How many nodes are not passages."""
        return len(self.texts)

    def below(self, node: int) -> np.ndarray:
        """Return the children of a node; a leaf, which may stand in any layer, continues as itself."""
        return self.children[node - self.num_leaves] if node >= self.num_leaves else np.array([node])

    def leaves(self, node: int) -> np.ndarray:
        """Return the passages below a node as ascending positions; computed once for each node."""
        if node < self.num_leaves:
            return np.array([node])
        if node not in self._leaves:
            self._leaves[node] = np.unique(np.concatenate([self.leaves(int(c)) for c in self.below(node)]))
        return self._leaves[node]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return everything but texts and vectors as arrays."""
        return {
            "num_leaves": np.array(self.num_leaves),
            "tokens": self.tokens,
            "layer_bounds": np.cumsum([0, *map(len, self.layers)]),
            "layers": np.concatenate(self.layers).astype(np.int64),
            "child_bounds": np.cumsum([0, *map(len, self.children)]),
            "children": np.concatenate([np.zeros(0, np.int64), *self.children]).astype(np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any], texts: Sequence[str], vectors: np.ndarray) -> SummaryTree:
        """Read back what `to_arrays` returned.

        Raises:
            ArtefactError: the parts contradict one another.
        """
        layers, children = (
            _split(arrays["layers"], arrays["layer_bounds"]),
            _split(arrays["children"], arrays["child_bounds"]),
        )
        leaves, tokens = int(arrays["num_leaves"]), arrays["tokens"]
        tree = cls(leaves, layers, children, tokens, tuple(texts), vectors)
        counts = {len(children), len(texts), len(vectors), len(tokens) - leaves}
        upward = all(len(c) and c.min() >= 0 and c.max() < leaves + i for i, c in enumerate(children))
        if len(counts) != 1 or not upward:
            raise ArtefactError("the summary tree contradicts itself; delete the index and build it again")
        return tree


def build_tree(
    leaves: Layer, texts: Sequence[str], config: TreeConfig, summarise: Summarise, embed: Embed, count: CountTokens
) -> SummaryTree:
    """Cluster, summarise and embed layer by layer, until a layer has few nodes or nothing gets less.

    Args:
        leaves: the passages as the lowest layer.
        texts: what each passage says.
        config: how to cluster; a layer of at most `dim` + 1 nodes is the top one, and so is number `max_layers`.
        summarise: member texts of clusters to summaries; members of equal text are given once.
        embed: summaries to vectors, one call a layer.
        count: the length of a summary in tokens.

    Raises:
        ConfigError: a setting without meaning.
    """
    check_tree_config(config)
    said, tokens, vectors = list(texts), leaves.tokens.tolist(), [leaves.vectors[:0]]
    layer, nodes = leaves, np.arange(len(texts))
    layers, children = [nodes], list[np.ndarray]()
    for number in range(1, config.max_layers + 1):
        clusters = cluster_layer(layer, config, str(number)) if len(nodes) > config.dim + 1 else []
        joined = [c for c in clusters if len(c.members) > 1]
        if not joined or len(clusters) >= len(nodes):
            break
        members = [nodes[c.members] for c in joined]
        summaries = summarise([list(dict.fromkeys(said[i] for i in rows.tolist())) for rows in members])
        lengths = np.array([count(text) for text in summaries], dtype=np.int64)
        made = Layer(embed(summaries), list(map(digest, summaries)), [c.name for c in joined], lengths)
        alone = np.unique([c.members[0] for c in clusters if len(c.members) == 1]).astype(np.int64)
        layer, nodes = (
            _join(layer.take(alone), made),
            np.concatenate([nodes[alone], len(said) + np.arange(len(joined))]),
        )
        layers.append(nodes)
        said, children = [*said, *summaries], [*children, *members]
        tokens, vectors = [*tokens, *lengths.tolist()], [*vectors, made.vectors]
    texts_made, vectors_made = tuple(said[len(texts) :]), np.concatenate(vectors)
    counts = np.array(tokens, dtype=np.int64)
    return SummaryTree(len(texts), tuple(layers), tuple(children), counts, texts_made, vectors_made)


def _join(one: Layer, other: Layer) -> Layer:
    """Return the layer of the rows of both."""
    return Layer(
        np.concatenate([one.vectors, other.vectors]),
        [*one.contents, *other.contents],
        [*one.names, *other.names],
        np.concatenate([one.tokens, other.tokens]),
    )


def _split(flat: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(flat[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
