from __future__ import annotations

import numpy as np
import pytest

from gnnrag.training.base import promotion_metrics
from gnnrag.training.verifier import learn_selection


def judged(scores: list[float], right: list[int]) -> tuple[np.ndarray, np.ndarray]:
    labels = np.zeros(len(scores), dtype=bool)
    labels[right] = True
    return np.array(scores), labels


def test_promotion_moves_what_was_selected_to_the_front() -> None:
    labels = np.array([False, True, False, False, True, False, True])
    found = promotion_metrics(labels, [4, 6], 3)
    # 4, 6, 0 come first: two of three; without promotion 0, 1, 2: one of three.
    assert found == {"selected": 2, "precision": 1.0, "recall": pytest.approx(2 / 3), "recall@3": pytest.approx(2 / 3),
                     "pool_recall@3": pytest.approx(1 / 3)}  # fmt: skip
    assert promotion_metrics(np.array([False, False]), [], 3) == {"selected": 0}


def test_the_threshold_is_the_one_with_the_best_f1() -> None:
    assert learn_selection([judged([3.0, 1.0, -1.0], [0])], 3).places([3.0, 1.0, -1.0]) == [0]
    # With 2.0 as well, two of three are right and all are found (.8); with the best alone one of two is found (.67).
    found = learn_selection([judged([3.0, 1.0, -1.0], [0]), judged([2.0, 2.5, -3.0], [0])], 3)
    assert found.places([3.0, 2.2, 1.4, -1.0]) == [0, 1] and found.places([3.0, 3.0, 3.0, 3.0]) == [0, 1, 2]


def test_without_validation_the_best_are_selected() -> None:
    assert learn_selection([], 4).places([0.1, 0.5, 0.2, 0.0, -9.0]) == [0, 1, 2, 3]
