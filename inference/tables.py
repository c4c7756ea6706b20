"""Tables: of runs, and of strings; for people, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from gnnrag.common.untrusted import markdown
from gnnrag.metrics.replies import KINDS, SPENT, total
from gnnrag.metrics.retrieval import is_node_metric
from gnnrag.metrics.statistics import with_interval
from inference.console import render

WIDEST = 300
# Heading, metric, digits of each column.
COLUMNS = (
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
    ("retriever calls", "cost/retriever_calls", 1),
    ("LLM calls", "cost/llm_calls", 1),
    ("tokens", "tokens", 0),
    ("failed", "failed", 0),
)


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", width: int = 140) -> str:
    """Return rows for people: the first column is a name, the others are numbers."""
    out = Table(title=title or None)
    for number, heading in enumerate(headings):
        out.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in rows:
        out.add_row(*row)
    return render(out, width=width)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table; nothing inside a cell ends it."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    first, second, *rest = [" | ".join(map(markdown, line)) for line in lines]
    return "\n".join([f"| {first} |", f"|{second.replace(' ', '')}|", *(f"| {line} |" for line in rest)])


def gain(found: Mapping[str, Any]) -> str:
    """Return a paired difference (`Comparison.differences`) with its interval and p-value."""
    low, high = found["interval"]
    p = p_text(found, f"{found['p']:.2g}")
    return f"{found['difference']:+.3f} [{low:+.3f}, {high:+.3f}] p {p}"


def p_text(found: Mapping[str, Any], exact: str) -> str:
    """Return the p-value of a paired difference: `exact`, or a bound where resampling could give no smaller one."""
    floor = found["p_floor"]  # 0 where the test is exact
    return f"<= {floor:.2g}" if floor and found["p"] <= floor else exact


def metrics_table(rows: Iterable[tuple[str, dict[str, Any]]], title: str = "") -> str:
    """Return runs as a table, one line a run; the interval of Recall@5 stands beside it.

    Where models replied badly, a column says how often, and a second table by role what was wrong.
    """
    rows = list(rows)
    sections = [metrics.get("replies", {}) for _, metrics in rows]
    bad = [total(section) for section in sections]
    table = Table(title=title or None)
    table.add_column("run", overflow="fold", min_width=18)
    columns = [c for c in COLUMNS if not is_node_metric(c[1]) or any(c[1] in metrics for _, metrics in rows)]
    for heading, _, _ in columns:
        table.add_column(heading, justify="right")
    if has_bad := any(count for count, _ in bad):
        table.add_column("bad replies", justify="right")
    for (name, metrics), (count, asked) in zip(rows, bad, strict=True):
        cells = [_cell(metrics, key, digits) for _, key, digits in columns]
        table.add_row(name, *cells, *[f"{count:.0f} ({count / asked:.0%})" if asked else "-"] * has_bad)
    shown = render(table, width=140 if len(columns) < len(COLUMNS) - 2 else 200)
    named = zip(rows, sections, strict=True)
    by_role = [replies_table(section, name * (len(rows) > 1)) for (name, _), section in named if section]
    return "\n".join([shown, *(by_role if has_bad or len(rows) == 1 else [])])


def replies_table(section: Mapping[str, Mapping[str, float]], run: str = "") -> str:
    """Return what each role's model was asked, spent and did wrong (`metrics.replies.by_role`), a column a role."""
    used = [key for key in (*SPENT[1:], *KINDS) if any(key in counts for counts in section.values())]
    columns = [
        [f"{c['asked']:.0f}", f"{c['bad']:.0f} ({c['bad'] / c['asked']:.0%})"]
        + [(f"{c[key]:.4g}" if key == "cost" else f"{c[key]:.0f}") if key in c else "" for key in used]
        for c in section.values()
    ]
    names = ["asked", "bad", *(key.replace("_", " ") for key in used)]
    return plain_table(["replies", *section], list(zip(names, *columns, strict=True)), run or "language models by role")


def _cell(metrics: dict[str, Any], key: str, digits: int) -> str:
    if key == "tokens":
        return f"{sum(metrics.get(f'cost/{kind}_tokens') or 0 for kind in ('prompt', 'completion')):.0f}"
    value = metrics.get(key)
    if value is None:
        return "-"
    return with_interval(value, metrics.get(f"{key}_ci") if key == "retrieval/recall@5" else None, digits)
