"""An audit: which questions deserve a graph, as the article "GraphRAG & Multi-Hop Retrieval" asks it.

Questions are sampled by type and put into classes. All go through the flat route, those of failing classes through the
others. Rule 4: a class fails where its accuracy is below a target, or clearly below that of passage_local. Rule 5: it
adopts the cheapest route that closes enough of the gap. What a router is worth follows from its confusion matrix.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.config import EvaluateConfig, to_plain
from gnnrag.datasets.base import Dataset, stratified_sample
from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.errors import ConfigError, DataError, nearest
from gnnrag.index.build import Progress
from gnnrag.io import digest, write_json, write_jsonl
from gnnrag.methods.routed import RouteConfig, choose_route, read_route
from gnnrag.metrics.report import per_question
from gnnrag.metrics.statistics import wilson_interval
from gnnrag.roles.base import QUERY_CLASSES, RouterTask, Routing
from gnnrag.roles.registry import Roles
from gnnrag.roles.router import class_of
from gnnrag.run.evaluate import Observer, evaluate, load_questions_for
from gnnrag.run.pipeline import open_index
from gnnrag.run.rundir import fingerprint_fields, read_predictions
from gnnrag.session import Session
from gnnrag.types import Question

FLAT = "flat"  # the route that every class is measured on
LOCAL = "passage_local"  # the class that others are held against where there is no target
LEAST_LOCAL = 10  # of its questions, for a verdict that no class fails
# In this order they decide which route is cheaper.
COSTS = ("cost/usd", "cost/tokens", "cost/llm_calls", "cost/retriever_calls", "cost/seconds_per_question")
Cells = Mapping[str, Mapping[str, Any]]  # by class


@dataclass
class AuditConfig:
    """Settings of an audit; the numbers are the article's where it states them."""

    n: int = 200  # questions of the sample
    least: int = 40  # fewest questions of a question type, as far as it has them and n allows
    labels: str = "router"  # router: the role; type: what the benchmark says; or a file, see `read_labels`
    measure: str = "answer/f1"  # per question: answer/em, answer/f1, retrieval/recall@5, retrieval/all@5, ...
    threshold: float = 0.5  # a question counts as right from here on
    target: float | None = None  # accuracy that is needed; null: classes are held against passage_local
    margin: float = 0.1  # a class this far under passage_local fails, if the intervals are disjoint
    recover: float = 0.5  # least share of the gap that an adopted route closes
    every_class: bool = False  # run the routes on every class, not only on those that fail
    thematic_threshold: float = 0.6  # of the router whose decisions are judged, as in `Routed`
    multi_hop_threshold: float = 0.5  # the same
    missed: float = 1.0  # cost of a question that misses the route of its class, for the thresholds
    wasted: float = 0.25  # cost of a passage-local question on another route
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


def check_audit(config: AuditRunConfig) -> None:
    """Refuse settings that an audit would stumble over after hours of predicting. Raises ConfigError."""
    c = config.audit
    for name, value, low, high in (
        ("n", c.n, 1, np.inf), ("threshold", c.threshold, 0, 1), ("target", c.target or 0, 0, 1),
    ):  # fmt: skip
        if not low <= value <= high:
            raise ConfigError(f"audit.{name}={value}: must lie between {low} and {high}")
    ks = [f"retrieval/{kind}@{k}" for k in config.metrics.ks for kind in ("recall", "all")]
    measures = ["answer/em", "answer/f1", "answer/sub_em", *ks]
    if c.measure not in measures:
        raise ConfigError(f"audit.measure={c.measure!r} is unknown. {nearest(c.measure, measures)}")
    for name, route in c.routes.items():
        read_route(route, f"audit.routes.{name}")
        if name == FLAT or Path(name).name != name:
            raise ConfigError(f"audit.routes.{name}: must be the name of a folder, and not {FLAT!r}")
    read_route(c.flat, "audit.flat")


