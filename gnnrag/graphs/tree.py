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

_BLOCK = 1024  # rows of one product: the similarities of a block, not of all pairs, are in memory
_DECIMALS = 5  # cosines are compared at this precision, which the rounding of a product does not reach


def anchor_clusters(
    vectors: np.ndarray, names: Sequence[str], size: float, margin: float, max_parents: int, salt: str = ""
) -> list[tuple[int, np.ndarray]]:
    """Cluster (n, dim) unit rows around centres that their names choose.

    A row is a centre if the hash of `salt` and its name lies in the lowest 1/`size` of the hash range (at least the row
    of the lowest hash is one). Every other row joins its nearest centre by cosine and up to `max_parents` - 1 others at
    most `margin` farther, so that an edit changes clusters locally. The search is exact: n^2 * dim / `size`
    multiply-adds, 1024 * n / `size` cosines in memory. Returns the row of each centre, ascending, with its members in
    ascending order.
    """
    draws = np.array([hash64(f"{salt}:{name}") / 2**64 for name in names])
    centres = np.flatnonzero(draws < 1.0 / size)
    if not len(centres):
        centres = np.array([int(np.argmin(draws))])
    row, parent = _nearest(vectors, vectors[centres], margin, max_parents)
    # A centre stays by itself: with near-copies of it as centres too, the first of equals need not be the row itself.
    is_centre = np.isin(row, centres)
    parent = np.concatenate([parent[~is_centre], np.arange(len(centres))])
    row = np.concatenate([row[~is_centre], centres])
    order = np.lexsort((row, parent))
    bounds = np.searchsorted(parent[order], np.arange(len(centres) + 1))
    return [(int(c), row[order][bounds[i] : bounds[i + 1]]) for i, c in enumerate(centres)]


