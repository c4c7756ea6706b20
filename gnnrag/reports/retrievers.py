"""What each retriever finds and costs on the same questions: a row per retriever, for `inference/table.py`.

Recall comes from `evaluate` with the method `single`; there is no second loop and no second metric.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError, described
from gnnrag.index.build import Progress
from gnnrag.index.index import Index
from gnnrag.index.plan import closure
from gnnrag.index.store import Store
from gnnrag.metrics.replies import remarks
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.run.evaluation import evaluate, load_questions_for
from gnnrag.run.pipeline import Pipeline, check_fit, open_index, open_shared_index
from gnnrag.run.rundir import read_predictions, trained_note
from gnnrag.run.sharding import refuse_shard
from gnnrag.session import Session
from gnnrag.types import Prediction, Query

RECALL_AT = (2, 5, 10)
_WARM_UP = "What is asked first pays for loading a model?"


@dataclass(frozen=True)
class Timing:
    """How long a retriever takes, embedding of the queries included.

    Attributes:
        open_seconds: reading the artefacts, building the retriever, one query to load the embedder.
        batch_ms: milliseconds per query when all come in one batch.
        single_ms: median milliseconds of a query that comes alone.
    """

    open_seconds: float
    batch_ms: float
    single_ms: float


@dataclass(frozen=True)
class RetrieverRow:
    """One line of the table.

    Attributes:
        retriever: its name, with the settings that were asked for.
        error: why there is no result; the other fields are then empty.
        recall: k to mean Recall@k over the questions, and `intervals` the 95% bootstrap interval where there is one.
        questions, failed: how many were asked, and how many of them ended with an error (they score zero).
        timing: see `Timing`.
        llm_calls: calls per question while searching; the reader's are left out.
        fallbacks: questions of which a query was answered by another search than the retriever's own.
        index_bytes: size of the artefacts that it reads, passages included.
        build_seconds: what building them took, with all that they are made from.
        trained_on: says it where these questions trained it: its recall is then no result.
        remarks: what its roles' models did wrong (`metrics.replies.remarks`).
    """

    retriever: str
    error: str | None = None
    recall: dict[int, float] = field(default_factory=dict)
    intervals: dict[int, tuple[float, float]] = field(default_factory=dict)
    questions: int = 0
    failed: int = 0
    timing: Timing | None = None
    llm_calls: float = 0.0
    fallbacks: int = 0
    index_bytes: int = 0
    build_seconds: float = 0.0
    trained_on: str = ""
    remarks: tuple[str, ...] = ()


def fitting_retrievers() -> list[str]:
    """Return the registered retrievers that rank passages, in the registry's order."""
    names = []
    for name in RETRIEVERS:
        try:
            check_fit(load_config(EvaluateConfig, None, [f"retriever={name}", "method=single"]))
        except ConfigError:
            continue
        names.append(name)
    return names


def retriever_config(source: str | None, overrides: Sequence[str], label: str) -> EvaluateConfig:
    """Return the settings of one row.

    Args:
        source: a config file.
        overrides: dotted settings of all rows.
        label: a retriever, with settings of its own after colons: `lightrag:mode=local`.

    Raises:
        ConfigError: a setting is unknown, or a name is given for the run.
    """
    name, *settings = label.split(":")
    own = [f"retriever={name}", "method=single", *(f"retriever.{setting}" for setting in settings)]
    config = load_config(EvaluateConfig, source, [*overrides, *own])
    if config.run.name is not None:
        problem = f"run.name={config.run.name}: each retriever is a run, named by its settings"
        raise ConfigError(f"{problem}; its place is run.root=FOLDER")
    ks = sorted({*config.metrics.ks, *RECALL_AT})
    return replace(config, metrics=replace(config.metrics, ks=ks))


def tabulate(
    source: str | None,
    overrides: Sequence[str],
    labels: Sequence[str],
    on_index: Progress = lambda stage, done, total: None,
    on_row: Callable[[RetrieverRow], None] = lambda row: None,
) -> list[RetrieverRow]:
    """Run retrievers one after the other on the questions of a config; see `retriever_config` for the arguments.

    A retriever that fails is a row with its error. `on_row` is told each row as it is ready.
    """
    rows = []
    _build_for_all(source, overrides, labels, on_index)
    for label in labels:
        try:
            row = measure(retriever_config(source, overrides, label), label, on_index)
        except Exception as problem:  # noqa: BLE001 - one broken retriever must not cost the others their rows
            row = RetrieverRow(label, error=described(problem))
        rows.append(row)
        on_row(row)
    return rows