# ----------------------------------------------------------------------------------------------------------- verdicts
def read_cell(scores: Mapping[str, Mapping[str, float]], rows: Sequence[Question], c: AuditConfig) -> dict[str, Any]:
    """Return accuracy, its interval and mean costs of a class on a route."""
    right = sum(scores[c.measure][q.id] >= c.threshold for q in rows)
    low, high = wilson_interval(right, len(rows))
    costs = {m: round(sum(scores[m][q.id] for q in rows) / len(rows), 6) for m in COSTS}
    counts = {"n": len(rows), "failed": int(sum(scores["failed"][q.id] for q in rows)), "right": right}
    return {**counts, "accuracy": right / len(rows), "low": low, "high": high, **costs}


def verdict(name: str, flat: Cells, c: AuditConfig) -> dict[str, Any]:
    """Return whether flat retrieval fails a class (rule 4), why, and the `reference` that a route has to come near.

    `flat` maps classes to their cells. `judged` is false where the class could not have failed even with no question
    right, or passage_local is too small to be a reference: that nothing failed then says nothing.
    """
    local = flat.get(LOCAL) if name != LOCAL else None

    def fails(cell: Mapping[str, Any]) -> tuple[str, float] | None:
        if c.target is not None and cell["high"] < c.target:
            return f"its upper bound is below the target {c.target:g}", c.target
        under = local["accuracy"] - cell["accuracy"] if local else 0.0
        if local and under >= c.margin and cell["high"] < local["low"]:
            return f"{under:.3f} under {LOCAL}, intervals disjoint", local["accuracy"]
        return None

    if found := fails(flat[name]):
        return {"fails": True, "judged": True, "why": found[0], "reference": found[1]}
    none_right = {"accuracy": 0.0, "high": wilson_interval(0, flat[name]["n"])[1]}
    is_small = c.target is None and local is not None and local["n"] < LEAST_LOCAL
    judged = fails(none_right) is not None and not is_small
    why = "" if judged else (
        f"n={flat[name]['n']}: it could not have failed; ask more questions (audit.n, audit.least), or set audit.target"
    )  # fmt: skip
    return {"fails": False, "judged": judged, "why": why}


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
    thematic, multi_hop, cost = best_thresholds(labels, [r.probabilities for r in routings], c.missed, c.wasted)
    # Without questions of a class nothing is known of its threshold.
    cheapest = {"thematic": thematic, "multi_hop": multi_hop}
    thresholds = {k: v if k in labels else None for k, v in cheapest.items()} | {"cost": round(cost, 6)}
    return {"confusion": matrix, "thresholds": thresholds, "flags": dict(Counter(f for r in routings for f in r.flags))}


def best_thresholds(
    labels: Sequence[str], probabilities: Sequence[Mapping[str, float]], missed: float = 1.0, wasted: float = 0.25
) -> tuple[float, float, float]:
    """Return the thresholds of rules R1 and R2, in steps of 0.05, at which errors cost least, and that mean cost.

    A question that is not passage-local and goes to a wrong route costs `missed`, a passage-local one that leaves the
    flat route `wasted`. Ties go to the highest pair: flat retrieval is left on evidence only. Raises ValueError for no
    questions, or lists of different length.
    """
    if not labels or len(labels) != len(probabilities):
        raise ValueError(f"{len(labels)} labels and {len(probabilities)} probabilities: one of each per question")
    grid = [step / 20 for step in range(19, 0, -1)]
    best = (0.0, 0.0, np.inf)
    for thematic in grid:
        for multi_hop in grid:
            pairs = zip(labels, probabilities, strict=True)
            wrong = [label for label, p in pairs if choose_route(p, thematic, multi_hop) != label]
            cost = sum(wasted if label == LOCAL else missed for label in wrong) / len(labels)
            if cost < best[2] - 1e-12:
                best = (thematic, multi_hop, cost)
    return best


