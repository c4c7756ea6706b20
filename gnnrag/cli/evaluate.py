"""Commands that run methods on benchmarks: `evaluate`, `demo`, `cross-validate`, `audit`, `judge`."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gnnrag.audit import AuditRunConfig
from gnnrag.audit import audit as run_audit
from gnnrag.cli.console import (
    SAMPLE,
    AsJson,
    AsMarkdown,
    Settings,
    cell,
    difference,
    markdown_table,
    metrics_table,
    note,
    plain_table,
    progress_bar,
    render,
    show_remarks,
    split,
    texts_table,
)
from gnnrag.config import EvaluateConfig, is_given, load_config, to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError
from gnnrag.io import read_journal
from gnnrag.judge import ROWS, JudgeConfig
from gnnrag.judge import judge as run_judge
from gnnrag.judge.tasks import CRITERIA, LLM_ERROR
from gnnrag.metrics.comparison import Comparison, load_runs
from gnnrag.metrics.replies import remarks
from gnnrag.metrics.statistics import with_interval
from gnnrag.registry import RETRIEVERS
from gnnrag.reports import cross
from gnnrag.run.evaluate import Observer, load_questions_for
from gnnrag.run.evaluate import evaluate as run_evaluation
from gnnrag.run.pipeline import open_shared_index, refuse_sample
from gnnrag.run.rundir import read_predictions, read_shard, roles_label, run_label
from gnnrag.types import Prediction


def evaluate(settings: Settings = []) -> int:  # noqa: B006 - typer's default
    """Run a method on a benchmark and score it. Without a config it is the sample's.

    \b
    gnnrag evaluate configs/evaluate/2wiki.yaml method=bdtr retriever=chg roles=offline
    gnnrag evaluate CONFIG shard=3/16      the third of 16 shards, on any machine
    gnnrag evaluate CONFIG shard=merge     all shards together

    The same command again continues an interrupted run. The last line printed is the run directory. data.limit=200
    takes the first questions, data.sample=200 draws as many in proportion to their types. The exit code is 1 where
    every question failed, or more of a role's replies are bad than run.max_bad_replies.
    """
    source, overrides = split(settings)
    if source is None and not is_given("data.path", None, overrides):
        source = SAMPLE  # it has its own way of scoring
    config = load_config(EvaluateConfig, source, overrides)
    refuse_sample(config.index, source == SAMPLE or is_given("data.path", source, overrides))
    label, shard = run_label(config), read_shard(config.shard)
    with progress_bar() as advance:
        questions = 0

        def on_start(count: int) -> None:
            nonlocal questions
            questions = count

        observer = Observer(advance, lambda _: advance(label, 1, questions), note, on_start)
        path, metrics = run_evaluation(config, observer)
    is_measured = metrics["failed"] < max(metrics["questions"], 1)
    if is_measured and not shard:  # else its zeros would look like a result
        print(metrics_table([(label, metrics)]))
        if metrics.get("texts", {}).get("floors"):
            print(texts_table(metrics))
    if metrics["failed"]:
        note(failures(read_predictions(path)))
    most = config.run.max_bad_replies if is_measured and not shard else None
    has_bad = show_remarks(remarks(metrics.get("replies", {}), config.run.warn_bad_replies, most))
    print(path)
    return 0 if shard or (is_measured and not has_bad) else 1


def failures(predictions: Sequence[Prediction]) -> str:
    """Return the distinct errors of a run, most frequent first, for a person."""
    errors = Counter(re.sub(r"\(\d+\)", "(...)", p.error) for p in predictions if p.error)
    failed, asked = errors.total(), len(predictions)
    outcome = "all of them: nothing was measured" if failed == asked else "they score 0"
    lines = [f"{failed} of {asked} questions failed, {outcome}; the same command tries them again"]
    return "\n".join([*lines, *(f"  {count} x {message}" for message, count in errors.most_common(3))])


def demo(settings: Settings = []) -> None:  # noqa: B006
    """Index the sample and compare three methods on five retrievers: no language model, no network, five minutes."""
    started = time.perf_counter()
    parts = product(("single", "multihop", "bdtr"), ("bm25", "dense", "hybrid", "chg", "gfm"))
    configs = [load_config(EvaluateConfig, SAMPLE, [*settings, f"method={m}", f"retriever={r}"]) for m, r in parts]
    data = load_questions_for(configs[0])
    rows = []
    with progress_bar() as advance:
        index = open_shared_index(configs, data.name, data.passages, advance)
        for config in configs:
            path, metrics = run_evaluation(config, Observer(on_note=note), index, data)
            rows.append((run_label(config), metrics))
            note(f"{run_label(config)}: {path}")
    title = f"{data.name}: {len(data.questions)} questions, {len(data.passages)} passages, no language model"
    print(metrics_table(rows, title))
    print(f"{time.perf_counter() - started:.0f} s in all")


# ----------------------------------------------------------------------------------------------------- cross-validation
CROSS_METRICS = {"retrieval/recall@5": "Recall@5", "answer/em": "EM", "answer/f1": "F1"}


def cross_validate(
    settings: Settings,
    methods: Annotated[str, typer.Option(help="methods, separated by commas")] = "single",
    retrievers: Annotated[str, typer.Option(help="retrievers")] = "",
    against: Annotated[str, typer.Option(help="other forms of the roles, or other retrievers, to compare with")] = "",
    sample: Annotated[int, typer.Option(help="so many questions, drawn by a hash of their ids; 0: all")] = 0,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
) -> int:
    """Score trained parts inside methods, each question with a checkpoint that did not train on it.

    \b
    gnnrag cross-validate configs/evaluate/2wiki.yaml verifier=RUN --methods bdtr --retrievers dense
    gnnrag cross-validate configs/evaluate/2wiki.yaml gnn=RUN --methods single,bdtr --against chg

    RUN is a training of that part (gnn, verifier, thoughts, reader) with a checkpoint for each fold (cross=true) or
    one. The questions that a fold reported on are answered with its checkpoint, and all are scored together.
    """
    trained, rest = cross.split_trained(settings)
    if not trained:
        raise ConfigError("name a trained part and its run: gnn=RUN, verifier=RUN, thoughts=RUN or reader=RUN")
    source, overrides = split(rest)
    has_roles = bool(trained.keys() - {cross.GNN})
    chosen = [name for name in retrievers.split(",") if name]
    if cross.GNN in trained and "gfm" not in chosen:
        chosen.append("gfm")
    others = (against or ("offline" if has_roles else "chg")).split(",")
    if unknown := [name for name in others if name not in RETRIEVERS and not has_roles]:
        raise ConfigError(f"--against {unknown[0]}: no role is trained here; name a retriever, such as chg")
    cross.check_against(others, trained)

    def make(method: str, retriever: str) -> EvaluateConfig:
        parts = [f"{key}={value}" for key, value in (("method", method), ("retriever", retriever)) if value]
        config = load_config(EvaluateConfig, source, [*overrides, *parts])
        return replace(config, run=replace(config.run, name=None))

    pairs = [*product(methods.split(","), chosen or [""])]
    data = load_questions_for(make(*pairs[0]))
    if sample:
        data = replace(data, questions=cross.sampled(data.questions, sample))
    parts = [cross.read_part(name, run, data) for name, run in trained.items()]
    for part in parts:
        count = len(set(part.checkpoints.values()))
        note(f"{len(data.questions)} questions of {data.name}, {part.name}: {count} checkpoints")
    rows: list[dict[str, Any]] = []
    has_bad = False
    for method, retriever in pairs:
        arms = [(make(method, retriever), parts)]
        for other in others:
            if other not in RETRIEVERS:
                untrained = cross.without_trained(arms[0][0], parts, other)
                arms.append((untrained, [part for part in parts if part.name == cross.GNN]))
            elif other != retriever:
                arms.append((make(method, other), parts))
        paths = []
        for config, some in arms:
            path, is_bad = _cross_run(config, some, data)
            paths.append(path)
            has_bad |= is_bad
        rows += _cross_rows(arms, paths)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        names = CROSS_METRICS.values()
        headings = ["method", "retriever", "roles", *names, *(f"trained minus this: {name}" for name in names)]
        cells = [_cross_cells(row, len(headings)) for row in rows]
        print(markdown_table(headings, cells) if as_markdown else plain_table(headings, cells, width=180))
    print("\n".join(row["path"] for row in rows))
    return int(has_bad)


def _cross_run(config: EvaluateConfig, parts: Sequence[Any], data: Dataset) -> tuple[Path, bool]:
    with progress_bar() as advance:
        path, metrics = cross.cross_evaluate(config, parts, data, Observer(advance, on_note=note))
    limits = config.run.warn_bad_replies, config.run.max_bad_replies
    return path, show_remarks(remarks(metrics.get("replies", {}), *limits))


def _cross_rows(
    arms: Sequence[tuple[EvaluateConfig, Sequence[Any]]], paths: Sequence[Path]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each arm; those after the first say how much better the first is."""
    for number, ((config, parts), path) in enumerate(zip(arms, paths, strict=True)):
        runs = load_runs([path, paths[0]])
        yield {
            "method": config.method.name,
            "retriever": config.retriever.name,
            "roles": roles_label(to_plain(cross.swapped(config, parts).roles)),
            **{key: runs[0].metrics[key] for key in CROSS_METRICS},
            **{f"{key}_ci": runs[0].metrics.get(f"{key}_ci") for key in CROSS_METRICS},
            "differences": Comparison(runs).differences(tuple(CROSS_METRICS)) if number else [],
            "path": str(path),
        }


