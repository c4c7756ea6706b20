"""Tables of strings: for people, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from inference.console import render

WIDEST = 300


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", width: int = 140) -> str:
    """Return rows for people: the first column is a name, the others are numbers."""
    out = Table(title=title or None)
    for number, heading in enumerate(headings):
        out.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in rows:
        out.add_row(*row)
    return render(out, width=width)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table; a bar inside a cell does not end it."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    first, second, *rest = [" | ".join(cell.replace("|", r"\|") for cell in line) for line in lines]
    return "\n".join([f"| {first} |", f"|{second.replace(' ', '')}|", *(f"| {line} |" for line in rest)])


def gain(found: Mapping[str, Any]) -> str:
    """Return a paired difference (`Comparison.differences`) with its interval and p-value."""
    low, high = found["interval"]
    return f"{found['difference']:+.3f} [{low:+.3f}, {high:+.3f}] p {found['p']:.2g}"
