from __future__ import annotations

import numpy as np
import pytest

from gnnrag.roles.tuned.cross_encoder import Selection, chosen


def test_the_best_that_reach_the_threshold_are_chosen() -> None:
    chances = np.array([0.2, 0.9, 0.6, 0.6, 0.7])
    assert chosen(chances, 0.5, 5) == [1, 2, 3, 4]
    assert chosen(chances, 0.5, 3) == [1, 2, 4]  # of equal chances the earlier one
    assert chosen(chances, 0.95, 5) == []
    assert chosen(np.array([np.nan, 0.9]), 0.0, 5) == [1]
    assert chosen(np.array([]), 0.0, 5) == []


def test_chances_are_calibrated_logits() -> None:
    selection = Selection(0.5, 2, scale=2.0, shift=-1.0)
    assert selection.chances([0.5, 1.0]).tolist() == pytest.approx([0.5, 1 / (1 + np.exp(-1.0))])
    assert selection.places([0.4, 0.6, 9.0, 8.0]) == [2, 3]
    assert np.isfinite(selection.chances([1e9, -1e9])).all()
