"""An audit: which questions deserve a graph, as the article "GraphRAG & Multi-Hop Retrieval" asks it.

Questions are sampled by type and put into classes. All go through the flat route, those of failing classes through the
others. Rule 4: a class fails where its accuracy is below a target, or clearly below that of passage_local. Rule 5: it
adopts the cheapest route that closes enough of the gap.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Interval

from gnnrag.config import EvaluateConfig, to_plain
from gnnrag.datasets.base import stratified_sample
from gnnrag.errors import ConfigError, nearest
from gnnrag.io import digest, write_json, write_jsonl
from gnnrag.methods.routed import RouteConfig, Routed, choose_route, read_route
from gnnrag.metrics.report import per_question
from gnnrag.metrics.statistics import wilson_interval
from gnnrag.roles.base import QUERY_CLASSES, RouterTask, Routing
from gnnrag.roles.registry import Roles
from gnnrag.roles.router import class_of
from gnnrag.run.evaluate import Observer, evaluate, load_data_for, open_index
from gnnrag.run.rundir import deciding_settings, read_predictions
from gnnrag.session import Session
from gnnrag.types import OnProgress, Question, no_progress

FLAT = "flat"  # the route that every class is measured on
LOCAL = "passage_local"  # the class that others are compared with where there is no target
LEAST_LOCAL = 10  # of its questions, for a verdict that no class fails
# In this order they decide which route is cheaper.
COSTS = ("cost/usd", "cost/tokens", "cost/llm_calls", "cost/retriever_calls", "cost/seconds_per_question")
Share = Annotated[float, Interval(ge=0, le=1)]


@dataclass
class AuditConfig:
    """Settings of an audit; the numbers are the article's where it states them."""

    n: Annotated[int, Ge(1)] = 200  # questions of the sample
    least: int = 40  # fewest questions of a question type, as far as it has them and n allows
    labels: Literal["router", "type"] = "router"  # what says a question's class: the role, or the benchmark's type
    measure: str = "answer/f1"  # per question: answer/em, answer/f1, retrieval/recall@5, retrieval/all@5, ...
    threshold: Share = 0.5  # a question counts as right from here on
    target: Share | None = None  # accuracy that is needed; null: classes are compared with passage_local
    margin: float = 0.1  # a class this far under passage_local fails, if the intervals are disjoint
    recover: float = 0.5  # least share of the gap that an adopted route closes
    flat: RouteConfig = field(default_factory=lambda: RouteConfig("single", "hybrid"))
    routes: dict[str, RouteConfig] = field(
        default_factory=lambda: {
            "iterative": RouteConfig("multihop", "hybrid"),
            "graph": RouteConfig("single", "chg"),
            "graph_iterative": RouteConfig("bdtr", "chg"),
        }
    )


@dataclass
class AuditRunConfig(EvaluateConfig):
    """Everything `gnnrag audit` reads; its method is not used, its retriever by routes that name none."""

    audit: AuditConfig = field(default_factory=AuditConfig)


def read_cell(scores: Mapping[str, Mapping[str, float]], rows: Sequence[Question], c: AuditConfig) -> dict[str, Any]:
    """Return accuracy, its interval and mean costs of a class on a route."""
    right = sum(scores[c.measure][q.id] >= c.threshold for q in rows)
    low, high = wilson_interval(right, len(rows))
    costs = {m: round(sum(scores[m][q.id] for q in rows) / len(rows), 6) for m in COSTS}
    counts = {"n": len(rows), "failed": int(sum(scores["failed"][q.id] for q in rows)), "right": right}
    return {**counts, "accuracy": right / len(rows), "low": low, "high": high, **costs}


def verdict(name: str, flat: Mapping[str, Mapping[str, Any]], c: AuditConfig) -> dict[str, Any]:
    """Return whether flat retrieval fails a class (rule 4), why, and the `reference` that a route has to come near.

    `flat` maps classes to their cells. `judged` is false where the class could not have failed even with no question
    right, or passage_local is too small to be a reference: that nothing failed then says nothing.
    """
    local = flat.get(LOCAL) if name != LOCAL else None

    def failure(cell: Mapping[str, Any]) -> tuple[str, float] | None:
        if c.target is not None and cell["high"] < c.target:
            return f"its upper bound is below the target {c.target:g}", c.target
        under = local["accuracy"] - cell["accuracy"] if local else 0.0
        if local and under >= c.margin and cell["high"] < local["low"]:
            return f"{under:.3f} under {LOCAL}, intervals disjoint", local["accuracy"]
        return None

    if failed := failure(flat[name]):
        return {"fails": True, "judged": True, "why": failed[0], "reference": failed[1]}
    none_right = {"accuracy": 0.0, "high": wilson_interval(0, flat[name]["n"])[1]}
    is_small = c.target is None and local is not None and local["n"] < LEAST_LOCAL
    judged = failure(none_right) is not None and not is_small
    why = (
        f"n={flat[name]['n']}: it could not have failed; ask more questions (audit.n, audit.least), or set audit.target"
    )
    return {"fails": False, "judged": judged, "why": "" if judged else why}


