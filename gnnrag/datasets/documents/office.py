"""Read tables (.csv, .xlsx) and slides (.pptx); open documents that are ZIP files (.docx, .pptx, .xlsx, .epub).

Documents come from strangers: nothing is unpacked before its size is known, and XML that declares entities is refused.
"""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from gnnrag.datasets.documents.blocks import Block, Document, table
from gnnrag.datasets.documents.text import read_text
from gnnrag.datasets.jsonl import read_whole
from gnnrag.errors import DataError
from gnnrag.types import OnProgress, no_progress


def needed(module: str, path: Path) -> Any:
    """Return a library; DataError: it is not installed, with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        fix = "pip install 'gnnrag[documents]' (in a clone: pip install -e '.[documents]')"
        raise DataError(path, f"needs {module}, which is not installed: {fix}") from error


MAX_FILE = 200_000_000  # bytes, packed
MAX_MEMBERS = 20_000
MAX_XML = 50_000_000  # bytes that one member with text unpacks to
MAX_UNPACKED = 500_000_000  # and all of them, pictures included
_TEXT = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".vml")
_MEDIA = (
    *(".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".emf", ".wmf", ".ico", ".svg"),
    *(".mp3", ".mp4", ".m4a", ".wav", ".avi", ".mov", ".wmv", ".ttf", ".otf", ".woff", ".woff2", ".odttf", ".fntdata"),
)


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[BinaryIO, zipfile.ZipFile]]:
    """Open a document that is a ZIP file, read whole, so that what is checked is what is read; DataError: damaged."""
    file = io.BytesIO(read_whole(path, MAX_FILE))
    try:
        with zipfile.ZipFile(file) as archive:
            yield file, archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        problem = f"is a damaged or encrypted {path.suffix.lower()} ({type(error).__name__}: {error})"
        raise DataError(path, problem) from error


def members(path: Path, archive: zipfile.ZipFile, needs: str) -> frozenset[str]:
    """Return the names in an archive after checking them; DataError: too large, or `needs` is not among them.

    Every XML, whatever its name ends in, is read once: what its header says of its size may be a lie, which the reading
    finds out.
    """
    infos = archive.infolist()
    total = sum(info.file_size for info in infos)
    if len(infos) > MAX_MEMBERS or total > MAX_UNPACKED:
        limit = f"the limits are {MAX_MEMBERS:,} members and {MAX_UNPACKED:,} bytes"
        raise DataError(path, f"holds {len(infos):,} members that unpack to {total:,} bytes; {limit}")
    for info in infos:
        if info.filename.lower().endswith(_MEDIA):
            continue
        with archive.open(info) as member:
            begins = member.read(100).lstrip(b"\xef\xbb\xbf \t\r\n")
        is_text = info.filename.lower().endswith(_TEXT) or begins[:1] == b"<"
        if not is_text:
            continue
        if info.file_size > MAX_XML:
            problem = f"{info.filename} unpacks to {info.file_size:,} bytes, the limit is {MAX_XML:,}; split it"
            raise DataError(path, problem)
        raw = archive.read(info)  # never more than the header says, else it is damaged
        if b"<!ENTITY" in raw or raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in raw[:100]:
            raise DataError(path, f"{info.filename} declares entities or is no UTF-8; save it again")
    names = frozenset(info.filename for info in infos)
    if needs not in names:
        raise DataError(path, f"is a damaged {path.suffix.lower()}: it holds no {needs}")
    return names


def xml_root(path: Path, archive: zipfile.ZipFile, name: str) -> Any:
    """Return the root of an XML in an archive; DataError: it is not well-formed."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        return etree.fromstring(archive.read(name), parser)
    except etree.XMLSyntaxError as error:
        raise DataError(path, f"{name} is no well-formed XML ({error})") from error


SECONDS, MAX_CELLS = 120.0, 5_000_000  # of one file
_FAULTS = (ArithmeticError, AttributeError, AssertionError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def read_csv(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield a table of values between commas, semicolons, tabs or bars; the first row is its head."""
    text, notes = read_text(path)
    try:
        dialect: Any = csv.Sniffer().sniff(text[:20_000], delimiters=",;\t|")
        dialect.doublequote = True  # the sample may have none; a quotation mark in a cell is written twice all the same
    except csv.Error:
        dialect = csv.excel
    rows = csv.reader(io.StringIO(text, newline=""), dialect)
    document = Document(path.stem, unit="row", notes=notes)
    try:
        document.blocks = list(_tables(path, enumerate(rows, start=1)))
    except csv.Error as error:
        why = f"row {rows.line_num}: {error}; split the cell, or close a quotation mark that is open there"
        raise DataError(path, why) from error
    yield document


def read_xlsx(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield the sheets of a workbook, each a table, with the values that were last computed."""
    openpyxl = needed("openpyxl", path)
    document = Document(path.stem, unit="row")
    with open_archive(path) as (file, archive):
        members(path, archive, "xl/workbook.xml")
        try:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            for sheet in book.worksheets:
                sheet.reset_dimensions()  # what a file says of its size may be a lie
                values = enumerate(sheet.iter_rows(values_only=True), start=1)
                rows = ((number, [_cell(value) for value in row]) for number, row in values)
                document.blocks += [Block("heading", sheet.title, [(0, 1)], 1, sheet.title)]
                document.blocks += _tables(path, rows, sheet.title)
            book.close()
        except DataError:
            raise
        except (KeyError, *_FAULTS, SyntaxError) as error:  # what its XML leads it to; ElementTree's is a SyntaxError
            raise DataError(path, f"is a damaged or unsupported .xlsx ({type(error).__name__}: {error})") from error
    yield document


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


def read_pptx(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
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
