from __future__ import annotations

import pytest

from gnnrag.audit import best_thresholds, choose_route, cost_per_extra_answer, expected

# The article's invented example: 10,000 questions a month, graph upkeep 60.
SHARES = {"passage_local": 0.7, "multi_hop": 0.2, "thematic": 0.1}
FLAT = {name: {"passage_local": 1.0} for name in SHARES}
ROUTED = {name: {name: 1.0} for name in SHARES}
ACCURACY = {
    "passage_local": {"passage_local": 0.88},
    "multi_hop": {"passage_local": 0.52, "multi_hop": 0.68},
    "thematic": {"passage_local": 0.15, "thematic": 0.65},
}
PRICE = {"passage_local": 0.002, "multi_hop": 0.012, "thematic": 0.09}
COST = {name: PRICE for name in SHARES}


def test_the_worked_example() -> None:
    flat, routed = expected(SHARES, FLAT, ACCURACY), expected(SHARES, ROUTED, ACCURACY)
    cost = 10_000 * expected(SHARES, FLAT, COST), 10_000 * expected(SHARES, ROUTED, COST) + 60
    assert (flat, routed) == pytest.approx((0.735, 0.817), abs=1e-6)
    assert cost == pytest.approx((20, 188), abs=1e-6)
    assert cost_per_extra_answer((flat, cost[0]), (routed, cost[1]), 10_000) == pytest.approx(0.204878, abs=1e-6)
    assert cost_per_extra_answer((0.7, 10), (0.7, 20), 100) is cost_per_extra_answer((0.7, 10), (0.6, 20), 100) is None


def test_misrouting_in_the_worked_example() -> None:
    routing = {
        "passage_local": {"passage_local": 1.0},
        "multi_hop": {"passage_local": 0.15, "multi_hop": 0.85},
        "thematic": {"passage_local": 0.10, "thematic": 0.90},
    }
    assert expected(SHARES, routing, ACCURACY) == pytest.approx(0.8072, abs=1e-6)


@pytest.mark.parametrize(
    "thematic, multi_hop, route",
    [(0.6, 0.4, "thematic"), (0.59, 0.5, "multi_hop"), (0.59, 0.49, "passage_local"), (0.0, 1.0, "multi_hop")],
)
def test_the_first_rule_that_holds(thematic: float, multi_hop: float, route: str) -> None:
    assert choose_route({"thematic": thematic, "multi_hop": multi_hop}, 0.6, 0.5) == route


def test_thresholds_weigh_the_two_errors() -> None:
    labels = ["multi_hop", "passage_local", "passage_local", "passage_local"]
    said = [{"multi_hop": 0.42}, {"multi_hop": 0.47}, {"multi_hop": 0.63}, {"multi_hop": 0.1}]
    dear = best_thresholds(labels, said, missed=1.0, wasted=0.25)
    assert (dear.thematic, dear.multi_hop, dear.cost) == (0.95, 0.4, 0.125), "two wasted cost less than one missed"
    cheap = best_thresholds(labels, said, missed=1.0, wasted=0.75)
    assert (cheap.multi_hop, cheap.cost) == (0.95, 0.25)


def test_thresholds_need_questions() -> None:
    with pytest.raises(ValueError, match="0 labels and 0 probabilities"):
        best_thresholds([], [])
