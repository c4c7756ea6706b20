"""Table G4 of `specs/backbones_ppr_tree.md`, properties, and node metrics: example 8.4 of specs/dotrag.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.metrics.report import per_question
from gnnrag.metrics.retrieval import all_at, mrr, node_metrics, node_scores, precision, recall_at
from gnnrag.types import Prediction, Question
from tests.helpers.scoring import score

G4 = [
    (("A", "B"), list("CADBE"), {1: 0, 2: 0.5, 3: 0.5, 4: 1, 5: 1}),
    (("A", "B", "C"), list("AABX"), {1: 1 / 3, 2: 1 / 3, 3: 2 / 3, 5: 2 / 3}),
    (("A", "A", "B"), list("BQA"), {1: 0.5, 2: 0.5, 3: 1}),
    ((), ["A"], {1: 0, 5: 0}),
    (("T\nx", "U\ny"), ["T\nx ", "U\ny"], {1: 0, 2: 0.5}),
]
IDS = st.lists(st.sampled_from("ABCDEF"), max_size=8)


@pytest.mark.parametrize("gold, ranking, values", G4)
def test_g4(gold, ranking, values):
    for k, value in values.items():
        assert recall_at(ranking, gold, k) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
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


@given(IDS, IDS, st.integers(1, 8))
def test_recall_grows_with_k_and_does_not_see_the_order_of_gold(ranking, gold, k):
    assert recall_at(ranking, gold, k) <= recall_at(ranking, gold, k + 1) <= 1.0
    assert recall_at(ranking, gold, k) == recall_at(ranking, gold[::-1] + gold, k)
    assert all_at(ranking, gold, k) <= recall_at(ranking, gold, k)
    assert (mrr(ranking, gold) > 0) == (recall_at(ranking, gold, 8) > 0)


def question(name, nodes, hops=1, **extra):
    return Question(name, "?", tuple(nodes), "t", (), extra={"nodes": list(nodes), "hops": hops, **extra})


def predict(name, nodes=(), error=None):
    return Prediction(name, "", (), (), 1, {}, 1.0, error, tuple(nodes))


def others(count):
    return [f"other {i}" for i in range(count)]


def test_golden_8_4_mean_f1_is_not_the_f1_of_the_means():
    """(recall, precision) = (1, .05), (1, .02), (.5, .10)."""
    asked = [question("a", ["x"]), question("b", ["x"]), question("c", ["x", "y"])]
    found = [predict("a", ["x", *others(19)]), predict("b", ["x", *others(49)]), predict("c", ["x", *others(9)])]
    columns = per_question(asked, found)
    assert columns["retrieval/node_recall"].tolist() == [1, 1, 0.5]
    assert columns["retrieval/node_precision"] == pytest.approx([0.05, 0.02, 0.1])
    assert columns["retrieval/node_f1"] == pytest.approx([0.095238, 0.039216, 0.166667], abs=1e-6)
    assert columns["retrieval/node_f1"].mean() == pytest.approx(0.100373, abs=1e-6)
    recall, precision = columns["retrieval/node_recall"].mean(), columns["retrieval/node_precision"].mean()
    assert 2 * recall * precision / (recall + precision) == pytest.approx(0.106117, abs=1e-6)
    assert score(asked, found)["retrieval/node_f1"] == 0.1004


@pytest.mark.parametrize(
    "nodes, gold, expected",
    [
        ("ab", "ab", (1, 1, 1)),
        ("abcd", "ax", (0.5, 0.25, 1 / 3)),
        ("aab", "a", (1, 0.5, 2 / 3)),  # a node that comes twice is one
        ("", "a", (0, 0, 0)),
        ("b", "a", (0, 0, 0)),
        ("a", "", (0, 0, 0)),
    ],
)
def test_scores_by_hand(nodes, gold, expected):
    assert node_scores(list(nodes), list(gold)) == pytest.approx(expected)


def test_the_anchor_counts_in_the_second_setting_only():
    """The worked trace of specs/dotrag.md 13: six path nodes, the two ports are gold, n1 is the start."""
    asked = question("q", ["n5", "n6"], anchor="n1")
    got = node_metrics(asked, ["n1", "n2", "n3", "n4", "n5", "n6"])
    main = [got[f"retrieval/node_{name}"] for name in ("recall", "precision", "f1")]
    assert main == pytest.approx([1, 0.333333, 0.5], abs=1e-6)
    wider = [got[f"retrieval/node_{name}_with_anchor"] for name in ("recall", "precision", "f1")]
    assert wider == pytest.approx([1, 0.5, 0.666667], abs=1e-6)
    assert got["retrieval/hits@1"] == 0
    assert node_metrics(asked, ["n6", "n1"])["retrieval/hits@1"] == 1


def test_only_questions_with_gold_nodes_count_and_failures_score_zero():
    asked = [question("a", ["x"]), question("b", ["x"], hops=2), Question("c", "?", ("x",), "t", extra={"hops": 2})]
    got = score(asked, [predict("a", ["x"]), predict("b", ["x"], error="LLMError: no"), predict("c", ["x"])])
    assert got["retrieval/node_f1"] == got["retrieval/hits@1"] == 0.5
    assert got["retrieval/node_f1_ci"] == [0, 1]
    assert {hops: (row["count"], row["retrieval/node_f1"]) for hops, row in got["by_hops"].items()} == {
        "1": (1, 1.0),
        "2": (2, 0.0),
    }


def test_other_benchmarks_have_no_node_metrics():
    got = score([Question("a", "?", ("x",))], [predict("a", ["x"])])
    assert not [name for name in got if "node" in name or "hits" in name]
    assert "by_hops" not in got
