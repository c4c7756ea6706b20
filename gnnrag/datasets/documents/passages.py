"""Cut a document into passages along its headings and sentences; a title and a place for each.

No sentence is cut, but one of more than `HARD_CAP` words; no row of a table is parted from the table's head.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gnnrag.datasets.chunk import Chunking, count_words, pack, word_starts
from gnnrag.datasets.documents.blocks import Block, Document, Kind, place, with_paths
from gnnrag.datasets.documents.titles import Untitled, own_titles
from gnnrag.text.sentences import sentence_spans

HARD_CAP = 300  # words; a longer sentence is no sentence that anybody wrote
REPEATED = 12  # words of a paragraph from which on its repetition is left out
LEAD = 25  # words of a sentence that ends in a colon up to which it stays with what it leads to
LABEL = 2  # words of a paragraph up to which it names the next one
LONG = 3  # times the size of a passage from which on a paragraph stands alone
MANY = 6  # passages of one heading up to which the heading is title enough
_ALSO = 3  # other places that are named
_CLAUSE = re.compile(r"[;:,–—|)]\s+|\s[-–—]\s")


@dataclass(frozen=True, slots=True)
class Cut:
    """A passage before it has its id."""

    title: str
    text: str
    place: str


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is not cut: a sentence, an item's sentence, a row, a line as set."""

    text: str
    words: int
    paragraph_words: int
    glue: str  # before it, where it does not start a passage
    head: str  # of its table, where it starts a passage
    first: int  # where in the file it starts and ends
    last: int
    block: Block
    is_cut: bool  # from what goes on


@dataclass(frozen=True, slots=True)
class _Chunk:
    path: tuple[str, ...]
    units: Sequence[_Unit]
    stretch: int  # number of the block in which it starts, for chunks of one very long paragraph

    @property
    def text(self) -> str:
        first = self.units[0]
        head = f"{first.head}\n" if first.head else ""
        return head + first.text + "".join(unit.glue + unit.text for unit in self.units[1:])


def cut_document(document: Document, chunking: Chunking, fallback: str) -> list[Cut]:
    """Return the passages of a document, in order; `fallback` titles one of which nothing else can be said.

    What is repeated within the document is left out, and counted in its `dropped`; long sentences that were cut are
    counted in its `notes`.
    """
    _merge_repeated(document)
    cap = max(HARD_CAP, chunking.target_words)
    chunks: list[_Chunk] = []
    long = 0
    for (path, _), group in groupby(with_paths(document), key=lambda item: (item[0], item[1].part)):
        runs: list[list[_Unit]] = [[]]
        for _, block in group:
            found = list(_units(block, document, cap, runs[-1][-1].block.kind if runs[-1] else "item"))
            long += sum(unit.is_cut for unit in found)
            # A very long paragraph is a document in the document: no passage begins in one and ends in another.
            is_long = block.kind == "text" and bool(found) and found[0].paragraph_words > LONG * chunking.target_words
            runs += [found, []] if is_long else []
            runs[-1] += [] if is_long else found
        for units in map(_with_labels, runs):
            chunks += (_Chunk(path, units[a:b], id(units[a].block)) for a, b in pack(units, chunking))
    if long:
        document.notes.append(
            f"{long} times a sentence of more than {cap} words was cut, at a clause where there is one"
        )
    titles = _titles(chunks, fallback)
    return [Cut(title, chunk.text, _place(chunk, document)) for title, chunk in zip(titles, chunks, strict=True)]


def _merge_repeated(document: Document) -> None:
    """Leave out paragraphs that stand in the document already, and say there where else they stand."""
    seen: dict[str, Block] = {}
    kept: list[Block] = []
    for block in document.blocks:
        if block.kind != "heading" and count_words(block.text) >= REPEATED:
            first = seen.setdefault(normalised(block.text), block)
            if first is not block:
                first.also.append(_where(document, block))
                document.dropped["repeated paragraphs"] += 1
                continue
        kept.append(block)
    document.blocks = kept


