"""Runs the rows of a paper's table, each an `evaluate` run of its own, and puts them beside the published figures."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gnnrag.common.files import digest
from gnnrag.config import EvaluateConfig
from gnnrag.datasets.base import load_passages
from gnnrag.datasets.source import find_source
from gnnrag.errors import ConfigError
from gnnrag.index.build import Progress, build_index
from gnnrag.index.index import Index
from gnnrag.index.plan import closure
from gnnrag.index.store import Store
from gnnrag.judge import judged_figures
from gnnrag.llm.base import estimate_tokens
from gnnrag.registry import METHODS, resolve
from gnnrag.reports.cross import cross_evaluate, read_part, swapped
from gnnrag.reports.inputs import missing_analyser, missing_data, missing_inputs
from gnnrag.reports.papers import PaperTable, Row, are_prompted, row_config
from gnnrag.reports.results import Result, averages, read_result, run_rows, values_of
from gnnrag.run.evaluation import Observer, check_metrics, load_questions_for
from gnnrag.run.pipeline import check_fit, chunking, data_source, index_path, index_settings, needed_stages
from gnnrag.run.rundir import predicted_seconds, read_predictions, run_label
from gnnrag.text.analyse import RULES
from gnnrag.types import Prediction

SIDES = {"semantic": "run/semantic_recall", "relational": "run/relational_recall"}
LABELLED = ("method", "retriever", "roles", "data.path", "index.root")  # not in a row's outline: its label says them
OWN = "ours"
_ITEM = re.compile(r"(?:Table|Figure) \d+[a-d]?\b")
OUTLINED = 4  # of a row's own settings
TRIPLES = {"pairs": "run/pair_recall", "triples": "run/triple_recall"}  # of the graph side (`metrics.traces`)
Counted = tuple[dict[str, Any], int, str]  # figures by key, questions among them, and what they were counted with


def resolved(table: PaperTable, row: Row, overrides: Sequence[str] = ()) -> EvaluateConfig:
    """Return a row's settings, checked as far as goes without data or index. Raises ConfigError naming the row."""
    config = row_config(table, row, overrides)
    try:
        return checked(config)
    except ConfigError as error:
        raise ConfigError(f"{table.path}: row {row.name!r}: {error}") from error


def checked(config: EvaluateConfig) -> EvaluateConfig:
    """Return the settings of a run. Raises ConfigError for what is wrong with them without looking at data or index."""
    check_metrics(config.metrics)
    check_fit(config)
    needed_stages(config)
    resolve("method", config.method.name, METHODS).check_settings(config.method.settings)
    return config


def reproduce(
    table: PaperTable,
    overrides: Sequence[str] = (),
    chosen: Callable[[Row], bool] = lambda row: True,
    on_index: Progress = lambda stage, done, total: None,
    on_start: Callable[[Row, int], None] = lambda row, questions: None,
    on_question: Callable[[Prediction], None] = lambda prediction: None,
    on_row: Callable[[Result], None] = lambda result: None,
    trained: Mapping[str, Path] | None = None,
) -> list[Result]:
    """Run the rows of a table that are `chosen`, one after the other, with dotted `overrides` of them all.

    Rows that cannot be run are results with the reason, failed ones with their error. `on_start` is given a row and the
    number of its questions left. `trained` are training runs by part (`gnn`, or a role), used in every row: no question
    is answered with a checkpoint that it shaped. Raises ConfigError before any work where a row's settings are wrong.
    """
    rows = [row for row in table.rows if chosen(row)]
    configs = {row.name: resolved(table, row, overrides) for row in rows if not row.missing}

    def run(row: Row) -> Result:
        if missing := row.missing or missing_inputs(configs[row.name]):
            return Result(replace(row, missing=missing), error=f"cannot be run: {missing}")
        config = configs[row.name]
        if table.counts:
            return _counted(table, row, config, on_index)
        data = load_questions_for(config) if trained else None
        parts = [read_part(name, path, data) for name, path in (trained or {}).items() if data]
        path, metrics = cross_evaluate(
            config, parts, data, Observer(on_index, on_question, on_start=partial(on_start, row))
        )
        return measured(table, row, swapped(config, parts), path, metrics)

    results = run_rows(rows, run, lambda row: _label(configs[row.name]), on_row)
    whole = [*results, *averages(table, results)]
    return [part for result in whole for part in (result, *result.parts)]


