"""`gnnrag index`: build, change and look at an index."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import typer

from gnnrag.cli.console import AsJson, Settings, load_corpus, note, plain_table, progress_bar, replies_table, split
from gnnrag.config import EvaluateConfig, IndexConfig, is_given, load_config, to_plain
from gnnrag.datasets.base import Dataset, chunking
from gnnrag.datasets.folder import summary, write_report
from gnnrag.index.index import Index, build_index, data_source, index_path
from gnnrag.index.tables import local_folder
from gnnrag.index.update import change_documents, collect_garbage, collect_tables, loading_of
from gnnrag.methods.dotrag.schema import draft, to_yaml
from gnnrag.metrics.replies import by_writer
from gnnrag.pages.inspection import inspect_index
from gnnrag.run.evaluate import index_settings, needed_stages, require_index_or_data

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Build, change and look at an index.")
IndexFolder = Annotated[str, typer.Argument(metavar="INDEX")]
Named = Annotated[list[str], typer.Argument(metavar="NAME [NAME ...] [CONFIG] [key=value ...]")]


@app.command()
def build(
    settings: Settings = [],  # noqa: B006
    stages: Annotated[str, typer.Option(help="only these, separated by commas")] = "",
) -> None:
    """Bring the index of a config up to date; a build that was cut off continues.

    \b
    gnnrag index build configs/evaluate/2wiki.yaml             what a run of that config would read
    gnnrag index build data.path=FOLDER index.path=INDEX       a folder of your own documents
    """
    source, overrides = split(settings)
    config = load_config(EvaluateConfig, source, overrides)
    require_index_or_data(config.index, is_given("data.path", source, overrides))
    data = load_corpus(config.data.path, chunking(config.data), titles=config.data.titles)
    path = index_path(config.index, data.name)
    stage_names = stages.split(",") if stages else {*needed_stages(config), "hierarchy", "lexical", "embeddings"}

    source_of = data_source(config.data)
    settings_of = index_settings(config)
    _change(path, lambda advance: build_index(path, data.passages, settings_of, stage_names, source_of, advance))
    if data.report:
        write_report(local_folder(path), data.report)
        note("\n".join(summary(data.report)))


@app.command()
def add(index: IndexFolder, path: Path, settings: Settings = []) -> None:  # noqa: B006
    """Add documents (or a corpus.jsonl), cut as those of the index are, or replace those with known names.

    What a language model had part in is added with the config that the index was built with.
    """
    data = load_corpus(path, **loading_of(index))
    _change(index, lambda advance: change_documents(index, data, (), advance, _caller(settings)))
    if data.report:
        note("\n".join(summary(data.report)))


@app.command()
def remove(index: IndexFolder, names: Named) -> None:
    """Remove passages by id, or all that were cut from a document, named as the index does or by its path."""
    known = {field.name for field in fields(EvaluateConfig)}  # an id may have a = in it, too
    settings = [
        n for n in names if n.endswith(".yaml") or (n.partition("=")[0].partition(".")[0] in known and "=" in n)
    ]
    rest = [name for name in names if name not in settings]
    _change(index, lambda advance: change_documents(index, Dataset("", ()), rest, advance, _caller(settings)))


def _caller(settings: Sequence[str]) -> IndexConfig | None:
    """Return what settings give of what no index says, None without any; a model is one that they name."""
    if not settings:
        return None
    source, overrides = split(settings)
    config = load_config(EvaluateConfig, source, overrides)
    index = replace(config.index, llm_cache=config.llm_cache)
    named = any(is_given(key, source, overrides) for key in ("llm.name", "llm.model", "llm.base_url"))
    return replace(index, llm=to_plain(config.llm)) if index.llm is None and named else index


def _change(path: Path | str, change: Callable[[Callable[[str, int, int], None]], list[str]]) -> None:
    started = time.perf_counter()
    with progress_bar() as advance:
        built = change(advance)
    index = Index(path)
    done = f"built {', '.join(built)}" if built else "no artefact to make"
    print(f"{done} in {time.perf_counter() - started:.2f} s; {len(index.passages)} passages")
    for stage in built:
        if writers := by_writer(index.record(stage)["counts"]):
            print(replies_table(writers, f"writers of the stage {stage}"))
    print(path)


@app.command()
def gc(index: IndexFolder) -> None:
    """Delete artefacts, tables and versions of earlier passages or settings; close what reads them first."""
    for name in [*collect_garbage(index), *collect_tables(index)]:
        print(f"deleted {name}")


@app.command()
def draft_schema(index: IndexFolder) -> None:
    """Print a draft of the schema of an index's knowledge graph, for you to edit (method.schema_file)."""
    print(to_yaml(draft(Index(index).knowledge)), end="")


@app.command()
def inspect(index: IndexFolder, as_json: AsJson = False) -> None:
    """Print counts, sizes and gaps of an index."""
    report = inspect_index(index)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    stages = [
        (stage["name"], ", ".join(f"{v} {k}" for k, v in stage["counts"].items()), f"{stage['bytes'] / 1e6:.2f}")
        for stage in report["stages"]
    ]
    print(plain_table(("stage", "holds", "MB"), stages, f"index {index}"))
    tables = [(t["name"], f"{t['rows']:,}", f"{t['bytes'] / 1e6:.2f}") for t in report["tables"]]
    print(plain_table(("table", "rows", "MB"), tables))
    for stage in report["stale"]:
        cost = stage["values to compute"]
        note(f"{stage['name']} is stale" + ("" if cost is None else f"; {cost} texts would be computed"))
    if gaps := report["extraction"]:
        note(
            f"extraction: {gaps['malformed']} malformed triples; of {gaps['passages']} passages "
            f"{gaps['without_record']} have no record and {gaps['without_triples']} no triples"
        )
