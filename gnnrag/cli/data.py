"""The command that writes files for other tools: `exchange`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gnnrag.datasets.base import load_dataset
from gnnrag.index.index import Index
from gnnrag.interchange import write_beir, write_graphml, write_trec
from gnnrag.run.evaluate import load_data_of
from gnnrag.run.rundir import read_predictions


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
