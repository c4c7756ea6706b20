"""Answers from tables: a cell, the rows that meet a condition, how many do, a total, an average, the largest.

A row of a document's table is a block of its passage, `customer: Oslo Vann; fee: 9,000` (`datasets.documents`). A table
is all the rows around one that retrieval found. A question is answered from a table only if each of its words is the
name of a column, a value, a word of the headings above the table, or a question word. All other questions are left to
the other ways of answering.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby, takewhile
from typing import Any

from gnnrag.datasets.chunk import document_of
from gnnrag.roles.base import Answer, Citation, ReaderTask
from gnnrag.text.normalise import lexicon, word_set, words
from gnnrag.text.questions import head_noun, is_yes_no
from gnnrag.text.sentences import BLANK_LINE, beginning
from gnnrag.text.support import content_stems, without_citations
from gnnrag.types import Passage

TABLE = "table"  # the thought of an answer that stands in a table
EXACT = 0.95  # confidence of what a table says
CITED, LISTED = 10, 30  # rows that an answer cites, and values that it lists at most
MOST_TABLES = 30  # that retrieval did not find
MOST_PASSAGES = 20_000  # of a document; nothing is counted in the tables of a longer one
_THOUSANDS = re.compile(r"(?<=\d)[, ](?=\d{3}(?!\d))")
_NUMBER = re.compile(r"([^\d.,;-]*)(-?\d+(?:\.\d+)?)([^\d.,;-]*)")
_TOTALS = frozenset({"total", "totals", "sum", "subtotal", "average", "grand total"})
_DAY, _YEAR = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"(?:1\d|20)\d\d")
_ASKING, _LEGAL = word_set("table_asking"), word_set("legal_forms")
_PLACE, _OF_PEOPLE = (content_stems(" ".join(word_set(name))) for name in ("table_places", "table_people"))
_PRICES = content_stems("cost price fee charge pay paid amount rate")
# Words that a question may add to a column's name, and words for a row where the rows are people.
_LIKE = [content_stems(group) for group in lexicon()["table_synonyms"]]
_WHO = content_stems("people person employee staff member worker colleague work")
_MEASURED_IN = {word: unit for unit, words in lexicon()["table_units"].items() for word in (unit, *words)}
_MONEY = {"eur": "€", "usd": "$", "gbp": "£"}
_SIGNED = {"%", *_MONEY.values()}
_SIGNS = str.maketrans({sign: f" {name} " for name, sign in _MONEY.items()})
_UNIT = "|".join(sorted(_MEASURED_IN, key=len, reverse=True))
_BOUND = re.compile(
    r" (?:(?P<gt>(?:more|greater|longer|larger|taller|higher|deeper|wider|heavier|bigger) than|over|above|after)"
    r"|(?P<ge>at least|since)|(?P<lt>(?:less|fewer|shorter|smaller|lower|lighter|narrower) than|under|below|before)"
    r"|(?P<le>at most|up to)) "
    rf"(?:(?P<sign>{'|'.join(_MONEY)}) )?(?P<number>\d+(?: \d+)?)(?: (?P<unit>{_UNIT}))?(?= )"
)
_DATES = content_stems("date day")
_OF_TIME = ("after", "since", "before")
_BUT = " (?:not|outside|except|other than)(?: (?:in|from|at|by|of|for|the|a|an))*"
_SCALES = lexicon()["table_scales"]  # names of columns to stems of words for more and less
_ORIGINS = content_stems("built founded born opened established made")  # the dates that tell how old something is
_OVER = {
    name: re.compile(rf" (?:{'|'.join(words.split()).replace('-', ' ')})(?= )")
    for name, words in lexicon()["table_over"].items()
}
_OF_TWO, _OF_DATES = ("more", "less", "later", "earlier"), ("last", "first", "later", "earlier")
_HOW = re.compile(rf" how (?:{'|'.join(more for more, _ in _SCALES.values())})[ye]?(?= )")
_GIVING = re.compile(" (?:gives?|gave|donates?|donated)(?= (?!me |us ))")
Found = tuple[str, Sequence["Row"]] | None  # an answer, and the rows it is from


def parse_row(text: str) -> dict[str, str]:
    """Return cells by the name of their column, which may be empty; no cells where a text is not a row."""
    text = without_citations(text)
    parts = [part.partition(": ") if ": " in part else ("", "", part) for part in text.split("; ")]
    cells = {name.strip(): value.strip() for name, _, value in parts}
    is_row = "\n" not in text and any(cells) and len(cells) == len(parts) and all(len(name) <= 60 for name in cells)
    return cells if is_row else {}


def is_row(text: str) -> bool:
    """Tell whether a text is a row of several cells."""
    return len(parse_row(text)) > 1


@dataclass(frozen=True)
class Row:
    passage: Passage
    text: str
    cells: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A table; `is_whole` tells that it has all its rows."""

    rows: tuple[Row, ...]
    is_whole: bool

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for row in self.rows for name in row.cells if name))

    @cached_property
    def values(self) -> dict[str, Counter[str]]:
        """By column, how often it has each value (folded)."""
        return {
            name: Counter(_folded(row.cells[name]) for row in self.rows if name in row.cells) for name in self.columns
        }

    @cached_property
    def stems(self) -> frozenset[str]:
        """Stems of its headings and columns."""
        return self.about | content_stems(" ".join(self.columns))

    @cached_property
    def about(self) -> frozenset[str]:
        """Stems of the headings above it, and of its file's name."""
        passage = self.rows[0].passage
        return content_stems(f"{passage.title} {re.sub(r'[._/-]', ' ', document_of(passage.id))}")


