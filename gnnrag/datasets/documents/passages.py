"""Cut a document into passages along its headings, blocks and sentences, each with a title and a place.

A passage stays within its section. Rows, items and paragraphs stand between blank lines, so that each is a sentence, or
sentences, of its own. No sentence is cut, but one of more than `LONGEST` words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from gnnrag.datasets.chunk import Chunking, count_words, pack, word_starts
from gnnrag.datasets.documents.blocks import Block, Document, place, with_paths
from gnnrag.io import well_formed
from gnnrag.text.normalise import FUNCTION_WORDS, fold, lower_words
from gnnrag.text.sentences import sentence_spans
from gnnrag.text.subjects import subject_of
from gnnrag.types import Passage

LONGEST = 300  # words; a longer sentence is no sentence that anybody wrote
REPEATED = 12  # words of a block from which on its repetition in a document is left out
SURE, MOST_WORDS = 0.7, 6  # confidence, and words at most, of a name that titles a passage
LEAD = 25  # words of a paragraph that ends in a colon up to which it stays with what it leads to


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence, a row, an item's sentence, a line of code: what is not cut. `glue` joins it to what precedes it."""

    text: str
    words: int
    block_words: int  # of the block that it starts, else 0
    glue: str
    first: int  # `Block.at`
    last: int
    is_row: bool  # of a table


def cut_document(document: Document, chunking: Chunking, fallback: str) -> list[Passage]:
    """Return the passages of a document, in order, without ids.

    Where no heading is above a passage, its title is the name that its first sentence introduces, else `fallback`.
    """
    longest = max(LONGEST, chunking.target_words)
    seen: set[str] = set()
    passages = []
    for (path, part, _), group in groupby(with_paths(document), key=_section):
        units, fields = list[_Unit](), dict(document.metadata)
        for _, block in group:
            fields |= block.fields
            words = lower_words(block.text)
            is_long = block.kind != "row" and count_words(block.text) >= REPEATED
            if not (is_long and words in seen):
                units += _units(block, longest)
            if is_long:
                seen.add(words)
        units = _with_leads(units)
        done = 0
        for start, stop in pack([(unit.words, unit.block_words) for unit in units], chunking):
            while start < done and any(unit.is_row for unit in units[start:done]):
                start += 1  # a row that stood twice would be counted twice
            chosen, done = units[start:stop], stop
            text = chosen[0].text + "".join(unit.glue + unit.text for unit in chosen[1:])
            where = place(document, chosen[0].first, chosen[-1].last, part)
            page = {"page": chosen[0].first} if document.unit == "page" else {}
            # The passages of a table have one title.
            subject = "" if any(unit.is_row for unit in chosen) else _subject(text)
            passages.append(
                Passage("", well_formed(" > ".join(path) or subject or fallback), text, where, fields | page)
            )
    return passages


def _section(item: tuple[tuple[str, ...], Block]) -> tuple[tuple[str, ...], str, int]:
    """Return what all blocks of a passage have in common: headings, a sheet, and a row if it has fields."""
    path, block = item
    return path, block.part, block.at if block.fields else 0


def _subject(text: str) -> str:
    """Return the name that a text introduces, if it is surely one; a single word has to stand there twice."""
    subject = subject_of(text)
    if subject is None or subject.confidence < SURE or not subject.name[:1].isupper():
        return ""
    words = subject.name.split()
    is_name = fold(words[-1]) not in FUNCTION_WORDS and (len(words) > 1 or text.count(subject.name) > 1)
    return subject.name if is_name and len(words) <= MOST_WORDS else ""


def _units(block: Block, longest: int) -> Iterator[_Unit]:
    if block.kind == "code":
        spans = [match.span() for match in re.finditer(r"[^\n]*\S[^\n]*", block.text)]
    elif block.kind == "row":
        spans = [(0, len(block.text))]
    else:
        spans = sentence_spans(block.text)
    texts = [text for start, end in spans for text in _pieces(block.text[start:end], longest)]
    sizes = [count_words(text) for text in texts]
    inner = "\n" if block.kind == "code" else " "
    for number, (text, words) in enumerate(zip(texts, sizes, strict=True)):
        block_words, glue = (0, inner) if number else (sum(sizes), "\n\n")
        yield _Unit(text, words, block_words, glue, block.at, block.at, block.kind == "row")


def _pieces(text: str, longest: int) -> list[str]:
    """Return a sentence; of one with more words, pieces of so many."""
    starts = word_starts(text)
    cuts = [0, *starts[longest::longest], len(text)]
    return [piece for a, b in pairwise(cuts) if (piece := text[a:b].strip())]


def _with_leads(units: Sequence[_Unit]) -> list[_Unit]:
    """Join each unit that ends in a colon to the unit after it."""
    joined: list[_Unit] = []
    for unit in units:
        lead = joined[-1] if joined else None
        if lead is None or not lead.text.endswith(":") or lead.words > LEAD:
            joined.append(unit)
            continue
        words, block_words = lead.words + unit.words, lead.words + unit.block_words
        text = lead.text + unit.glue + unit.text
        joined[-1] = replace(lead, text=text, words=words, block_words=block_words, last=unit.last, is_row=unit.is_row)
    return joined
