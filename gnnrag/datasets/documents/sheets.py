"""Read tables (.csv, .xlsx) and slides (.pptx): rows as lines of Markdown below their head, slides by their titles."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

from gnnrag.datasets.documents.archive import members, open_archive
from gnnrag.datasets.documents.blocks import Block, Document, Progress, silent, table
from gnnrag.datasets.documents.needs import needed
from gnnrag.datasets.documents.text import read_text
from gnnrag.errors import DataError

SECONDS, MAX_CELLS = 120.0, 5_000_000  # of one file
_END = "\x00"  # no text has it
_FAULTS = (ArithmeticError, AttributeError, AssertionError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def read_csv(path: Path, progress: Progress = silent) -> Iterator[Document]:
    """Yield a table of values between commas, semicolons, tabs or bars; the first row is its head."""
    text, remark = read_text(path)
    try:
        dialect: Any = csv.Sniffer().sniff(text[:20_000], delimiters=",;\t|")
        dialect.doublequote = True  # the sample may have none; a quotation mark in a cell is written twice all the same
    except csv.Error:
        dialect = csv.excel
    # A line of its own after the last one: a quotation mark that nobody has closed takes it into its cell.
    rows = csv.reader(chain(io.StringIO(text, newline=""), [_END]), dialect)
    document = Document(path.stem, unit="row", notes=[remark] if remark else [])
    try:
        document.blocks = list(_tables(path, _closed(path, rows)))
    except csv.Error as error:
        why = f"row {rows.line_num}: {error}; split the cell, or close a quotation mark that is open there"
        raise DataError(path, why) from error
    yield document


def _closed(path: Path, rows: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield numbered rows up to the end mark; DataError: the mark is within a cell, whose row is told by its line."""
    line = 1
    for number, row in enumerate(rows, start=1):
        if row == [_END]:
            return
        if row and row[-1].endswith(_END):
            raise DataError(path, f"line {line:,}: a quotation mark that is open there is never closed; close it")
        yield number, row
        line = rows.line_num + 1


def read_xlsx(path: Path, progress: Progress = silent) -> Iterator[Document]:
    """Yield the sheets of a workbook, each a table, with the values that were last computed."""
    openpyxl = needed("openpyxl", path)
    document = Document(path.stem, unit="row")
    with open_archive(path) as (file, archive):
        members(path, archive, "xl/workbook.xml")
        try:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            for sheet in book.worksheets:
                sheet.reset_dimensions()  # what a file says of its size may be a lie
                rows = ((number, [_cell(value) for value in row]) for number, row in _numbered(sheet))
                document.blocks += [Block("heading", sheet.title, [(0, 1)], 1, sheet.title)]
                document.blocks += _tables(path, rows, sheet.title)
            book.close()
        except DataError:
            raise
        except (KeyError, *_FAULTS, SyntaxError) as error:  # what its XML leads it to; ElementTree's is a SyntaxError
            raise DataError(path, f"is a damaged or unsupported .xlsx ({type(error).__name__}: {error})") from error
    yield document


def _numbered(sheet: Any) -> Iterator[tuple[int, Any]]:
    return enumerate(sheet.iter_rows(values_only=True), start=1)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime) and (value.hour, value.minute, value.second) == (0, 0, 0):
        return value.date().isoformat()
    if isinstance(value, date | datetime):
        return value.isoformat()
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


def _tables(path: Path, rows: Iterable[tuple[int, list[str]]], part: str = "") -> Iterator[Block]:
    """Yield tables: rows up to a blank one; a row of one cell between blank ones is a line of text."""
    started, cells = monotonic(), 0
    kept: list[tuple[int, list[str]]] = []
    for number, row in rows:
        cells += len(row)
        if cells > MAX_CELLS or monotonic() - started > SECONDS:
            limit = f"{MAX_CELLS:,} cells and {SECONDS:g} s"
            raise DataError(path, f"is larger than {limit} at row {number:,}; split it")
        while row and not row[-1].strip():
            row.pop()
        if row:
            kept.append((number, row))
        elif kept:
            yield _table(kept, part)
            kept = []
    if kept:
        yield _table(kept, part)


def _table(rows: list[tuple[int, list[str]]], part: str) -> Block:
    if len(rows) == 1 or max(len(row) for _, row in rows) == 1:
        text, marks = "", []
        for number, row in rows:
            marks.append((len(text), number))
            text += " | ".join(" ".join(cell.split()) for cell in row) + "\n"
        return Block("verbatim", text.rstrip("\n"), marks, part=part)
    return table([row for _, row in rows], [number for number, _ in rows], part)


def read_pptx(path: Path, progress: Progress = silent) -> Iterator[Document]:
    """Yield the slides of a presentation with their notes; the title of a slide is a heading."""
    pptx = needed("pptx", path)
    document = Document(unit="slide")
    with open_archive(path) as (file, archive):
        members(path, archive, "ppt/presentation.xml")
        try:
            presentation = pptx.Presentation(file)
            document.title = str(presentation.core_properties.title or "").strip()
            slides = list(presentation.slides)
            for number, slide in enumerate(slides, start=1):
                document.blocks += _slide(slide, number)
                progress(f"slides of {path.name}", 1, len(slides))
        except (*_FAULTS, SyntaxError, pptx.exc.PythonPptxError) as error:  # it reads untrusted XML with few checks
            raise DataError(path, f"is a damaged or unsupported .pptx ({type(error).__name__}: {error})") from error
    if document.title.casefold() in ("", "powerpoint presentation", "presentation"):
        document.title = ""
    yield document


def _slide(slide: Any, number: int) -> Iterator[Block]:
    from pptx.shapes.group import GroupShape

    title = slide.shapes.title
    name = " ".join(title.text_frame.text.split()) if title is not None and title.has_text_frame else ""
    if name:
        yield Block("heading", name, [(0, number)], 1)
    todo = [shape for shape in reversed(list(slide.shapes)) if title is None or shape.shape_id != title.shape_id]
    while todo:
        shape = todo.pop()
        if isinstance(shape, GroupShape):  # `shape_type` raises where a shape has no geometry of its own
            todo += reversed(list(shape.shapes))
        elif shape.has_text_frame:
            for paragraph in shape.text_frame.paragraphs:
                if text := " ".join("".join(run.text for run in paragraph.runs).split()):
                    yield Block("item", f"{'  ' * paragraph.level}- {text}", [(0, number)])
        elif shape.has_table:
            rows = [[cell.text for cell in row.cells] for row in shape.table.rows]
            yield table(rows, [number] * len(rows))
    notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None  # its page may have no place for any
    if notes is not None and (text := notes.text.strip()):
        yield Block("text", " ".join(text.split()), [(0, number)])