def economics(classes: Mapping[str, Any], confusion: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return accuracy and cost of an average question: all on the flat route, routed by label, routed by the router.

    A class goes to its adopted route, or stays flat. A question taken for another class is worth what its own class is
    worth there; where that was not measured, its flat accuracy at the other class's cost. `per_extra_answer` is the
    cost of one more right answer, None where routing gives none.
    """
    target = {name: classes[name]["adopted"] or FLAT if name in classes else FLAT for name in QUERY_CLASSES}

    def value(name: str, other: str, metric: str) -> float:
        cells, route = classes[name]["routes"], target[other]
        if route in cells:
            return float(cells[route][metric])
        return float(cells[FLAT][metric] if metric == "accuracy" else classes[other]["routes"][route][metric])

    def mean(metric: str, routing: Mapping[str, Mapping[str, float]]) -> float:
        return sum(
            row["share"] * share * value(name, other, metric)
            for name, row in classes.items()
            for other, share in routing[name].items()
            if row["share"] and share
        )

    by_label = {name: {name: 1.0} for name in classes}
    by_router = {
        name: {other: n / sum(confusion[name].values()) for other, n in confusion[name].items()} for name in classes
    }
    metrics = ("accuracy", *COSTS)
    flat = {m: sum(row["share"] * row["routes"][FLAT][m] for row in classes.values()) for m in metrics}
    out: dict[str, Any] = {"flat": flat}
    for title, routing in (("labels", by_label), ("router", by_router)):
        out[title] = {m: mean(m, routing) for m in metrics}
        extra = out[title]["accuracy"] - flat["accuracy"]
        per_answer = {m: (out[title][m] - flat[m]) / extra if extra > 1e-12 else None for m in COSTS}
        out[title]["per_extra_answer"] = per_answer
    return out


# ------------------------------------------------------------------------------------------------------------ the run
def audit(
    config: AuditRunConfig,
    on_index: Progress = lambda stage, done, total: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> tuple[Path, dict[str, Any]]:
    """Sample, label, run, judge. The same command again continues an interrupted audit.

    Returns the audit's directory, with a run directory a route, `labels.jsonl` and `audit.json`, and what that holds.
    Raises ConfigError for bad settings, routes, or a directory of something else, DataError for a broken labels file.
    """
    c = config.audit
    check_audit(config)
    data = load_questions_for(config)
    labels = read_labels(Path(c.labels), data.questions) if c.labels not in ("router", "type") else {}
    plain = {k: v for k, v in to_plain(config).items() if k != "method"}
    identity = digest([fingerprint_fields(plain), data.fingerprints])[:8]
    path = Path(config.run.root) / (config.run.name or f"audit-{data.name}-{identity}")
    known = [q for q in data.questions if not labels or q.id in labels]
    sample, weights = stratified_sample(known, c.n, c.least, config.seed)
    if c.measure.startswith("retrieval/") and (blank := sum(not q.gold for q in sample)):
        on_note(f"{blank} of the questions have no gold passages: {c.measure} counts them as wrong")
    index = open_index(_config_for(config, FLAT, c.flat, path), data.name, data.passages, on_index, ["router"])
    routings = asyncio.run(_route_all(config, Roles(index, config.roles, config.llm, config.llm_cache), sample))
    decided = [choose_route(r.probabilities, c.thematic_threshold, c.multi_hop_threshold) for r in routings]
    if not labels:
        names = decided if c.labels == "router" else [class_of(q)[0] for q in sample]
        labels = dict(zip((q.id for q in sample), names, strict=True))
    given = [labels[q.id] for q in sample]
    groups = {name: [q for q in sample if labels[q.id] == name] for name in QUERY_CLASSES if name in given}
    observer = Observer(on_index, on_note=on_note)

    def run(name: str, route: RouteConfig, chosen: Sequence[str]) -> dict[str, dict[str, Any]]:
        ids = {q.id for label in chosen for q in groups[label]}
        on_note(f"route {name}: {len(ids)} questions")
        part = replace(data, questions=tuple(q for q in data.questions if q.id in ids))
        folder, _ = evaluate(_config_for(config, name, route, path), observer, data=part)
        scores = _scores(part, folder, config)
        return {label: read_cell(scores, groups[label], c) for label in chosen}

    flat = run(FLAT, c.flat, list(groups))
    total = sum(weights.values())
    classes: dict[str, Any] = {
        name: {"n": len(rows), "share": sum(weights[q.id] for q in rows) / total, **verdict(name, flat, c)}
        for name, rows in groups.items()
    }
    chosen = [name for name in classes if c.every_class or classes[name]["fails"]]
    others = {name: run(name, route, chosen) for name, route in c.routes.items()} if chosen else {}
    for name, row in classes.items():
        row["routes"] = {FLAT: flat[name]} | {route: cells[name] for route, cells in others.items() if name in cells}
        row["adopted"] = adopted(row["routes"], row["reference"], c.recover) if row["fails"] else None
    router = judge_router(given, decided, routings, c)
    report = {
        "measure": f"{c.measure} >= {c.threshold:g}" if c.measure != "answer/em" else c.measure,
        "questions": len(sample),
        "population": len(data.questions),
        "labels": c.labels,
        "concurrency": config.concurrency,
        "classes": classes,
        "router": router,
        "economics": economics(classes, router["confusion"]),
    }
    rows = [
        {"id": q.id, "class": g, "router": d, "probabilities": dict(r.probabilities), "type": q.type}
        for q, g, d, r in zip(sample, given, decided, routings, strict=True)
    ]
    write_jsonl(path / "labels.jsonl", rows)
    write_json(path / "audit.json", report | {"settings": to_plain(config)})
    return path, report


async def _route_all(config: AuditRunConfig, roles: Roles, questions: Sequence[Question]) -> list[Routing]:
    slots = asyncio.Semaphore(max(1, config.concurrency))

    async def route(question: Question) -> Routing:
        async with slots:
            return await roles["router"](RouterTask(question), Session(question.id))

    try:
        return await asyncio.gather(*(route(question) for question in questions))
    finally:
        await roles.close()


def _config_for(config: AuditRunConfig, name: str, route: RouteConfig, root: Path) -> EvaluateConfig:
    parts, run = read_route(route, f"audit.routes.{name}"), replace(config.run, root=str(root), name=name)
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(EvaluateConfig)}
    own = {"method": parts.method, "retriever": parts.retriever or config.retriever, "run": run}
    return EvaluateConfig(**values | own)


def _scores(data: Dataset, run: Path, config: AuditRunConfig) -> dict[str, dict[str, float]]:
    """Return metric to question id to value, of one run; a question without gold passages counts 0."""
    columns = per_question(data.questions, read_predictions(run), config.metrics)
    columns["cost/tokens"] = columns["cost/prompt_tokens"] + columns["cost/completion_tokens"]
    ids = [q.id for q in data.questions]
    names = (config.audit.measure, "failed", *COSTS)
    return {m: dict(zip(ids, np.nan_to_num(columns[m]).tolist(), strict=True)) for m in names}


def read_labels(path: Path, questions: Sequence[Question]) -> dict[str, str]:
    """Return the classes of questions by id, out of JSON Lines of {"id", "class"}. Raises DataError."""
    ids, classes = {q.id for q in questions}, dict[str, str]()
    for line, row in read_jsonl(path):
        id_, name = row.get("id"), row.get("class")
        if name not in QUERY_CLASSES:
            raise DataError(path, f"class={name!r}: allowed are {', '.join(QUERY_CLASSES)}", line)
        if id_ not in ids or id_ in classes:
            raise DataError(path, f"id={id_!r} is none of the questions of data.path, or comes twice", line)
        classes[id_] = name
    if not classes:
        raise DataError(path, "labels no question")
    return classes
