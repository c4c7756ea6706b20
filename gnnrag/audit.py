"""An audit: every question by every route; cells, failing classes, adopted routes, and what the router is worth."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.files import digest, write_json, write_jsonl
from gnnrag.common.records import AUDIT, refuse_other
from gnnrag.config import EvaluateConfig, to_plain
from gnnrag.datasets.base import Dataset, stratified_sample
from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.errors import ConfigError, DataError, nearest
from gnnrag.index.build import Progress
from gnnrag.methods.base import RouteConfig, choose_route, read_route
from gnnrag.metrics.long_answers import is_long
from gnnrag.metrics.replies import remarks
from gnnrag.metrics.report import per_question
from gnnrag.metrics.statistics import cohen_kappa, wilson_interval
from gnnrag.roles.base import QUERY_CLASSES, RouterTask, Routing
from gnnrag.roles.registry import Roles
from gnnrag.roles.router import class_of
from gnnrag.run.evaluation import Observer, evaluate, load_questions_for
from gnnrag.run.pipeline import open_index
from gnnrag.run.rundir import fingerprint_fields, read_predictions
from gnnrag.session import Session
from gnnrag.types import Question

FLAT = "flat"  # name of the route that every class is measured on


def _default_routes() -> dict[str, RouteConfig]:
    return {
        "iterative": RouteConfig("multihop", "hybrid"),
        "graph": RouteConfig("single", "chg"),
        "graph_iterative": RouteConfig("bdtr", "chg"),
    }


@dataclass
class AuditConfig:
    """Settings of an audit; the numbers are the article's where it states them."""

    n: int = 200  # questions of the sample
    least: int = 40  # fewest questions of a stratum (question type), as far as it has them and n allows
    labels: str = "router"  # router: the role; type: what the benchmark says; or a file, see `read_labels`
    measure: str = "answer/f1"  # per question: answer/em, answer/f1, retrieval/recall@5, retrieval/all@5, ...
    threshold: float = 0.5  # a question counts as right from here on
    target: float | None = None  # accuracy that the product needs; null: classes are held against passage_local
    margin: float = 0.1  # a class this far under passage_local fails, if the intervals are disjoint
    recover: float = 0.5  # least share of the gap that an adopted route closes
    every_class: bool = False  # run the routes on every class, not only on those that fail
    thematic_threshold: float = 0.6  # of the router whose decisions are judged, as in `RoutedConfig`
    multi_hop_threshold: float = 0.5  # the same
    missed: float = 1.0  # cost of a question that misses the route of its class, for the thresholds
    wasted: float = 0.25  # cost of a passage-local question on another route
    flat: RouteConfig = field(default_factory=lambda: RouteConfig("single", "hybrid"))
    routes: dict[str, RouteConfig] = field(default_factory=_default_routes)


@dataclass
class AuditRunConfig(EvaluateConfig):
    """Everything `gnnrag audit` reads; its method is not used, its retriever by routes that name none."""

    audit: AuditConfig = field(default_factory=AuditConfig)


def check_audit(config: AuditRunConfig) -> None:
    """Refuse settings that an audit would stumble over after hours of predicting."""
    c = config.audit
    for name, low in (("n", 1), ("least", 0)):
        if getattr(c, name) < low:
            raise ConfigError(f"audit.{name}={getattr(c, name)}: must be at least {low}")
    for name in ("threshold", "margin", "recover", "target"):
        if (value := getattr(c, name)) is not None and not 0.0 <= value <= 1.0:
            raise ConfigError(f"audit.{name}={value}: must lie between 0 and 1")
    ks = [f"retrieval/{kind}@{k}" for k in config.metrics.ks for kind in ("recall", "all")]
    measures = ["answer/em", "answer/f1", "answer/sub_em", *ks]
    if c.measure not in measures:
        raise ConfigError(f"audit.measure={c.measure!r} is unknown. {nearest(c.measure, measures)}")
    for name, route in ((FLAT, c.flat), *c.routes.items()):
        read_route(route, "audit.flat" if name == FLAT else f"audit.routes.{name}")
    if FLAT in c.routes or any(Path(name).name != name for name in c.routes):
        raise ConfigError(f"audit.routes={list(c.routes)}: names of folders, and not {FLAT!r}, which is audit.flat")