def _build_for_all(source: str | None, overrides: Sequence[str], labels: Sequence[str], on_index: Progress) -> None:
    """Build once what all rows read. What cannot be built shows in the rows that need it."""
    try:
        configs = [retriever_config(source, overrides, label) for label in labels]
        data = load_questions_for(configs[0])
        open_shared_index(configs, data.name, data.passages, on_index)
    except Exception:  # noqa: BLE001 - whoever reads it tries again, and its row says what is wrong
        return


def measure(config: EvaluateConfig, label: str, on_index: Progress = lambda stage, done, total: None) -> RetrieverRow:
    """Build what the retriever reads, time it, and run the questions. Raises GnnragError where a part does not fit."""
    check_fit(config)
    refuse_shard(config.shard, "a table of retrievers")
    data = load_questions_for(config)
    path = open_index(config, data.name, data.passages, on_index).store.root
    timing = time_retriever(config, path, [q.text for q in data.questions])
    index = Index(path, config.index)
    run, metrics = evaluate(config, index=index)
    predictions = read_predictions(run)
    size, seconds = index_cost(index, config)
    recall = {k: metrics[f"retrieval/recall@{k}"] for k in RECALL_AT}
    intervals = {k: tuple(metrics[key]) for k in RECALL_AT if (key := f"retrieval/recall@{k}_ci") in metrics}
    return RetrieverRow(
        label,
        None,
        recall,
        intervals,  # type: ignore[arg-type]
        len(predictions),
        metrics["failed"],
        timing,
        sum(map(_search_calls, predictions)) / len(predictions),
        sum(map(_fell_back, predictions)),
        size,
        seconds,
        trained_note(run),
        tuple(remarks(metrics.get("replies", {}), config.run.warn_bad_replies, config.run.max_bad_replies)),
    )


def index_cost(index: Index, config: EvaluateConfig) -> tuple[int, float]:
    """Return the bytes of the artefacts that the retriever reads, and the seconds that they and their inputs took."""
    stages = {
        "passages",
        *resolve("retriever", config.retriever.name, RETRIEVERS).stages_for(config.retriever.settings),
    }
    return sum(stage_bytes(index.store, s) for s in sorted(stages)), sum(
        index.store.info(s)["seconds"] for s in closure(stages, index.config)
    )


def stage_bytes(store: Store, stage: str) -> int:
    """Return the size of a stage's artefact."""
    return sum(file["bytes"] for file in store.manifest["stages"][stage]["files"].values())


def time_retriever(config: EvaluateConfig, root: Path, texts: Sequence[str], top_k: int = 200) -> Timing:
    """Time the retriever of a config alone, on indexes opened for the purpose.

    The embedder and some offline roles keep what they made of a query. So the batch meets a retriever of its own, whose
    one earlier query was the warm-up. Replies of a language model come from the response cache where there is one.

    Args:
        config: names the retriever and the roles.
        root: the index.
        texts: what to ask, once each alone and once in one batch.
        top_k: how many hits are asked for.
    """
    queries = [Query(text, top_k=top_k) for text in texts]
    opened, alone = asyncio.run(_time(config, root, [[query] for query in queries]))
    _, (batch,) = asyncio.run(_time(config, root, [queries]))
    single = statistics.median(alone)
    return Timing(round(opened, 3), round(1e3 * batch / len(texts), 3), round(1e3 * single, 3))


async def _time(config: EvaluateConfig, root: Path, batches: Sequence[Sequence[Query]]) -> tuple[float, list[float]]:
    """Return the seconds of opening with the first query, and those of each batch after it."""
    started = time.perf_counter()
    pipeline = Pipeline(config, Index(root, config.index))
    retriever: Any = pipeline.loop.retrievers[None]
    seconds = []
    try:
        await _ask(retriever, [Query(_WARM_UP, top_k=batches[0][0].top_k)])
        opened = time.perf_counter() - started
        for batch in batches:
            before = time.perf_counter()
            await _ask(retriever, batch)
            seconds.append(time.perf_counter() - before)
    finally:
        await pipeline.roles.close()
    return opened, seconds


async def _ask(retriever: Any, queries: Sequence[Query]) -> None:
    if not getattr(retriever, "retrieve_for", None):
        retriever.retrieve(queries)
        return
    for query in queries:
        await retriever.retrieve_for([query], Session(query.text))


def _fell_back(prediction: Prediction) -> bool:
    """Tell whether the branch of a ranking was a fallback: the loop counts those; flags of roles are kept by role."""
    return any(flag.endswith("_fallback") for flag in prediction.usage.get("flags", {}))


def _search_calls(prediction: Prediction) -> int:
    roles = prediction.usage.get("roles", {})
    return sum(row.get("calls", 0) for role, row in roles.items() if role != "reader")