def _cross_cells(row: Mapping[str, Any], count: int) -> list[str]:
    cells = [row["method"], row["retriever"], row["roles"]]
    cells += [with_interval(row[key], row[f"{key}_ci"]) for key in CROSS_METRICS]
    cells += [difference(each) for each in row["differences"]]
    return [*cells, *[""] * (count - len(cells))]


# ---------------------------------------------------------------------------------------------------------------- audit
COSTS = ("seconds", "calls", "LLM", "tokens", "USD")  # of an average question; calls are the retriever's
COST_KEYS = ("seconds_per_question", "retriever_calls", "llm_calls", "tokens", "usd")


def audit(settings: Settings = []) -> None:  # noqa: B006
    """Audit flat retrieval: which classes of questions it fails, which route serves them, and what each route costs.

    \b
    gnnrag audit configs/evaluate/musique.yaml audit.labels=type audit.target=0.6

    Questions are sampled by type and put into classes (passage_local, multi_hop, thematic) by the router, by their
    type, or by a file of {"id", "class"} (audit.labels=FILE). All of them go through audit.flat, those of failing
    classes through audit.routes (settings: gnnrag/audit.py). The last line printed is the directory with audit.json.
    """
    source, overrides = split(settings)
    config = load_config(AuditRunConfig, source, overrides)
    with progress_bar() as advance:
        path, report = run_audit(config, advance, note)
    if report["labels"] == "router":
        note("the classes are the router's own: what it takes wrongly is counted where it put it")
    classes = Table(title=f"accuracy: {report['measure']}; {report['questions']} of {report['population']} questions")
    for heading in ("class", "route", "n", "right", "accuracy [95%]", "closed", *COSTS):
        classes.add_column(heading, justify="left" if heading in ("class", "route") else "right", no_wrap=True)
    for name, row in report["classes"].items():
        for route, of in row["routes"].items():
            is_flat = route == "flat"
            mark = " (fails)" if is_flat and row["fails"] else " (adopt)" if route == row["adopted"] else ""
            classes.add_row(
                f"{name} {row['share']:.0%}" if is_flat else "", route + mark, str(of["n"]), str(of["right"]),
                with_interval(of["accuracy"], (of["low"], of["high"])),
                "" if is_flat or of.get("recovered") is None else f"{of['recovered']:.0%}", *_costs(of),
            )  # fmt: skip
            if of["failed"]:
                note(f"{name}, {route}: {of['failed']} questions failed and count as wrong")
        if row["n"] < 40:
            note(f"{name} has {row['n']} questions; fewer than 40 make a wide interval")
        if row["why"] and not row["judged"]:
            note(f"{name} cannot be judged: {row['why']}")
    verdicts = [
        f"{name} fails: {row['why']}; {row['adopted'] or 'no route'} closes enough of the gap"
        for name, row in report["classes"].items()
        if row["fails"]
    ]
    confusion = report["router"]["confusion"]
    routes = [f"to {name}" for name in next(iter(confusion.values()))]
    router = Table(f"class by {report['labels']}", *routes, title="router")
    for name, row in confusion.items():
        router.add_row(name, *map(str, row.values()))
    economics = Table("routed by", "accuracy", *COSTS, title="an average question of the population")
    for key, name in {"flat": "nothing (all flat)", "labels": "its class", "router": "the router"}.items():
        row = report["economics"][key]
        economics.add_row(name, f"{row['accuracy']:.3f}", *_costs(row))
    print(render(classes, *verdicts, router, economics))
    print(path)


