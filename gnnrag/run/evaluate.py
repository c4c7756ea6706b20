"""From settings to a scored run: the parts of a run wired together, its index, predicting and scoring."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.config import (
    ROLES,
    Choice,
    DataConfig,
    EvaluateConfig,
    IndexConfig,
    MetricsConfig,
    RoleConfig,
    implementation,
    load_config,
    to_plain,
)
from gnnrag.datasets.base import Dataset, load_dataset
from gnnrag.errors import BudgetError, ConfigError, DataError, GnnragError, StoppedError
from gnnrag.executors import ExecutorConfig, make_executor
from gnnrag.index.index import Index, exists, open_or_build
from gnnrag.index_config import WRITERS
from gnnrag.io import interpreting, remove, write_json, write_jsonl
from gnnrag.metrics.long_answers import TEXT, TEXT_VERSION, Material, compare_texts, is_long
from gnnrag.metrics.replies import by_role
from gnnrag.metrics.report import paired, per_question, summarise
from gnnrag.metrics.traces import from_traces
from gnnrag.parts import build, find_class, from_settings, names
from gnnrag.roles.base import WORDS
from gnnrag.roles.registry import Roles, made_role
from gnnrag.roles.rewriter import FollowUp, Standalone
from gnnrag.roles.tuned.checkpoint import shipped_folder, tuned_folder
from gnnrag.run.loop import Loop
from gnnrag.run.rundir import (
    SHARDS,
    RunDir,
    code_version,
    questions_of,
    read_predictions,
    read_seen,
    read_shard,
    run_name,
    seen_hash,
    shard_count,
    stop_flag,
)
from gnnrag.run.tracking import Tracker
from gnnrag.session import Budget, Session
from gnnrag.types import OnProgress, Passage, Prediction, Question, no_progress


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

    `index` and `data` replace the configured ones; `wrap` is as in `Pipeline`. Without any of these, an executor other
    than `local` answers the questions in shards. Returns the run directory and the metrics; for a shard (`shard=3/16`)
    the metrics are only `questions`, `failed` and `replies`. Raises StoppedError if a signal stopped the run early.
    """
    shard, observer = read_shard(config.shard), observer or Observer()
    is_divided = config.executor.name != "local" and config.shard is None and not (index or data or wrap)
    data = data or load_data_for(config, observer.on_note)
    asked = questions_of(shard, data.questions)
    if index is None:
        index = open_index([config], data.name, data.passages, observer.on_index)
    pipeline = Pipeline(config, index, wrap)  # before the run is opened: a part that fails leaves no folder
    with (
        closing(open_run(config, data, pipeline)) as run,
        closing(open_tracker(config, run.path, run.inputs)) as tracker,
    ):
        todo = _unanswered(config, run, asked, observer.on_note)
        observer.on_start(len(todo))
        counts = Counter(answered=len(asked) - len(todo))

        def record(prediction: Prediction, session: Session) -> None:
            run.add(prediction, session)
            counts.update(answered=1, failed=prediction.error is not None)
            usage = {name: n for name, n in prediction.usage.items() if isinstance(n, int | float)}
            tracker.log({**counts, **usage}, counts["answered"])
            observer.on_question(prediction)

        if todo:
            for name in ("metrics.json", "scores.jsonl"):  # of an earlier, complete run
                remove(run.path / name)
        if todo and is_divided:
            _answer_in_shards(config, run, index, todo, observer)
            run.take_shards([q.id for q in asked])
        elif todo:
            started = time.perf_counter()
            try:
                with stop_flag() as stop:
                    asyncio.run(pipeline.run(todo, record, stop.is_set))
            finally:
                seconds = round(time.perf_counter() - started, 3)
                run.log("predicted", seconds=seconds, roles=pipeline.roles.record)
            if left := len(asked) - counts["answered"]:
                raise StoppedError(f"stopped with {left} questions left; the same command goes on")
        predictions = run.finish([q.id for q in asked])
        if shard:
            failed = sum(p.error is not None for p in predictions)
            metrics = {"questions": len(asked), "failed": failed, "replies": by_role(predictions)}
            write_json(run.path / "metrics.json", metrics)
        else:
            metrics = write_metrics(run.path, data, predictions, config.metrics, config.seed, observer.on_note, index)
        tracker.finish(metrics)
    return run.path, metrics


@dataclass(frozen=True)
class _Shards:
    """Answers one shard of a run (`3/16`) and returns its folder. Each worker loads data and index once."""

    settings: Mapping[str, Any]
    gpus: float

    @cached_property
    def _read(self) -> tuple[Dataset, Index]:
        config = load_config(EvaluateConfig, self.settings)
        return load_data_for(config), Index(str(config.index.path), index_settings(config))

    def __call__(self, shard: str) -> Path:
        data, index = self._read
        return evaluate(load_config(EvaluateConfig, {**self.settings, "shard": shard}), None, index, data)[0]