def _folded(text: str) -> str:
    return " ".join(words(_THOUSANDS.sub("", text).translate(_SIGNS)))


class TableReader:
    """Answers from tables of an index; without one (None) from the rows shown, which cannot be counted."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self._of_document = lru_cache(64)(self._read)

    def answer(self, task: ReaderTask, condition: str | None = None) -> Answer | None:
        """Return the answer of the tables around these passages; None where they have none, or different ones.

        `condition`: a filter; only rows of passages that pass it are in the tables.
        """
        question = beginning(task.question.text)
        shown = [p for p in task.passages if any(map(parse_row, BLANK_LINE.split(p.text)))]
        if not shown or is_yes_no(question):
            return None
        ids, tables = {p.id for p in shown}, list[Table]()
        for document in dict.fromkeys(document_of(p.id) for p in shown):
            if self.index is None or not document:
                tables += [t for p in shown if document_of(p.id) == document for t in tables_of([p], is_whole=False)]
            else:
                tables += self._of_document(document)
        if condition and self.index is not None:
            passes, position = self.index.matching(condition), self.index.position
            tables = [replace(t, rows=tuple(r for r in t.rows if passes[position[r.passage.id]])) for t in tables]
        near = [table for table in tables if any(row.passage.id in ids for row in table.rows)]
        # Where these say nothing, another table of their files may; not one of the same columns, such as last year's.
        known = {frozenset(table.columns) for table in near}
        others = [table for table in tables if frozenset(table.columns) not in known][:MOST_TABLES]
        for each in (near, others):
            if found := {a.text: a for t in each if (a := ask_table(question, t)) is not None}:
                return next(iter(found.values())) if len(found) == 1 else None
        return None

    def _read(self, document: str) -> list[Table]:
        numbers = range(1, MOST_PASSAGES + 2)
        ids = list(takewhile(self.index.position.__contains__, (f"{document}#{n}" for n in numbers)))
        passages = self.index.lookup(ids[:MOST_PASSAGES])
        return [
            table
            for _, section in groupby(passages, key=lambda passage: passage.title)
            for table in tables_of(list(section), is_whole=len(ids) <= MOST_PASSAGES)
        ]


def tables_of(passages: Sequence[Passage], is_whole: bool) -> list[Table]:
    """Return the tables of a section's passages, without rows of totals; `is_whole`: these are all its passages."""
    runs: list[list[Row]] = [[]]
    for passage in passages:
        for block in BLANK_LINE.split(passage.text):
            cells, known = parse_row(block), {name for row in runs[-1] for name in row.cells}
            if runs[-1] and len(known & cells.keys()) < 0.5 * min(len(known), len(cells) or 1):
                runs.append([])  # prose, or another table
            if cells:
                runs[-1].append(Row(passage, block, cells))
    runs = [run for run in runs if len({name for row in run for name in row.cells if name}) > 1]
    # A table may go on after the end of a PDF's page.
    is_whole = is_whole and (len(runs) == 1 or "page" not in passages[0].metadata)
    tables = []
    for run in runs:
        key = next(iter(run[0].cells))  # a row without it may be a piece of another one
        rows = tuple(row for row in run if _folded(row.cells.get(key, "")) not in _TOTALS)
        tables.append(Table(rows, is_whole and all(key in row.cells for row in rows)))
    return tables


