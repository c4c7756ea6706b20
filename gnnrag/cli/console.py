"""What the commands share: their settings, notes, progress, and tables."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import progress
from rich.console import Console
from rich.table import Table

from gnnrag.datasets.base import Dataset, load_passages
from gnnrag.datasets.chunk import Chunking
from gnnrag.errors import GnnragError
from gnnrag.metrics.long_answers import COVERAGE, TEXT
from gnnrag.metrics.replies import KINDS, SPENT, is_error, total
from gnnrag.metrics.retrieval import is_node_metric
from gnnrag.metrics.statistics import with_interval
from gnnrag.types import OnProgress

Settings = Annotated[list[str], typer.Argument(metavar="[CONFIG] [key=value ...]", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
SAMPLE = "configs/evaluate/sample.yaml"


def split(settings: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the config file among settings, if any, and the overrides. Raises GnnragError for two files."""
    files = [item for item in settings if "=" not in item]
    if len(files) > 1:
        raise GnnragError(f"one config file at most, got {', '.join(files)}; a question stands in quotes")
    return (files[0] if files else None), [item for item in settings if "=" in item]


def note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def show_remarks(remarks: Iterable[str]) -> bool:
    """Print remarks on replies (`metrics.replies.remarks`) on stderr; returns whether one is an error."""
    lines = list(remarks)
    print("\n".join(lines), file=sys.stderr, end="\n" * bool(lines))
    return is_error(lines)


def load_corpus(path: str | Path, chunking: Chunking, titles: bool = True, within: str | None = None) -> Dataset:
    """Return the corpus at a path, see `load_passages`; documents that cannot be read are named on stderr."""
    with progress_bar() as advance:
        data = load_passages(path, chunking, advance, titles, within)
    for remark in data.remarks:
        note(remark)
    return data


@contextmanager
def progress_bar() -> Iterator[OnProgress]:
    """Yield what moves a bar for each stage (its name, items done since, total), on stderr where it is a terminal."""
    console = Console(stderr=True)
    columns = (*progress.Progress.get_default_columns(), progress.MofNCompleteColumn())
    with progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], advance=done, total=total)

        yield advance


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", width: int = 140) -> str:
    """Return rows for people: the first column is a name, the others are numbers; names from data are no markup."""
    table, rows = Table(title=title or None), list(rows)
    for number, heading in enumerate(headings):
        is_name = not number and all(len(row[0]) <= 40 for row in rows)  # headings are folded, names are not
        table.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=is_name)
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=width, no_color=True, highlight=False, markup=False, emoji=False).print(table)
    return out.getvalue().rstrip()


COLUMNS = (  # heading, metric, digits
    ("Recall@2", "retrieval/recall@2", 3),
    ("Recall@5", "retrieval/recall@5", 3),
    ("MRR", "retrieval/mrr", 3),
    ("Hits@1", "retrieval/hits@1", 3),
    ("node recall", "retrieval/node_recall", 3),
    ("node F1", "retrieval/node_f1", 3),
    ("resolved recall", "retrieval/resolved_recall", 3),
    ("resolved F1", "retrieval/resolved_f1", 3),
    ("EM", "answer/em", 3),
    ("F1", "answer/f1", 3),
    ("coverage@1000", COVERAGE, 3),
    ("ROUGE-L", "text/rouge_l", 3),
    ("cosine", "text/cosine_embedding", 3),
    ("words", "text/words", 0),
    ("retriever calls", "cost/retriever_calls", 1),
    ("LLM calls", "cost/llm_calls", 1),
    ("tokens", "tokens", 0),
    ("failed", "failed", 0),
)


def metrics_table(runs: Iterable[tuple[str, Mapping[str, Any]]], title: str = "") -> str:
    """Return runs as a table with the interval of Recall@5; below it what models replied badly."""
    runs = list(runs)
    columns = []
    for heading, key, digits in COLUMNS:  # nodes, gold passages, long answers: only where a run has figures of them
        there = [metrics[key] for _, metrics in runs if key in metrics]
        is_rare = key.startswith(TEXT) or is_node_metric(key)
        if there if is_rare else "/" not in key or not there or any(value is not None for value in there):
            columns.append((heading, key, digits))
    replies = {name: metrics["replies"] for name, metrics in runs if metrics.get("replies")}
    has_bad = any(total(section)[0] for section in replies.values())
    rows = []
    for name, metrics in runs:
        bad, asked = total(metrics.get("replies", {}))
        share = [f"{bad:.0f} ({bad / asked:.0%})" if asked else "-"] if has_bad else []
        rows.append([name, *(_figure(metrics, key, digits) for _, key, digits in columns), *share])
    headings = ["run", *(heading for heading, _, _ in columns), *["bad replies"] * has_bad]
    lines = [plain_table(headings, rows, title, 140 if len(columns) < 11 else 200)]
    shown = runs[0][1] if runs else {}
    if without := shown.get("no_gold", 0):
        left = shown["questions"] - without
        lines.append(f"recall, MRR: of the {left} questions with gold passages" if left else NO_GOLD)
    if texts := shown.get("texts"):
        left = shown["questions"] - texts["long"]
        lines.append(f"EM, F1: of the {left} questions with short references" if left else NO_SHORT)
        if texts["long"]:
            lines.append(f"ROUGE-L, cosine, words: of the {texts['long']} questions with long references")
        lines += [f"embedder: {texts['embedder']}"] if texts["embedder"] else []
    if has_bad or len(runs) == 1:
        lines += [replies_table(section, name * (len(runs) > 1)) for name, section in replies.items()]
    return "\n".join(lines)


NO_GOLD = "no recall: there are no gold passages in these questions"
NO_SHORT = "no EM, no F1: the reference answers of these questions are a sentence or more"


def _figure(metrics: Mapping[str, Any], key: str, digits: int) -> str:
    if key == "tokens":
        return f"{sum(metrics.get(f'cost/{kind}_tokens') or 0 for kind in ('prompt', 'completion')):.0f}"
    if (value := metrics.get(key)) is None:
        return "-"
    return with_interval(value, metrics.get(f"{key}_ci") if key == "retrieval/recall@5" else None, digits)


def replies_table(section: Mapping[str, Mapping[str, float]], title: str = "") -> str:
    """Return what each role's model was asked, spent and did wrong (`metrics.replies.by_role`), a column a role."""
    used = [key for key in (*SPENT[1:], *KINDS) if any(key in counts for counts in section.values())]
    rows = [
        ["asked", *(f"{c['asked']:.0f}" for c in section.values())],
        ["bad", *(f"{c['bad']:.0f} ({c['bad'] / c['asked']:.0%})" for c in section.values())],
    ]
    for key in used:
        form = ".4g" if key == "cost" else ".0f"
        rows.append([key.replace("_", " "), *(f"{c[key]:{form}}" if key in c else "" for c in section.values())])
    return plain_table(["replies", *section], rows, title or "language models by role")
