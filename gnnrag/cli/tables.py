"""Tables: of runs, and of strings; for people, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from gnnrag.cli.console import render
from gnnrag.common.untrusted import markdown
from gnnrag.metrics.long_answers import TEXT
from gnnrag.metrics.replies import KINDS, SPENT, total
from gnnrag.metrics.retrieval import is_node_metric
from gnnrag.metrics.statistics import with_interval

MOST_TYPES = 12  # that a table shows; a knowledge base has hundreds
NO_GOLD = "no recall: there are no gold passages in these questions"
NO_SHORT = "no EM, no F1: the reference answers of these questions are a sentence or more"
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
    ("coverage", "text/context_coverage_lexical", 3),
    ("ROUGE-L", "text/rouge_l", 3),
    ("cosine", "text/cosine_embedding", 3),
    ("words", "text/words", 0),
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
    columns = _columns([metrics for _, metrics in rows])
    for heading, _, _ in columns:
        table.add_column(heading, justify="right")
    if has_bad := any(count for count, _ in bad):
        table.add_column("bad replies", justify="right")
    for (name, metrics), (count, asked) in zip(rows, bad, strict=True):
        cells = [_cell(metrics, key, digits) for _, key, digits in columns]
        table.add_row(name, *cells, *[f"{count:.0f} ({count / asked:.0%})" if asked else "-"] * has_bad)
    shown = render(table, width=140 if len(columns) < 11 else 200)
    named = zip(rows, sections, strict=True)
    by_role = [replies_table(section, name * (len(rows) > 1)) for (name, _), section in named if section]
    return "\n".join([shown, *_why(rows), *_types(rows, columns), *(by_role if has_bad or len(rows) == 1 else [])])


def _columns(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """Return the columns of runs: those for some questions only (nodes, gold passages, long answers) where any is."""
    found = []
    for heading, key, digits in COLUMNS:
        keys = {name for metrics in runs for name in metrics if name == key or name.startswith(f"{key}@")}
        if key.startswith(TEXT) or is_node_metric(key):
            found += [(heading + name.removeprefix(key), name, digits) for name in sorted(keys) if "_ci" not in name]
        elif "/" not in key or not keys or any(metrics.get(key) is not None for metrics in runs):
            found.append((heading, key, digits))
    return found


def _why(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield why figures are missing, or of which questions they are."""
    metrics = rows[0][1] if rows else {}
    if blank := metrics.get("no_gold", 0):
        left = metrics["questions"] - blank
        yield f"recall, MRR: of the {left} questions with gold passages" if left else NO_GOLD
    if texts := metrics.get("texts"):
        left = metrics["questions"] - texts["long"]
        yield f"EM, F1: of the {left} questions with short references" if left else NO_SHORT


def _types(rows: Sequence[tuple[str, Mapping[str, Any]]], columns: Sequence[tuple[str, str, int]]) -> Iterator[str]:
    """Yield a table of qualities by type of question, of several runs the first quality alone; none for one type."""
    groups: Mapping[str, Mapping[str, Any]] = rows[0][1].get("by_type", {}) if rows else {}
    if not 1 < len(groups) <= MOST_TYPES or any(
        metrics.get("by_type", {}).keys() != groups.keys() for _, metrics in rows
    ):
        return
    quality = [c for c in columns if c[1].startswith(("retrieval/", "answer/", TEXT))]
    quality = [c for c in quality if any(group.get(c[1]) is not None for group in groups.values())]
    if len(rows) == 1:
        quality = [c for c in quality if not c[1].startswith(TEXT)]  # `texts_table` shows these
    else:
        preferred = [c for c in quality if c[1] in ("retrieval/recall@5", "answer/em") or c[1].startswith(TEXT)]
        quality = preferred[:1]
    lines = [
        [heading if len(rows) == 1 else f"{name}, {heading}"]
        + [_cell({**metrics["by_type"][group], f"{key}_ci": None}, key, digits) for group in groups]
        for heading, key, digits in quality
        for name, metrics in rows
    ]
    if lines:
        yield plain_table(["by type", *(f"{name} ({group['count']})" for name, group in groups.items())], lines)


def texts_table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics by texts: mean with its interval, floor, how far above it, and the means by type."""
    texts = metrics["texts"]
    types = {name: metrics["by_type"][name] for name in texts["by_type"]} if len(texts["by_type"]) > 1 else {}
    lines = []
    for key, floor in texts["floors"].items():
        value = with_interval(metrics[key], metrics.get(f"{key}_ci"))
        by_type = ["-" if (v := group.get(key)) is None else f"{v:.3f}" for group in types.values()]
        lines.append([key.removeprefix(TEXT), value, f"{floor['floor']:.3f}", f"{floor['above']:.3f}", *by_type])
    table = plain_table(["by texts", "mean", "floor", "above", *types], lines, width=160)
    lengths = ""
    if texts["long"]:
        limit = metrics["settings"]["long"]["answer_words"]
        lengths = f"answers have {metrics['text/words']:.0f} words in the mean" + (f", cut to {limit}" if limit else "")
        lengths += f", references {metrics['text/reference_words']:.0f}; embedder: {texts['embedder'] or 'none'}. "
    note = "floor: with the reference of another question of the type; above: (mean - floor) / (1 - floor)"
    return f"{table}\n{lengths}{note}"


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
