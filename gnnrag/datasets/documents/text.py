"""Read plain text, Markdown and JSON lines as documents; encodings are found out, and told where they are assumed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gnnrag.datasets.documents.blocks import Document
from gnnrag.datasets.documents.lines import Line, Page, blocks_of
from gnnrag.datasets.jsonl import decode_utf8, read_jsonl_by_id, read_whole
from gnnrag.errors import DataError
from gnnrag.types import OnProgress, no_progress

MAX_TEXT = 100_000_000  # bytes of one document; two thousand novels have as many
_SAMPLE = 500_000  # bytes that tell the encoding
# What people's files are in, where they are not UTF-8.
_ENCODINGS = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "mac_roman"),
    *("shift_jis", "euc_jp", "gb18030", "big5", "euc_kr", "utf_16_le", "utf_16_be"),
)
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def read_text(path: Path) -> tuple[str, list[str]]:
    """Return the text of a file with line feeds as line ends, and a note where its encoding is assumed.

    Raises DataError: unreadable, too large, or binary.
    """
    return decoded(path, read_whole(path, MAX_TEXT))


def decoded(path: Path, raw: bytes, declared: str = "") -> tuple[str, list[str]]:
    """Return bytes as text; `declared` is the encoding that a page names. As `read_text`."""
    notes: list[str] = []
    try:
        # Windows editors save UTF-16 with a byte-order mark, which leaves no doubt.
        is_utf16 = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
        text = raw.decode("utf-16") if is_utf16 else decode_utf8(path, raw)
    except UnicodeDecodeError as error:
        raise DataError(path, "is broken UTF-16; save it again as UTF-8") from error
    except DataError:
        try:
            text = raw.decode(declared)
        except (LookupError, UnicodeDecodeError):
            name = _guessed(raw)
            text = raw.decode(name, "replace")
            notes = [f"is not UTF-8: read as {name}, which is assumed"]
    broken = len(_CONTROLS.findall(text[:_SAMPLE])) + text[:_SAMPLE].count("\ufffd")
    if "\x00" in text or broken > 0.01 * len(text[:_SAMPLE]):
        raise DataError(path, "holds NUL bytes or control characters: it is binary, not text")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notes


def _guessed(raw: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(raw[:_SAMPLE], cp_isolation=list(_ENCODINGS), enable_fallback=False).best()
    # Of a few bytes any code page makes sense; the one of Western Europe is by far the most used.
    is_western = best is None or len(raw) <= 200 or "cp1252" in best.could_be_from_charset
    return "cp1252" if best is None or is_western else best.encoding


# Labels, comments and tables of contents of reStructuredText, with what is indented below.
_DIRECTIVE = re.compile(
    r"^\.\. (?:_[^\n]*|(?:contents|toctree|index|highlight|meta)::[^\n]*(?:\n(?:[ \t]+[^\n]*)?(?=\n))*)$", re.MULTILINE
)


def read_plain(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield plain text or reStructuredText; form feeds part it into pages."""
    text, notes = read_text(path)
    if path.suffix.lower() == ".rst":
        text = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)  # so that places stay
    if "\f" not in text.strip("\f"):
        yield Document("", blocks_of([_lines(text, 1)]), "character", notes=notes)
        return
    pages = [[Line(line, number) for line in page.split("\n")] for number, page in enumerate(text.split("\f"), start=1)]
    yield Document("", blocks_of(pages), "page", notes=notes)


def _lines(text: str, start: int) -> Page:
    """Return lines with where their first word stands; the text starts at `start`."""
    lines = []
    for line in text.split("\n"):
        lines.append(Line(line, start + len(line) - len(line.lstrip())))
        start += len(line) + 1
    return lines


def read_records(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield a document for each line: an object with `text` and perhaps `title` and `id`."""
    for number, key, row in read_jsonl_by_id(path):
        text, title = row.get("text"), row.get("title") or ""
        if not (isinstance(text, str) and isinstance(title, str)):
            raise DataError(path, f"has no string 'text'; its keys are {', '.join(row)}", number)
        blocks = blocks_of([[Line(line, number) for line in text.split("\n")]], outline={})
        yield Document(title, blocks, "line", key)


_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_UNDERLINE = re.compile(r"(=+|-{3,})\s*$")
_FRONT_MATTER = re.compile(r"---\n[\w-]+:.*?\n---(?:\n|$)", re.DOTALL)  # a rule may open a text as well


def read_markdown(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield a Markdown file; the first heading, or the front matter, names it."""
    text, notes = read_text(path)
    title, body = _front(text)
    lines = []
    named = ""
    for level, heading, found in _split_headings(_lines(body, 1 + len(text) - len(body))):
        if level and not (title or named):
            named = heading
        elif level and heading != (title or named):
            lines.append(Line(heading, found[0].at if found else 0, level))
        lines += found
    yield Document(title or named, blocks_of([lines], outline={}), "character", notes=notes)


def markdown_sections(path: Path) -> list[tuple[str, str]]:
    """Return the sections of a Markdown file as they stand: the path of headings, and the text; some may be blank."""
    text, _ = read_text(path)
    title, body = _front(text)
    trail: list[tuple[int, str]] = []
    sections = []
    for level, heading, lines in _split_headings(_lines(body, 0)):
        if level and not title:
            title = heading  # the first heading names the file; the others are sections of it
        elif level:
            trail = [item for item in trail if item[0] < level] + ([(level, heading)] if heading != title else [])
        names = [title or path.stem, *(name for _, name in trail)]
        sections.append((" > ".join(names), "\n".join(line.text for line in lines)))
    return sections


def _front(text: str) -> tuple[str, str]:
    """Return the title that the front matter of a text gives, or nothing, and the text without it."""
    front = _FRONT_MATTER.match(text)
    if not front:
        return "", text
    named = (line.removeprefix("title:") for line in front.group().split("\n") if line.startswith("title:"))
    return next(named, "").strip().strip("\"'"), text[front.end() :]


def _split_headings(lines: Iterable[Line]) -> Iterator[tuple[int, str, list[Line]]]:
    """Yield (level, heading, lines up to the next heading); level 0 for what precedes the first heading."""
    level, heading, fence = 0, "", ""
    body: list[Line] = []
    for line in lines:
        mark = _FENCE.match(line.text)
        if mark and (not fence or mark.group(1).startswith(fence)):
            fence = "" if fence else mark.group(1)
        found = _heading(line.text, body) if not fence else None
        if found:
            if line.text.lstrip()[:1] != "#":
                body.pop()  # the line above an underline is the heading
            yield level, heading, body
            (level, heading), body = found, []
        else:
            body.append(line)
    yield level, heading, body


def _heading(line: str, body: list[Line]) -> tuple[int, str] | None:
    match = _HEADING.match(line)
    if match:
        name = line[match.end() :].strip()
        bare = name.rstrip("#")  # `## Name ##` is closed by its hashes, `## C#` is not
        name = bare.rstrip() if not bare or bare[-1].isspace() else name
        return (len(match.group(1)), name) if name else None
    # An underline makes a heading of a one-line paragraph; anywhere else it is a rule or a table.
    is_alone = bool(body) and bool(body[-1].text.strip()) and (len(body) == 1 or not body[-2].text.strip())
    if is_alone and _UNDERLINE.match(line) and "|" not in body[-1].text:
        return (1 if line[0] == "=" else 2), body[-1].text.strip()
    return None
