"""Table G4 of `specs/backbones_ppr_tree.md`, complete, and properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.metrics.retrieval import all_at, mrr, precision, recall_at
from tests.helpers.each import each

G4 = [
    (("A", "B"), list("CADBE"), {1: 0, 2: 0.5, 3: 0.5, 4: 1, 5: 1}),
    (("A", "B", "C"), list("AABX"), {1: 1 / 3, 2: 1 / 3, 3: 2 / 3, 5: 2 / 3}),
    (("A", "A", "B"), list("BQA"), {1: 0.5, 2: 0.5, 3: 1}),
    ((), ["A"], {1: 0, 5: 0}),
    (("T\nx", "U\ny"), ["T\nx ", "U\ny"], {1: 0, 2: 0.5}),
]
IDS = st.lists(st.sampled_from("ABCDEF"), max_size=8)


@each("gold, ranking, values", G4)
def test_g4(gold, ranking, values):
    for k, value in values.items():
        assert recall_at(ranking, gold, k) == pytest.approx(value, abs=1e-6)


def test_g4_pooled():
    pooled = np.mean([recall_at(ranking, gold, 2) for gold, ranking, _ in G4])
    assert pooled == pytest.approx(0.366667, abs=1e-6)
    assert round(float(pooled), 4) == 0.3667


@each(
    "metric, value",
    [
        (all_at("CAB", "AB", 2), 0),
        (all_at("CAB", "AB", 3), 1),
        (all_at("CAB", "AB", 9), 1),
        (all_at("A", "", 1), 0),
        (mrr("CAB", "AB"), 0.5),
        (mrr("", "A"), 0),
        (mrr("AB", ""), 0),
        (mrr("CCA", "A"), 1 / 3),
        (precision("ABCD", "AB"), 0.5),
        (precision("", "A"), 0),
        (precision("AAB", "A"), 0.5),
        (precision("A", ""), 0),
        (recall_at("ABCD", "ABCD", 2), 0.5),
    ],
)
def test_metrics_by_hand(metric, value):
    assert metric == value


@each("k", [0, -1])
def test_k_below_one_is_refused(k):
    with pytest.raises(ValueError, match=f"k={k}: must be at least 1"):
        recall_at("AB", "A", k)


@given(IDS, IDS, st.integers(1, 8))
def test_recall_grows_with_k_and_does_not_see_the_order_of_gold(ranking, gold, k):
    assert recall_at(ranking, gold, k) <= recall_at(ranking, gold, k + 1) <= 1.0
    assert recall_at(ranking, gold, k) == recall_at(ranking, gold[::-1] + gold, k)
    assert all_at(ranking, gold, k) <= recall_at(ranking, gold, k)
    assert (mrr(ranking, gold) > 0) == (recall_at(ranking, gold, 8) > 0)
