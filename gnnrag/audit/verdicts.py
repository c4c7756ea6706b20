"""What an audit makes of its scores: cells, failing classes, adopted routes, the router's worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnrag.audit.config import FLAT, AuditConfig
from gnnrag.methods.base import choose_route
from gnnrag.metrics.statistics import wilson_interval
from gnnrag.roles.base import QUERY_CLASSES, Routing
from gnnrag.types import Question

# In this order they decide which route is cheaper.
COSTS = ("cost/usd", "cost/tokens", "cost/llm_calls", "cost/retriever_calls", "cost/seconds_per_question")
_LOCAL = "passage_local"  # the class that others are held against where there is no target
_FEWEST = 10  # of its questions; with fewer, that no class fails says nothing


def read_cell(scores: Mapping[str, Mapping[str, float]], rows: Sequence[Question], c: AuditConfig) -> dict[str, Any]:
    """Return accuracy, its interval and mean costs of a class on a route."""
    right = sum(scores[c.measure][q.id] >= c.threshold for q in rows)
    low, high = wilson_interval(right, len(rows))
    costs = {m: round(sum(scores[m][q.id] for q in rows) / len(rows), 6) for m in COSTS}
    failed = int(sum(scores["failed"][q.id] for q in rows))
    counts = {"n": len(rows), "failed": failed, "right": right}
    return {**counts, "accuracy": right / len(rows), "low": low, "high": high, **costs}


def verdict(name: str, flat: Mapping[str, Mapping[str, Any]], c: AuditConfig) -> dict[str, Any]:
    """Judge (rule 4) whether flat retrieval fails a class, with the accuracy that a better route has to come near.

    `flat` maps classes to their cells. `judged` is false, and `why` says so, where no result could have made the class
    fail, or passage_local (the reference) has no target or too few questions to show that nothing failed.
    """
    mine, local = flat[name], flat.get(_LOCAL)
    if c.target is not None and mine["high"] < c.target:
        why = f"its upper bound is below the target {c.target:g}"
        return {"fails": True, "judged": True, "why": why, "reference": c.target}
    if name != _LOCAL and local is not None:
        under = local["accuracy"] - mine["accuracy"]
        if under >= c.margin and mine["high"] < local["low"]:
            why = f"{under:.3f} under passage_local, intervals disjoint"
            return {"fails": True, "judged": True, "why": why, "reference": local["accuracy"]}
    if name == _LOCAL and c.target is None and len(flat) > 1:
        return {"fails": False, "judged": False, "why": ""}
    why = _hindrance(name, flat, c)
    return {"fails": False, "judged": not why, "why": why}


def _hindrance(name: str, flat: Mapping[str, Mapping[str, Any]], c: AuditConfig) -> str:
    """Return why that nothing was found wrong with a class means nothing; empty where it does."""
    mine, local = flat[name], flat.get(_LOCAL) if name != _LOCAL else None
    bound = wilson_interval(0, mine["n"])[1]
    none_right = f"n={mine['n']} is too few: with none right its upper bound would be {bound:.3f}, not below"
    if c.target is not None and bound < c.target:
        return ""
    held = "" if local is None else f"passage_local (n={local['n']}, accuracy {local['accuracy']:.3f})"
    if local is None:
        why = "it is all there is" if name == _LOCAL else "there are no passage_local questions to hold it against"
    elif local["accuracy"] < max(c.margin, 1e-9):
        why = f"{held} is what it is held against, and nothing can be {c.margin:g} under that"
    elif local["n"] < _FEWEST:
        why = f"{held} is what it is held against, and too small for that"
    elif bound >= local["low"]:
        why = f"{none_right} the lower bound {local['low']:.3f} of {held}"
    else:
        return ""
    if c.target is not None:
        return f"{none_right} audit.target={c.target:g}; ask more questions (audit.n, audit.least)"
    return f"{why}; audit.target=0.6 holds it against the accuracy that you need"


def adopted(cells: Mapping[str, dict[str, Any]], reference: float, recover: float) -> str | None:
    """Return (rule 5) the cheapest route that closes at least `recover` of the gap; writes `recovered` into each cell.

    Money goes first, then tokens, language-model calls, retriever calls, seconds.
    """
    gap = reference - cells[FLAT]["accuracy"]
    for cell in cells.values():
        cell["recovered"] = (cell["accuracy"] - cells[FLAT]["accuracy"]) / gap
    good = [name for name in cells if name != FLAT and cells[name]["recovered"] >= recover - 1e-9]
    return min(good, key=lambda name: ([cells[name][m] for m in COSTS], name), default=None)


def judge_router(labels: Sequence[str], decided: Sequence[str], routings: Sequence[Routing], c: AuditConfig) -> Any:
    """Return the router's confusion matrix (labels are rows) and the thresholds at which its errors cost least."""
    counts = Counter(zip(labels, decided, strict=True))
    matrix = {a: {b: counts[a, b] for b in QUERY_CLASSES} for a in QUERY_CLASSES if a in labels}
    best = best_thresholds(labels, [r.probabilities for r in routings], c.missed, c.wasted)
    # Without questions of a class nothing is known of its threshold.
    cheapest = {"thematic": best.thematic, "multi_hop": best.multi_hop}
    thresholds = {k: v if k in labels else None for k, v in cheapest.items()} | {"cost": round(best.cost, 6)}
    return {"confusion": matrix, "thresholds": thresholds, "flags": dict(Counter(f for r in routings for f in r.flags))}


