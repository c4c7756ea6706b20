"""What `gnnrag index inspect` prints: tables for people, JSON for machines, a page to look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from gnnrag.cli.console import render
from gnnrag.common.files import write_atomic
from gnnrag.errors import ArtefactError, GnnragError
from gnnrag.index.index import Index
from gnnrag.pages.graph import around_entity, for_question
from gnnrag.pages.inspection import GraphSummary, Inspection, inspect_index
from gnnrag.serve.still import render_page

USAGE = 'usage: gnnrag index inspect INDEX [--json | --html FILE [--entity NAME | --question "TEXT"]]'
_WIDTH = 60  # of a name in a table


def inspect(arguments: Sequence[str]) -> None:
    """Print what an index holds, or write the page. Raises GnnragError for arguments that do not fit."""
    names, options = _split(arguments)
    if len(names) != 1 or ("--json" in options and len(options) > 1):
        raise GnnragError(USAGE)
    about = options.keys() & {"--entity", "--question"}
    if len(about) > 1 or (about and "--html" not in options):
        raise GnnragError(f"--entity and --question go with --html, one of them. {USAGE}")
    root = Path(names[0])
    if "--html" in options:
        print(write_page(root, Path(options["--html"]), options.get("--entity"), options.get("--question")))
        return
    inspection = inspect_index(root)
    print(json.dumps(asdict(inspection), indent=2, ensure_ascii=False) if "--json" in options else describe(inspection))


def write_page(root: Path, path: Path, entity: str | None, question: str | None) -> Path:
    """Write the page of an entity, of a question, or of the entity with the most neighbours; returns its path."""
    index = Index(root)
    if not index.has("knowledge"):
        raise ArtefactError(
            f"index {root} has no knowledge graph to draw; add one with: gnnrag index build data.path=FOLDER "
            f"index.path={root} retriever=lightrag, or with the config that it was built with in place of data.path; "
            f"gnnrag serve {root} draws what its passages have in common without one"
        )
    graph = index.knowledge
    if not graph.num_entities:
        raise ArtefactError(f"the knowledge graph of index {root} is empty: nothing was extracted from its passages")
    if question is not None:
        subgraph = for_question(index, question)
    else:
        subgraph = around_entity(graph, entity if entity is not None else graph.names[int(graph.degrees.argmax())])
    write_atomic(path, render_page(index, subgraph))
    return path


def describe(found: Inspection) -> str:
    """Return everything as text."""
    parts = [stages_table(found), *(_graph_table(graph) for graph in found.graphs)]
    lines = []
    if found.stale_reports is not None:
        lines.append(f"reports that stand in for one that changed: {found.stale_reports}")
    if gaps := found.extraction:
        lines.append(
            f"extraction: {gaps.malformed} malformed triples; of {gaps.passages} passages "
            f"{gaps.without_record} have no record and {gaps.without_triples} no triples"
            + (f" ({', '.join(map(_cut, gaps.examples))}{', ...' if gaps.without_triples > 10 else ''})")
            * bool(gaps.examples)
        )
    lines.append(f"{found.total_bytes / 1e6:.2f} MB in artefacts, {found.other_bytes / 1e6:.2f} MB beside them")
    lines += [f"cut off in {name}: {size / 1e6:.2f} MB of work are kept" for name, size in found.unfinished.items()]
    if found.source.get("edited"):
        lines.append("passages were added or removed since it was built from its source")
    return render(*parts, *lines)


def stages_table(found: Inspection) -> Table:
    """Return the table of artefacts."""
    state = "" if found.complete else ": its last build was cut off, run it again"
    table = Table("stage", "holds", "MB", "seconds", "state", title=f"index {found.root}{state}")
    for line in found.stages:
        facts = ", ".join(f"{v} {k}" for k, v in line.facts.items())
        table.add_row(line.name, facts, f"{line.bytes / 1e6:.2f}", f"{line.seconds:.2f}", line.state)
    return table


def _graph_table(graph: GraphSummary) -> Table:
    table = Table("", "", title=f"{graph.name}: {graph.nodes:,} nodes, {graph.edges:,} joined pairs", show_header=False)
    names = {0: "least", 50: "median", 100: "most"}
    spread = ", ".join(f"{names.get(q, f'{q}%')} {value}" for q, value in graph.degrees.items())
    table.add_row("neighbours", f"mean {graph.mean_degree}; {spread}")
    hubs = "\n".join(f"{hub.degree:>6}  {_cut(hub.name)} ({hub.kind})" for hub in graph.hubs)
    table.add_row("hubs", hubs)
    if graph.joins_everything:
        shown = (f"{_cut(hub.name)} ({hub.degree / (graph.nodes - 1):.0%})" for hub in graph.joins_everything)
        table.add_row("warning", f"joined to more than a tenth of all others, which says little: {', '.join(shown)}")
    alone = ", ".join(map(_cut, graph.isolated_names[:5]))
    table.add_row("isolated", f"{graph.isolated}" + (f": {alone}" if alone else ""))
    parts = ", ".join(f"{part.nodes:,} around {_cut(part.around)}" for part in graph.largest)
    table.add_row("connected parts", f"{graph.components:,}; the largest: {parts}")
    return table


def _split(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the plain arguments, and the options with their values."""
    names, options, waiting = [], {}, iter(arguments)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name == "--json" and not equals:
            options[name] = ""
        elif name in ("--html", "--entity", "--question"):
            given = value if equals else next(waiting, None)
            if not given:
                raise GnnragError(f"{name} needs a value. {USAGE}")
            options[name] = given
        elif argument.startswith("--"):
            raise GnnragError(f"{argument!r} is unknown. {USAGE}")
        else:
            names.append(argument)
    return names, options


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