def normalised(text: str) -> str:
    """Return what texts share that differ in blanks, case and punctuation only."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _where(document: Document, block: Block) -> str:
    first, last = (block.at(offset, document.unit) for offset in (0, max(len(block.text) - 1, 0)))
    return place(document.unit, first, last, block.part)


def _units(block: Block, document: Document, cap: int, after: Kind) -> Iterator[_Unit]:
    head, start = "", 0
    if block.kind == "table":
        head = "\n".join(block.text.split("\n")[:2])
        start = len(head) + 1
    parts = [list(_capped(block.text, *piece, cap)) for piece in _pieces(block, start)]
    spans = [(*span, span is not part[-1]) for part in parts for span in part]
    total = sum(words for _, _, words, _ in spans)
    between = "\n" if block.kind == "item" and after in ("item", "text") else "\n\n"
    end = start
    for number, (first, last, words, is_cut) in enumerate(spans):
        gap = block.text[end:first]
        glue = ("\n" if "\n" in gap or head else " " if gap else "") if number else between
        end = last
        whole = head if number == 0 else ""
        text = f"{whole}\n{block.text[first:last]}" if whole else block.text[first:last]
        at, to = (block.at(offset, document.unit) for offset in (first, max(last - 1, first)))
        again = "" if number == 0 else head
        yield _Unit(text, words, total if number == 0 else 0, glue, again, at, to, block, is_cut)


def _with_labels(units: Sequence[_Unit]) -> list[_Unit]:
    """Return units that lead on joined to what they lead to: a bare number or word, a sentence that ends in a colon."""
    joined: list[_Unit] = []
    for unit in units:
        label = joined[-1] if joined else None
        if label is None or not _leads_on(label, unit):
            joined.append(unit)
            continue
        text = f"{label.text}{unit.glue if label.text[-1] == ':' else ' '}{unit.text}"
        words, paragraph = label.words + unit.words, label.words + unit.paragraph_words
        joined[-1] = replace(
            unit, text=text, words=words, paragraph_words=paragraph, glue=label.glue, first=label.first
        )
    return joined


def _leads_on(unit: _Unit, after: _Unit) -> bool:
    if unit.block.kind != "text" or unit.block is after.block:
        return False
    is_label = after.block.kind == "text" and unit.words == unit.paragraph_words <= LABEL and unit.text[-1] not in ".!?"
    return is_label or (unit.text[-1] == ":" and unit.words <= LEAD)


def _pieces(block: Block, start: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of lines, in paragraphs of sentences within lines: where a line feed was kept, one ends."""
    for line in re.finditer(r"[^\n]+", block.text[start:]):
        first, last = start + line.start(), start + line.end()
        if block.kind in ("table", "verbatim"):
            yield first, last
        else:
            yield from ((first + a, first + b) for a, b in sentence_spans(block.text[first:last]))


def _capped(text: str, first: int, last: int, cap: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, words) of a sentence; of one with more than `cap` words, pieces that end at clauses."""
    starts = [first + start for start in word_starts(text[first:last])]
    begin = 0
    while len(starts) - begin > cap:
        clauses = [m.end() for m in _CLAUSE.finditer(text, starts[begin + cap // 2], starts[begin + cap])]
        end = clauses[-1] if clauses else starts[begin + cap]
        stop = bisect_left(starts, end, begin)
        yield first, first + len(text[first:end].rstrip()), stop - begin
        first, begin = end, stop
    if begin < len(starts):
        yield first, last, len(starts) - begin


def _place(chunk: _Chunk, document: Document) -> str:
    units = chunk.units
    first, last = min(u.first for u in units), max(u.last for u in units)
    own = place(document.unit, first, last, units[0].block.part)
    also = list(dict.fromkeys(where for unit in units for where in unit.block.also if where != own))
    more = f" and {len(also) - _ALSO} more" if len(also) > _ALSO else ""
    return f"{own}; also {', '.join(also[:_ALSO])}{more}" if also else own


def _titles(chunks: Sequence[_Chunk], fallback: str) -> list[str]:
    """Return the path of headings of each chunk, and what it is about where that says too little."""
    often = Counter(chunk.path for chunk in chunks)
    needy = [i for i, chunk in enumerate(chunks) if not chunk.path or often[chunk.path] > MANY]
    untitled = [Untitled(chunks[i].text, chunks[i].stretch) for i in needy]
    own = dict(zip(needy, own_titles(untitled, [chunk.text for chunk in chunks]), strict=True))
    names = ((*chunk.path, own.get(i, "")) for i, chunk in enumerate(chunks))
    return [" > ".join(part for part in name if part) or fallback for name in names]
