"""Build, change and look at an index.

    gnnrag index build configs/evaluate/2wiki.yaml [key=value ...]   what a run of that config would read
    gnnrag index build data.path=FOLDER index.path=INDEX             a folder of your own documents
    gnnrag index add INDEX PATH [CONFIG] [key=value ...]             documents, or a corpus.jsonl
    gnnrag index remove INDEX FILE|ID [...] [CONFIG] [key=value ...] documents, or passages by their ids
    gnnrag index inspect INDEX [--json]                              counts, sizes, hubs, gaps
    gnnrag index inspect INDEX --html FILE [--entity NAME | --question "TEXT"]   a page that draws a part
    gnnrag index estimate CONFIG [key=value ...]                     calls, tokens and cost of extraction
    gnnrag index draft-schema INDEX > FILE                           types of its graph, for you to edit

`index.stages=passages,text,hierarchy,lexical` builds only these stages. Adding and removing equal building the
changed corpus from scratch; a killed build continues where it stopped. An index holds no addresses, keys or paths: what
a language model or a file had part in is changed with the config that the index was built with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from rich.table import Table

from gnnrag.cli.changing import add, remove, report, tell_report
from gnnrag.cli.console import IndexProgress, load_corpus, note, render, split_arguments
from gnnrag.cli.inspecting import inspect
from gnnrag.config import EvaluateConfig, is_given, load_config
from gnnrag.datasets.base import load_passages
from gnnrag.datasets.documents.report import write_report
from gnnrag.errors import GnnragError, nearest
from gnnrag.extract.prompted import estimate_extraction
from gnnrag.index.build import build_index
from gnnrag.index.index import Index
from gnnrag.llm.openai import prices_of
from gnnrag.methods.dotrag.schema import draft, to_yaml
from gnnrag.roles.writers.tasks import model_settings
from gnnrag.run.pipeline import chunking, data_source, index_path, index_settings, needed_stages, refuse_sample


def main(arguments: Sequence[str]) -> int:
    """Dispatch a subcommand; returns the exit code."""
    commands: dict[str, Callable[[Sequence[str]], None]] = {
        "build": build,
        "add": add,
        "remove": remove,
        "inspect": inspect,
        "estimate": estimate,
        "draft-schema": draft_schema,
    }
    if not arguments or arguments[0] not in commands:
        raise GnnragError(f"give a subcommand. {nearest(arguments[0] if arguments else '', commands)} See --help.")
    commands[arguments[0]](arguments[1:])
    return 0


def build(arguments: Sequence[str]) -> None:
    """Bring the index of a config up to date."""
    stages = [a.removeprefix("index.stages=") for a in arguments if a.startswith("index.stages=")]
    source, overrides = split_arguments([a for a in arguments if not a.startswith("index.stages=")])
    config = load_config(EvaluateConfig, source, overrides)
    refuse_sample(config.index, is_given("data.path", source, overrides))
    data = load_corpus(config.data.path, chunking(config.data), reports=True, titles=config.data.titles)
    path = index_path(config.index, data.name)
    wanted = stages[0].split(",") if stages else {*needed_stages(config), "hierarchy", "lexical", "embeddings"}
    started = time.perf_counter()
    with IndexProgress() as progress:
        built = build_index(path, data.passages, index_settings(config), wanted, data_source(config.data), progress)
    report(path, built, time.perf_counter() - started)
    if data.report:
        write_report(path, data.report)
        tell_report(data)


def estimate(arguments: Sequence[str]) -> None:
    """Print what reading the whole corpus with a language model will cost, before the first call."""
    source, overrides = split_arguments(arguments)
    config = load_config(EvaluateConfig, source, overrides)
    data = load_passages(config.data.path, chunking(config.data))
    extract = replace(config.index.extract, method="prompted")
    index = index_settings(replace(config, index=replace(config.index, extract=extract)))
    backend, llm = model_settings(index, "triples")
    prices = prices_of(llm)
    found = estimate_extraction(data.passages, extract, *prices)
    table = Table("what", "figure", title=f"extraction by {getattr(llm, 'model', backend)}: {extract.format}")
    for name, value in asdict(found).items():
        table.add_row(name.replace("_", " "), f"{value:,.2f}" if name == "cost" else f"{value:,}")
    print(render(table))
    if not any(prices):
        section = "index.llm" if config.index.llm else "llm"
        note(f"give {section}.price_in and {section}.price_out, per million tokens, for the cost")
    note("summaries, reports and curation by a model are not counted")
    for name, limit, spent in (
        ("max_calls", config.index.max_calls, found.calls),
        ("max_tokens", config.index.max_tokens, found.prompt_tokens + found.completion_tokens),
    ):
        if limit is not None and spent > limit:
            note(f"index.{name}={limit:,} would stop the build")


def draft_schema(arguments: Sequence[str]) -> None:
    """Print a draft of the schema of an index's knowledge graph, for `method.schema_file`."""
    if len(arguments) != 1:
        raise GnnragError("usage: gnnrag index draft-schema INDEX > FILE")
    print(to_yaml(draft(Index(arguments[0]).knowledge)), end="")
