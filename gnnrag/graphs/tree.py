"""RAPTOR's tree: soft clusters of vectors (Gaussian mixtures on a reduction), summarised level by level."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.errors import ConfigError
from gnnrag.index_config import TreeConfig
from gnnrag.io import hash64

_SEARCH_SEED, _FIT_SEED = 224, 0  # the released ones
_MAX_DEPTH = 8  # how often a cluster that is too long is clustered again before it is merely cut
_MAX_COMPONENTS = 50  # exclusive


@dataclass(frozen=True)
class Layer:
    """What clustering may know of the nodes of a layer."""

    vectors: np.ndarray  # (n, dim) float32 unit rows
    names: Sequence[str]  # choose centres: a passage's content hash; of a summary, the name of a node of its cluster
    tokens: np.ndarray  # (n,) lengths

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: np.ndarray) -> Layer:
        """Return the layer of these rows."""
        return Layer(self.vectors[rows], [self.names[i] for i in rows.tolist()], self.tokens[rows])


def _draws(names: Sequence[str], salt: str) -> np.ndarray:
    """Return a number in [0, 1) for each name."""
    return np.array([hash64(f"{salt}:{name}") / 2**64 for name in names])


def anchor_clusters(layer: Layer, config: TreeConfig, salt: str = "") -> list[np.ndarray]:
    """Cluster a layer around centres that the names of nodes choose, so that an edit changes clusters locally.

    A node is a centre if the hash of `salt` and its name lies in the lowest 1/`cluster_size` of the hash range; without
    any, the lowest is. Every other node joins its nearest centre by cosine, and up to `max_parents` - 1 others at most
    `margin` farther. Returns the members of each centre, ascending.
    """
    import faiss

    draws = _draws(layer.names, salt)
    centres = np.flatnonzero(draws < 1.0 / config.cluster_size)
    centres = centres if len(centres) else np.array([draws.argmin()])
    searcher = faiss.IndexFlatIP(layer.vectors.shape[1])
    searcher.add(layer.vectors[centres])
    cosines, parents = searcher.search(np.ascontiguousarray(layer.vectors), min(config.max_parents, len(centres)))
    joins = cosines >= cosines[:, :1] - config.margin
    # A centre stays by itself: with near-copies of it as centres too, the first of equals need not be the row itself.
    joins[centres, 1:], parents[centres, 0] = False, np.arange(len(centres))
    rows, ranks = np.nonzero(joins)
    return list(Lists.grouped(parents[rows, ranks], rows, len(centres)))


def cluster_layer(layer: Layer, config: TreeConfig, salt: str = "", depth: int = 0) -> list[np.ndarray]:
    """Cluster a layer; returns distinct clusters that cover it, each ascending, ordered by their members.

    A cluster of more than one node and more than `cluster_tokens` tokens is clustered again, as released; where that
    ends in the same cluster, or after 8 times, it is cut by length, most central nodes first. `salt` makes the centres
    of one layer differ from those of another.
    """
    clusters: set[tuple[int, ...]] = set()
    for rows in _partition(layer, config, f"{salt}:{depth}"):
        parts = [np.arange(len(rows))]
        if len(rows) > 1 and layer.tokens[rows].sum() > config.cluster_tokens:
            inner, is_same = layer.take(rows), len(rows) == len(layer) and config.cluster != "anchors"
            is_stuck = is_same or depth + 1 >= _MAX_DEPTH
            parts = _cut(inner, config) if is_stuck else cluster_layer(inner, config, salt, depth + 1)
        clusters.update(tuple(rows[part].tolist()) for part in parts)
    return [np.array(rows) for rows in sorted(clusters)]


def _partition(layer: Layer, config: TreeConfig, salt: str) -> list[np.ndarray]:
    """Cluster by the method that the settings name, without regard to length."""
    if len(layer) < 4:
        return [np.arange(len(layer))]
    return anchor_clusters(layer, config, salt) if config.cluster == "anchors" else _global_then_local(layer, config)


def _cut(layer: Layer, config: TreeConfig) -> list[np.ndarray]:
    """Split by length alone: nodes from the centre outwards, as many to a part as its budget holds, at least one."""
    centre = layer.vectors.mean(axis=0, dtype=np.float64)
    parts: list[list[int]] = [[]]
    for row in np.lexsort((np.arange(len(layer)), -np.round(layer.vectors @ centre, 6))).tolist():
        if parts[-1] and layer.tokens[[*parts[-1], row]].sum() > config.cluster_tokens:
            parts.append([])
        parts[-1].append(row)
    return [np.sort(part) for part in parts]


def _global_then_local(layer: Layer, config: TreeConfig) -> list[np.ndarray]:
    """RAPTOR's two levels: a mixture over all nodes, then one inside each of its clusters, on the original vectors."""
    clusters = []
    for rows in _soft_clusters(layer, config, neighbours=int(np.sqrt(len(layer) - 1))):
        is_small = len(rows) <= config.dim + 1
        inner = [np.arange(len(rows))] if is_small else _soft_clusters(layer.take(rows), config, neighbours=10)
        clusters += [rows[part] for part in inner]
    return clusters


