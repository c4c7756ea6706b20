"""Read people's documents (text, Markdown, HTML, PDF) as titled sections."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from gnnrag.common.untrusted import well_formed
from gnnrag.datasets.jsonl import decode_utf8, open_plain, read_jsonl, read_whole
from gnnrag.errors import DataError

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
    """Return the title of a PDF, which may be empty, its text, and how much was read where not all (`PAGES` pages).

    Within a page only pypdf's limits and ours for unpacked streams hold. DataError: damaged, encrypted, or too slow
    (nothing is kept: a faster machine would read more); ModuleNotFoundError: pypdf is not installed.
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


MAX_TEXT = 100_000_000  # bytes of one document; two thousand novels have as many
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_UNDERLINE = re.compile(r"(=+|-{3,})\s*$")
_FRONT_MATTER = re.compile(r"---\n[\w-]+:.*?\n---(?:\n|$)", re.DOTALL)  # a rule may open a text as well


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a file with one title; `key` is of a record, else empty; `cut`: how much was read, if not all."""

    title: str
    text: str
    key: str = ""
    cut: str = ""


def read_sections(path: Path, progress: Progress = silent) -> list[Section]:
    """Return the sections of a file, in order; some may be blank. `progress` is notified of each page.

    Raises DataError: unreadable, undecodable, too large, or a pipe; KeyError: a suffix that is not in `READERS`.
    """
    return list(READERS[path.suffix.lower()](path, progress))


def _read_text(path: Path) -> str:
    raw = read_whole(path, MAX_TEXT)
    # Windows editors save UTF-16 with a byte-order mark, which leaves no doubt.
    is_utf16 = raw.startswith((b"\xff\xfe", b"\xfe\xff")) and not raw.startswith(b"\xff\xfe\x00\x00")
    try:
        text = raw.decode("utf-16") if is_utf16 else decode_utf8(path, raw)
    except UnicodeDecodeError as error:
        raise DataError(path, "is broken UTF-16; save it again as UTF-8") from error
    if "\x00" in text:
        raise DataError(path, "holds NUL bytes: it is binary, not text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_plain(path: Path, progress: Progress) -> Iterator[Section]:
    yield Section(path.stem, _read_text(path))


def _read_markdown(path: Path, progress: Progress) -> Iterator[Section]:
    text = _read_text(path)
    title = ""
    front = _FRONT_MATTER.match(text)
    if front:
        named = (line.removeprefix("title:") for line in front.group().split("\n") if line.startswith("title:"))
        title = next(named, "").strip().strip("\"'")
        text = text[front.end() :]
    trail: list[tuple[int, str]] = []
    for level, heading, body in _split_headings(text):
        if level and not title:
            title = heading  # the first heading names the file; the others are sections of it
        elif level:
            trail = [item for item in trail if item[0] < level] + ([(level, heading)] if heading != title else [])
        yield Section(" > ".join([title or path.stem, *(name for _, name in trail)]), body)


def _split_headings(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (level, heading, lines up to the next heading); level 0 for what precedes the first heading."""
    level, heading, fence = 0, "", ""
    body: list[str] = []
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark.group(1).startswith(fence)):
            fence = "" if fence else mark.group(1)
        found = _heading(line, body) if not fence else None
        if found:
            if line.lstrip()[:1] != "#":
                body.pop()  # the line above an underline is the heading
            yield level, heading, "\n".join(body)
            (level, heading), body = found, []
        else:
            body.append(line)
    yield level, heading, "\n".join(body)


def _heading(line: str, body: list[str]) -> tuple[int, str] | None:
    match = _HEADING.match(line)
    if match:
        name = line[match.end() :].strip()
        bare = name.rstrip("#")  # `## Name ##` is closed by its hashes, `## C#` is not
        name = bare.rstrip() if not bare or bare[-1].isspace() else name
        return (len(match.group(1)), name) if name else None
    # An underline makes a heading of a one-line paragraph; anywhere else it is a rule or a table.
    is_alone = bool(body) and bool(body[-1].strip()) and (len(body) == 1 or not body[-2].strip())
    if is_alone and _UNDERLINE.match(line) and "|" not in body[-1]:
        return (1 if line[0] == "=" else 2), body[-1].strip()
    return None


def _read_records(path: Path, progress: Progress) -> Iterator[Section]:
    """Yield one section per line: an object with `text` and perhaps `title` and `id`."""
    keys: dict[str, int] = {}
    for line, row in read_jsonl(path):
        text, title = row.get("text"), row.get("title") or path.stem
        if not (isinstance(text, str) and isinstance(title, str)):
            raise DataError(path, f"has no string 'text'; its keys are {', '.join(row)}", line)
        key = str(row.get("id", line))
        if key in keys:
            raise DataError(path, f"id {key!r} is already used on line {keys[key]}; ids must be unique", line)
        keys[key] = line
        yield Section(title, text, key)


def _read_pdf(path: Path, progress: Progress) -> Iterator[Section]:
    title, text, cut = read_pdf(path, progress)
    yield Section(title or path.stem, text, cut=cut)


READERS: dict[str, Callable[[Path, Progress], Iterator[Section]]] = {
    ".txt": _read_plain,
    ".md": _read_markdown,
    ".jsonl": _read_records,
    ".pdf": _read_pdf,
}