def _nearest(
    vectors: np.ndarray, centres: np.ndarray, margin: float, max_parents: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of a row and the position of a centre it joins."""
    rows, parents = [], []
    for start in range(0, len(vectors), _BLOCK):
        cosines = np.round(vectors[start : start + _BLOCK] @ centres.T, _DECIMALS)
        best, lines = cosines.max(axis=1), np.arange(len(cosines))
        for rank in range(min(max_parents, len(centres))):
            column = np.argmax(cosines, axis=1)  # the first of equals
            joined = cosines[lines, column] >= best - margin if rank else np.ones(len(cosines), bool)
            rows.append(start + lines[joined])
            parents.append(column[joined])
            cosines[lines, column] = -np.inf
    return np.concatenate(rows), np.concatenate(parents)


_SEARCH_SEED, _FIT_SEED = 224, 0  # the released ones
_MAX_DEPTH = 8  # how often a cluster that is too long is clustered again before it is merely cut
_MAX_COMPONENTS = 50  # exclusive


@dataclass(frozen=True)
class Layer:
    """What clustering may know of the nodes of a layer."""

    vectors: np.ndarray  # (n, dim) float32 unit rows
    names: Sequence[str]  # choose centres: a passage's content hash; of a summary, its cluster's centre's name
    tokens: np.ndarray  # (n,) lengths

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: np.ndarray) -> Layer:
        """Return the layer of these rows."""
        return Layer(self.vectors[rows], [self.names[i] for i in rows.tolist()], self.tokens[rows])

    def joined(self, other: Layer) -> Layer:
        """Return the layer of the rows of both."""
        vectors, tokens = (np.concatenate([getattr(of, n) for of in (self, other)]) for n in ("vectors", "tokens"))
        return Layer(vectors, [*self.names, *other.names], tokens)


@dataclass(frozen=True)
class Cluster:
    """Rows of a layer that are summarised together."""

    members: np.ndarray  # ascending positions in the layer
    name: str  # of the summary: that of its centre


def cluster_layer(layer: Layer, config: TreeConfig, salt: str = "") -> list[Cluster]:
    """Cluster a layer; returns distinct clusters that cover it, ordered by their members.

    A cluster of more than one node and more than `cluster_tokens` tokens is clustered again, as released; where that
    ends in the same cluster, or after 8 times, it is cut by length, most central nodes first. `salt` makes the centres
    of one layer differ from those of another.
    """
    distinct = {cluster.members.tobytes(): cluster for cluster in reversed(_cluster(layer, config, salt))}
    return sorted(distinct.values(), key=lambda c: c.members.tolist())


def _cluster(layer: Layer, config: TreeConfig, salt: str, depth: int = 0) -> list[Cluster]:
    out = []
    for cluster in _partition(layer, config, f"{salt}:{depth}"):
        members = cluster.members
        if len(members) == 1 or layer.tokens[members].sum() <= config.cluster_tokens:
            out.append(cluster)
            continue
        inner = layer.take(members)
        is_stuck = len(members) == len(layer) and config.cluster != "anchors"
        parts = _cut(inner, config, cluster.name) if is_stuck or depth + 1 >= _MAX_DEPTH else None
        parts = _cluster(inner, config, salt, depth + 1) if parts is None else parts
        out += [Cluster(members[part.members], part.name) for part in parts]
    return out


def _partition(layer: Layer, config: TreeConfig, salt: str) -> list[Cluster]:
    """Cluster by the method that the settings name, without regard to length."""
    n = len(layer)
    if n < 4:
        return [Cluster(np.arange(n), min(layer.names))]
    if config.cluster == "anchors":
        groups = anchor_clusters(
            layer.vectors, layer.names, config.cluster_size, config.margin, config.max_parents, salt
        )
        return [Cluster(members, layer.names[centre]) for centre, members in groups]
    rows = _global_then_local(layer, config)
    return [Cluster(members, min(layer.names[i] for i in members.tolist())) for members in rows]


def _cut(layer: Layer, config: TreeConfig, name: str) -> list[Cluster]:
    """Split by length alone: nodes from the centre outwards, as many to a part as its budget holds, at least one."""
    centre = layer.vectors.mean(axis=0, dtype=np.float64)
    order = np.lexsort((np.arange(len(layer)), -np.round(layer.vectors @ centre, 6)))
    parts: list[list[int]] = [[]]
    room = config.cluster_tokens
    for row in order.tolist():
        if parts[-1] and layer.tokens[row] > room:
            parts.append([])
            room = config.cluster_tokens
        parts[-1].append(row)
        room -= int(layer.tokens[row])
    return [Cluster(np.sort(np.array(part)), f"{name}/{i}") for i, part in enumerate(parts)]


def _global_then_local(layer: Layer, config: TreeConfig) -> list[np.ndarray]:
    """RAPTOR's two levels: a mixture over all nodes, then one inside each of its clusters, on the original vectors."""
    n = len(layer)
    out = []
    for rows in _soft_clusters(layer, config, neighbours=int(np.sqrt(n - 1))):
        if len(rows) <= config.dim + 1:
            out.append(rows)
        else:
            out += [rows[inner] for inner in _soft_clusters(layer.take(rows), config, neighbours=10)]
    return out


def _soft_clusters(layer: Layer, config: TreeConfig, neighbours: int) -> list[np.ndarray]:
    """Fit a Gaussian mixture (count by BIC); a node joins the likeliest component, or all above `threshold`."""
    points = reduce_vectors(layer.vectors, config.reduction, config.dim, neighbours)
    posterior = _mixture(points, _best_count(points), _FIT_SEED).predict_proba(points)
    joined = posterior > config.threshold
    joined[np.arange(len(points)), posterior.argmax(axis=1)] = True
    return [rows for column in joined.T if len(rows := np.flatnonzero(column))]


def _best_count(points: np.ndarray) -> int:
    """Return the number of components of lowest BIC, 1 to min(50, n) - 1."""
    counts = range(1, min(_MAX_COMPONENTS, len(points)))
    return min(counts, key=lambda count: _mixture(points, count, _SEARCH_SEED).bic(points))


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

    @property
    def num_summaries(self) -> int:
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


def build_tree(
    leaves: Layer, texts: Sequence[str], config: TreeConfig, summarise: Summarise, embed: Embed, count: CountTokens
) -> SummaryTree:
    """Cluster, summarise and embed layer by layer, until a layer has few nodes or nothing gets less.

    The top layer has at most `dim` + 1 nodes or is number `max_layers`. `summarise` gets member texts of clusters,
    members of equal text once; `embed` is called once a layer.
    """
    said, tokens, vectors = list(texts), leaves.tokens.tolist(), [leaves.vectors[:0]]
    layer, nodes = leaves, np.arange(len(texts))
    layers, children = [nodes], list[np.ndarray]()
    for number in range(1, config.max_layers + 1):
        clusters = cluster_layer(layer, config, str(number)) if len(nodes) > config.dim + 1 else []
        joined = [c for c in clusters if len(c.members) > 1 or config.cluster == "gmm"]
        if not joined or len(clusters) >= len(nodes):
            break
        members = [nodes[c.members] for c in joined]
        summaries = summarise([list(dict.fromkeys(said[i] for i in rows.tolist())) for rows in members])
        lengths = np.array([count(text) for text in summaries], dtype=np.int64)
        made = Layer(embed(summaries), [c.name for c in joined], lengths)
        single = [c.members[0] for c in clusters if len(c.members) == 1 and config.cluster != "gmm"]
        alone = np.unique(single).astype(np.int64)
        layer = layer.take(alone).joined(made)
        nodes = np.concatenate([nodes[alone], len(said) + np.arange(len(joined))])
        layers.append(nodes)
        said, children = [*said, *summaries], [*children, *members]
        tokens, vectors = [*tokens, *lengths.tolist()], [*vectors, made.vectors]
    below, above = (Lists.of([row.tolist() for row in rows]) for rows in (layers, children))
    counts = np.array(tokens, dtype=np.int64)
    return SummaryTree(len(texts), below, above, counts, said[len(texts) :], np.concatenate(vectors))