def _answer_in_shards(
    config: EvaluateConfig, run: RunDir, index: Index, todo: Sequence[Question], observer: Observer
) -> None:
    """Let the workers of an executor answer the shards of a run that have questions left."""
    executor, given = make_executor(config.executor), config.executor
    count = given.shards or shard_count(run.path) or executor.workers(given.gpus)
    same_run = replace(config.run, root=str(run.path.parent), name=run.path.name, fresh=False)
    same_index = replace(config.index, path=index.place, executor=ExecutorConfig())
    settings = to_plain(replace(config, run=same_run, index=same_index, executor=ExecutorConfig()))
    left = {question.id for question in todo}
    shards = [f"{number}/{count}" for number in range(1, count + 1)]
    for _, folder in executor.map(_Shards(settings, given.gpus), shards):
        for prediction in read_predictions(folder):
            if prediction.question_id in left:
                observer.on_question(prediction)


def load_data_for(config: EvaluateConfig, on_note: Callable[[str], None] = lambda note: None) -> Dataset:
    """Load the corpus and the questions. Raises DataError when there are no questions."""
    data = load_dataset(**vars(config.data))
    if not data.questions:
        raise DataError(config.data.path, "there are no questions; give data.questions=FILE")
    for note in data.remarks:
        on_note(note)
    return data


def load_data_of(run: Path) -> Dataset:
    """Load the data of a run from the paths in its `config.yaml`. Raises ArtefactError if the folder is no run."""
    path = run / "config.yaml"
    with interpreting(path, "give a run that gnnrag evaluate made"):
        data = from_settings(DataConfig, yaml.safe_load(path.read_text("utf-8"))["data"], "data")
    return load_data_for(EvaluateConfig(data=data))


def open_run(config: EvaluateConfig, data: Dataset, pipeline: Pipeline) -> RunDir:
    """Open the run directory of a config on this data, index and prompts, or that of its shard."""
    shard, fresh = read_shard(config.shard), config.run.fresh
    plain = to_plain(config)
    # Only the artefacts that this run reads: new artefacts in the index do not change its input.
    artefacts = {name: pipeline.index.artefact_key(name) for name in sorted({"passages", *pipeline.reads})}
    inputs = {"data": data.fingerprints, "index": artefacts, "prompts": pipeline.roles.prompts}
    split = f"-{config.data.split}"
    name = config.run.name or run_name(plain, data.name.removesuffix(split) + split, inputs)
    if Path(name).name != name:
        raise ConfigError(f"run.name={name!r}: must be a folder's name; where it lies is run.root")
    where = f"{name}/{SHARDS}/{shard[0]}-of-{shard[1]}" if shard else name
    return RunDir(config.run.root, where, plain, inputs, fresh)


def open_tracker(config: EvaluateConfig, path: Path, inputs: Mapping[str, Any]) -> Tracker:
    """Return the W&B tracker of a run. If it is closed before `finish`, it reports a failed run."""
    shown = {**to_plain(config), "commit": code_version(), "inputs": inputs}
    return Tracker(config.run, path, "evaluate", shown, path.parents[1] if path.parent.name == SHARDS else None)


def _unanswered(
    config: EvaluateConfig, run: RunDir, asked: Sequence[Question], on_note: Callable[[str], None]
) -> list[Question]:
    """Return the questions that have no answer in the run or its shards; record parts that were trained on any."""
    run.note(questions=len(asked))
    if config.shard is None:
        run.take_shards([q.id for q in asked])
    if trained := trained_on(config, asked):
        run.note(trained_on=trained)
        parts = ", ".join(f"{name} on {count}" for name, count in trained.items())
        on_note(
            f"trained on questions that are asked here: {parts}; figures on those are no result. "
            "gnnrag cross-validate asks checkpoints that did not see them"
        )
    if done := run.done():
        then = "going on with the others" if len(done) < len(asked) else "run.fresh=true answers them again"
        on_note(f"{len(done)} of {len(asked)} questions were answered before; {then}")
    return [q for q in asked if q.id not in done]


