"""Reads the text of a PDF from a stranger: so many pages, so many characters, and for so long."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

from gnnrag.datasets.jsonl import open_plain
from gnnrag.errors import DataError
from gnnrag.untrusted import well_formed

Progress = Callable[[str, int, int], None]  # what is being done, how much is done now, and how much there is in all
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


def silent(what: str, done: int, total: int) -> None:
    """Tell nobody of progress."""


def read_pdf(path: Path, progress: Progress = silent) -> tuple[str, str, str]:
    """Return the title of a PDF, which may be empty, its text, and how much was read where that is not all.

    Of more than `PAGES` pages the first are read. The time is looked at between two pages. Within one nothing stops
    pypdf: there its own limits hold (nesting, entries, operators), and ours for what its streams unpack to.

    Args:
        path: the file.
        progress: told of each page.

    Raises:
        DataError: it is damaged or encrypted, or takes too long: what a slow machine got through is not what a fast one
            would, so nothing is kept.
        ModuleNotFoundError: pypdf is not installed.
    """
    try:
        import pypdf
        import pypdf.errors
    except ImportError as error:
        raise ModuleNotFoundError(f"{path}: reading PDF needs pypdf; install it: pip install pypdf") from error
    try:
        with _limits(pypdf), open_plain(path) as file:
            reader = pypdf.PdfReader(file)
            if reader.is_encrypted and not reader.decrypt(""):
                raise DataError(path, "is encrypted; save a copy without a password")
            metadata = reader.metadata
            title = str(metadata.title or "").strip() if metadata else ""
            total = len(reader.pages)
            text = "\n".join(_pages(path, reader.pages, min(total, PAGES), progress))
    except (pypdf.errors.PyPdfError, pypdf.errors.DependencyError, *_FAULTS) as error:
        raise DataError(path, f"is a damaged or unsupported PDF ({type(error).__name__}: {error})") from error
    cut = f"read {PAGES:,} of {total:,} pages" if total > PAGES else ""
    return _repaired(title), _repaired(text), cut


def _pages(path: Path, pages: Any, count: int, progress: Progress) -> Iterator[str]:
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


def _limits(pypdf: Any) -> AbstractContextManager[Any]:
    """Set limits for what streams may unpack to; versions of pypdf that cannot be told have 75 million or none."""
    apply = getattr(pypdf, "apply_configuration", None)
    return apply(**_LIMITS) if apply else nullcontext()


def _repaired(text: str) -> str:
    """Return text that can be stored: PDF fonts map some glyphs to NUL or to half of a surrogate pair."""
    return well_formed(text.replace("\x00", " "))