def adopted(cells: Mapping[str, dict[str, Any]], reference: float, recover: float) -> str | None:
    """Return (rule 5) the cheapest route that closes at least `recover` of the gap; writes `recovered` into each cell.

    Money goes first, then tokens, language-model calls, retriever calls, seconds.
    """
    gap = reference - cells[FLAT]["accuracy"]
    for cell in cells.values():
        cell["recovered"] = (cell["accuracy"] - cells[FLAT]["accuracy"]) / gap
    good = [name for name in cells if name != FLAT and cells[name]["recovered"] >= recover - 1e-9]
    return min(good, key=lambda name: ([cells[name][m] for m in COSTS], name), default=None)


def audit(
    config: AuditRunConfig,
    on_index: OnProgress = no_progress,
    on_note: Callable[[str], None] = lambda note: None,
) -> tuple[Path, dict[str, Any]]:
    """Sample, label, run, judge. The same command again continues an interrupted audit.

    Returns the audit's directory, with a run directory a route, `labels.jsonl` and `audit.json`, and what that holds.
    Raises ConfigError for bad settings or routes.
    """
    c = config.audit
    ks = [f"retrieval/{kind}@{k}" for k in config.metrics.ks for kind in ("recall", "all")]
    measures = ["answer/em", "answer/f1", "answer/sub_em", *ks]
    if c.measure not in measures:
        raise ConfigError(f"audit.measure={c.measure!r} is unknown. {nearest(c.measure, measures)}")
    if FLAT in c.routes or any(Path(name).name != name for name in c.routes):
        raise ConfigError(f"audit.routes.{FLAT}: name routes otherwise, each as a folder can be named")
    routes = {FLAT: read_route(c.flat, "audit.flat")}
    routes |= {name: read_route(route, f"audit.routes.{name}") for name, route in c.routes.items()}
    data = load_data_for(config)
    plain = {k: v for k, v in to_plain(config).items() if k != "method"}
    identity = digest([deciding_settings(plain), data.fingerprints])[:8]
    path = Path(config.run.root) / (config.run.name or f"audit-{data.name}-{identity}")
    sample, weights = stratified_sample(data.questions, c.n, c.least, config.seed)
    if c.measure.startswith("retrieval/") and (blank := sum(not q.gold for q in sample)):
        on_note(f"{blank} of the questions have no gold passages: {c.measure} counts them as wrong")

    def settings(name: str) -> EvaluateConfig:
        values = {f.name: getattr(config, f.name) for f in dataclasses.fields(EvaluateConfig)}
        values |= {"method": routes[name].method, "retriever": routes[name].retriever or config.retriever}
        return EvaluateConfig(**values | {"run": replace(config.run, root=str(path), name=name)})

    index = open_index([settings(FLAT)], data.name, data.passages, on_index, ["router"])
    if c.labels == "router":
        routings = asyncio.run(
            _route(Roles(index, config.roles, config.llm, config.llm_cache), sample, config.concurrency)
        )
        names = [choose_route(r.probabilities, Routed.thematic_threshold, Routed.multi_hop_threshold) for r in routings]
    else:
        names = [class_of(q)[0] for q in sample]
    groups = {k: [q for q, n in zip(sample, names, strict=True) if n == k] for k in QUERY_CLASSES if k in names}

    def run(name: str, classes: Sequence[str]) -> dict[str, dict[str, Any]]:
        ids = {q.id for label in classes for q in groups[label]}
        on_note(f"route {name}: {len(ids)} questions")
        part = replace(data, questions=tuple(q for q in data.questions if q.id in ids))
        folder, _ = evaluate(settings(name), Observer(on_index, on_note=on_note), data=part)
        columns = per_question(part.questions, read_predictions(folder), config.metrics)
        columns["cost/tokens"] = columns["cost/prompt_tokens"] + columns["cost/completion_tokens"]
        scores = {
            m: dict(zip([q.id for q in part.questions], np.nan_to_num(columns[m]).tolist(), strict=True))
            for m in (c.measure, "failed", *COSTS)
        }
        return {label: read_cell(scores, groups[label], c) for label in classes}

    flat = run(FLAT, list(groups))
    total = sum(weights.values())
    report_of = {
        name: {"n": len(rows), "share": sum(weights[q.id] for q in rows) / total, **verdict(name, flat, c)}
        for name, rows in groups.items()
    }
    asked = [name for name in report_of if report_of[name]["fails"]]
    others = {name: run(name, asked) for name in c.routes} if asked else {}
    for name, row in report_of.items():
        row["routes"] = {FLAT: flat[name]} | {route: cells[name] for route, cells in others.items() if name in cells}
        row["adopted"] = adopted(row["routes"], row["reference"], c.recover) if row["fails"] else None
    report = {
        "measure": f"{c.measure} >= {c.threshold:g}" if c.measure != "answer/em" else c.measure,
        "questions": len(sample),
        "population": len(data.questions),
        "labels": c.labels,
        "classes": report_of,
    }
    labels = [{"id": q.id, "class": name, "type": q.type} for q, name in zip(sample, names, strict=True)]
    write_jsonl(path / "labels.jsonl", labels)
    write_json(path / "audit.json", report | {"settings": to_plain(config)})
    return path, report


async def _route(roles: Roles, questions: Sequence[Question], concurrency: int) -> list[Routing]:
    slots = asyncio.Semaphore(max(1, concurrency))

    async def route(question: Question) -> Routing:
        async with slots:
            return await roles["router"](RouterTask(question), Session(question.id))

    try:
        return await asyncio.gather(*map(route, questions))
    finally:
        await roles.close()