def checkpoints(config: EvaluateConfig) -> dict[str, list[Path]]:
    """Return folders of the trained parts and local models that a run may ask, by setting (`roles.verifier`, ...)."""
    by_setting: dict[str, list[Path]] = {}
    for number, (_, retriever) in enumerate(pairs(config)):
        if folders := retriever.part.checkpoints:
            by_setting[f"route {number}, retriever" if number else "retriever"] = list(folders)
    for name in asked_roles(config):
        role: RoleConfig = getattr(config.roles, name)
        impl = implementation(config.roles, name)
        if impl == "tuned" or (name, impl) == ("reader", "offline"):  # the reader without a model is trained, too
            by_setting[f"roles.{name}"] = [tuned_folder(role.path) if role.path else shipped_folder(name)]
        elif impl in ("prompted", "checked"):
            given = [role.model or getattr(config.llm.part, "model", None)]
            given += [getattr(config.llm.part, "adapter", None), (role.settings or {}).get("adapter")]
            folders = [Path(path) for path in given if path and Path(path).is_dir()]
            if folders := folders + [shipped_folder(name)] * (impl == "checked"):  # the reader beside the model
                by_setting[f"roles.{name}"] = folders
    return by_setting


def trained_on(config: EvaluateConfig, questions: Sequence[Question]) -> dict[str, str]:
    """Return, for each trained part that saw any of these questions, how many, as `3 of 50`."""
    counts = {}
    for name, folders in checkpoints(config).items():
        seen = frozenset[str]().union(*(read_seen(folder) or () for folder in folders))
        if count := sum(seen_hash(question.id) in seen for question in questions):
            counts[name] = f"{count} of {len(questions)}"
    return counts


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
    material = Material({passage.id: passage for passage in data.passages})
    long = sum(map(is_long, questions))
    if index and long:
        try:
            name = f"{index.config.embedder.model} ({index.embedder.identity[:16]})"
            material = replace(material, encode=index.embedder.encode, embedder=name)
        except GnnragError as error:  # a run without an embedder is fine
            on_note(f"answers are not compared by embedding: {error}")
    texts = compare_texts(paired(questions, rows), material, config.answer_words)
    columns = per_question(questions, rows, config, data.nodes) | texts
    metrics = summarise(questions, columns, seed=seed)
    if (path / "traces.jsonl").is_file():
        metrics |= from_traces(path / "traces.jsonl", questions, on_note)
    if replies := by_role(rows):
        metrics["replies"] = replies
    metrics["settings"] = to_plain(config) | {"seed": seed}
    if texts:
        metrics["texts"] = {"version": TEXT_VERSION, "long": long, "embedder": material.embedder}
    quality = [name for name in columns if name.startswith(("retrieval/", "answer/", TEXT))]
    write_jsonl(path / "scores.jsonl", [
        {"question_id": q.id, "type": q.type, "has_gold": bool(q.gold)}
        | {name: None if math.isnan(columns[name][i]) else float(columns[name][i]) for name in quality}
        for i, q in enumerate(questions)
    ])  # fmt: skip
    write_json(path / "metrics.json", metrics)
    return metrics


