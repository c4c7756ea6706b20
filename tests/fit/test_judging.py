from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnrag.training.report import (
    Scored,
    auc,
    calibration_bins,
    calibration_error,
    draw_calibration,
    learn_selection,
    pooled_metrics,
    promotion_metrics,
)


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
    found = learn_selection([one, two], 2, 2, "none")
    assert 1 / (1 + np.exp(-0.5)) < found.threshold < 1 / (1 + np.exp(-2.9))
    assert found.places(one.logits) == [0, 1] and found.places(two.logits) == [2]
    recalls = [promotion_metrics(o.labels, found.places(o.logits), 2)["recall@2"] for o in (one, two)]
    assert recalls == [1.0, 1.0]
    all_promoted = promotion_metrics(two.labels, [2, 3], 2)["recall@2"]
    assert all_promoted == 0.5


def test_of_equal_thresholds_the_more_precise_one_is_taken() -> None:
    found = learn_selection([judged([3.0, 1.0, -1.0], [0])], 3, 2, "none")
    assert found.places([3.0, 1.0, -1.0]) == [0]


def test_without_validation_the_best_are_selected() -> None:
    found = learn_selection([], 4, 5, "platt")
    assert found.places([0.1, 0.5, 0.2, 0.0, -9.0]) == [0, 1, 2, 3] and found.scale == 1.0


@pytest.mark.parametrize("how", ["platt", "temperature"])
def test_calibration_makes_scores_chances(how: str) -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(-1.0 if how == "platt" else 0.0, 1.5, 4000)
    labels = rng.random(4000) < 1 / (1 + np.exp(-truth))
    logits = (truth + (2.0 if how == "platt" else 0.0)) * 5.0  # far too sure
    one = Scored("toy", "q", logits, labels)
    found = learn_selection([one], 5, 5, how)
    assert found.scale == pytest.approx(0.2, rel=0.15)
    assert found.shift == pytest.approx(-2.0 if how == "platt" else 0.0, abs=0.3)
    before = calibration_error(learn_selection([one], 5, 5, "none").chances(logits), labels)
    assert calibration_error(found.chances(logits), labels) < 0.02 < before


def test_calibration_by_hand() -> None:
    chances, labels = np.array([0.05, 0.05, 0.95, 1.0]), np.array([False, True, True, True])
    bins = calibration_bins(chances, labels)
    assert [(b["chance"], b["share"], b["number"]) for b in bins] == [(0.05, 0.5, 2), (0.975, 1.0, 2)]
    assert calibration_error(chances, labels) == pytest.approx((0.45 * 2 + 0.025 * 2) / 4)


def test_metrics_and_picture_of_a_report(tmp_path: Path) -> None:
    rows = [
        {"set": "a", "probabilities": [0.9, 0.1], "truths": [True, False]},
        {"set": "b", "probabilities": [0.2, 0.8], "truths": [True, False]},
    ]
    assert pooled_metrics(rows) == {"pooled_auc": 0.75, "calibration_error": pytest.approx(0.45)}
    assert pooled_metrics([{"set": "a"}]) == {} == pooled_metrics([])
    draw_calibration(rows, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    draw_calibration([], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
