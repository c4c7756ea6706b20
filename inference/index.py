"""Build, change and look at an index.

    python inference/index.py build configs/evaluate/2wiki.yaml [key=value ...]   what a run of that config would read
    python inference/index.py build data.path=FOLDER index.path=INDEX             a folder of your own documents
    python inference/index.py add INDEX PATH                                      documents, or a corpus.jsonl
    python inference/index.py remove INDEX ID [ID ...]                            ids of passages, or documents
    python inference/index.py inspect INDEX [--json]                              counts, sizes, hubs, gaps
    python inference/index.py inspect INDEX --html FILE [--entity NAME | --question "TEXT"]   a page that draws a part
    python inference/index.py estimate CONFIG [key=value ...]                     calls, tokens and cost of extraction
    python inference/index.py draft-schema INDEX > FILE                           types of its graph, for you to edit

`index.stages=passages,text,hierarchy,lexical` builds only these stages. Adding and removing equal building the
changed corpus from scratch; a killed build continues where it stopped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from gnnrag.config import EvaluateConfig, load_config, to_plain
from gnnrag.datasets.base import load_passages
from gnnrag.datasets.chunk import Chunking
from gnnrag.errors import GnnragError, nearest
from gnnrag.extract.estimate import estimate_extraction
from gnnrag.graphs.schema import draft, to_yaml
from gnnrag.index.build import build_index, update_index
from gnnrag.index.index import Index
from gnnrag.index.store import Store
from gnnrag.pipeline import chunking, data_source, index_path, index_settings, needed_stages, refuse_other_data
from gnnrag.roles.jobs import model_settings
from gnnrag.tracking.building import track_build
from inference.console import IndexProgress, note, render, split_arguments
from inference.inspecting import inspect


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
    data = load_passages(config.data.path, chunking(config.data))
    for remark in data.remarks:
        note(remark)
    path = index_path(config.index, data.name)
    refuse_other_data(config, data.name, data.passages)
    wanted = stages[0].split(",") if stages else {*needed_stages(config), "hierarchy", "lexical", "embeddings"}
    started = time.perf_counter()
    with IndexProgress() as progress:
        built = build_index(path, data.passages, index_settings(config), wanted, data_source(config.data), progress)
    _report(path, built, time.perf_counter() - started)
    track_build(config.run, path, to_plain(config.index), built, note)


def add(arguments: Sequence[str]) -> None:
    """Add documents, cut as those of the index are, or replace those with known names."""
    if len(arguments) != 2:
        raise GnnragError("usage: python inference/index.py add INDEX PATH")
    store = Store(Path(arguments[0]))
    store.check_there()
    data = load_passages(arguments[1], Chunking(**store.manifest["source"].get("chunking", {})))
    for remark in data.remarks:
        note(remark)
    _change(store.root, add=data.passages, documents=data.documents)


def remove(arguments: Sequence[str]) -> None:
    """Remove passages by id, or all that were cut from a document."""
    if len(arguments) < 2:
        raise GnnragError("usage: python inference/index.py remove INDEX ID [ID ...]")
    _change(Path(arguments[0]), remove=arguments[1:])


def estimate(arguments: Sequence[str]) -> None:
    """Print what reading the whole corpus with a language model will cost, before the first call."""
    source, overrides = split_arguments(arguments)
    config = load_config(EvaluateConfig, source, overrides)
    data = load_passages(config.data.path, chunking(config.data))
    extract = replace(config.index.extract, method="prompted")
    index = index_settings(replace(config, index=replace(config.index, extract=extract)))
    backend, llm = model_settings(index, "triples")
    prices = [getattr(llm, name, 0.0) for name in ("price_in", "price_out")]
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
        raise GnnragError("usage: python inference/index.py draft-schema INDEX > FILE")
    print(to_yaml(draft(Index(arguments[0]).knowledge)), end="")


def _change(path: Path, **changes: Any) -> None:
    started = time.perf_counter()
    with IndexProgress() as progress:
        built = update_index(path, progress=progress, **changes)
    _report(path, built, time.perf_counter() - started)


def _report(path: Path, built: Sequence[str], seconds: float) -> None:
    store = Store(path)
    what = f"built {', '.join(built)}" if built else "nothing to do"
    line = f"{what} in {seconds:.2f} s; {store.info('passages')['passages']} passages"
    # Of a few passages the rate would only tell how long the model takes to load.
    if "embeddings" in built and (count := store.info("embeddings")["computed"]) >= 100:
        line += f"; {count / max(store.info('embeddings')['seconds'], 1e-9):.0f} passages embedded per second"
    print(line)
    print(path)


if __name__ == "__main__":
    from inference.console import run_script

    sys.exit(run_script(main, sys.argv[1:], __doc__))