def _costs(of: Mapping[str, Any]) -> list[str]:
    return [f"{of[f'cost/{key}']:.{digits}f}" for key, digits in zip(COST_KEYS, (3, 1, 1, 0, 4), strict=True)]


# ---------------------------------------------------------------------------------------------------------------- judge
MEANS = {"judge/a_score": "A-Score", "judge/e_score": "E-Score"}
PAIRWISE = ("dimension", "win rate [95%]", "better", "won / shared / lost of asked", "shown first wins", "orders agree")


def judge(settings: Settings, as_json: AsJson = False) -> int:
    """Let a language model judge the answers of finished runs.

    \b
    gnnrag judge configs/judge/scores.yaml runs=[RUN,RUN] llm.model=MODEL
    gnnrag judge configs/judge/pairwise.yaml runs=[RUN,RUN] limit=100

    scores: six qualities from 0 to 10; three beside the golden answer make the A-Score, three beside the golden
    evidence the E-Score. pairwise: the first run against each of the others, in both orders, in five dimensions.
    Settings: gnnrag/judge/__init__.py. Judgements go to RUN/judgements/KIND; the same command again continues. The
    exit code is 1 where none of a judgement's replies could be read.
    """
    source, overrides = split(settings)
    judged = run_judge(load_config(JudgeConfig, source, overrides), note)
    for report in judged["judgements"]:
        for line in judge_remarks(report):
            note(line)
    print(json.dumps(judged, ensure_ascii=False, indent=2) if as_json else "\n".join(_judge_tables(judged)))
    return 0 if all(report["read"] or not report["asked"] for report in judged["judgements"]) else 1