def economics(classes: Mapping[str, Any], confusion: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return accuracy and cost of an average question: all on the flat route, routed by label, routed by the router.

    A class goes to its adopted route, or stays flat. A question taken for another class is worth what its own class is
    worth there; where that was not measured, its flat accuracy at the other class's cost.
    """
    shares = {name: row["share"] for name, row in classes.items()}
    target = {name: classes[name]["adopted"] or FLAT if name in classes else FLAT for name in QUERY_CLASSES}
    by_label = {name: {name: 1.0} for name in classes}
    by_router = {
        name: {other: count / sum(confusion[name].values()) for other, count in confusion[name].items()}
        for name in classes
    }
    all_flat = {name: {"passage_local": 1.0} for name in classes}

    def value(name: str, other: str, metric: str, is_flat: bool) -> float:
        route = FLAT if is_flat else target[other]
        cells = classes[name]["routes"]
        if route in cells:
            return float(cells[route][metric])
        return float(cells[FLAT][metric] if metric == "accuracy" else classes[other]["routes"][route][metric])

    out: dict[str, Any] = {}
    for title, routing in (("flat", all_flat), ("labels", by_label), ("router", by_router)):
        tables = {
            m: {a: {b: value(a, b, m, title == "flat") for b in QUERY_CLASSES} for a in classes}
            for m in ("accuracy", *COSTS)
        }
        out[title] = {m: round(expected(shares, routing, table), 6) for m, table in tables.items()}
    flat = out["flat"]
    for title in ("labels", "router"):
        out[title]["per_extra_answer"] = {
            m: cost_per_extra_answer((flat["accuracy"], flat[m]), (out[title]["accuracy"], out[title][m]), 1.0)
            for m in COSTS
        }
    return out


# What routing is worth: expected accuracy and cost from shares and a confusion matrix, and the best thresholds.

Table = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of rules R1 and R2 at which errors cost least, and what an average question's errors cost then."""

    thematic: float
    multi_hop: float
    cost: float


def expected(shares: Mapping[str, float], routing: Table, values: Table) -> float:
    """Return the mean of a value (accuracy, cost, seconds) over questions of classes with these `shares`.

    `routing` says which share of a class goes to which route.
    """
    return sum(
        share * part * values[name][route]
        for name, share in shares.items()
        for route, part in routing[name].items()
        if share and part
    )


def cost_per_extra_answer(flat: tuple[float, float], routed: tuple[float, float], questions: float) -> float | None:
    """Return what one more right answer costs when questions are routed; None where routing gives none.

    `flat` and `routed` are accuracy and cost of all `questions` together, upkeep of the graph included.
    """
    extra = (routed[0] - flat[0]) * questions
    return (routed[1] - flat[1]) / extra if extra > 0 else None


def best_thresholds(
    labels: Sequence[str], probabilities: Sequence[Mapping[str, float]], missed: float = 1.0, wasted: float = 0.25
) -> Thresholds:
    """Return the thresholds, in steps of 0.05, at which the errors on labelled questions cost least.

    A question that is not passage-local and goes to a wrong route costs `missed`, a passage-local one that leaves the
    flat route `wasted`. Ties go to the highest pair: flat retrieval is left on evidence only. Raises ValueError for no
    questions, or lists of different length.
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