def measured(table: PaperTable, row: Row, config: EvaluateConfig, run: Path, metrics: Mapping[str, Any]) -> Result:
    """Return the figures of a row's finished run."""
    more = run_figures(run) | judged_figures(run)
    if any(column.key.startswith("index/") for column in table.columns):
        more |= index_tokens(config)
    for names, section in ((SIDES, "by_step"), (TRIPLES, "triples_by_step")):
        more |= {names[name]: points[-1] for name, points in metrics.get(section, {}).items() if points}
    label = _label(config)
    has_steps = any(column.key in SIDES.values() for column in table.columns)
    groups = metrics.get(f"by_{table.by}", {}) if table.by else {}
    parts = [
        Result(
            replace(row, name=f"{row.name}: {name}", published={}), label, values_of(table.columns, own),
            questions=own["count"],
        )
        for name, own in groups.items()
    ]  # fmt: skip
    result = read_result(row, label, table.columns, config, run, metrics, more)
    return replace(result, steps=metrics.get("by_step", {}) if has_steps else {}, parts=parts)


def _counted(table: PaperTable, row: Row, config: EvaluateConfig, on_index: Progress) -> Result:
    """Return the counts of a row; those of a graph stand beside published ones of as many passages only."""
    figures, questions, how = COUNTERS[table.counts](config, on_index)
    values = values_of(table.columns, figures)
    if row.published.get("passages", values.get("passages")) != values.get("passages"):
        row = replace(row, published={})
    asked = f" {config.data.split}" if questions else ""
    return Result(row, f"{Path(config.data.path).name}{asked}, {how}", values, questions=questions)


def _label(config: EvaluateConfig) -> str:
    return f"{run_label(config)} on {Path(config.data.path).name} {config.data.split}"


def run_figures(run: Path) -> dict[str, float]:
    """Return what a run spent before its reader, per question, its seconds, and the share of queries that fell back."""
    predictions = read_predictions(run)
    sums: dict[str, float] = defaultdict(float)
    for prediction in predictions:
        for role, used in prediction.usage.get("roles", {}).items():
            for name in ("calls", "prompt_tokens", "completion_tokens") if role != "reader" else ():
                sums[f"run/search_{name}"] += used.get(name, 0)
        sums["queries"] += prediction.usage.get("retriever_calls", 0)
        flags = prediction.usage.get("flags", {})
        sums["fallbacks"] += sum(count for flag, count in flags.items() if flag.endswith("_fallback"))
    names = ("run/search_calls", "run/search_prompt_tokens", "run/search_completion_tokens")
    means = {name: round(sums[name] / len(predictions), 4) for name in names}
    fallbacks = round(sums["fallbacks"] / max(sums["queries"], 1), 4)
    return means | {"run/fallbacks": fallbacks, "run/seconds": predicted_seconds(run)}


def count_hierarchy(config: EvaluateConfig, on_index: Progress = lambda stage, done, total: None) -> Counted:
    """Count nodes and edges of the contextual hierarchical graph (MGranRAG, AAAI 2026, Table 1).

    It lies in a folder of its own, as another analyser must not rebuild what hangs on the index's text.
    """
    data = load_passages(config.data.path, chunking(config.data))
    settings = index_settings(config)
    text = settings.text
    beside = index_path(config.index, data.name)
    path = beside.with_name(f"{beside.name}-{digest([text.language, text.phrase_rules, text.title_mode])[:8]}")
    build_index(path, data.passages, settings, ["hierarchy"], data_source(config.data), on_index)
    index = Index(path)
    graph = index.hierarchy
    of_passages = int((graph.edges[:, 0] < graph.first_sentence).sum())
    counts = {
        "passages": graph.num_passages,
        "sentences": len(graph.sentences),
        "phrases": len(graph.phrases),
        "passage_sentence_edges": of_passages,
        "sentence_phrase_edges": len(graph.edges) - of_passages,
    }
    analyser = index.store.info("text")["language"]
    return {f"count/{name}": value for name, value in counts.items()}, 0, f"phrases by {analyser}"


def count_questions(config: EvaluateConfig, on_index: Progress = lambda stage, done, total: None) -> Counted:
    """Count corpus, questions and what is gold for them; tokens are estimated (`llm.base.estimate_tokens`)."""
    data = load_questions_for(config)

    def sizes(name: str) -> str:
        return ", ".join(str(n) for n in sorted({len(getattr(q, name)) for q in data.questions}) if n)

    types = Counter(question.type for question in data.questions)
    counts = {
        "passages": len(data.passages),
        "corpus_tokens": sum(estimate_tokens(passage.content) for passage in data.passages),
        "questions": len(data.questions),
        "types": ", ".join(f"{name} {count}" for name, count in sorted(types.items())),
        "gold_passages": sizes("gold"),
        "gold_triples": sizes("evidence"),
    }
    return {f"count/{name}": value for name, value in counts.items()}, len(data.questions), "tokens estimated"