# --------------------------------------------------------------------------------------------------- question and table
def ask_table(question: str, table: Table) -> Answer | None:
    """Return the answer of a table; None where it has none, or where rows that matter may be missing."""
    if not table.rows:
        return None
    asked = TableQuestion(question, table)
    rows = asked.rows() if asked.is_understood() else []
    found = asked.cell(rows) or (asked.over(rows) if rows and table.is_whole else None)
    if found is None:
        return None
    citations = tuple(Citation(row.text, (row.passage.id,), (row.passage.id,)) for row in found[1][:CITED])
    support = tuple(dict.fromkeys(id_ for citation in citations for id_ in citation.passages))
    return Answer(found[0], support, EXACT, TABLE, citations=citations)


class TableQuestion:
    """A question, word by word, as a table understands it. `rest` is the text that is not understood yet."""

    def __init__(self, question: str, table: Table) -> None:
        self.table, self.key = table, table.columns[0]
        self.question = self.rest = f" {_folded(question)} "
        self.is_count = bool(re.search(" how many | number of (?!the )", self.rest))
        self.is_who, self.is_where = " who " in self.rest, " where " in self.rest
        self.bounds = [*_BOUND.finditer(self.question)]
        self.rest = _BOUND.sub(" |", self.rest)
        self.wanted: dict[str, set[str]] = {}  # values, folded, of which the rows have one in each of these columns
        self.unwanted: dict[str, set[str]] = {}  # and of which they have none
        self.asked: list[str] = []  # columns
        self.is_clear = True  # no value stands in two columns
        self._take_values([name for name in table.columns if _stems(name) and _stems(name) <= content_stems(question)])
        self._take_columns()
        self._take_names()
        self.graded = [*filter(None, map(self._take, (_HOW, *_OVER.values())))]
        self.how = [name for name, pattern in _OVER.items() if any(match.re is pattern for match in self.graded)]
        self.asked = [name for name in self.asked if name not in self.wanted and name not in self.unwanted]
        if self.wanted and re.match(" (?:which|what|who|how many) ", self.question):
            made = content_stems(" ".join(re.findall(r" (\w+) by(?= )", self.question)))  # `those built by the firm`
            self.asked = [name for name in self.asked if not _stems(name) or not _stems(name) <= made]
        self.implied = self._implied() if not any(map(self._is_number, self.asked)) else []
        self.asked += self.implied
        for cue, columns in (
            (" who ", [self.key]),
            (" when ", [name for name in table.columns if self._is_date(name)]),
            (" where ", [name for name in table.columns if _stems(name) & _PLACE]),
        ):
            # In `when was the Heron sold` the value of another column says what happened, which no date need belong to.
            is_told = cue == " who " or self.wanted.keys() <= {self.key}
            if not self.asked and cue in self.question and len(columns) == 1 and is_told:
                self.asked = [name for name in columns if name not in self.wanted]
        self.other = [name for name in self.asked if name != self.key]
        self.is_limited = bool(self.wanted or self.unwanted or self.bounds)
        # What a row is: what the heading next to it says, or a value that was asked for.
        title = table.rows[0].passage.title.rpartition(" > ")[2]
        values = " ".join(value for found in (*self.wanted.values(), *self.unwanted.values()) for value in found)
        self.counted = content_stems(f"{title} {values}") | (_WHO if table.stems & _OF_PEOPLE else frozenset())

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if match := pattern.search(self.rest):
            self.rest = f"{self.rest[: match.start()]} |{self.rest[match.end() :]}"
        return match

    def _take_values(self, named: Sequence[str]) -> None:
        """Take the values of cells that stand in the question, longest first."""
        where: dict[str, list[str]] = {}
        for name, counts in self.table.values.items():
            for value in counts:
                for form in (value, f"{value}s", f"{value}es"):  # `how many account managers`
                    is_said = f" {form} " in self.rest and not set(value.split()) <= _ASKING
                    if is_said and (not _YEAR.fullmatch(value) or self._is_when(name)):
                        self.rest = self.rest.replace(f" {form} ", f" {value} ")
                        where[value] = [*where.get(value, ()), name]
        for value in sorted(where, key=len, reverse=True):
            if f" {value} " in self.rest:  # no part of a longer one
                but = re.compile(f"{_BUT} {re.escape(value)}(?= )")
                kept = self.unwanted if self._take(but) else self.wanted
                columns = [name for name in where[value] if name in named] or where[value]
                if self.key in where[value] and re.search(f" (?:do|does|did) {value} ", self.rest):
                    columns = [self.key]  # `who does Ida report to`, where another column says to whom
                self.is_clear &= len(columns) == 1
                kept.setdefault(columns[0], set()).add(value)
                self.rest = self.rest.replace(f" {value} ", " | ")

    def _take_columns(self) -> None:
        """Take names of columns: the whole name, a last word that no other column has, or a word of like meaning."""
        ends = {name: content_stems(_bare(name).split()[-1]) for name in self.table.columns}
        for name in sorted(ends, key=lambda name: -len(name)):
            self._ask(name, _stems(name))
        for name, stems in ends.items():
            if list(ends.values()).count(stems) == 1:
                self._ask(name, stems)
        self._drop(self.table.about)
        if len(columns := self._prices()) == 1:
            self._ask(columns[0], content_stems(self.rest) & _PRICES)
        named = content_stems(" ".join([*self.asked, *self.wanted]))
        for group in (*_LIKE, _WHO):
            if self.table.stems & _OF_PEOPLE if group is _WHO else named & group:
                self._drop(group)

    def _ask(self, name: str, stems: frozenset[str]) -> None:
        if stems and stems <= content_stems(self.rest):
            self.asked += [name] if name not in self.asked else []
            self._drop(stems)

    def _drop(self, stems: frozenset[str]) -> None:
        self.rest = f" {' '.join('|' if content_stems(word) & stems else word for word in self.rest.split())} "

    def _take_names(self) -> None:
        """Take what is a part of one key (a last name, a firm without its legal form), or the year of a date."""
        for run in re.findall(r"(?:[^\s|]+ )+", self.rest):
            name = " ".join(word for word in run.split() if word not in _ASKING)
            keys = [value for value in self.table.values[self.key] if self._is_part(name, value)]
            dates = [column for column in self.table.columns if _YEAR.fullmatch(name) and self._is_when(column)]
            if len(keys) == 1:
                self.wanted.setdefault(self.key, set()).update(keys)
            elif len(dates) == 1:
                found = {value for value in self.table.values[dates[0]] if name in value.split()}
                self.wanted.setdefault(dates[0], set()).update(found)
            else:
                continue
            self.rest = self.rest.replace(f" {name} ", " | ")

    def _is_part(self, name: str, value: str) -> bool:
        left = f" {value} ".replace(f" {name} ", " ").split()
        is_person = self.is_who or bool(self.table.stems & _OF_PEOPLE)
        return len(left) < len(value.split()) and (set(left) <= _LEGAL or (is_person and len(value.split()) <= 3))

    def is_understood(self) -> bool:
        """Tell whether all words of the question are understood, and in one way only."""
        return self.is_clear and all(word == "|" or word in _ASKING for word in self.rest.split())

    def rows(self) -> list[Row]:
        """Return the rows that have the values asked for; none where it is not clear which these are."""
        rows = [
            row
            for row in self.table.rows
            if all(_folded(row.cells.get(name, "")) in values for name, values in self.wanted.items())
            and not any(_folded(row.cells.get(name, "")) in {*values, ""} for name, values in self.unwanted.items())
        ]
        for column, holds, bound in self._limits():
            if not column:
                return []
            if column in self.other:
                self.other.remove(column)
            found = self._numbers(rows, column)
            values = [number // 10_000 if unit == "date" else number for number, unit in found]  # of a date the year
            rows = [row for row, value in zip(rows, values, strict=True) if holds(value, bound)]
        return rows

    def _limits(self) -> Iterator[tuple[str, Callable[[float, float], bool], float]]:
        """Yield the column that each bound is about (empty where that is not clear), its comparison, and its number.

        It is the one named before the bound, or the one with its unit, or the only one asked for, or the last one.
        """
        columns, start, column = [name for name in self.table.columns if self._is_number(name)], 0, ""
        for match in self.bounds:
            text, start = self.question[start : match.start("number")], match.end()
            unit = _MEASURED_IN.get(match["unit"] or match["sign"])
            asked = [name for name in self.other if name in columns]
            ways = (
                [name for name in asked if _stems(name) & content_stems(text)],
                [name for name in columns if f" {_folded(_bare(name))} " in text],
                [name for name in columns if unit and self._measured_in(name) == unit],
                asked,
            )
            column = next((way[0] if len(way) == 1 else "" for way in ways if way), column)
            how = next(name for name in ("gt", "ge", "lt", "le") if match[name])
            is_date = self._is_date(column)
            given = self._measured_in(column) or (unit if unit in _MONEY else None)  # prices may be given without unit
            if is_date < (match[how] in _OF_TIME) or (unit and (is_date or given != unit)):
                column = ""
            yield column, getattr(operator, how), float(match["number"].replace(" ", "."))

    def _prices(self) -> list[str]:
        return [name for name in self.table.columns if _stems(name) & _PRICES or _unit(name).lower() in _MONEY]

    def _implied(self) -> list[str]:
        """Return the column that a word such as `heaviest` or `oldest` is about, if there is one only."""
        said, columns = " ".join(match[0] for match in self.graded), list[str]()
        for names, stems in _SCALES.items():
            if re.search(f" (?:{'|'.join(stems)})", said):
                columns += [name for name in self.table.columns if _stems(name) & content_stems(names)]
        dates = [name for name in self.table.columns if self._is_date(name)]
        if any(name in _OF_DATES for name in self.how):
            wanted = _ORIGINS if re.search(" (?:old|new|young)", said) else content_stems("date day")
            columns += [name for name in dates if _stems(name) & wanted]
        if (self.bounds or self.how) and self._take(_GIVING):
            columns += self._prices()
        return columns if len(columns) == 1 and self._is_number(columns[0]) else []

    def cell(self, rows: Sequence[Row]) -> Found:
        """Return the cell asked for of one row, found by its key or by a column in which no value stands twice."""
        if len(rows) != 1 or len(self.asked) != 1 or self.how or not self.wanted:
            return None
        (name,), is_number = self.asked, bool(self._numbers(rows, self.asked[0]))
        unique = [one for one in self.wanted if max(self.table.values[one].values()) == 1 and not _stems(one) & _PLACE]
        is_told = self.key in self.wanted or (unique and len(self.table.rows) > 2 and not self.is_count)
        if not is_told or (self.is_count and not is_number) or ((self.is_who or self.is_where) and is_number):
            return None
        if not (cell := rows[0].cells.get(name)):
            return None
        unit = _unit(name).strip() if (_number(cell) or (0, ""))[1] == "#" else ""
        if not unit or (unit.split()[0].lower() not in _MEASURED_IN and unit not in _SIGNED):
            return cell, rows  # what stands in brackets may be a year, or `approx.`
        return f"{cell}{' ' if unit[0].isalpha() else ''}{unit}", rows

    def over(self, rows: Sequence[Row]) -> Found:
        """Return an answer from several rows: their number, a sum, a mean, the largest or smallest, or a list."""
        name = (self.other or [self.key])[0]
        numbers = self._numbers(rows, name) if self.other else []
        if len(self.other) > 1 or len(self.how) > 1:
            return None
        if self.how and (numbers or not self.is_count):
            return self._aggregate(rows, name, numbers)
        if (self.other and self.key in self.asked) or numbers:
            return None
        values = list(dict.fromkeys(row.cells.get(name, "") for row in rows))
        if self.is_count:
            if self.asked:
                return str(len(set(values) - {""})), rows
            person = content_stems(" ".join(re.findall(r" how many (\w+)", self.question))) & _WHO
            is_row = (content_stems(head_noun(self.question.strip())) | person) & self.counted
            return (str(len(rows)), rows) if is_row and self.is_limited else None
        is_list = re.match(r" (?:which|who|list|name|show|what are) ", self.question) and self.is_limited
        is_list = is_list and not (name == self.key and name in self.wanted)  # `who sold the Heron` asks for no Heron
        return ("; ".join(values), rows) if is_list and all(values) and len(values) <= LISTED else None

    def _aggregate(self, rows: Sequence[Row], name: str, numbers: Sequence[tuple[float, str]]) -> Found:
        (how,) = self.how
        if not numbers or (how in _OF_TWO and len(self.wanted.get(self.key, ())) != 2):
            return None
        if self._is_date(name) != (how in _OF_DATES) and how not in ("max", "min"):
            return None  # a mean of years says nothing
        values, unit = [number for number, _ in numbers], numbers[0][1]
        if how in ("sum", "mean"):
            total = sum(values) / (len(values) if how == "mean" else 1)
            return (unit.replace("#", f"{total:,.2f}".rstrip("0").rstrip(".")), rows) if "#" in unit else None
        best = max(values) if how in ("max", "more", "last", "later") else min(values)
        rows = [row for row, value in zip(rows, values, strict=True) if value == best]
        is_which = self.implied or self.key in self.asked or self.question.startswith((" which ", " who "))
        shown = self.key if is_which else name
        return "; ".join(dict.fromkeys(row.cells.get(shown, "") for row in rows)), rows

    def _numbers(self, rows: Sequence[Row], name: str) -> list[tuple[float, str]]:
        """Return the numbers of a column with their unit; none where a cell has none, or another unit."""
        numbers = [number for row in rows if (number := _number(row.cells.get(name, "")))]
        return numbers if len(numbers) == len(rows) and len({unit for _, unit in numbers}) == 1 else []

    def _measured_in(self, name: str) -> str:
        """Return the unit of a column, by its name or its cells; empty: none."""
        cells = self._numbers(self.table.rows, name)
        unit = _unit(name).lower() or (_folded(cells[0][1].replace("#", " ")) if cells else "")
        return _MEASURED_IN.get(unit, unit)

    def _is_number(self, name: str) -> bool:
        return bool(self._numbers(self.table.rows, name))

    def _is_when(self, name: str) -> bool:
        """Tell whether the year of the question is one of this column: it is named there, or dates the rows.

        `How many librarians were there in 2022` asks for more than those who began in 2022.
        """
        is_named = bool(_stems(name) & content_stems(self.question)) or f" {name.lower()} " in self.question
        return self._is_date(name) and (is_named or name == self.key or bool(_stems(name) & _DATES))

    def _is_date(self, name: str) -> bool:
        cells = [row.cells[name] for row in self.table.rows if row.cells.get(name)]
        return not _unit(name) and all(_DAY.fullmatch(cell) or _YEAR.fullmatch(cell) for cell in cells)


def _bare(name: str) -> str:
    """Return the name of a column without what stands in brackets."""
    return re.sub(r"\([^)]*\)", " ", name).strip() or name


def _unit(name: str) -> str:
    """Return what stands in brackets at the end of a column's name."""
    match = re.search(r"\(([^)]*)\)$", name)
    return match[1] if match else ""


def _stems(name: str) -> frozenset[str]:
    return content_stems(_bare(name))


def _number(cell: str) -> tuple[float, str] | None:
    """Return a cell's number (a day is YYYYMMDD), and its unit with `#` for the number. `1.240` may be either."""
    if _DAY.fullmatch(cell):
        return float(cell.replace("-", "")), "date"
    match = _NUMBER.fullmatch(_THOUSANDS.sub("", cell))
    return (float(match[2]), f"{match[1]}#{match[3]}") if match and not re.search(r"\.\d{3}$", match[2]) else None
