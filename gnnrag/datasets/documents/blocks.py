"""A document as its readers give it: headings and blocks of text, each knowing where in its file it stands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["heading", "text", "item", "table", "verbatim"]
Unit = Literal["character", "page", "slide", "paragraph", "row", "line"]


@dataclass(slots=True)
class Block:
    """A heading, a paragraph, an item of a list, a table (Markdown; its first two lines are the head), lines as set.

    `marks` are pairs, ascending: from this character of the text on, it stands at that number in its file. `part` is a
    sheet, or a chapter's file.
    """

    kind: Kind
    text: str
    marks: list[tuple[int, int]]
    level: int = 0  # of a heading: 1 is the highest
    part: str = ""

    def at(self, offset: int, unit: Unit) -> int:
        """Return where in the file a character of the text stands."""
        start, number = self.marks[bisect_right(self.marks, (offset, 1 << 60)) - 1]
        return number + offset - start if unit == "character" else number


@dataclass(slots=True)
class Document:
    """A file, or a record of one."""

    title: str = ""  # empty: not known
    blocks: list[Block] = field(default_factory=list)
    unit: Unit = "paragraph"
    key: str = ""  # of a record, else empty
    cut: str = ""  # how much was read, if not all
    notes: list[str] = field(default_factory=list)  # what a person should know of how it was read

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing but headings."""
        return not any(block.kind != "heading" and block.text.strip() for block in self.blocks)


def place(unit: Unit, first: int, last: int, part: str = "") -> str:
    """Return where something stands, for people; numbers count from 1, and the last is included."""
    if unit == "page":
        where = f"p. {first}" if first == last else f"pp. {first}-{last}"
    else:
        where = f"{unit} {first:,}" if first == last else f"{unit}s {first:,}-{last:,}"
    return f"{part}, {where}" if part else where


def with_paths(document: Document) -> Iterator[tuple[tuple[str, ...], Block]]:
    """Yield the blocks that are no headings, each with the headings above it, the document's own title first."""
    title, headings = document.title, [block for block in document.blocks if block.kind == "heading"]
    if not title and len(headings) > 1 and not headings[0].text[:1].isdigit():
        # The first heading is the title if none is as high, or all that are have a number.
        peers = [block for block in headings[1:] if block.level <= headings[0].level]
        title = headings[0].text if all(block.text[:1].isdigit() for block in peers) else ""
    trail: list[tuple[int, str]] = []
    for block in document.blocks:
        if block.kind == "heading":
            trail = [item for item in trail if item[0] < block.level]
            if block.text.casefold() != title.casefold():
                trail.append((block.level, block.text))
        else:
            yield tuple(name for name in (title, *(name for _, name in trail)) if name), block


def table(rows: Sequence[Sequence[str]], numbers: Sequence[int], part: str = "") -> Block:
    """Return rows of cells as a block; the first row is its head, `numbers` say where in the file each row stands."""
    width = max(len(row) for row in rows)
    lines, marks, size = list[str](), list[tuple[int, int]](), 0
    for row, number in zip(rows, numbers, strict=True):
        cells = [" ".join(cell.replace("|", "\\|").split()) for cell in (*row, *[""] * (width - len(row)))]
        line = f"| {' | '.join(cells)} |"
        if not lines:
            line += f"\n|{' --- |' * width}"
        lines.append(line)
        marks.append((size, number))
        size += len(line) + 1
    return Block("table", "\n".join(lines), marks, part=part)
