"""Runs an audit: every prediction and every score is made by `gnnrag.run.evaluation`, one run directory a route."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.audit.config import FLAT, AuditRunConfig, check_audit
from gnnrag.audit.verdicts import COSTS, adopted, economics, judge_router, read_cell, verdict
from gnnrag.common.files import digest, write_json, write_jsonl
from gnnrag.common.records import AUDIT, refuse_other
from gnnrag.common.yaml_config import without_credentials
from gnnrag.config import EvaluateConfig, to_plain
from gnnrag.datasets.base import Dataset, stratified_sample
from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.errors import DataError
from gnnrag.index.build import Progress
from gnnrag.methods.base import RouteConfig, choose_route, read_route
from gnnrag.metrics.long_answers import is_long
from gnnrag.metrics.replies import remarks
from gnnrag.metrics.report import per_question
from gnnrag.metrics.statistics import cohen_kappa
from gnnrag.roles.base import QUERY_CLASSES, RouterTask, Routing
from gnnrag.roles.registry import Roles
from gnnrag.roles.router import class_of
from gnnrag.run.evaluation import Observer, evaluate, load_questions_for
from gnnrag.run.pipeline import open_index
from gnnrag.run.rundir import fingerprint_fields, read_predictions
from gnnrag.session import Session
from gnnrag.types import Question


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
    path = Path(config.run.root) / (config.run.name or f"audit-{data.name}-{digest(_identity(config, data))[:8]}")
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
    write_json(path / "audit.json", report | {"settings": without_credentials(to_plain(config))})
    return path, report


@dataclass(frozen=True)
class _Group:
    questions: list[Question]
    share: float


def _groups(sample: Sequence[Question], given: Sequence[str], weights: Mapping[str, float]) -> dict[str, _Group]:
    groups = {}
    for name in QUERY_CLASSES:
        rows = [q for q, label in zip(sample, given, strict=True) if label == name]
        if rows:
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
    read = read_route(route, f"audit.routes.{name}")
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(EvaluateConfig)}
    run = replace(config.run, root=str(path), name=name)
    values |= {"method": read.method, "retriever": read.retriever or config.retriever, "run": run}
    return EvaluateConfig(**values)


def _identity(config: AuditRunConfig, data: Dataset) -> Any:
    plain = {k: v for k, v in to_plain(config).items() if k != "method"}
    return [fingerprint_fields(plain), data.fingerprints]


def _scores(questions: Sequence[Question], path: Path, config: AuditRunConfig) -> dict[str, dict[str, float]]:
    """Return metric to question id to value, of one run."""
    columns = per_question(questions, read_predictions(path), config.metrics)
    columns[config.audit.measure] = np.nan_to_num(columns[config.audit.measure])  # the audit has told of these
    columns["cost/tokens"] = columns["cost/prompt_tokens"] + columns["cost/completion_tokens"]
    kept = (config.audit.measure, "failed", *COSTS)
    return {m: dict(zip((q.id for q in questions), columns[m].tolist(), strict=True)) for m in kept}


# Which questions an audit asks, and of which class each is.


@dataclass(frozen=True)
class Labels:
    """Classes of questions by id, `kappa` of two annotators, and ids on which they differ and nobody decided."""

    classes: Mapping[str, str]
    kappa: float | None = None
    unresolved: tuple[str, ...] = ()


def read_labels(path: Path, questions: Sequence[Question]) -> Labels:
    """Read JSON Lines of {"id", "labels": [one or two classes], "adjudicated": class or absent}.

    `adjudicated` decides where annotators differ; else a question is left out and listed. Raises DataError: bad
    content.
    """
    ids = {q.id for q in questions}
    pairs: list[tuple[str, str]] = []
    classes: dict[str, str] = {}
    unresolved: list[str] = []
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
