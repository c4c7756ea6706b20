"""Where nodes and labels of a small graph go: forces, then room for every label. Same graph, same drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WIDTH, HEIGHT = 1180.0, 840.0
NODE_CHARACTERS, EDGE_CHARACTERS = 26, 22  # longer labels are cut
_RADIUS = 11.0  # of a node
_NODE_FONT, _EDGE_FONT = 8.2, 6.6  # width of a character of a label
_NODE_LINE, _EDGE_LINE = 19.0, 14.5  # height of a line
_MARGIN = 12.0
_STEPS = 400
_PLACES = (0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68, 0.26, 0.74, 0.2, 0.8)  # where on an edge its label may stand


@dataclass(frozen=True)
class Layout:
    """Coordinates within WIDTH x HEIGHT.

    Attributes:
        nodes: (n, 2) centres; a node's label is centred below it.
        edge_labels: (m, 2) centres of the labels of edges.
        is_shown: (m,) whether an edge's label finds room; the others are to be shown on demand.
    """

    nodes: np.ndarray
    edge_labels: np.ndarray
    is_shown: np.ndarray


def lay_out(labels: Sequence[str], pairs: np.ndarray, edge_labels: Sequence[str]) -> Layout:
    """Place nodes by forces (Fruchterman and Reingold 1991), push label boxes apart, then place the edges' labels.

    Args:
        labels: (n,) of nodes, the most important first: it is drawn to the middle.
        pairs: (m, 2) joined nodes.
        edge_labels: (m,) of edges.
    """
    sizes = _node_boxes(labels)
    nodes = _apart(_by_forces(len(labels), pairs), sizes)
    boxes = np.concatenate([nodes + np.array([0, _NODE_LINE / 2]), sizes], axis=1)
    places, shown = [], []
    taken = [tuple(row) for row in boxes.tolist()]
    for (a, b), text in zip(pairs.tolist(), edge_labels, strict=True):
        width = min(len(text), EDGE_CHARACTERS) * _EDGE_FONT + 6
        options = [(*(nodes[a] + t * (nodes[b] - nodes[a])).tolist(), width, _EDGE_LINE) for t in _PLACES]
        free = [box for box in options if not any(_overlap(box, other) > 0 for other in taken)]
        places.append((free or options)[0][:2])
        shown.append(bool(free))
        taken += free[:1]
    return Layout(nodes, np.array(places).reshape(-1, 2), np.array(shown, dtype=bool))


def _node_boxes(labels: Sequence[str]) -> np.ndarray:
    """Return width and height of each node with the label below it. Shape (n, 2)."""
    widths = [max(2 * _RADIUS, min(len(text), NODE_CHARACTERS) * _NODE_FONT) for text in labels]
    return np.array([(w + _MARGIN, 2 * _RADIUS + _NODE_LINE + _MARGIN) for w in widths]).reshape(-1, 2)


def _by_forces(count: int, pairs: np.ndarray) -> np.ndarray:
    """Return positions from attraction along edges and repulsion between all. Shape (count, 2)."""
    if count < 2:
        return np.array([[WIDTH / 2, HEIGHT / 2]])[:count]
    angles = np.arange(count) * 2.399963  # the golden angle spreads a spiral evenly
    radii = np.sqrt(np.arange(count) / count)
    # The unit square; stretched to the page at the end.
    at = np.stack([0.5 + 0.45 * radii * np.cos(angles), 0.5 + 0.45 * radii * np.sin(angles)], axis=1)
    ideal = 0.85 / np.sqrt(count)
    first, second = pairs.T if len(pairs) else (np.zeros(0, int), np.zeros(0, int))
    for step in range(_STEPS):
        gaps = at[:, None, :] - at[None, :, :]
        distances = np.maximum(np.linalg.norm(gaps, axis=2), 1e-4)
        forces = (gaps * (ideal**2 / distances**2)[:, :, None]).sum(axis=1)
        pulls = gaps[first, second] * (distances[first, second] / ideal)[:, None]
        np.add.at(forces, first, -pulls)
        np.add.at(forces, second, pulls)
        forces += 0.6 * (0.5 - at) * ideal * 3  # parts that nothing joins must not drift away
        forces[0] += 2.0 * (0.5 - at[0]) * ideal * 3
        lengths = np.maximum(np.linalg.norm(forces, axis=1, keepdims=True), 1e-9)
        at += forces / lengths * np.minimum(lengths, 0.1 * (1 - step / _STEPS) ** 1.5 + 0.001)
    low, high = at.min(axis=0), at.max(axis=0)
    room = np.array([WIDTH - 220, HEIGHT - 110])
    return (at - low) / np.maximum(high - low, 1e-9) * room + [110, 45]


def _apart(at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Push boxes apart along the shorter way until none overlap, staying on the page. Shape (n, 2)."""
    at = at.copy()
    low, high = sizes / 2 + [4, -4], np.array([WIDTH, HEIGHT]) - sizes / 2 - [4, 22]
    for _ in range(600):
        gaps = at[:, None, :] - at[None, :, :]
        needed = (sizes[:, None, :] + sizes[None, :, :]) / 2
        over = needed - np.abs(gaps)
        both = (over > 0).all(axis=2)
        np.fill_diagonal(both, False)
        if not both.any():
            break
        i, j = np.nonzero(np.triu(both))
        axis = (over[i, j, 0] > over[i, j, 1]).astype(int)
        rows = np.arange(len(i))
        # Two in the same place part by their order.
        sign = np.where(gaps[i, j, axis] == 0, -1.0, np.sign(gaps[i, j, axis]))
        move = np.zeros((len(i), 2))
        move[rows, axis] = sign * (over[i, j, axis] / 2 + 0.5)
        np.add.at(at, i, move * 0.6)
        np.add.at(at, j, -move * 0.6)
        at = np.clip(at, low, np.maximum(low, high))
    return at


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Return the area that two boxes (centre x, centre y, width, height) share."""
    wide = (a[2] + b[2]) / 2 - abs(a[0] - b[0])
    high = (a[3] + b[3]) / 2 - abs(a[1] - b[1])
    return wide * high if wide > 0 and high > 0 else 0.0