# ----------------------------------------------------------------------------------------------------------- verdicts
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
    labels = read_labels(Path(c.labels), data.questions) if c.labels not in ("router", "type") else None
    plain = {k: v for k, v in to_plain(config).items() if k != "method"}
    identity = digest([fingerprint_fields(plain), data.fingerprints])[:8]
    path = Path(config.run.root) / (config.run.name or f"audit-{data.name}-{identity}")
    refuse_other(path, AUDIT)
    known = [q for q in data.questions if labels is None or q.id in labels.classes]
    sample, weights = stratified_sample(known, c.n, c.least, config.seed)
    if c.measure.startswith("retrieval/") and (blank := sum(not q.gold for q in sample)):
        on_note(f"{blank} of the questions have no gold passages: {c.measure} counts them as wrong")
    if c.measure.startswith("answer/") and (long := sum(map(is_long, sample))):
        on_note(f"{long} of the questions have references of a sentence or more: {c.measure} counts them as wrong")
    index = open_index(_config_for(config, FLAT, c.flat, ""), data.name, data.passages, on_index, ["router"])
    routings = asyncio.run(_route_all(config, Roles(index, config.roles, config.llm, config.llm_cache), sample))
    decided = [choose_route(r.probabilities, c.thematic_threshold, c.multi_hop_threshold) for r in routings]
    if labels is None:
        names = decided if c.labels == "router" else [class_of(q)[0] for q in sample]
        labels = Labels(dict(zip((q.id for q in sample), names, strict=True)))
    given = [labels.classes[q.id] for q in sample]
    classes = _classes(config, path, data, _groups(sample, given, weights), on_index, on_note)
    report = {
        "measure": f"{c.measure} >= {c.threshold:g}" if c.measure != "answer/em" else c.measure,
        "questions": len(sample),
        "population": len(data.questions),
        "labels": {"from": c.labels, "kappa": labels.kappa, "unresolved": list(labels.unresolved)},
        "concurrency": config.concurrency,
        "classes": classes,
        "router": judge_router(given, decided, routings, c),
    }
    report["economics"] = economics(classes, report["router"]["confusion"])
    rows = [
        {"id": q.id, "class": g, "router": d, "probabilities": dict(r.probabilities), "type": q.type}
        for q, g, d, r in zip(sample, given, decided, routings, strict=True)
    ]
    write_jsonl(path / "labels.jsonl", rows)
    write_json(path / "audit.json", report | {"settings": to_plain(config)})
    return path, report


@dataclass(frozen=True)
class _Group:
    questions: list[Question]
    share: float


def _groups(sample: Sequence[Question], given: Sequence[str], weights: Mapping[str, float]) -> dict[str, _Group]:
    groups = {}
    for name in QUERY_CLASSES:
        if rows := [q for q, label in zip(sample, given, strict=True) if label == name]:
            groups[name] = _Group(rows, sum(weights[q.id] for q in rows) / sum(weights.values()))
    return groups


