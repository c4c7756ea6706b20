"""From lines to blocks: drop what repeats on pages and tables of contents, find headings, join hard-wrapped lines.

For plain text, Markdown and the pages of a PDF. What is not sure to be a heading, or furniture of pages, stays text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gnnrag.datasets.documents.blocks import Block, Kind


@dataclass(slots=True)
class Line:
    """A line of a page, and where in the file its first word stands: which character, or the number of its page."""

    text: str
    at: int
    level: int = 0  # of a heading, else 0


Page = list[Line]
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
_EDGE, _LEAST = 2, 3  # lines at the top and at the bottom of a page, and pages, that make furniture
_LONGEST = 100  # characters of a heading, and of a line that repeats on pages


def blocks_of(
    pages: list[Page], is_paged: bool = False, outline: Mapping[int, Sequence[tuple[int, str]]] | None = None
) -> list[Block]:
    """Return the blocks of a document given as pages of lines.

    `is_paged`: the lines of a PDF, which has no blank lines to tell what stands alone. `outline`: of a page, by its
    position, the headings with their levels; None where they have to be found.
    """
    _drop_furniture(pages)
    for number, titles in (outline or {}).items():
        _mark_outline(pages[number], titles)
    lines = [line for page in pages for line in page]
    _drop_contents(lines)
    if outline is None:
        _mark_headings(lines, is_paged)
    return list(_Grouper(lines, is_paged).blocks())


def _drop_furniture(pages: Sequence[Page]) -> None:
    """Drop page headers, page footers and page numbers.

    Dropped is a line among the two first or last of its page, numbers aside, that stands so on three pages, and on at
    least two in five of those from its first to its last: so running titles of chapters go as well.
    """
    places: dict[tuple[int, str], list[int]] = defaultdict(list)
    edges: list[dict[int, tuple[int, str]]] = []  # of each page, by the identity of the line
    for number, page in enumerate(pages):
        lines = [line for line in page if line.text.strip()]
        sides = (lines[:_EDGE], lines[-_EDGE:]) if len(lines) > 2 * _EDGE else ()  # few lines are what it is about
        edges.append({})
        for side, edge in enumerate(sides):
            for line in edge:
                if len(line.text.strip()) <= _LONGEST:
                    key = (side, " ".join(_DIGITS.sub("#", line.text).casefold().split()))
                    edges[-1][id(line)] = key
                    places[key].append(number)
    repeated = {key for key, at in places.items() if len(at) >= _LEAST and len(at) >= 0.4 * (at[-1] - at[0] + 1)}
    for page, keys in zip(pages, edges, strict=True):
        page[:] = [line for line in page if keys.get(id(line)) not in repeated]


_LEADERS = re.compile(r"(?:\.[ \u00a0]?){4,}\s*(?:\d+|[ivxlc]+)?\s*$|…{2,}\s*\d*\s*$", re.IGNORECASE)
_ANCHOR = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[^\]]*\]\(#[^)]*\)\s*$")
_CONTENTS = re.compile(r"\s*#*\s*(?:table of )?contents:?\s*$|\s*inhalt(?:sverzeichnis)?\s*$", re.IGNORECASE)


def _drop_contents(lines: list[Line]) -> None:
    """Drop tables of contents: at least three lines with dot leaders or links to anchors, and "Contents" above them."""
    filled = [i for i, line in enumerate(lines) if line.text.strip()]
    texts = [lines[i].text for i in filled]
    short = [text if len(text) <= _WRAPPED else "" for text in texts]
    led = [p for p, text in enumerate(short) if _LEADERS.search(text) or _ANCHOR.match(text)]
    gone: set[int] = set()
    start = 0
    for i in range(1, len(led) + 1):
        if i == len(led) or led[i] - led[i - 1] > 3:
            if i - start >= 3:
                first = led[start]
                first -= first > 0 and bool(_CONTENTS.match(texts[first - 1]))
                gone.update(filled[first : led[i - 1] + 1])
            start = i
    lines[:] = [line for i, line in enumerate(lines) if i not in gone]


_STOP = re.compile(r"[.!?:;,]$")
_UNDERLINE = re.compile(r"([=\-~*^\"#+`])\1{2,}\s*$")
_NUMBER = re.compile(r"(\d{1,3}(?:\.\d{1,3}){0,5})\.?\s+(?=[^\W\d_])")
_CHAPTER = re.compile(r"(chapter|part|appendix|annex)\s+([a-z]|\d+|[ivxlc]+)\b", re.IGNORECASE)


def _mark_headings(lines: list[Line], is_paged: bool) -> None:
    """Give headings their level: underlined lines, numbers that count on, and lines in capitals that stand alone."""
    _mark_underlined(lines)
    above = max((line.level for line in lines), default=0)
    previous: tuple[int, ...] = ()
    for i, line in enumerate(lines):
        text = line.text.strip()
        if line.level or not text or len(text) > _LONGEST or len(text.split()) > 12 or _STOP.search(text):
            continue
        is_first = _is_blank(lines, i - 1)
        is_alone = is_first and (is_paged or _is_blank(lines, i + 1))
        if number := _NUMBER.match(text):
            parts = tuple(int(part) for part in number[1].split("."))
            may_be = is_alone or (is_paged and len(parts) > 1)
            if may_be and text[number.end()].isupper() and _counts_on(previous, parts):
                line.level, previous = above + len(parts), parts
        elif _CHAPTER.match(text) and is_first:
            line.level, previous = above + 1, ()
        elif is_alone and not is_paged and _is_capitals(text):
            line.level = above + (len(previous) + 1 if previous else 1)


def _is_capitals(text: str) -> bool:
    return text.isupper() and sum(c.isalpha() for c in text) > 3 and len(text.split()) < 10


def _mark_underlined(lines: list[Line]) -> None:
    levels: dict[str, int] = {}
    gone: set[int] = set()
    for i in range(len(lines) - 1):
        text, below = lines[i].text.strip(), lines[i + 1].text.strip()
        mark = _UNDERLINE.match(below)
        is_over = i > 0 and bool(mark) and lines[i - 1].text.strip() == below
        is_first = is_over or _is_blank(lines, i - 1) or i - 1 in gone
        if not mark or not is_first or not text or len(text) > _LONGEST or "|" in text or _UNDERLINE.match(text):
            continue
        if 2 * len(below) < len(text) or not _is_blank(lines, i + 2):
            continue
        lines[i].level = levels.setdefault(f"{mark[1]}{is_over}", len(levels) + 1)
        gone |= {i + 1, i - 1} if is_over else {i + 1}
    lines[:] = [line for i, line in enumerate(lines) if i not in gone]


def _is_blank(lines: Sequence[Line], i: int) -> bool:
    return not 0 <= i < len(lines) or not lines[i].text.strip() or lines[i].level > 0


def _counts_on(previous: tuple[int, ...], number: tuple[int, ...]) -> bool:
    """Tell whether a section number is the next one, the first one below, or the next one of a section above."""
    if not previous:
        return all(part in (0, 1) for part in number) or (len(number) == 2 and number[1] == 1)
    if number in ((*previous, 1), (*previous, 0), (previous[0] + 1, 1)):
        return True
    depth = len(number) - 1
    return depth < len(previous) and number == (*previous[:depth], previous[depth] + 1)


def _mark_outline(page: Page, titles: Sequence[tuple[int, str]]) -> None:
    """Give the lines of a page that are in the outline of its file their level.

    A title of the highest level that is on none of its lines begins its page.
    """
    wanted = {_letters(title): (level, title) for level, title in titles}
    for line in page:
        text = " ".join(line.text.split())
        known = wanted.pop(_letters(text), None) or wanted.pop(_letters(_NUMBER.sub("", text, count=1)), None)
        if known:
            line.level = known[0]
            line.text = known[1] if text.isupper() else text
    if page:
        page[:0] = [Line(title, page[0].at, level) for level, title in wanted.values() if level == 1]


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


_BULLET = re.compile(r"\s*(?:[-*+•–▪◦●]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+(?=\S)")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_ROW = re.compile(r"\s*\|.*\|\s*$")
_RULE = frozenset(" \t|:-+=")
_COLUMNS = re.compile(r"\S {3,}\S|\t\S")
_LINES = 500  # of a paragraph: what goes on is a paragraph of its own
_NARROW = 45  # characters of most lines below which none is taken for wrapped
_WRAPPED = 200  # characters: a longer line is a paragraph of its own


class _Grouper:
    """Groups lines into blocks: those with a level are headings, blank ones separate.

    `is_paged`: as in `blocks_of`; a short line that ends a sentence ends its paragraph, then.
    """

    def __init__(self, lines: Sequence[Line], is_paged: bool) -> None:
        self._lines, self._is_paged = lines, is_paged
        lengths = sorted(len(line.text.rstrip()) for line in lines if line.text.strip())
        usual = lengths[int(0.9 * (len(lengths) - 1))] if lengths else 0
        self._full = 0.75 * min(usual, _WRAPPED) if usual >= _NARROW else _WRAPPED

    def blocks(self) -> Iterator[Block]:
        """Yield headings, paragraphs, items, tables and fenced lines, in order."""
        paragraph: list[Line] = []
        i = 0
        while i < len(self._lines):
            line = self._lines[i]
            stop = self._fence(i) or self._table(i)
            ends = line.level or not line.text.strip() or stop
            if paragraph and (ends or len(paragraph) == _LINES or self._is_new(paragraph[-1], line)):
                yield self._joined(paragraph)
                paragraph = []
            if line.level:
                yield Block("heading", " ".join(line.text.split()), [(0, line.at)], line.level)
            elif stop:
                yield self._as_set(self._lines[i:stop])
            elif line.text.strip():
                paragraph.append(line)
            i = stop or i + 1
        if paragraph:
            yield self._joined(paragraph)

    def _fence(self, i: int) -> int:
        """Return the line after a fenced block that starts here, else 0."""
        mark = _FENCE.match(self._lines[i].text)
        if not mark or self._lines[i].level:
            return 0
        for j in range(i + 1, len(self._lines)):
            if self._lines[j].level:
                return 0
            if self._lines[j].text.strip().startswith(mark[1]):
                return j + 1
        return 0

    def _table(self, i: int) -> int:
        """Return the line after a Markdown table that starts here, else 0."""
        lines = self._lines
        if i + 2 >= len(lines) or not _ROW.match(lines[i].text):
            return 0
        if not set(lines[i + 1].text) <= _RULE or "-" not in lines[i + 1].text:
            return 0
        stop = i + 2
        while stop < len(lines) and _ROW.match(lines[stop].text):
            stop += 1
        return stop if stop > i + 2 else 0

    def _as_set(self, lines: Sequence[Line]) -> Block:
        kind: Kind = "table" if _ROW.match(lines[0].text) else "verbatim"
        text, marks = "", list[tuple[int, int]]()
        for line in lines:
            text += "\n" if text else ""
            marks.append((len(text), line.at))
            text += line.text.rstrip()
        return Block(kind, text, marks)

    def _is_new(self, before: Line, line: Line) -> bool:
        """Tell whether a line starts a block of its own after a line that is not blank."""
        if _BULLET.match(line.text) or max(len(before.text), len(line.text)) > _WRAPPED:
            return True
        text = before.text.rstrip()
        return self._is_paged and len(text) < self._full and text.endswith((".", "!", "?", ":", '"', "”", ")"))

    def _joined(self, lines: Sequence[Line]) -> Block:
        """Return lines as one paragraph: wrapped ones are joined, a hyphen before a small letter goes."""
        columns = sum(bool(_COLUMNS.search(line.text.strip())) for line in lines)
        if len(lines) > 1 and 2 * columns >= len(lines):
            return self._as_set(lines)
        text, marks = "", list[tuple[int, int]]()
        for i, line in enumerate(lines):
            more = line.text.strip()
            if len(text) > 2 and text[-1] in "-\u2010\u00ad" and text[-2].isalpha() and more[:1].islower():
                text = text[:-1]
            elif text:
                text += " " if len(lines[i - 1].text.rstrip()) >= self._full or more[:1].islower() else "\n"
            marks.append((len(text), line.at))
            text += more
        return Block("item" if _BULLET.match(lines[0].text) else "text", text, marks)
