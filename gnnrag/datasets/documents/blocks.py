"""A document as its readers give it: headings and blocks of text, each knowing where in its file it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal

from gnnrag.io import well_formed
from gnnrag.types import Scalar

Kind = Literal["heading", "text", "item", "row", "code"]


@dataclass(slots=True)
class Block:
    """A heading, a paragraph, an item of a list, a row of a table (with the names of its columns), lines of code."""

    kind: Kind
    text: str
    at: int = 0  # number of its page, slide, row, line or paragraph, from 1
    level: int = 0  # of a heading: 1 is the highest
    part: str = ""  # the sheet
    fields: Mapping[str, Scalar] = field(default_factory=dict)  # metadata of a row; it is then a passage of its own

    def __post_init__(self) -> None:
        self.text = well_formed(self.text)  # a Mac writes e and an accent where others write é


@dataclass(slots=True)
class Document:
    title: str = ""  # empty: not known
    blocks: list[Block] = field(default_factory=list)
    unit: Literal["page", "slide", "row", "line", "paragraph"] = "paragraph"  # what `Block.at` counts
    key: str = ""  # of a record, else empty
    notes: list[str] = field(default_factory=list)  # what a person should know of how it was read
    metadata: Mapping[str, Scalar] = field(default_factory=dict)  # of all its passages: its date, fields of a record


def place(document: Document, first: int, last: int, part: str = "") -> str:
    """Return where something stands, for people: `pp. 3-4`, `Fees, row 7`."""
    if document.unit == "page":
        where = f"p. {first}" if first == last else f"pp. {first}-{last}"
    else:
        where = f"{document.unit} {first:,}" if first == last else f"{document.unit}s {first:,}-{last:,}"
    return f"{part}, {where}" if part else where


def with_paths(document: Document) -> Iterator[tuple[tuple[str, ...], Block]]:
    """Yield the blocks of text, each with the headings above it, the document's own title first.

    A heading with nothing below it becomes text of the next section: in PDFs, large print is taken for headings.
    """
    blocks = document.blocks
    title, headings = document.title, [block for block in blocks if block.kind == "heading"]
    if not title and headings and not headings[0].text[:1].isdigit():
        # The first heading is the title, also of what stands before it, if all as high as it have a number.
        peers = [block for block in headings[1:] if block.level <= headings[0].level]
        title = headings[0].text if all(block.text[:1].isdigit() for block in peers) else ""
    first = next((block for block in blocks if block.text), None)
    is_deck = document.unit == "slide" and sum(bool(heading.text) for heading in headings) > 1
    if is_deck and not title and first and first.kind == "heading":
        title = first.text  # of the first slide
    trail: list[tuple[int, str]] = []
    bare: list[Block] = []
    for block, after in zip_longest(blocks, blocks[1:]):
        if block.kind == "heading":
            trail = [item for item in trail if item[0] < block.level]
            if after is None or (after.kind == "heading" and after.level <= block.level):
                bare.append(block)
            else:
                trail.append((block.level, block.text))
        if block.kind != "heading" or after is None:
            shown = [block] if block.kind != "heading" else []
            path = tuple(name for name in (title, *(name for _, name in trail if name != title)) if name)
            yield from (
                (path, found)
                for found in (*bare, *shown)
                if found.text and (found.text != title or (is_deck and found.kind != "heading"))
            )
            bare = []
