"""What routing is worth: expected accuracy and cost from shares and a confusion matrix, and the best thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Table = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of rules R1 and R2 at which errors cost least, and what an average question's errors cost then."""

    thematic: float
    multi_hop: float
    cost: float


def expected(shares: Mapping[str, float], routing: Table, values: Table) -> float:
    """Return the mean over questions of a value that depends on class and route: accuracy, cost, seconds.

    Args:
        shares: class to its share of the questions.
        routing: class to route to the share of the class that goes there.
        values: class to route to the value there; needed where `routing` is above 0.
    """
    return sum(
        share * part * values[name][route]
        for name, share in shares.items()
        for route, part in routing[name].items()
        if share and part
    )


def cost_per_extra_answer(flat: tuple[float, float], routed: tuple[float, float], questions: float) -> float | None:
    """Return what one more right answer costs when questions are routed; None where routing gives none.

    Args:
        flat: accuracy, and cost of all questions together, without routing.
        routed: the same with routing, upkeep of the graph included.
        questions: how many questions the costs are for.
    """
    extra = (routed[0] - flat[0]) * questions
    return (routed[1] - flat[1]) / extra if extra > 0 else None


def choose_route(probabilities: Mapping[str, float], thematic: float, multi_hop: float) -> str:
    """Apply rules R1 to R3, the first that holds; a threshold above 1 switches its rule off."""
    if probabilities.get("thematic", 0.0) >= thematic:
        return "thematic"
    return "multi_hop" if probabilities.get("multi_hop", 0.0) >= multi_hop else "passage_local"


def best_thresholds(
    labels: Sequence[str], probabilities: Sequence[Mapping[str, float]], missed: float = 1.0, wasted: float = 0.25
) -> Thresholds:
    """Return the thresholds, in steps of 0.05, at which the errors on labelled questions cost least.

    Args:
        labels: the class of each question.
        probabilities: what the router said of each.
        missed: cost of a question that is not passage-local and goes to another route than its own.
        wasted: cost of a passage-local question that leaves the flat route.

    Of several pairs that cost the same the highest is taken: flat retrieval is left on evidence only.

    Raises:
        ValueError: no questions, or lists of different length.
    """
    if not labels or len(labels) != len(probabilities):
        raise ValueError(f"{len(labels)} labels and {len(probabilities)} probabilities: one of each per question")
    price = [wasted if label == "passage_local" else missed for label in labels]
    best: Thresholds | None = None
    grid = [step / 20 for step in range(19, 0, -1)]
    for thematic in grid:
        for multi_hop in grid:
            wrong = (
                cost
                for cost, label, p in zip(price, labels, probabilities, strict=True)
                if choose_route(p, thematic, multi_hop) != label
            )
            total = sum(wrong) / len(labels)
            if best is None or total < best.cost - 1e-12:
                best = Thresholds(thematic, multi_hop, total)
    assert best is not None
    return best