def judge_remarks(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader of a judgement's figures should know."""
    name, spent = " against ".join(report["runs"]), report["spent"]
    parts = report["criteria"].values() if report["kind"] == "scores" else [report["counts"]]
    missing = {why: sum(part[why] for part in parts) for why in ("malformed", "llm_error")}
    if spent["malformed"]:
        yield (
            f"{name}: {spent['malformed']} of {spent['calls']} replies were malformed; {missing['malformed']} "
            "values are missing for that, left out and not guessed"
        )
    if missing["llm_error"]:
        rows = {(row["question_id"], row["part"]): row for row in read_journal(Path(report["path"]) / ROWS)}
        errors = Counter(str(row["error"])[:300] for row in rows.values() if row["problem"] == LLM_ERROR).most_common(3)
        why = "; ".join(f"{count} x {error}" for error, count in errors)
        yield f"{name}: {missing['llm_error']} values are missing as calls failed; the same command tries again: {why}"
    for run, counts in report["judged_runs"].items():
        if counts["unanswered"]:
            outcome = "score 0" if report["kind"] == "scores" else "lose"
            yield f"{run}: {counts['unanswered']} questions without an answer {outcome}"
    overall = report.get("dimensions", {}).get("overall", {})
    if overall.get("better") == "too_few":
        yield f"{name}: {overall['counted']} of {overall['asked']} questions have a value: too few to call a run better"
    for dimension, position in report.get("position", {}).items():
        if position["judged"] and not position["interval"][0] <= 0.5 <= position["interval"][1]:
            which = "first" if position["first_wins"] > 0.5 else "last"
            share = max(position["first_wins"], 1 - position["first_wins"])
            yield f"{name}: of {dimension}, the answer shown {which} wins {share:.0%}: what flips counts as shared"


def _judge_tables(judged: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tables for people, and the folders; no table of what could not be judged."""
    reports = judged["judgements"]
    readable = [report for report in reports if report["read"] or not report["asked"]]
    kind, by = reports[0]["kind"], f"judged by {reports[0]['judge']['model']}"
    if kind == "scores" and readable:
        criteria = [name.replace("_", " ") for name in CRITERIA]
        headings = ["run", "questions", *(f"{name} [95%] (n)" for name in MEANS.values()), *criteria]
        yield plain_table(headings, map(_score_row, readable), by, width=180)
    for report in readable if kind == "pairwise" else ():
        title = f"{report['runs'][0]} against {report['runs'][1]}, {report['questions']} questions, {by}"
        yield plain_table(PAIRWISE, _pair_rows(report), title, width=180)
    if differences := judged.get("differences"):
        rows = [(run, name, difference(of)) for run, names in differences.items() for name, of in names.items()]
        yield plain_table(["run", "score", "difference [95%]"], rows, f"against {reports[0]['runs'][0]}")
    yield from (report["path"] for report in reports)


def _score_row(report: Mapping[str, Any]) -> list[str]:
    means = [f"{_mean(report[key], report[f'{key}_ci'], 2)} ({report[f'{key}_counted']})" for key in MEANS]
    criteria = [cell(report["criteria"].get(name, {}).get("mean"), 2) for name in CRITERIA]
    return [report["runs"][0], str(report["questions"]), *means, *criteria]


def _pair_rows(report: Mapping[str, Any]) -> Iterator[list[str]]:
    names = {**dict(zip(("first", "second"), report["runs"], strict=True)), "tie": "neither", "too_few": "too few"}
    for name, of in report["dimensions"].items():
        position = report["position"][name]
        counts = f"{of['won']} / {of['shared']} / {of['lost']} of {of['asked']}" if of["counted"] else "-"
        first = _mean(position.get("first_wins"), position.get("interval"))
        better = names.get(of.get("better", ""), "-")
        yield [name, _mean(of["win_rate"], of["interval"]), better, counts, first, cell(position.get("consistency"))]


def _mean(value: float | None, interval: Any, digits: int = 3) -> str:
    return "-" if value is None else with_interval(value, interval, digits)