COUNTERS: Mapping[str, Callable[[EvaluateConfig, Progress], Counted]] = {
    "hierarchy": count_hierarchy,
    "questions": count_questions,
}


def index_tokens(config: EvaluateConfig) -> dict[str, int]:
    """Return the tokens of language models for a run's index stages, over all builds; cached replies are counted."""
    store = Store(index_path(config.index, find_source(Path(config.data.path)).name))
    spent = Counter[str]()
    for stage in closure(needed_stages(config), config.index):
        for name, count in store.info(stage).items():
            kind = name.rpartition(" ")[2]  # such as `triples prompt_tokens`
            if kind in ("prompt_tokens", "completion_tokens"):
                spent[f"index/{kind}"] += count
    return {f"index/{kind}": spent[f"index/{kind}"] for kind in ("prompt_tokens", "completion_tokens")}


def outline(table: PaperTable, rows: Sequence[Row], overrides: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each row without running it: parts, data, its own settings. Raises ConfigError on wrong ones."""
    shared = set.intersection(*(set(row.settings) for row in table.rows)) if len(table.rows) > 1 else set()
    replaced = {*LABELLED, *(override.partition("=")[0] for override in overrides)}
    for row in rows:
        if row.missing:
            yield f"{row.name}: {row.missing}"
            continue
        config = resolved(table, row, overrides)
        own = [s for s in row.settings if s not in shared and s.partition("=")[0] not in replaced]
        about = [_label(config), *(s.replace('"', "") for s in own[:OUTLINED])]
        about += [f"and {len(own) - OUTLINED} more settings"] if len(own) > OUTLINED else []
        about += [missing] if (missing := missing_inputs(config)) else []
        yield f"{row.name}: {', '.join(about)}"


@dataclass(frozen=True)
class Surveyed:
    """A table in the list of all; `item` is `OWN` where the paper has none, `missing` what some rows lack here."""

    paper: str
    item: str
    file: Path
    rows: int
    presets: tuple[str, ...]
    missing: tuple[str, ...]


def survey(table: PaperTable, given: Sequence[str] = ()) -> Surveyed:
    """Return what a list says of a table from its file alone: resolving all rows takes minutes."""
    paper, _, title = table.title.partition(", ")
    item = _ITEM.match(title)
    plain = [_plain(table, row, given) for row in table.rows]
    presets = dict.fromkeys(filter(None, map(_preset, () if table.counts else plain)))
    paths = {s["data.path"]: (s.get("data.split", "dev"), s.get("data.questions")) for s in plain}
    data = [Path(path).name for path, (split, questions) in paths.items() if missing_data(path, split, questions)]
    analysers = {s.get("index.text.language", RULES) for s in plain}
    judged = [column.name for column in table.columns if column.key.startswith("judge/")]
    missing = [
        *(row.missing for row in table.rows),
        f"data: {', '.join(data)}" if data else "",
        *map(missing_analyser, sorted(analysers)),
        f"figures of a judge: {', '.join(judged)}" if judged else "",
    ]
    lacks = tuple(dict.fromkeys(filter(None, missing)))
    return Surveyed(paper, item[0] if item else OWN, table.path, len(table.rows), tuple(presets), lacks)


def _plain(table: PaperTable, row: Row, given: Sequence[str]) -> dict[str, str]:
    settings = {"data.path": EvaluateConfig().data.path}
    models = table.models if are_prompted(given) else ()
    for dot in (*_dotted(table.base), *models, *row.settings, *given):
        key, _, value = dot.partition("=")
        if key == "method":  # another one has no settings yet
            settings = {name: old for name, old in settings.items() if not name.startswith("method.")}
        settings[key.removesuffix(".name")] = value.strip('"')
    return settings


def _dotted(section: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in section.items():
        nested = isinstance(value, Mapping)
        yield from _dotted(value, f"{before}{key}.") if nested else [f"{before}{key}={value}"]


def _preset(plain: Mapping[str, str]) -> str:
    """Return the preset of a row's method, `default` where it names none; empty for a method that has none."""
    method = resolve("method", plain.get("method", "single"), METHODS)
    usual = getattr(method.config_class, "preset", "default" if method.presets else "")
    return plain.get("method.preset", usual) if usual else ""
