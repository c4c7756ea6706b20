from __future__ import annotations

import numpy as np
import pytest

from gnnrag.training.report import auc, calibration_error, pooled_metrics, promotion_metrics
from gnnrag.training.verifier import Scored, SelectingConfig, learn_selection


def judged(logits: list[float], right: list[int], question: str = "q") -> Scored:
    labels = np.zeros(len(logits), dtype=bool)
    labels[right] = True
    return Scored("toy", question, np.array(logits), labels)


def test_auc_counts_pairs() -> None:
    from sklearn.metrics import roc_auc_score

    assert auc(np.array([3.0, 1.0, 2.0]), np.array([True, False, False])) == 1.0
    assert auc(np.array([1.0, 1.0, 0.0]), np.array([True, False, False])) == 0.75  # a tie is half a pair
    assert auc(np.array([1.0, 2.0]), np.array([True, True])) is None
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 20, 300).astype(float), rng.random(300) < 0.2
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_promotion_moves_what_was_selected_to_the_front() -> None:
    labels = np.array([False, True, False, False, True, False, True])
    found = promotion_metrics(labels, [4, 6], 3)
    # 4, 6, 0 come first: two of three; without promotion 0, 1, 2: one of three.
    assert found == {"selected": 2, "precision": 1.0, "recall": pytest.approx(2 / 3), "recall@3": pytest.approx(2 / 3),
                     "pool_recall@3": pytest.approx(1 / 3)}  # fmt: skip
    assert promotion_metrics(np.array([False, False]), [], 3) == {"selected": 0}


def test_the_threshold_is_the_one_that_serves_promotion() -> None:
    # Of 0.9: right; of 0.6: wrong, and promoting it pushes a right passage of the pool out of the first two.
    one = judged([3.0, 2.9, -3.0, 0.4], [0, 1], "a")
    two = judged([-4.0, -5.0, 3.2, 0.5], [0, 2], "b")
    found = learn_selection([one, two], SelectingConfig(2, 2))
    assert found.places(one.logits) == [0, 1] and found.places(two.logits) == [2]
    recalls = [promotion_metrics(o.labels, found.places(o.logits), 2)["recall@2"] for o in (one, two)]
    assert recalls == [1.0, 1.0]
    all_promoted = promotion_metrics(two.labels, [2, 3], 2)["recall@2"]
    assert all_promoted == 0.5


def test_of_equal_thresholds_the_more_precise_one_is_taken() -> None:
    found = learn_selection([judged([3.0, 1.0, -1.0], [0])], SelectingConfig(3, 2))
    assert found.places([3.0, 1.0, -1.0]) == [0]


def test_without_validation_the_best_are_selected() -> None:
    found = learn_selection([], SelectingConfig(4, 5))
    assert found.places([0.1, 0.5, 0.2, 0.0, -9.0]) == [0, 1, 2, 3] and found.scale == 1.0


def test_calibration_makes_scores_chances() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(-1.0, 1.5, 4000)
    labels = rng.random(4000) < 1 / (1 + np.exp(-truth))
    logits = (truth + 2.0) * 5.0  # far too sure
    found = learn_selection([Scored("toy", "q", logits, labels)], SelectingConfig())
    assert found.scale == pytest.approx(0.2, rel=0.15) and found.shift == pytest.approx(-2.0, abs=0.3)
    before = calibration_error(1 / (1 + np.exp(-logits)), labels)
    assert calibration_error(found.chances(logits), labels) < 0.02 < before


def test_calibration_and_pooled_metrics_by_hand() -> None:
    chances, labels = np.array([0.05, 0.05, 0.95, 1.0]), np.array([False, True, True, True])
    assert calibration_error(chances, labels) == pytest.approx((0.45 * 2 + 0.025 * 2) / 4)
    rows = [
        {"set": "a", "probabilities": [0.9, 0.1], "truths": [True, False]},
        {"set": "b", "probabilities": [0.2, 0.8], "truths": [True, False]},
    ]
    assert pooled_metrics(rows) == {"pooled_auc": 0.75, "calibration_error": pytest.approx(0.45)}
    assert pooled_metrics([{"set": "a"}]) == {} == pooled_metrics([])
