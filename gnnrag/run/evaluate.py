"""Predict, then score: what `gnnrag evaluate` does."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig, MetricsConfig, to_plain
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.index.index import Index
from gnnrag.io import write_json, write_jsonl
from gnnrag.metrics.long_answers import TEXT, TEXT_VERSION, Material, compare_texts, is_long
from gnnrag.metrics.replies import by_role
from gnnrag.metrics.report import paired, per_question, summarise
from gnnrag.metrics.traces import from_traces
from gnnrag.run.pipeline import Pipeline, chunking, idle_settings, needed_stages, open_index
from gnnrag.run.rundir import MERGE, SHARDS, RunDir, code_version, questions_of, read_shard, run_name
from gnnrag.run.stopping import StoppedError, stop_flag
from gnnrag.run.tracking import Tracker
from gnnrag.run.trained import trained_on
from gnnrag.session import Session
from gnnrag.types import OnProgress, Prediction, Question, no_progress


@dataclass(frozen=True)
class Observer:
    """Callbacks of a run. `on_start` gets the number of questions left to answer, `on_note` a message for the user."""

    on_index: OnProgress = no_progress
    on_question: Callable[[Prediction], None] = lambda prediction: None
    on_note: Callable[[str], None] = lambda note: None
    on_start: Callable[[int], None] = lambda questions: None


def evaluate(
    config: EvaluateConfig,
    observer: Observer | None = None,
    index: Index | None = None,
    data: Dataset | None = None,
    wrap: Callable[[Pipeline], Mapping[str, Any]] | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Run a config to the end and score it. Run again, it continues an interrupted run, or only scores a finished one.

    `index` and `data` replace the configured ones; `wrap` is as in `Pipeline`. Returns the run directory and the
    metrics. For a shard (`shard=3/16`) these are only `questions`, `failed` and `replies`.
    """
    shard, observer = read_shard(config.shard), observer or Observer()
    data = data or load_questions_for(config, observer.on_note)
    asked = questions_of(shard, data.questions)
    index = index or open_index(config, data.name, data.passages, observer.on_index)
    pipeline = Pipeline(config, index, wrap)  # before the run is opened: a part that fails leaves no folder
    with closing(open_run(config, data, index, pipeline.roles.prompts)) as run:
        todo = _left(config, run, asked, observer.on_note)
        observer.on_start(len(todo))
        with closing(open_tracker(config, run.path, run.inputs)) as tracker:
            if todo:
                run.unscore()
                _predict(pipeline, run, len(asked) - len(todo), todo, tracker, observer.on_question)
            predictions = run.finish([q.id for q in asked])
            if shard:
                failed = sum(p.error is not None for p in predictions)
                metrics = {"questions": len(asked), "failed": failed, "replies": by_role(predictions)}
                write_json(run.path / "metrics.json", metrics)
            else:
                metrics = write_metrics(
                    run.path, data, predictions, config.metrics, config.seed, observer.on_note, index
                )
            tracker.finish(metrics)
    check_retriever(config, run.path, predictions)
    return run.path, metrics


def load_questions_for(config: EvaluateConfig, on_note: Callable[[str], None] = lambda note: None) -> Dataset:
    """Load the corpus and the questions. Raises DataError when there are no questions."""
    d = config.data
    data = load_dataset(
        d.path, d.split, d.questions, d.limit, chunking(d),
        d.popqa_aliases, d.missing_gold, d.draw,
    )  # fmt: skip
    if not data.questions:
        raise DataError(config.data.path, "there are no questions; give data.questions=FILE")
    for note in data.remarks:
        on_note(note)
    return data if d.titles else data.without_titles()


def open_run(
    config: EvaluateConfig, data: Dataset, index: Index, prompts: Mapping[str, dict[str, str]] | None = None
) -> RunDir:
    """Open the run directory of a config on this data, index and prompts, or that of its shard."""
    shard, fresh = read_shard(config.shard), config.run.fresh
    if fresh and config.shard == MERGE:
        raise ConfigError(f"run.fresh=true with shard={MERGE} would delete the shards; leave run.fresh out")
    plain = to_plain(config) | ({} if shard else {"shard": None})  # a merged run has the settings of an undivided one
    # Only the artefacts that this run reads: new artefacts in the index do not change its input.
    artefacts = {name: index.artefact_key(name) for name in sorted({"passages", *needed_stages(config)})}
    inputs = {"data": data.fingerprints, "index": artefacts, "prompts": dict(prompts or {})}
    name = config.run.name or run_name(plain, f"{data.name}-{config.data.split}", inputs)
    if Path(name).name != name:
        raise ConfigError(f"run.name={name!r}: must be a folder's name; where it lies is run.root")
    where = f"{name}/{SHARDS}/{shard[0]}-of-{shard[1]}" if shard else name
    return RunDir(config.run.root, where, plain, inputs, fresh, config.run.traces)


def open_tracker(config: EvaluateConfig, path: Path, inputs: Mapping[str, Any]) -> Tracker:
    """Return the tracker that reports a run to W&B if `run.tracking` says so."""
    shown = {**to_plain(config), "commit": code_version(), "inputs": inputs}
    return Tracker(config.run, path, "evaluate", shown, path.parents[1] if path.parent.name == SHARDS else None)