# --------------------------------------------------------------------------------------------------- parts of a run
class Pipeline:
    """Retriever, roles, method and loop for one config. Raises ConfigError for parts that do not exist or do not fit.

    `wrap` returns the roles that the method is given in place of `self.roles`, for instance to record their decisions.
    """

    def __init__(
        self, config: EvaluateConfig, index: Index, wrap: Callable[[Pipeline], Mapping[str, Any]] | None = None
    ) -> None:
        self.index = index
        self.roles = Roles(index, config.roles, config.llm, config.llm_cache)
        check_fit(config)
        self.reads = needed_stages(config)
        for name in self.reads:
            # Made here, so that no question has to wait for it; BM25 of before an edit serves until there is a new one.
            index.lexical if name == "lexical" else index.folder(name)
        retriever = build("retriever", config.retriever.part, index=index, roles=self.roles)
        route_retrievers = {r.name: r.retriever for r in config.method.part.routes.values() if r.name and r.retriever}
        built = {
            name: retriever
            if choice == config.retriever
            else build("retriever", choice.part, index=index, roles=self.roles)
            for name, choice in route_retrievers.items()
        }
        roles = wrap(self) if wrap else self.roles
        method = build("method", config.method.part, index=index, roles=roles)
        for chosen, _ in pairs(config):
            for name in chosen.part.role_names or ():
                self.roles[name]  # looking a role up builds it, so that the run records its prompts
        b, answer = config.budget, config.answer
        self.loop = Loop(
            method, retriever, self.roles["reader"], index.lookup,
            Budget(b.max_calls, b.max_tokens, b.max_seconds), config.concurrency, b.max_rounds, built,
            answer.style, answer.words or WORDS, config.filter,
        )  # fmt: skip

    async def standalone(self, question: str, history: Sequence[tuple[str, str]], session: Session) -> str:
        """Let `roles.rewriter` turn a follow-up into a standalone question. Without a history it is returned unchanged.

        Args:
            question: as a person typed it.
            history: earlier questions with their answers, oldest first; an empty answer means that none was found.
            session: of the question. This call counts in its budget; a budget used up returns the question unchanged.
        """
        if not history:
            return question
        rewritten = Standalone(question)
        with suppress(BudgetError, TimeoutError):
            async with asyncio.timeout(session.budget.max_seconds):
                rewritten = await self.roles["rewriter"](FollowUp(question, tuple(history)), session)
        session.flag("rewriter", *rewritten.flags)
        session.record("rewrite", asked=question, text=rewritten.text)
        return rewritten.text

    async def run(
        self,
        questions: Sequence[Question],
        done: Callable[[Prediction, Session], None],
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        try:
            await self.loop.run(questions, done, stop)
        finally:
            await self.roles.close()


def pairs(config: EvaluateConfig) -> list[tuple[Choice, Choice]]:
    """Return each method of a run with the retriever that it asks: the run's own first, then those of its routes."""
    main = [(config.method, config.retriever)]
    return main + [(route.method, route.retriever or config.retriever) for route in config.method.part.routes.values()]


def check_fit(config: EvaluateConfig) -> None:
    """Raise ConfigError, naming the retrievers that fit, if a retriever cannot search what its method or roles ask.

    A method asks certain channels, and tuned thoughts ask by vector.
    """
    is_tuned = implementation(config.roles, "thoughts") == "tuned" and "thoughts" in asked_roles(config)
    by_vector = is_tuned and (thoughts := made_role(config.roles, "thoughts")).asks_in_vectors(thoughts.path)
    for where, (method, retriever) in zip(("", *config.method.part.routes), pairs(config), strict=True):
        wanted = method.part.asked_channels

        def fits(part: Any, wanted: frozenset[str] = wanted) -> bool:
            return wanted <= part.channels and (part.accepts_vectors or not by_vector)

        if not fits(retriever.part):
            fitting = [name for name in names("retriever") if fits(find_class("retriever", name)())]
            raise ConfigError(
                f"{where and f'route method.{where}: '}method={method.name} asks the channels "
                f"{', '.join(sorted(wanted))}{' by vector (tuned thoughts)' * by_vector}, but "
                f"retriever={retriever.name} does not offer that; suitable: {', '.join(fitting) or 'none'}"
            )


def needed_stages(config: EvaluateConfig) -> set[str]:
    """Return the index artefacts that a run reads: those that its retrievers, methods and roles declare."""
    needed: set[str] = set()
    for method, retriever in pairs(config):
        needed.update(retriever.part.reads)
        needed.update(method.part.reads)
    for name in asked_roles(config):
        if role := made_role(config.roles, name):
            needed.update(role.reads)
    return needed


def asked_roles(config: EvaluateConfig) -> list[str]:
    """Return the roles that a run may ask: those that its methods and retrievers name."""
    wanted = {"reader"}
    for method, retriever in pairs(config):
        asked = method.part.role_names
        wanted.update(ROLES if asked is None else asked)
        wanted.update(retriever.part.role_names)
    return [name for name in ROLES if name in wanted]


# ----------------------------------------------------------------------------------------------- index of a run
def open_index(
    configs: Sequence[EvaluateConfig], name: str, passages: Sequence[Passage], progress: OnProgress = no_progress
) -> Index:
    """Open the index that runs read; what is missing or out of date is built once for all of them.

    Building run by run would go wrong: a run that does not read an existing index's triples keeps the old ones, even if
    the settings changed (`build_index`). Data and index settings must be the same in all `configs`.
    Errors are those of `open_or_build`.
    """
    stages = {stage for config in configs for stage in needed_stages(config)}
    return open_or_build(index_settings(configs[0]), configs[0].data, name, passages, stages, progress)


def require_index_or_data(config: IndexConfig, has_data: bool) -> None:
    """Raise ConfigError if the named index does not exist and no data is given; it must not be built of the sample."""
    if config.path and not has_data and not exists(config.path):
        raise ConfigError(
            f"index.path={config.path}: there is no index; name one that exists, or give the documents to build it "
            f"from: data.path=FOLDER"
        )


def index_settings(config: EvaluateConfig) -> IndexConfig:
    """Return the settings of the index. Prompted extraction and writers use the run's model unless another is set."""
    index, writers = config.index, config.index.writers
    impls: list[Any] = [getattr(writers, name).impl or getattr(writers, "default") for name in WRITERS]  # noqa: B009
    if index.llm is None and ("prompted" in impls or index.extract.method == "prompted"):
        index = replace(index, llm=to_plain(config.llm))
    executor = config.executor if index.executor == ExecutorConfig() else index.executor
    return replace(index, llm_cache=config.llm_cache, executor=executor)
