"""Commands that run methods on benchmarks: `evaluate`, `demo`, `cross-validate`, `judge`."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from gnnrag.cli.console import (
    SAMPLE,
    AsJson,
    Settings,
    metrics_table,
    note,
    plain_table,
    progress_bar,
    show_remarks,
    split,
)
from gnnrag.config import EvaluateConfig, is_given, load_config
from gnnrag.errors import ConfigError
from gnnrag.judge import JudgeConfig
from gnnrag.judge import judge as run_judge
from gnnrag.metrics.replies import remarks
from gnnrag.metrics.statistics import with_interval
from gnnrag.reports import cross
from gnnrag.run.evaluate import Observer, load_data_for, open_index, require_index_or_data
from gnnrag.run.evaluate import evaluate as run_evaluation
from gnnrag.run.rundir import read_predictions, read_shard, run_label
from gnnrag.types import Prediction


def evaluate(settings: Settings = []) -> int:  # noqa: B006 - typer's default
    """Run a method on a benchmark and score it. Without a config it is the sample's.

    \b
    gnnrag evaluate configs/evaluate/2wiki.yaml method=bdtr retriever=chg roles=offline
    gnnrag evaluate CONFIG shard=3/16      the third of 16 shards, on any machine
    gnnrag evaluate CONFIG                 all shards together
    gnnrag evaluate CONFIG executor=ray    shards on workers (processes: of this machine), then together

    The same command again continues an interrupted run. The last line printed is the run directory. The exit code is 1
    where every question failed, or more of a role's replies are bad than run.max_bad_replies.
    """
    source, overrides = split(settings)
    if source is None and not is_given("data.path", None, overrides):
        source = SAMPLE  # it has its own way of scoring
    config = load_config(EvaluateConfig, source, overrides)
    require_index_or_data(config.index, source == SAMPLE or is_given("data.path", source, overrides))
    label, shard = run_label(config), read_shard(config.shard)
    with progress_bar() as advance:
        counts = [0]
        observer = Observer(advance, lambda _: advance(label, 1, counts[-1]), note, counts.append)
        path, metrics = run_evaluation(config, observer)
    is_measured = metrics["failed"] < max(metrics["questions"], 1)
    if is_measured and not shard:  # else its zeros would look like a result
        print(metrics_table([(label, metrics)]))
    if metrics["failed"]:
        note(failures(read_predictions(path)))
    most = config.run.max_bad_replies if is_measured and not shard else None
    has_bad = show_remarks(remarks(metrics.get("replies", {}), config.run.warn_bad_replies, most))
    print(path)
    return 0 if shard or (is_measured and not has_bad) else 1


def failures(predictions: Sequence[Prediction]) -> str:
    errors = Counter(re.sub(r"\(\d+\)", "(...)", p.error) for p in predictions if p.error)
    failed, asked = errors.total(), len(predictions)
    outcome = "all of them: nothing was measured" if failed == asked else "they score 0"
    lines = [f"{failed} of {asked} questions failed, {outcome}; the same command tries them again"]
    return "\n".join([*lines, *(f"  {count} x {message}" for message, count in errors.most_common(3))])


def demo(settings: Settings = []) -> None:  # noqa: B006
    """Index the sample and compare three methods on three retrievers: no language model, no network, three minutes."""
    started = time.perf_counter()
    parts = product(("single", "multihop", "bdtr"), ("dense", "chg", "walk"))
    configs = [load_config(EvaluateConfig, SAMPLE, [*settings, f"method={m}", f"retriever={r}"]) for m, r in parts]
    data = load_data_for(configs[0])
    rows = []
    with progress_bar() as advance:
        index = open_index(configs, data.name, data.passages, advance)
        for config in configs:
            path, metrics = run_evaluation(config, Observer(on_note=note), index, data)
            rows.append((run_label(config), metrics))
            note(f"{run_label(config)}: {path}")
    title = f"{data.name}: {len(data.questions)} questions, {len(data.passages)} passages, no language model"
    print(metrics_table(rows, title))
    print(f"{time.perf_counter() - started:.0f} s in all")


def cross_validate(settings: Settings) -> int:
    """Score trained parts inside a method, each question with a checkpoint that did not train on it.

    \b
    gnnrag cross-validate configs/evaluate/2wiki.yaml verifier=RUN method=bdtr retriever=dense
    gnnrag cross-validate configs/evaluate/2wiki.yaml gnn=RUN retriever=gfm

    RUN is a training of that part (gnn, verifier, thoughts, reader) with a checkpoint for each fold (cross=true) or
    one. data.sample=200 draws some of the questions.
    """
    trained, rest = cross.split_trained(settings)
    if not trained:
        raise ConfigError("name a trained part and its run: gnn=RUN, verifier=RUN, thoughts=RUN or reader=RUN")
    config = load_config(EvaluateConfig, *split(rest))
    data = load_data_for(config)
    parts = [cross.read_part(name, run, data) for name, run in trained.items()]
    for part in parts:
        note(f"{len(data.questions)} questions, {part.name}: {len(set(part.checkpoints.values()))} checkpoints")
    with progress_bar() as advance:
        path, metrics = cross.cross_evaluate(config, parts, data, Observer(advance, on_note=note))
    print(metrics_table([(run_label(cross.with_training_runs(config, parts)), metrics)]))
    has_bad = show_remarks(remarks(metrics.get("replies", {}), config.run.warn_bad_replies, config.run.max_bad_replies))
    print(path)
    return int(has_bad)


def judge(settings: Settings, as_json: AsJson = False) -> int:
    """Let a language model judge the answers of finished runs.

    \b
    gnnrag judge configs/judge/scores.yaml runs=[RUN,RUN] llm.model=MODEL
    gnnrag judge configs/judge/pairwise.yaml runs=[RUN,RUN] limit=100

    scores: six qualities from 0 to 10; three beside the golden answer make the A-Score, three beside the golden
    evidence the E-Score. pairwise: the first run against each of the others, in both orders, in five dimensions.
    Settings: gnnrag/judge.py. Judgements go to RUN/judgements/KIND; the same command again continues. The exit
    code is 1 where no reply of a judgement could be read.
    """
    reports = run_judge(load_config(JudgeConfig, *split(settings)), note)
    for report in reports:
        for line in judge_remarks(report):
            note(line)
    if as_json:
        print(json.dumps(reports, ensure_ascii=False, indent=2))
    else:
        for report in reports:
            if report["read"] or not report["asked"]:
                print(_judge_table(report))
            print(report["path"])
    return 0 if all(report["read"] or not report["asked"] for report in reports) else 1


def judge_remarks(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each reason why nothing was asked, or no value was read, with examples."""
    for why, of in report["without_value"].items():
        yield f"{' against '.join(report['runs'])}: {of['calls']} calls {why}: {'; '.join(of['such_as'])}"


def _judge_table(report: Mapping[str, Any]) -> str:
    def row(heading: str, of: Mapping[str, Any]) -> tuple[str, str, str]:
        return heading, "-" if of["mean"] is None else with_interval(of["mean"], of["interval"]), str(of["counted"])

    title = f"{' against '.join(report['runs'])}: {report['questions']} questions, by {report['judge']['model']}"
    rows = [row(name.replace("_", " "), of) for name, of in report["figures"].items()]
    return plain_table(("figure", "mean [95%]", "questions"), rows, title)