def _classes(
    config: AuditRunConfig,
    path: Path,
    data: Dataset,
    groups: Mapping[str, _Group],
    on_index: Progress,
    on_note: Callable[[str], None],
) -> dict[str, Any]:
    """Run the flat route on all, the others on what fails; return each class's verdict, cells and adopted route."""
    c = config.audit

    def run(name: str, route: RouteConfig, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
        ids = {q.id for label in labels for q in groups[label].questions}
        on_note(f"route {name}: {len(ids)} questions")
        mine = replace(data, questions=tuple(q for q in data.questions if q.id in ids))
        where, metrics = evaluate(
            _config_for(config, name, route, path), Observer(on_index, on_note=on_note), data=mine
        )
        for line in remarks(metrics.get("replies", {}), config.run.warn_bad_replies, None):
            on_note(f"route {name}: {line}")
        scores = _scores(mine.questions, where, config)
        return {label: read_cell(scores, groups[label].questions, c) for label in labels}

    flat = run(FLAT, c.flat, list(groups))
    classes = {
        name: {"n": len(group.questions), "share": round(group.share, 6), **verdict(name, flat, c)}
        for name, group in groups.items()
    }
    judged = [name for name in classes if c.every_class or classes[name]["fails"]]
    others = {name: run(name, route, judged) for name, route in c.routes.items()} if judged else {}
    for name, row in classes.items():
        row["routes"] = {FLAT: flat[name]} | {r: cells[name] for r, cells in others.items() if name in cells}
        row["adopted"] = adopted(row["routes"], row["reference"], c.recover) if row["fails"] else None
    return classes


async def _route_all(config: AuditRunConfig, roles: Roles, questions: Sequence[Question]) -> list[Routing]:
    slots = asyncio.Semaphore(max(1, config.concurrency))

    async def one(question: Question) -> Routing:
        async with slots:
            return await roles["router"](RouterTask(question), Session(question.id))

    try:
        return await asyncio.gather(*(one(question) for question in questions))
    finally:
        await roles.close()


def _config_for(config: AuditRunConfig, name: str, route: RouteConfig, path: str | Path) -> EvaluateConfig:
    read, run = read_route(route, f"audit.routes.{name}"), replace(config.run, root=str(path), name=name)
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(EvaluateConfig)}
    return EvaluateConfig(
        **values | {"method": read.method, "retriever": read.retriever or config.retriever, "run": run}
    )


def _scores(questions: Sequence[Question], path: Path, config: AuditRunConfig) -> dict[str, dict[str, float]]:
    """Return metric to question id to value, of one run."""
    columns = per_question(questions, read_predictions(path), config.metrics)
    columns[config.audit.measure] = np.nan_to_num(columns[config.audit.measure])  # the audit has told of these
    columns["cost/tokens"] = columns["cost/prompt_tokens"] + columns["cost/completion_tokens"]
    kept = (config.audit.measure, "failed", *COSTS)
    return {m: dict(zip((q.id for q in questions), columns[m].tolist(), strict=True)) for m in kept}


@dataclass(frozen=True)
class Labels:
    """Classes of questions by id, `kappa` of two annotators, and ids on which they differ and nobody decided."""

    classes: Mapping[str, str]
    kappa: float | None = None
    unresolved: tuple[str, ...] = ()


def read_labels(path: Path, questions: Sequence[Question]) -> Labels:
    """Read JSON Lines of {"id", "labels": [one or two classes], "adjudicated": class or absent}.

    `adjudicated` decides where annotators differ; else a question is left out and listed. Raises DataError.
    """
    ids = {q.id for q in questions}
    pairs, classes, unresolved = list[tuple[str, str]](), dict[str, str](), list[str]()
    for line, row in read_jsonl(path):
        given, final = row.get("labels"), row.get("adjudicated")
        if not isinstance(given, list) or not 1 <= len(given) <= 2:
            raise DataError(path, f"'labels' is {given!r}; list one or two classes, one for each annotator", line)
        for value in [*given, *([final] if final else [])]:
            if value not in QUERY_CLASSES:
                raise DataError(path, f"{value!r} is no class; allowed are {', '.join(QUERY_CLASSES)}", line)
        if not isinstance(row.get("id"), str) or row["id"] not in ids:
            raise DataError(path, f"id={row.get('id')!r} is none of the questions; label the ones of data.path", line)
        if row["id"] in classes or row["id"] in unresolved:
            raise DataError(path, f"id={row['id']!r} comes twice; give one line a question", line)
        if len(given) == 2:
            pairs.append((given[0], given[1]))
        if final or len(set(given)) == 1:
            classes[row["id"]] = final or given[0]
        else:
            unresolved.append(row["id"])
    if not classes:
        raise DataError(path, "labels no question")
    kappa = cohen_kappa([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None
    return Labels(classes, kappa, tuple(unresolved))