def _left(
    config: EvaluateConfig, run: RunDir, asked: Sequence[Question], on_note: Callable[[str], None]
) -> list[Question]:
    """Return the questions that have no row in the run or its shards, or that are to be retried."""
    run.note(questions=len(asked))
    merges = config.shard == MERGE
    if merges or (config.shard is None and (run.path / SHARDS).is_dir()):
        run.take_shards([q.id for q in asked], must_be_whole=merges)
    done = run.done(config.run.retry_failed and not merges)
    for note in _remarks(config, asked, run, len(done)):
        on_note(note)
    return [q for q in asked if q.id not in done]


def _remarks(config: EvaluateConfig, asked: Sequence[Question], run: RunDir, done: int) -> Iterator[str]:
    """Yield what a user should know before a run goes on. Training on its own questions is also recorded."""
    yield from idle_settings(config)
    if trained := trained_on(config, asked):
        run.note(trained_on=trained)
        parts = ", ".join(f"{name} on {count}" for name, count in trained.items())
        yield (
            f"trained on questions that are asked here: {parts}; figures on those are no result. "
            "gnnrag cross-validate asks checkpoints that did not see them"
        )
    if stale := run.made_by - {code_version()}:
        yield f"{run.path} holds predictions of other code ({', '.join(sorted(stale))}); run.fresh=true redoes them"
    if done and config.shard != MERGE:
        then = "going on with the others" if done < len(asked) else "run.fresh=true answers them again"
        yield f"{done} of {len(asked)} questions were answered before; {then}"


def _predict(
    pipeline: Pipeline,
    run: RunDir,
    done: int,
    questions: Sequence[Question],
    tracker: Tracker,
    on_question: Callable[[Prediction], None],
) -> None:
    """Answer questions; `done` were answered before. Raises StoppedError if a signal stopped the run early."""
    answered = failed = 0

    def record(prediction: Prediction, session: Session) -> None:
        nonlocal answered, failed
        run.add(prediction, session)
        answered, failed = answered + 1, failed + (prediction.error is not None)
        counts = {name: count for name, count in prediction.usage.items() if isinstance(count, int | float)}
        tracker.log({"questions": done + answered, "failed": failed, **counts}, done + answered)
        on_question(prediction)

    started = time.perf_counter()
    try:
        with stop_flag() as stop:
            asyncio.run(pipeline.run(questions, record, stop.is_set))
    finally:
        run.log("predicted", seconds=round(time.perf_counter() - started, 3), roles=pipeline.roles.record)
    if answered < len(questions):
        raise StoppedError(f"stopped with {len(questions) - answered} questions left; the same command goes on")


def check_retriever(config: EvaluateConfig, path: Path, predictions: Iterable[Prediction]) -> None:
    """Raise GnnragError if the rankings hardly come from the configured retriever (`Retriever.problem_of`)."""
    if problem := config.retriever.part.problem_of([prediction.usage for prediction in predictions]):
        raise GnnragError(f"{path / 'traces.jsonl'}: {problem}")


def write_metrics(
    path: Path,
    data: Dataset,
    predictions: Iterable[Prediction],
    config: MetricsConfig,
    seed: int = 0,
    on_note: Callable[[str], None] = lambda note: None,
    index: Index | None = None,
) -> dict[str, Any]:
    """Write `metrics.json` and `scores.jsonl` (a row per question). `on_note` is told of incomplete traces.

    Long answers are also compared by the embedder of `index`, if an index is given.
    """
    rows, questions = list(predictions), data.questions
    material = _material(data, index, on_note)
    texts = compare_texts(paired(questions, rows), material, config.long)
    columns = per_question(questions, rows, config, data.nodes) | texts
    metrics = summarise(questions, columns, seed=seed)
    if (path / "traces.jsonl").is_file():
        metrics |= from_traces(path / "traces.jsonl", questions, on_note)
    if replies := by_role(rows):
        metrics["replies"] = replies
    metrics["settings"] = to_plain(config) | {"seed": seed}
    if texts:
        long = sum(map(is_long, questions))
        metrics["texts"] = {"version": TEXT_VERSION, "long": long, "embedder": material.embedder}
    quality = [name for name in columns if name.startswith(("retrieval/", "answer/", TEXT))]
    write_jsonl(path / "scores.jsonl", [
        {"question_id": q.id, "type": q.type, "has_gold": bool(q.gold)} | {k: _value(columns[k][i]) for k in quality}
        for i, q in enumerate(questions)
    ])  # fmt: skip
    write_json(path / "metrics.json", metrics)
    return metrics


def _material(data: Dataset, index: Index | None, on_note: Callable[[str], None]) -> Material:
    passages = {passage.id: passage for passage in data.passages}
    if index is None or not any(map(is_long, data.questions)):
        return Material(passages)
    try:
        name = f"{index.config.embedder.model} ({index.embedder.identity[:16]})"
        return Material(passages, index.embedder.encode, name)
    except GnnragError as error:  # the run may not need an embedder, so this is no error
        on_note(f"answers are not compared by embedding: {error}")
        return Material(passages)


def _value(of: float) -> float | None:
    return None if math.isnan(of) else float(of)
