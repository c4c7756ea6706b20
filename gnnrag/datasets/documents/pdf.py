"""Read a PDF by pages: its text by pypdf, its headings from its outline where it has one."""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

from gnnrag.datasets.documents.blocks import Document
from gnnrag.datasets.documents.lines import Line, blocks_of
from gnnrag.errors import DataError
from gnnrag.types import OnProgress, no_progress

PAGES, SECONDS, CHARACTERS = 5_000, 120.0, 100_000_000  # that are read of one file, and how long that may take
# Bytes of one stream; a page of text has thousands.
_LIMITS = dict.fromkeys(
    (
        *("zlib_maximum_output_length", "lzw_maximum_output_length", "run_length_maximum_output_length"),
        *("array_based_stream_maximum_output_length", "maximum_declared_stream_length"),
    ),
    20_000_000,
)
# What pypdf raises on damaged files besides its own errors: it reads untrusted bytes with few checks.
_FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError, RuntimeError),
    *(TypeError, ValueError, struct.error, zlib.error),
)
_HEADINGS = 20_000  # of an outline


def read_pdf(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield a PDF, of a long one the first `PAGES` pages.

    Within a page only pypdf's limits and ours for unpacked streams hold. DataError: damaged, encrypted, or too slow
    (nothing is kept: a faster machine would read more); ModuleNotFoundError: pypdf is not installed.
    """
    try:
        import pypdf
        import pypdf.errors
    except ImportError as error:
        raise ModuleNotFoundError(f"{path}: reading PDF needs pypdf; install it: pip install pypdf") from error
    try:
        with _limits(pypdf), path.open("rb") as file:
            reader = pypdf.PdfReader(file)
            if reader.is_encrypted and not reader.decrypt(""):
                raise DataError(path, "is encrypted; save a copy without a password")
            metadata = reader.metadata
            title = str(metadata.title or "").strip() if metadata else ""
            total = len(reader.pages)
            texts = [_repaired(text) for text in _pages(path, reader.pages, min(total, PAGES), progress)]
            outline = _outline(reader, len(texts))
    except (pypdf.errors.PyPdfError, pypdf.errors.DependencyError, *_FAULTS) as error:
        raise DataError(path, f"is a damaged or unsupported PDF ({type(error).__name__}: {error})") from error
    pages = [[Line(line, number) for line in text.split("\n")] for number, text in enumerate(texts, start=1)]
    cut = f"read {PAGES:,} of {total:,} pages" if total > PAGES else ""
    yield Document(_repaired(title), blocks_of(pages, True, outline or None), "page", cut=cut)


def _pages(path: Path, pages: Any, count: int, progress: OnProgress) -> Iterator[str]:
    size, started = 0, monotonic()
    for number in range(count):
        read = f"read {number:,} of {count:,} pages; split it"
        if monotonic() - started > SECONDS:
            raise DataError(path, f"takes more than {SECONDS:g} s: {read}")
        text = pages[number].extract_text()
        size += len(text)
        if size > CHARACTERS:
            raise DataError(path, f"has more than {CHARACTERS:,} characters: {read}")
        yield text
        progress(f"pages of {path.name}", 1, count)


def _outline(reader: Any, count: int) -> dict[int, list[tuple[int, str]]]:
    """Return the headings of an outline with their levels, by position of page; a damaged one counts as none."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    try:
        todo = [(1, entry) for entry in reversed(reader.outline)]
        for _ in range(_HEADINGS):
            if not todo:
                break
            level, entry = todo.pop()
            if isinstance(entry, list):
                todo += [(level + 1, below) for below in reversed(entry)]
                continue
            page = reader.get_destination_page_number(entry)
            if page is not None and 0 <= page < count:
                found[page].append((level, " ".join(_repaired(str(entry.title)).split())))
    except _FAULTS:
        return {}
    return dict(found)


def _limits(pypdf: Any) -> AbstractContextManager[Any]:
    """Set limits for what streams may unpack to; versions of pypdf that cannot be told have 75 million or none."""
    apply = getattr(pypdf, "apply_configuration", None)
    return apply(**_LIMITS) if apply else nullcontext()


def _repaired(text: str) -> str:
    """Return text that can be stored: PDF fonts map some glyphs to NUL or to half of a surrogate pair."""
    return text.replace("\x00", " ").encode("utf-8", "replace").decode()
