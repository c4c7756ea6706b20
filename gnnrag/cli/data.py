"""Commands that get and give data: `fetch`, `exchange`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gnnrag.cli.console import note, plain_table
from gnnrag.datasets.base import load_dataset
from gnnrag.datasets.fetch import fetch as fetch_release
from gnnrag.datasets.fetch import release, releases
from gnnrag.index.index import Index
from gnnrag.interchange import write_beir, write_graphml, write_trec
from gnnrag.run.evaluate import load_data_of
from gnnrag.run.rundir import read_predictions


def fetch(
    action: Annotated[Literal["list", "get"], typer.Argument()],
    name: Annotated[str, typer.Argument(help="benchmark")] = "",
    folder: Annotated[Path | None, typer.Argument(help="where it goes; none: print page and terms")] = None,
    only: Annotated[str | None, typer.Option(help="files, separated by commas")] = None,
) -> None:
    """Get the public benchmarks.

    \b
    gnnrag fetch list
    gnnrag fetch get graphrag_bench
    gnnrag fetch get ultradomain data/ultradomain --only cs.jsonl,mix.jsonl
    """
    if action == "list":
        rows = [(r.name, r.title, r.licence, r.size, "by get" if r.repo else "by hand") for r in releases().values()]
        print(plain_table(("name", "benchmark", "licence", "size", "fetched"), rows, "benchmarks that gnnrag reads"))
        return
    benchmark = release(name)
    note(benchmark.described(folder or ""))
    for path in fetch_release(benchmark, folder, only, note) if folder else ():
        print(path)


def exchange(
    form: Annotated[Literal["trec", "beir", "graphml"], typer.Argument()],
    source: Annotated[Path, typer.Argument(help="run (trec), benchmark (beir), index (graphml)")],
    out: Annotated[Path, typer.Argument()],
    split: Annotated[str, typer.Option(help="of a benchmark")] = "dev",
) -> None:
    """Write files for other tools: trec_eval and ir-measures, BEIR, Gephi.

    \b
    gnnrag exchange trec RUN OUT                 run.trec and qrels.trec
    gnnrag exchange beir DATA OUT --split=dev    corpus.jsonl, queries.jsonl, qrels
    gnnrag exchange graphml INDEX FILE           the knowledge graph
    """
    if form == "trec":
        write_trec(out, read_predictions(source), load_data_of(source).questions, tag=source.resolve().name)
    elif form == "beir":
        write_beir(out, load_dataset(source, split), split)
    else:
        write_graphml(out, Index(source))
    print(out)
