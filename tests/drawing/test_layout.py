from __future__ import annotations

import numpy as np

from gnnrag.pages.graph import HEIGHT, WIDTH, lay_out
from tests.helpers.each import each


def star(count):
    return np.array([[0, i] for i in range(1, count)]).reshape(-1, 2)


def boxes(layout, labels):
    """What is drawn: a circle, and below it a label of about 8 pixels a character."""
    half = np.array([max(11.0, 8.0 * len(text) / 2) for text in labels])
    x, y = layout.nodes.T
    return np.stack([x - half, y - 11, x + half, y + 30], axis=1)


@each("count", [2, 10, 30])
@each("shape", ["star", "ring", "none", "all"])
def test_labels_have_room_and_stay_on_the_page(count, shape):
    labels = [f"A name of some length {i}" for i in range(count)]
    pairs = {
        "star": star(count),
        "ring": np.array([[i, (i + 1) % count] for i in range(count)]),
        "none": np.zeros((0, 2), dtype=int),
        "all": np.array([[i, j] for i in range(count) for j in range(i)]),
    }[shape]
    layout = lay_out(labels, pairs, ["is joined to"] * len(pairs))
    drawn = boxes(layout, labels)
    assert (drawn[:, :2] >= 0).all() and (drawn[:, 2] <= WIDTH).all() and (drawn[:, 3] <= HEIGHT).all()
    for i in range(count):
        for j in range(i):
            wide = min(drawn[i, 2], drawn[j, 2]) - max(drawn[i, 0], drawn[j, 0])
            high = min(drawn[i, 3], drawn[j, 3]) - max(drawn[i, 1], drawn[j, 1])
            assert wide <= 1 or high <= 1, (i, j)
    assert layout.edge_labels.shape == (len(pairs), 2) and layout.is_shown.shape == (len(pairs),)
    if shape == "ring" and count == 10:
        assert layout.is_shown.mean() > 0.5


def test_the_same_graph_is_drawn_the_same_way():
    labels = [f"n{i}" for i in range(12)]
    first, second = (lay_out(labels, star(12), ["x"] * 11) for _ in range(2))
    assert (first.nodes == second.nodes).all() and (first.edge_labels == second.edge_labels).all()


def test_one_node_stands_in_the_middle():
    layout = lay_out(["only"], np.zeros((0, 2), dtype=int), [])
    assert layout.nodes.tolist() == [[WIDTH / 2, HEIGHT / 2]]
    assert layout.edge_labels.shape == (0, 2)