def _soft_clusters(layer: Layer, config: TreeConfig, neighbours: int) -> list[np.ndarray]:
    """Fit a Gaussian mixture; a node joins the likeliest component, or all above `threshold`.

    It has the number of components of lowest BIC, 1 to min(50, n) - 1.
    """
    points = reduce_vectors(layer.vectors, config.reduction, config.dim, neighbours)
    counts = range(1, min(_MAX_COMPONENTS, len(points)))
    count = min(counts, key=lambda count: _mixture(points, count, _SEARCH_SEED).bic(points))
    posterior = _mixture(points, count, _FIT_SEED).predict_proba(points)
    joined = posterior > config.threshold
    joined[np.arange(len(points)), posterior.argmax(axis=1)] = True
    return [rows for column in joined.T if len(rows := np.flatnonzero(column))]


def _mixture(points: np.ndarray, count: int, seed: int) -> Any:
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged, or fewer distinct points than components: judged by BIC
        return GaussianMixture(count, random_state=seed).fit(points)


def reduce_vectors(vectors: np.ndarray, method: str, dim: int, neighbours: int) -> np.ndarray:
    """Return (n, min(dim, n - 2)) float64 points from (n, d) unit rows, n at least 4.

    `method`: `pca`, each axis signed so that its largest loading is positive, or `umap`, seeded, by cosine, with at
    least 2 `neighbours`; ConfigError where it is not installed.
    """
    dim = min(dim, len(vectors) - 2, vectors.shape[1])
    if method == "pca":
        from sklearn.decomposition import PCA

        return PCA(dim, svd_solver="full").fit_transform(vectors.astype(np.float64))
    try:
        from umap import UMAP
    except ImportError as error:
        raise ConfigError("index.tree.reduction=umap needs: pip install 'gnnrag[raptor]'") from error
    neighbours = max(2, min(neighbours, len(vectors) - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a seed forces one thread, which is meant
        model = UMAP(n_neighbors=neighbours, n_components=dim, metric="cosine", random_state=_SEARCH_SEED)
        return np.asarray(model.fit_transform(vectors), dtype=np.float64)


Summarise = Callable[[list[list[str]]], list[str]]  # the members of each cluster to its summary
Embed = Callable[[list[str]], np.ndarray]  # n texts to (n, dim) unit rows
CountTokens = Callable[[str], int]


@dataclass(frozen=True)
class SummaryTree:
    """A DAG of summaries. Node numbers: the leaves (passages) in corpus order, then the summaries, layer by layer.

    Clusters overlap: a node may have several parents. A node alone in its cluster is a node of the next layer too, or
    has a summary of its own (`gmm`, as released).
    """

    num_leaves: int
    layers: Lists  # ascending node numbers of each; layer 0 holds the leaves
    children: Lists  # of each summary, ascending node numbers
    tokens: np.ndarray  # (num_nodes,) lengths
    texts: Sequence[str]  # the summaries
    vectors: np.ndarray  # (num_summaries, dim) float32 unit rows
    _leaves: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

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


def build_tree(
    leaves: Layer, texts: Sequence[str], config: TreeConfig, summarise: Summarise, embed: Embed, count: CountTokens
) -> SummaryTree:
    """Cluster, summarise and embed layer by layer, until a layer has few nodes or nothing gets less.

    The top layer has at most `dim` + 1 nodes or is number `max_layers`. `summarise` gets member texts of clusters,
    members of equal text once; `embed` is called once a layer.
    """
    said, tokens, vectors = list(texts), leaves.tokens, [leaves.vectors[:0]]
    layer, nodes = leaves, np.arange(len(texts))
    layers, children = [nodes], list[np.ndarray]()
    for number in range(1, config.max_layers + 1):
        clusters = cluster_layer(layer, config, str(number)) if len(nodes) > config.dim + 1 else []
        joined = [rows for rows in clusters if len(rows) > 1 or config.cluster == "gmm"]
        if not joined or len(clusters) >= len(nodes):
            break
        summaries = summarise([list(dict.fromkeys(said[i] for i in nodes[rows].tolist())) for rows in joined])
        new, draws = embed(summaries), _draws(layer.names, str(number))
        names = [layer.names[int(rows[draws[rows].argmin()])] for rows in joined]
        lengths = np.array([count(text) for text in summaries], dtype=np.int64)
        alone = np.setdiff1d(np.arange(len(nodes)), np.concatenate(joined))
        kept = layer.take(alone)
        layer = Layer(
            np.concatenate([kept.vectors, new]), [*kept.names, *names], np.concatenate([kept.tokens, lengths])
        )
        children += [nodes[rows] for rows in joined]
        nodes = np.concatenate([nodes[alone], len(said) + np.arange(len(joined))])
        layers.append(nodes)
        said, tokens, vectors = [*said, *summaries], np.concatenate([tokens, lengths]), [*vectors, new]
    below, above = (Lists.of([row.tolist() for row in rows]) for rows in (layers, children))
    return SummaryTree(len(texts), below, above, tokens, said[len(texts) :], np.concatenate(vectors))
