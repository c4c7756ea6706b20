"""Retrievers side by side on the same questions (`evaluate` with `single`): what each finds and costs, a row each."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError
from gnnrag.index.build import Progress
from gnnrag.index.index import Index
from gnnrag.index.plan import closure
from gnnrag.index.store import Store
from gnnrag.metrics.long_answers import TEXT
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.reports.papers import Column, Row
from gnnrag.reports.results import Result, read_result, run_rows, values_of
from gnnrag.run.evaluation import evaluate, load_questions_for
from gnnrag.run.pipeline import Pipeline, check_fit, open_index, open_shared_index
from gnnrag.run.rundir import read_predictions
from gnnrag.run.sharding import refuse_shard
from gnnrag.session import Session
from gnnrag.types import Prediction, Query

RECALL_AT = (2, 5, 10)
COVERAGE = Column("coverage", "coverage", f"{TEXT}context_coverage_lexical")  # of references, where there is no gold
COLUMNS = (
    *(Column(f"recall@{k}", f"Recall@{k}", f"retrieval/recall@{k}") for k in RECALL_AT),
    COVERAGE,
    # Embedding of the queries included: all in one batch, and the median of a query that comes alone.
    Column("batch_ms", "ms/query, batch", "timing/batch_ms", 1),
    Column("single_ms", "ms/query, alone", "timing/single_ms", 1),
    Column("llm_calls", "LLM calls", "search/llm_calls", 1),  # of a question; the reader's are left out
    Column("fallbacks", "fallbacks", "search/fallbacks", 0),  # questions of which another search answered a query
    Column("index_mb", "index MB", "index/mb", 1),  # of the artefacts that it reads, passages included
    Column("build_seconds", "build s", "index/seconds", 1),  # of these, with all that they are made from
)
# Reading the artefacts, building the retriever, one query to load the embedder; and what `index_mb` is made of.
UNSHOWN = (Column("open_seconds", "", "timing/open_seconds"), Column("index_bytes", "", "index/bytes"))
_WARM_UP = "What is asked first pays for loading a model?"


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
    """Return the settings of one row; those in `label` (`lightrag:mode=local`) win over `source` and `overrides`.

    Raises ConfigError where a setting is unknown, or a name is given for the run.
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
    on_row: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Run retrievers one after the other on the questions of a config; see `retriever_config` for the arguments."""
    _build_for_all(source, overrides, labels, on_index)

    def run(row: Row) -> Result:
        return measure(retriever_config(source, overrides, row.name), row.name, on_index)

    return run_rows([Row(label, (label,), ()) for label in labels], run, on_row=on_row)


def _build_for_all(source: str | None, overrides: Sequence[str], labels: Sequence[str], on_index: Progress) -> None:
    """Build once what all rows read. What cannot be built shows in the rows that need it."""
    try:
        configs = [retriever_config(source, overrides, label) for label in labels]
        data = load_questions_for(configs[0])
        open_shared_index(configs, data.name, data.passages, on_index)
    except Exception:  # noqa: BLE001 - whoever reads it tries again, and its row says what is wrong
        return


def measure(config: EvaluateConfig, label: str, on_index: Progress = lambda stage, done, total: None) -> Result:
    """Build what the retriever reads, time it, and run the questions. Raises GnnragError where a part does not fit."""
    check_fit(config)
    refuse_shard(config.shard, "a table of retrievers")
    data = load_questions_for(config)
    path = open_index(config, data.name, data.passages, on_index).store.root
    figures = time_retriever(config, path, [q.text for q in data.questions])
    index = Index(path, config.index)
    run, metrics = evaluate(config, index=index)
    predictions = read_predictions(run)
    size, seconds = index_cost(index, config)
    figures |= {
        "search/llm_calls": sum(map(_search_calls, predictions)) / len(predictions),
        "search/fallbacks": sum(map(_fell_back, predictions)),
        "index/mb": size / 1e6,
        "index/bytes": size,
        "index/seconds": seconds,
    }
    of_budget = replace(COVERAGE, key=f"{COVERAGE.key}@{config.metrics.long.context_tokens}")
    columns = [of_budget if column == COVERAGE else column for column in (*COLUMNS, *UNSHOWN)]
    row = Row(label, (label,), ())
    found = read_result(row, label, columns, config, run, metrics, figures)
    quality = [c for c in columns if c.is_share]
    parts = [
        Result(row, name, values_of(quality, group), questions=group["count"], run=str(run))
        for name, group in metrics["by_type"].items()
    ]
    return replace(found, parts=parts if len(parts) > 1 else ())


def shown_columns(results: Sequence[Result]) -> list[Column]:
    """Return the columns that some row has a figure for, or all where no row has ended."""
    done = [result for result in results if result.is_done]
    if not done:
        return [column for column in COLUMNS if column != COVERAGE]
    return [c for c in COLUMNS if any(r.values.get(c.name) is not None for r in done)]


def index_cost(index: Index, config: EvaluateConfig) -> tuple[int, float]:
    """Return the bytes of the artefacts that the retriever reads, and the seconds that they and their inputs took."""
    own = resolve("retriever", config.retriever.name, RETRIEVERS).stages_for(config.retriever.settings)
    stages = {"passages", *own}
    size = sum(stage_bytes(index.store, stage) for stage in sorted(stages))
    return size, sum(index.store.info(stage)["seconds"] for stage in closure(stages, index.config))


def stage_bytes(store: Store, stage: str) -> int:
    """Return the size of a stage's artefact."""
    return sum(file["bytes"] for file in store.manifest["stages"][stage]["files"].values())


def time_retriever(config: EvaluateConfig, root: Path, texts: Sequence[str], top_k: int = 200) -> dict[str, float]:
    """Time the retriever of a config alone, on indexes opened for the purpose; returns figures of COLUMNS.

    Each text is asked once alone and once in one batch, the batch by a retriever of its own, warmed up with one query,
    as embedder and roles keep results. Replies of a language model come from the response cache where there is one.
    """
    queries = [Query(text, top_k=top_k) for text in texts]
    opened, alone = asyncio.run(_time(config, root, [[query] for query in queries]))
    _, (batch,) = asyncio.run(_time(config, root, [queries]))
    single = statistics.median(alone)
    return {
        "timing/open_seconds": round(opened, 3),
        "timing/batch_ms": round(1e3 * batch / len(texts), 3),
        "timing/single_ms": round(1e3 * single, 3),
    }


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
    if not retriever.asks_roles:
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
