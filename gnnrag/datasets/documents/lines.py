"""From lines to blocks: drop what repeats on pages and tables of contents, find headings, join hard-wrapped lines.

For plain text, Markdown and the pages of a PDF. What is not sure to be a heading, or furniture of pages, stays text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gnnrag.datasets.documents.blocks import Block


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


def drop_furniture(pages: Sequence[Page]) -> int:
    """Drop page headers, page footers and page numbers; returns how many lines.

    Dropped is a line among the two first or last of its page, numbers aside, that stands so on three pages, and on at
    least two in five of those from its first to its last: so running titles of chapters go as well.
    """
    places: dict[tuple[int, str], list[int]] = defaultdict(list)
    found: list[list[tuple[Line, tuple[int, str]]]] = []
    for number, page in enumerate(pages):
        told = [line for line in page if line.text.strip()]
        edges = [(line, 0) for line in told[:_EDGE]] + [(line, 1) for line in told[_EDGE:][-_EDGE:]]
        edges = edges if len(told) > 2 * _EDGE else []  # of so few lines each may be what the page is about
        keys = [(line, (side, _bare(line.text))) for line, side in edges if len(line.text.strip()) <= _LONGEST]
        found.append(keys)
        for _, key in keys:
            places[key].append(number)
    numbered = _page_numbers(found)
    repeated = {key for key, at in places.items() if len(at) >= _LEAST and len(at) >= 0.4 * (at[-1] - at[0] + 1)}
    count = 0
    for number, (page, keys) in enumerate(zip(pages, found, strict=True)):
        gone = {id(line) for line, key in keys if key in repeated or line.text.strip() == numbered(number)}
        # The outermost line may have the title of a section beside its number, another on every page.
        outer = [line for line, _ in (*keys[:1], *keys[-1:])]
        gone |= {id(line) for line in outer if numbered(number) in (line.text.split()[0], line.text.split()[-1])}
        page[:] = [line for line in page if id(line) not in gone]
        count += len(gone)
    return count


def _page_numbers(found: Sequence[Sequence[tuple[Line, tuple[int, str]]]]) -> Callable[[int], str]:
    """Return what tells the number that is printed on a page, or nothing: three pages must agree where they start."""
    offsets: Counter[int] = Counter()
    for position, keys in enumerate(found):
        ends = (word for line, _ in keys for word in (line.text.split()[0], line.text.split()[-1]))
        offsets.update({int(word) - position for word in ends if word.isdecimal() and len(word) < 6})
    offset, count = offsets.most_common(1)[0] if offsets else (0, 0)
    return lambda position: str(position + offset) if count >= _LEAST else ""


def _bare(text: str) -> str:
    return " ".join(_DIGITS.sub("#", text).casefold().split())


_LEADERS = re.compile(r"(?:\.[ \u00a0]?){4,}\s*(?:\d+|[ivxlc]+)?\s*$|…{2,}\s*\d*\s*$", re.IGNORECASE)
_ANCHOR = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[^\]]*\]\(#[^)]*\)\s*$")
_NUMBERED = re.compile(r"\s*(?:[-*+•]\s+)?(?:\d+(?:\.\d+)*\.?|[A-Z]\.(?:\d+\.?)*|appendix\b|chapter\b)\s+\S", re.I)
_CONTENTS = re.compile(r"\s*#*\s*(?:table of )?contents:?\s*$|\s*inhalt(?:sverzeichnis)?\s*$", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:[-*+•–▪◦●]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+(?=\S)")
_STOP = re.compile(r"[.!?:;,]$")
_MARK = re.compile(r"\s*(?:[-*+•]\s+)?(?:(?:\d+\.)*\d+\.?\s+)?")
_PAGE_NUMBER = re.compile(r"\s+\d+\s*$")


def drop_contents(lines: list[Line]) -> int:
    """Drop tables of contents; returns how many lines.

    They are runs of at least three lines with dot leaders or links to anchors, and of at least five short bullets or
    numbers of which two thirds are lines elsewhere, too; with the line "Contents" above.
    """
    told = [i for i, line in enumerate(lines) if line.text.strip()]
    often = Counter(_name(lines[i].text) for i in told)
    short = [lines[i].text if len(lines[i].text) <= _WRAPPED else "" for i in told]
    led = [bool(_LEADERS.search(text) or _ANCHOR.match(text)) for text in short]
    listed = [bool(_NUMBERED.match(text)) and not _STOP.search(text.strip()) for text in short]
    gone: set[int] = set()
    for start, stop in _runs(led, 3, 3):
        gone |= {told[i] for i in range(start, stop)}
    for start, stop in _runs(listed, 5, 2):
        names = [_name(lines[told[i]].text) for i in range(start, stop)]
        stop = next((start + i for i, name in enumerate(names) if listed[start + i] and name in names[:i]), stop)
        again = sum(often[_name(lines[told[i]].text)] > 1 for i in range(start, stop))
        if stop - start >= 5 and 3 * again >= 2 * (stop - start):  # behind it, the headings themselves may follow
            gone |= {told[i] for i in range(start, stop)}
    for position, i in enumerate(told):
        nearest = told[position + 1 : position + 4]
        if _CONTENTS.match(lines[i].text) and gone.intersection(nearest):
            gone |= {i, *(j for j in nearest if j < max(gone.intersection(nearest)))}
    lines[:] = [line for i, line in enumerate(lines) if i not in gone]
    return len(gone)


def _runs(flags: Sequence[bool], least: int, gap: int) -> Iterator[tuple[int, int]]:
    """Yield (first, one after the last) of runs with at least so many flags and less than `gap` others in between."""
    at = [i for i, flag in enumerate(flags) if flag]
    start = 0
    for i in range(1, len(at) + 1):
        if i == len(at) or at[i] - at[i - 1] > gap:
            if i - start >= least:
                yield at[start], at[i - 1] + 1
            start = i


def _name(text: str) -> str:
    return _PAGE_NUMBER.sub("", text[_found(_MARK, text) :]).strip().casefold()


def _found(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.match(text)
    return match.end() if match else 0


_UNDERLINE = re.compile(r"([=\-~*^\"#+`])\1{2,}\s*$")
_NUMBER = re.compile(r"((?:\d{1,3}|[A-Z](?=\.))(?:\.\d{1,3}){0,5})(\.?)\s+(?=[^\W\d_])")
_LETTER_A = 1001  # the number of an appendix A
_CHAPTER = re.compile(r"(chapter|part|appendix|annex)\s+([a-z]|\d+|[ivxlc]+)\b", re.IGNORECASE)
_ALONE = re.compile(r"(?:chapter|part|appendix|section)?\s*(?:\d+|[ivxlc]+|one|two|three|four|five|six|seven|eight|nine"
                    r"|ten|eleven|twelve|[a-z])?\s*$", re.IGNORECASE)  # fmt: skip


def mark_headings(lines: list[Line], is_paged: bool) -> None:
    """Give headings their level: underlined lines, numbers that count on, and lines in capitals that stand alone.

    `is_paged`: lines of a PDF, which has no blank lines to tell what stands alone.
    """
    _mark_underlined(lines)
    above = max((line.level for line in lines), default=0)
    previous: tuple[int, ...] = ()
    for i, line in enumerate(lines):
        text = line.text.strip()
        if line.level or not text or len(text) > _LONGEST or len(text.split()) > 12:
            continue
        is_alone = _is_blank(lines, i - 1) and (is_paged or _is_blank(lines, i + 1))
        number = _NUMBER.match(text)
        if number and not _STOP.search(text):
            parts = tuple(int(p) if p.isdigit() else _LETTER_A + ord(p) - ord("A") for p in number[1].split("."))
            is_long_enough = len(parts) > 1 or is_alone
            if (
                is_long_enough
                and (is_paged or is_alone)
                and _counts_on(previous, parts)
                and text[number.end()].isupper()
            ):
                line.level, previous = above + len(parts), parts
        elif _CHAPTER.match(text) and (is_alone or _is_blank(lines, i - 1)) and not _STOP.search(text):
            line.level, previous = above + 1, ()
        elif is_alone and not is_paged and _is_capitals(text):
            line.level = above + (len(previous) + 1 if previous else 1)


def _mark_underlined(lines: list[Line]) -> None:
    levels: dict[str, int] = {}
    gone: set[int] = set()
    for i in range(len(lines) - 1):
        text, mark = lines[i].text.strip(), _UNDERLINE.match(lines[i + 1].text.strip())
        is_over = i > 0 and bool(mark) and lines[i - 1].text.strip() == lines[i + 1].text.strip()
        is_first = is_over or _is_blank(lines, i - 1) or i - 1 in gone
        if not mark or not is_first or not text or len(text) > _LONGEST or "|" in text or _UNDERLINE.match(text):
            continue
        if 2 * len(lines[i + 1].text.strip()) < len(text) or not _is_blank(lines, i + 2):
            continue
        lines[i].level = levels.setdefault(f"{mark[1]}{is_over}", len(levels) + 1)
        gone |= {i + 1, i - 1} if is_over else {i + 1}
    lines[:] = [line for i, line in enumerate(lines) if i not in gone]


def _is_blank(lines: Sequence[Line], i: int) -> bool:
    return not 0 <= i < len(lines) or not lines[i].text.strip() or lines[i].level > 0


def _counts_on(previous: tuple[int, ...], number: tuple[int, ...]) -> bool:
    """Tell whether a section number is the next one, the first one below, or the next one of a section above."""
    if number in ((_LETTER_A,), (_LETTER_A, 1)) and (not previous or previous[0] < _LETTER_A):
        return True
    if not previous:
        return all(part in (0, 1) for part in number) or (len(number) == 2 and number[1] == 1)
    if number == (*previous, 1) or number == (*previous, 0):
        return True
    if len(number) == len(previous) + 2 and number[:-2] == previous:
        return number[-2:] == (1, 1)
    depth = len(number) - 1
    return (
        len(number) <= len(previous) and number[:depth] == previous[:depth] and number[depth] == previous[depth] + 1
    ) or (len(number) == 2 and number == (previous[0] + 1, 1))


def _is_capitals(text: str) -> bool:
    letters = [c for c in text if c.isalpha()]
    return len(letters) >= 4 and all(c.isupper() for c in letters) and not _STOP.search(text) and len(text.split()) < 10


def mark_outline(page: Page, titles: Sequence[tuple[int, str]]) -> None:
    """Give the lines of a page that are in the outline of its file their level; a bare "CHAPTER ONE" above goes.

    A title may stand on two lines; one of the highest level that is on none begins its page.
    """
    wanted = {_letters(title): (level, title) for level, title in titles}
    for i, line in enumerate(page):
        text = " ".join(line.text.split())
        both = f"{text} {' '.join(page[i + 1].text.split())}" if i + 1 < len(page) else text
        for found in (text, both):
            name = _letters(found[_found(_NUMBER, found) :])
            known = wanted.pop(name, None) or wanted.pop(_letters(found), None)
            if known is None:
                continue
            line.level = known[0]
            line.text = known[1] if found.isupper() and not known[1].isupper() else found
            if found != text:
                page[i + 1].text = ""
            for above in reversed(page[:i]):
                if not above.level and above.text.strip() and not _ALONE.match(above.text.strip()):
                    break
                above.text = above.text if above.level else ""
            break
    if page:
        missing = [Line(title, page[0].at, level) for level, title in wanted.values() if level == 1]
        page[:0] = missing


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_ROW = re.compile(r"\s*\|.*\|\s*$")
_RULE = frozenset(" \t|:-+=")
_COLUMNS = re.compile(r"\S {3,}\S|\t\S")
_LINES = 500  # of a paragraph: what goes on is a paragraph of its own
_NARROW = 45  # characters of most lines below which none is taken for wrapped
_WRAPPED = 200  # characters: a longer line is a paragraph of its own


class Grouper:
    """Groups lines into blocks.

    Args:
        lines: those with a level are headings; blank ones separate.
        words: of the whole document; they tell whether a hyphen at the end of a line belongs to its word.
        is_paged: as in `mark_headings`; a short line that ends a sentence ends its paragraph, then.
    """

    def __init__(self, lines: Sequence[Line], words: Collection[str], is_paged: bool = False) -> None:
        self._lines, self._words, self._is_paged = lines, words, is_paged
        lengths = sorted(len(line.text.rstrip()) for line in lines if line.text.strip())
        usual = lengths[int(0.9 * (len(lengths) - 1))] if lengths else 0
        self._full = 0.75 * min(usual, _WRAPPED) if usual >= _NARROW else _WRAPPED

    def blocks(self) -> Iterator[Block]:
        """Yield headings, paragraphs, items, tables and fenced lines, in order."""
        open_: list[Line] = []
        i = 0
        while i < len(self._lines):
            line = self._lines[i]
            stop = self._fence(i) or self._table(i)
            ends = line.level or not line.text.strip() or stop
            if open_ and (ends or len(open_) == _LINES or self._is_new(open_[-1], line)):
                yield self._close(open_)
                open_ = []
            if line.level:
                yield Block("heading", " ".join(line.text.split()), [(0, line.at)], line.level)
            elif stop:
                yield self._as_set(self._lines[i:stop])
            elif line.text.strip():
                open_.append(line)
            i = stop or i + 1
        if open_:
            yield self._close(open_)

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
        if i + 2 >= len(lines) or not _ROW.match(lines[i].text) or not set(lines[i + 1].text) <= _RULE:
            return 0
        if "-" not in lines[i + 1].text:
            return 0
        stop = i + 2
        while stop < len(lines) and _ROW.match(lines[stop].text):
            stop += 1
        return stop if stop > i + 2 else 0

    def _as_set(self, lines: Sequence[Line]) -> Block:
        kind = "table" if _ROW.match(lines[0].text) else "verbatim"
        text, marks = "", []
        for line in lines:
            text += "\n" if text else ""
            marks.append((len(text), line.at))
            text += line.text.rstrip()
        return Block(kind, text, marks)  # type: ignore[arg-type]

    def _is_new(self, before: Line, line: Line) -> bool:
        """Tell whether a line starts a block of its own after a line that is not blank."""
        if _BULLET.match(line.text) or max(len(before.text), len(line.text)) > _WRAPPED:
            return True
        text = before.text.rstrip()
        return self._is_paged and len(text) < self._full and text.endswith((".", "!", "?", ":", '"', "”", ")"))

    def _close(self, lines: Sequence[Line]) -> Block:
        columns = sum(bool(_COLUMNS.search(line.text.strip())) for line in lines)
        if len(lines) > 1 and 2 * columns >= len(lines):
            return self._as_set(lines)
        text, marks = "", list[tuple[int, int]]()
        for line in lines:
            more = line.text.strip()
            if text:
                text = self._joined(text, len(lines[len(marks) - 1].text.rstrip()), more)
            marks.append((len(text), line.at))
            text += more
        return Block("item" if _BULLET.match(lines[0].text) else "text", text, marks)

    def _joined(self, text: str, length: int, more: str) -> str:
        """Return a text, the last line of which had this length, ready for its next line."""
        if len(text) > 2 and text[-1] in "-\u2010\u00ad" and text[-2].isalpha() and more[:1].islower():
            head, tail = text[:-1].rsplit(None, 1)[-1], re.split(r"\W", more, maxsplit=1)[0]
            is_own = text[-1] != "\u00ad" and f"{head}-{tail}".casefold() in self._words
            return text if is_own and f"{head}{tail}".casefold() not in self._words else text[:-1]
        is_wrapped = length >= self._full or more[:1].islower()
        return text + (" " if is_wrapped else "\n")


_TOKEN = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


def words_of(lines: Sequence[Line]) -> frozenset[str]:
    """Return the folded words of lines, those with a hyphen whole."""
    return frozenset(word.casefold() for line in lines for word in _TOKEN.findall(line.text))


def blocks_of(
    pages: list[Page], is_paged: bool = False, outline: Mapping[int, Sequence[tuple[int, str]]] | None = None
) -> tuple[list[Block], Counter[str]]:
    """Return the blocks of a document given as pages of lines, and what was dropped by its kind.

    `outline`: of a page, by its position, the headings with their levels; None where they have to be found.
    """
    dropped = Counter({"lines of page headers and footers": drop_furniture(pages)})
    for number, titles in (outline or {}).items():
        mark_outline(pages[number], titles)
    lines = [line for page in pages for line in page]
    dropped["lines of tables of contents"] = drop_contents(lines)
    if outline is None:
        mark_headings(lines, is_paged)
    return list(Grouper(lines, words_of(lines), is_paged).blocks()), +dropped
