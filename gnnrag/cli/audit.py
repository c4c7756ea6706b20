"""Audit flat retrieval: which classes of questions it fails, which route serves them, and what each route costs.

    gnnrag audit configs/evaluate/musique.yaml audit.labels=type audit.target=0.6
    gnnrag audit configs/evaluate/2wiki.yaml audit.n=200 audit.measure=retrieval/recall@5 audit.threshold=1

Questions are sampled by type and put into classes (passage_local, multi_hop, thematic) by the router, by their type,
or by two annotators in a file (audit.labels=FILE; lines of {"id": ..., "labels": [A, B], "adjudicated": C}). All of
them go through audit.flat, those of failing classes through audit.routes. Settings: gnnrag/audit.py. The same
command again continues an interrupted audit. The last line printed is its directory; audit.json there holds everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from gnnrag.audit import AuditRunConfig, audit
from gnnrag.cli.console import IndexProgress, note, render, split_arguments
from gnnrag.config import load_config
from gnnrag.metrics.statistics import with_interval

FEW, LOW_KAPPA = 40, 0.6
COSTS = ("seconds", "calls", "LLM", "tokens", "USD")  # of an average question; calls are the retriever's


def main(arguments: Sequence[str]) -> int:
    """Audit; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(AuditRunConfig, source, overrides)
    told: set[str] = set()

    def note_once(text: str) -> None:
        if text not in told:
            note(text)
        told.add(text)

    with IndexProgress() as on_index:
        path, report = audit(config, on_index, note_once)
    for remark in remarks(report):
        note(remark)
    print(render(class_table(report), *verdicts(report), router_table(report), economics_table(report)))
    print(path)
    return 0


def remarks(report: Mapping[str, Any]) -> list[str]:
    """Return what a reader of the tables should know."""
    labels, lines = report["labels"], []
    if labels["from"] == "router":
        lines.append("the classes are the router's own: what it takes wrongly is counted where it put it")
    if labels["kappa"] is not None and labels["kappa"] < LOW_KAPPA:
        lines.append(f"kappa {labels['kappa']:.2f} is below {LOW_KAPPA}: rewrite the annotators' guideline first")
    if labels["unresolved"]:
        lines.append(f"{len(labels['unresolved'])} questions are left out: the annotators differ, nobody decided")
    for name, row in report["classes"].items():
        if row["n"] < FEW:
            lines.append(f"{name} has {row['n']} questions; fewer than {FEW} make a wide interval")
        for route, cell in row["routes"].items():
            if cell["failed"]:
                lines.append(f"{name}, {route}: {cell['failed']} questions failed and count as wrong")
        if row["why"] and not row["judged"]:
            lines.append(f"{name} cannot be judged: {row['why']}")
    judged = [name for name, row in report["classes"].items() if row["judged"]]
    if judged and not any(row["fails"] for row in report["classes"].values()):
        lines.append(
            f"no class fails of those that could be judged ({', '.join(judged)}), so that all stay on the flat route; "
            "audit.target=0.6 holds each against the accuracy that you need rather than against passage_local, "
            "audit.every_class=true runs the other routes on all"
        )
    return lines


def class_table(report: Mapping[str, Any]) -> Table:
    """Return one line for each class and route."""
    table = Table(title=f"accuracy: {report['measure']}; {report['questions']} of {report['population']} questions")
    for heading in ("class", "route", "n", "right", "accuracy [95%]", "closed", *COSTS):
        table.add_column(heading, justify="left" if heading in ("class", "route") else "right", no_wrap=True)
    for name, row in report["classes"].items():
        for route, cell in row["routes"].items():
            is_flat = route == "flat"
            mark = " (fails)" if is_flat and row["fails"] else " (adopt)" if route == row["adopted"] else ""
            closed = cell.get("recovered")
            table.add_row(
                f"{name} {row['share']:.0%}" if is_flat else "", f"{route}{mark}", str(cell["n"]), str(cell["right"]),
                with_interval(cell["accuracy"], (cell["low"], cell["high"])),
                "" if closed is None or is_flat else f"{closed:.0%}", *costs(cell),
            )  # fmt: skip
        table.add_section()
    return table


def verdicts(report: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each class that fails."""
    return [
        f"{name} fails: {row['why']}; "
        + (
            f"{row['adopted']} is the cheapest that closes enough of the gap"
            if row["adopted"]
            else "no route closes enough of the gap"
        )
        for name, row in report["classes"].items()
        if row["fails"]
    ]


def costs(cell: Mapping[str, Any]) -> list[str]:
    """Return the cost columns of a line, means of a question."""
    return [
        f"{cell['cost/seconds_per_question']:.3f}", f"{cell['cost/retriever_calls']:.1f}",
        f"{cell['cost/llm_calls']:.1f}", f"{cell['cost/tokens']:.0f}", f"{cell['cost/usd']:.4f}",
    ]  # fmt: skip


def router_table(report: Mapping[str, Any]) -> Table:
    """Return the router's confusion matrix."""
    router = report["router"]
    best = ", ".join(f"{k}_threshold={v:g}" for k, v in router["thresholds"].items() if v is not None and k != "cost")
    table = Table(title="router" + (f"; its errors cost least at {best}" if best else ""))
    table.add_column(f"class by {report['labels']['from']}")
    columns = list(next(iter(router["confusion"].values())))
    for name in columns:
        table.add_column(f"to {name}", justify="right")
    for name, row in router["confusion"].items():
        table.add_row(name, *(str(row[other]) for other in columns))
    return table


def economics_table(report: Mapping[str, Any]) -> Table:
    """Return accuracy and cost of an average question without routing, routed by label and routed by the router."""
    table = Table(title="an average question of the population")
    for heading in ("routed by", "accuracy", *COSTS):
        table.add_column(heading, justify="left" if heading == "routed by" else "right")
    names = {"flat": "nothing (all flat)", "labels": "its class", "router": "the router"}
    if not any(row["adopted"] for row in report["classes"].values()):  # three equal lines would look like a finding
        names = {"flat": "anything: no class leaves the flat route"}
    for key, name in names.items():
        row = report["economics"][key]
        table.add_row(name, f"{row['accuracy']:.3f}", *costs(row))
    return table
