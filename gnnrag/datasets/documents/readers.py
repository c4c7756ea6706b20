"""Read a file as documents: other programs' formats by kreuzberg, plain text, Markdown, tables and records by us.

Meant for the child process (`child.py`): documents come from strangers, and nothing here bounds what they cost.
"""

from __future__ import annotations

import csv
import email
import email.policy
import html
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.message import EmailMessage
from pathlib import Path
from secrets import token_hex
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gnnrag.datasets.documents.blocks import Block, Document, Kind
from gnnrag.datasets.jsonl import decode_utf8, read_jsonl_by_id, read_whole
from gnnrag.datasets.metadata import cell_value, iso_date, own_fields
from gnnrag.errors import DataError
from gnnrag.io import well_formed
from gnnrag.text.normalise import FUNCTION_WORDS
from gnnrag.types import Scalar

MAX_FILE, MAX_TEXT = 200_000_000, 30_000_000  # bytes of a file, and of one that is text
BY_MARKUP = {".epub": "application/epub+zip", ".ipynb": "application/x-ipynb+json"}
_OLE = bytes.fromhex("d0cf11e0a1b11ae1")  # in which Office wraps what it encrypts
_SAMPLE = 500_000  # bytes that tell the encoding
# What people's files are in, where they are not UTF-8.
_ENCODINGS = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r", "mac_roman"),
    *("shift_jis", "euc_jp", "gb18030", "big5", "euc_kr", "utf_16_le", "utf_16_be"),
)
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def read_document(path: Path) -> list[Document]:
    """Return what a file holds: one document, or one for each record of a `.jsonl`; some may be blank.

    Raises DataError: unreadable, too large, binary. kreuzberg.KreuzbergError and others: damaged.
    """
    suffix = path.suffix.lower()
    if suffix in _OWN:
        return _OWN[suffix](path)
    if suffix in BY_MARKUP:
        result = _extract(read_whole(path, MAX_FILE), BY_MARKUP[suffix])
        document = _markup(result.content, str(result.metadata.get("title") or "") if suffix == ".epub" else "")
        document.metadata = _changed(result.metadata)
        return [document]
    return [_by_nodes(path, suffix)]


def decoded(path: Path, raw: bytes, declared: str = "") -> tuple[str, list[str]]:
    """Return bytes as text with line feeds as line ends, and a note where the encoding is assumed.

    `declared` is the encoding that a page names. DataError: binary.
    """
    notes: list[str] = []
    try:
        # Windows editors save UTF-16 with a byte-order mark, which leaves no doubt.
        is_utf16, is_utf32 = raw.startswith((b"\xff\xfe", b"\xfe\xff")), raw.startswith(b"\xff\xfe\0\0")
        text = raw.decode("utf-32" if is_utf32 else "utf-16") if is_utf16 else decode_utf8(path, raw)
    except UnicodeDecodeError as error:
        raise DataError(path, "is broken UTF-16 or UTF-32; save it again as UTF-8") from error
    except DataError:
        try:
            text = raw.decode(declared)
        except (LookupError, ValueError):  # `undefined` is a codec, too, and raises
            name = _guessed(raw)
            text = raw.decode(name, "replace")
            notes = [f"is not UTF-8: read as {name}, which is assumed"]
    broken = len(_CONTROLS.findall(text[:_SAMPLE])) + text[:_SAMPLE].count("\ufffd")
    if "\x00" in text or broken > 0.01 * len(text[:_SAMPLE]):
        raise DataError(path, "holds NUL bytes or control characters: it is binary, not text")
    return well_formed(text.replace("\r\n", "\n").replace("\r", "\n")), notes


def _guessed(raw: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(raw[:_SAMPLE], cp_isolation=list(_ENCODINGS), enable_fallback=False).best()
    # Of a few bytes any code page makes sense; the one of Western Europe is by far the most used.
    is_western = len(raw) <= 200 or best is None or "cp1252" in best.could_be_from_charset
    with suppress(UnicodeDecodeError):  # five bytes are no characters there
        return "cp1252" if is_western and raw.decode("cp1252") else best.encoding  # type: ignore[union-attr]
    return best.encoding if best else "cp1252"


# --------------------------------------------------------------------------------------------------- text and Markdown
_BULLET = re.compile(r"\s*(?:[-*+•–▪◦●]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+(?=\S)")
_UNDERLINE = re.compile(r"([=\-~*^\"#+`])\1{2,}$")
_NUMBER = re.compile(r"(\d{1,3}(?:\.\d{1,3}){0,5})\.?\s+(?=[^\W\d_])")
_CHAPTER = re.compile(r"(chapter|part|appendix|annex)\s+([a-z]|\d+|[ivxlc]+)\b", re.IGNORECASE)
# Labels, comments and tables of contents of reStructuredText, with what is indented below.
_DIRECTIVE = re.compile(
    r"^\.\. (?:_[^\n]*|(?:contents|toctree|index|highlight|meta)::[^\n]*+(?:\n(?:[ \t][^\n]*+)?(?=\n))*+)$",
    re.MULTILINE,
)
_FRONT_MATTER = re.compile(r"---\n[\w-]+:.*?\n---(?:\n|$)", re.DOTALL)  # a rule may open a text as well


def _read_text(path: Path) -> list[Document]:
    text, notes = decoded(path, read_whole(path, MAX_TEXT))
    if path.suffix.lower() == ".rst":
        text = _DIRECTIVE.sub(lambda match: "\n" * match.group().count("\n"), text)  # so that places stay
    return [Document("", text_blocks(text), "line", notes=notes)]


def text_blocks(text: str) -> list[Block]:
    """Return the blocks of plain text. Headings are underlined, or numbered or in capitals and by themselves."""
    lines = ["" if _is_contents(line) else line for line in map(str.strip, text.split("\n"))]
    full = _wrapped_at(lines)
    blocks: list[Block] = []
    i = 0
    while i < len(lines):
        if heading := _heading(lines, i):
            level, count = heading
            blocks.append(Block("heading", " ".join(lines[i].split()), i + 1, level))
        else:
            paragraph, count = _paragraph(lines, i, full)
            if paragraph and not _UNDERLINE.match(paragraph):
                blocks.append(Block("item" if _BULLET.match(paragraph) else "text", paragraph, i + 1))
        i += count
    return blocks


def _heading(lines: Sequence[str], i: int) -> tuple[int, int] | None:
    """Return the level of a heading that starts in this line, and how many lines it takes."""
    text, below = lines[i], lines[i + 1] if i + 1 < len(lines) else ""
    if (
        not text
        or len(text) > 100
        or _UNDERLINE.match(text)
        or (i and lines[i - 1] and not _UNDERLINE.match(lines[i - 1]))
    ):
        return None
    if _UNDERLINE.match(below) and "|" not in text and 2 * len(below) >= len(text):
        return (1 if below[0] in "=*#" else 2), 2
    if below or len(text.split()) > 12 or text[-1] in ".!?:;,":
        return None
    if number := _NUMBER.match(text):
        following = next((line for line in lines[i + 2 : i + 12] if line), "")
        is_item = "." not in number[1] and (not following or _NUMBER.match(following))  # of a list with blank lines
        return (1 + number[1].count("."), 1) if text[number.end()].isupper() and not is_item else None
    is_title = text.isupper() and sum(c.isalpha() for c in text) > 3 and len(text.split()) < 10
    return (1, 1) if is_title or _CHAPTER.match(text) else None


def _wrapped_at(lines: Iterable[str]) -> float:
    """Return the length from which on a line is taken for one that was wrapped."""
    lengths = sorted(len(line) for line in lines if line)
    usual = lengths[int(0.9 * (len(lengths) - 1))] if lengths else 0
    return 0.7 * usual if 45 <= usual <= 200 else 200


def _paragraph(lines: Sequence[str], i: int, full: float) -> tuple[str, int]:
    """Return the paragraph that starts in this line, and how many lines it takes: as long as they were wrapped."""
    text, count = [lines[i]], 1
    while i + count < len(lines):
        line, after = lines[i + count - 1], lines[i + count]
        if not line or not after or max(len(line), len(after)) > 200 or _BULLET.match(after):
            break
        if len(line) < full and not after[0].islower():
            break
        before = text[-1]
        is_hyphenated = before[-1] in "-\u2010\u00ad" and before[-2:-1].isalpha() and after[0].islower()
        text[-1:] = [before[:-1], after] if is_hyphenated else [before, " ", after]
        count += 1
    return "".join(text), count


def _is_contents(line: str) -> bool:
    """Tell whether a line is of a table of contents: dots lead to a number."""
    return (". . . ." in line or "....." in line) and line[-1].isalnum()


def _read_markdown(path: Path) -> list[Document]:
    text, notes = decoded(path, read_whole(path, MAX_TEXT))
    front = _FRONT_MATTER.match(text)
    body = text[front.end() :] if front else text
    blocks = markdown_blocks(body, 1 + text.count("\n") - body.count("\n"))
    fields = dict(re.findall(r"^([\w-]+):[ \t]*(.+)$", front[0] if front else "", re.MULTILINE))
    fields = {name: value.strip(" \"'") for name, value in fields.items()}
    title = fields.pop("title", "")
    own = own_fields({name: cell_value(value) for name, value in fields.items()})
    return [Document(title, blocks, "line", notes=notes, metadata=own)]


def _dated(*texts: object) -> dict[str, Scalar]:
    """Return as metadata the first of some texts that is a date; nothing where none is."""
    day = next((day for text in texts if text and (day := iso_date(str(text)))), "")
    return {"date": day} if day else {}


def markdown_blocks(text: str, start: int = 1, is_page: bool = False) -> list[Block]:
    """Return the blocks of Markdown whose first line has the number `start`.

    Items of tables of contents are left out, and of a web page (`is_page`) those of menus: a link and nothing else.
    """
    full = _wrapped_at(text.split("\n"))
    blocks: list[Block] = []
    marker, level, rows = "", 0, list[tuple[int, list[str]]]()
    parser = MarkdownIt("commonmark", {"maxNesting": 100, "html": not is_page}).enable(["table", "strikethrough"])
    for token in parser.parse(text):
        at = start + token.map[0] if token.map else start
        if token.type == "heading_open":
            level = int(token.tag[1])
        elif token.type == "list_item_open":
            marker = f"{token.info}{token.markup} " if token.info else "- "
        elif token.type == "list_item_close":
            marker = ""
        elif token.type == "tr_open":
            rows.append((at, []))
        elif token.type == "table_close":
            blocks += table_blocks(rows)
            rows = []
        elif token.type in ("fence", "code_block", "html_block"):
            code = _TAG.sub("", token.content) if token.type == "html_block" else token.content
            blocks.append(Block("code" if token.type != "html_block" else "text", code.strip("\n"), at))
        elif token.type == "inline" and rows:
            rows[-1][1].append(_inline(token))
        elif token.type == "inline" and level:
            blocks.append(Block("heading", " ".join(_inline(token).split()), at, level))
            level = 0
        elif token.type == "inline" and not (marker and _is_link(token, "" if is_page else "#")):
            lines, i = [line.strip() for line in _inline(token).split("\n")], 0
            while i < len(lines):
                paragraph, count = _paragraph(lines, i, full)
                if paragraph and not paragraph.startswith("[!"):  # the kind of a note
                    blocks.append(Block("item" if marker else "text", marker + paragraph, at))
                    marker = ""
                i += count
    return [block for block in blocks if block.text.strip()]


_TAG = re.compile(r"<[^<>]*>")


def _inline(token: Token) -> str:
    """Return text without its marks for emphasis, links, images and code."""
    children = token.children or []
    return "".join(
        "\n" if child.type.endswith("break") else child.content
        for child in children
        if child.type not in ("image", "html_inline")
    )


def _is_link(token: Token, address: str) -> bool:
    """Tell whether this is a link to what begins with an address, and nothing else."""
    first, last = (token.children or [token])[0], (token.children or [token])[-1]
    return first.type == "link_open" and last.type == "link_close" and str(first.attrs["href"]).startswith(address)


# -------------------------------------------------------------------------------------------------------------- tables
_FIGURE = re.compile(r"[-+(]?[$€£¥]?\s?\d[\d\s.,:/%-]*\)?$")
_YEAR = re.compile(r"(1[89]|20)\d\d$")


def table_blocks(
    rows: Iterable[tuple[int, Sequence[str]]], part: str = "", has_fields: bool = False
) -> Iterator[Block]:
    """Yield a block for each numbered row, read with its header: `customer: Oslo Vann; fee: 9`.

    Blank rows part tables. Rows of one cell above a table are text. A first row with a figure is no header. With
    `has_fields` a row's cells are its metadata, too.
    """
    table: list[tuple[int, list[str]]] = []
    for number, row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        if any(cells):
            table.append((number, cells))
        else:
            yield from _one_table(table, part, has_fields)
            table = []
    yield from _one_table(table, part, has_fields)


def _one_table(rows: Sequence[tuple[int, list[str]]], part: str, has_fields: bool) -> Iterator[Block]:
    first = 0
    while first < len(rows) and sum(map(bool, rows[first][1])) == 1:
        yield Block("text", "".join(rows[first][1]), rows[first][0], part=part)
        first += 1
    rows = rows[first:]
    header: list[str] = []
    if len(rows) > 1 and not any(_FIGURE.match(cell) and not _YEAR.match(cell) for cell in rows[0][1]):
        header, rows = rows[0][1], rows[1:]
    for number, cells in rows:
        names = [*header[: len(cells)], *[""] * (len(cells) - len(header))]
        # In a row that is read again, `; ` parts its cells.
        plain = [
            (name.replace(": ", " ").replace("; ", ", "), cell.replace("; ", ", "))
            for name, cell in zip(names, cells, strict=True)
        ]
        if pairs := [f"{name}: {cell}" if name else cell for name, cell in plain if cell]:
            values = zip(names, map(cell_value, cells), strict=True) if has_fields and header else ()
            yield Block("row", "; ".join(pairs), number, part=part, fields=own_fields(dict(values)))


def _read_table(path: Path) -> list[Document]:
    text, notes = decoded(path, read_whole(path, MAX_TEXT))
    sample = [line for line in text[:20_000].split("\n")[:20] if line]
    counts = {mark: [line.count(mark) for line in sample] for mark in ",;\t|"}
    # The mark that stands in most lines, and in these the same number of times.
    votes = {mark: Counter(n for n in found if n).most_common(1) for mark, found in counts.items()}
    delimiter = max(votes, key=lambda mark: votes[mark][0][::-1] if votes[mark] else (0, 0))
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        blocks = list(table_blocks(enumerate(rows, start=1), has_fields=True))
    except csv.Error as error:
        why = f"row {rows.line_num}: {error}; split the cell, or close a quotation mark that is open there"
        raise DataError(path, why) from error
    return [Document(path.stem, blocks, "row", notes=notes)]


def _read_records(path: Path) -> list[Document]:
    """Return a document for each line: an object with `text`, perhaps `title` and `id`, and fields of its own."""
    documents = []
    for number, key, row in read_jsonl_by_id(path):
        text, title = row.get("text"), row.get("title") or ""
        if not (isinstance(text, str) and isinstance(title, str)):
            raise DataError(path, f"has no string 'text'; its keys are {', '.join(row)}", number)
        blocks = text_blocks(text)
        for block in blocks:
            block.kind, block.at = "text" if block.kind == "heading" else block.kind, number
        own = own_fields({name: value for name, value in row.items() if name not in ("id", "title", "text")})
        documents.append(Document(title, blocks, "line", key, metadata=own))
    return documents


# ----------------------------------------------------------------------------------------------------------- kreuzberg
_CHARSET = re.compile(rb"<meta[^>]{1,200}charset\s*=\s*[\"']?([\w-]{2,20})", re.IGNORECASE)
_HEAD = re.compile(r"<(head|title)\b.*?</\1\s*>|<meta\b[^>]*>", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title\b[^>]*>([^<]*)", re.IGNORECASE)
_PAGE_DATE = re.compile(
    r"<meta\s[^>]{0,100}(?:published_time|date)[\"'][^>]{0,100}?content\s*=\s*[\"']([^\"']{8,40})"
    r"|<time\b[^>]{0,100}datetime\s*=\s*[\"']([^\"']{8,40})",
    re.IGNORECASE,
)
_CLEANING = {"enabled": True, "preset": "aggressive", "remove_navigation": True, "remove_forms": True}
_IMAGE = re.compile(r"!\[[^\]\n]*\]\([^)\n]*\)")
_PERMALINK = re.compile(r"\s*[¶#§\U0001f517\uf0c1]\s*$")


def _extract(raw: bytes, mime: str, output: str = "markdown", **options: Any) -> Any:
    import kreuzberg

    config = kreuzberg.ExtractionConfig(
        use_cache=False,
        enable_quality_processing=False,
        output_format=output,
        concurrency=kreuzberg.ConcurrencyConfig(max_threads=1),
        **options,
    )
    return kreuzberg.extract_bytes_sync(raw, mime, config=config)


def _changed(metadata: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the date of a file's last change, or of its making, as its format states it."""
    return _dated(metadata.get("modified_at"), metadata.get("created_at"))


def _markup(content: str, title: str = "") -> Document:
    """Return a document of the Markdown that kreuzberg writes; its paragraphs are counted."""
    blocks = markdown_blocks(_IMAGE.sub("", content), is_page=True)
    for number, block in enumerate(blocks, start=1):
        block.at = number
        block.text = _PERMALINK.sub("", block.text) if block.kind == "heading" else block.text
    return Document(title, blocks)


def _read_page(path: Path) -> list[Document]:
    raw = read_whole(path, MAX_TEXT)
    declared = _CHARSET.search(raw[:4096])
    text, notes = decoded(path, raw, declared[1].decode("ascii") if declared else "")
    document = _web_page(text)
    document.notes += notes
    return [document]


def _web_page(text: str) -> Document:
    title = _TITLE.search(text)
    body = _HEAD.sub("", text).encode("utf-8", "replace")
    document = _markup(_extract(body, "text/html", html_options={"preprocessing": _CLEANING}).content)
    document.metadata = _dated(*(match[1] or match[2] for match in _PAGE_DATE.finditer(text[:100_000])))
    if title and not any(block.kind == "heading" for block in document.blocks):
        document.title = " ".join(html.unescape(title[1]).split())
    return document


def _read_mail(path: Path) -> list[Document]:
    message = email.message_from_bytes(read_whole(path, MAX_TEXT), EmailMessage, policy=email.policy.default)
    body = message.get_body(("html", "plain"))
    notes: list[str] = []
    try:
        text = str(body.get_content()) if body else ""
    except LookupError:  # of a charset that there is not
        text, notes = decoded(path, body.get_payload(decode=True))  # type: ignore[arg-type, union-attr]
    is_page = body is not None and body.get_content_type() == "text/html"
    document = _web_page(text) if is_page else Document("", text_blocks(text))
    document.title, document.metadata = str(message["subject"] or "").strip(), _dated(message["date"])
    heads = [f"{name}: {message[name]}" for name in ("From", "To", "Date") if message[name]]
    document.blocks[:0] = [Block("text", head) for head in heads]
    document.notes += notes + [f"without its attachment {part.get_filename()}" for part in message.iter_attachments()]
    for number, block in enumerate(document.blocks, start=1):
        block.at = number
    return [document]


def _by_nodes(path: Path, suffix: str) -> Document:
    """Return a document of kreuzberg's tree of nodes: PDF, word processors, slides, workbooks."""
    import kreuzberg

    mime, raw = kreuzberg.detect_mime_type_from_path(str(path)), read_whole(path, MAX_FILE)
    if raw.startswith(_OLE) and suffix in (".docx", ".pptx", ".xlsx"):
        raise DataError(path, "is protected by a password, or of an Office before 2007; save it anew, without one")
    mark, options = "", dict[str, Any]()
    if suffix == ".pptx":
        mark = f"slide {token_hex(8)} "  # a text that no document can foresee
        options = {"pages": kreuzberg.PageConfig(insert_page_markers=True, marker_format=f"\n\n{mark}{{page_num}}\n\n")}
    result = _extract(raw, mime, include_document_structure=True, **options)
    nodes = result.document["nodes"] if result.document else []
    document = Document(str(result.metadata.get("title") or "").strip(), metadata=_changed(result.metadata))
    if suffix in (".xlsx", ".ods"):
        document.title, document.unit = path.stem, "row"
    elif suffix in (".pdf", ".pptx"):
        document.unit = "page" if suffix == ".pdf" else "slide"
    document.blocks = list(_node_blocks(nodes, document.unit, mark))
    if suffix == ".pdf":
        document.blocks = list(_with_rows(_without_furniture(document.blocks)))
    if mark:  # the tree lacks the notes
        for slide in _extract(raw, mime, "plain", **options).content.split(mark)[1:]:
            number, _, text = slide.partition("\n")
            _, has_notes, notes = text.rpartition("\nNotes:\n")
            if has_notes and notes.strip():
                document.blocks.append(Block("text", notes.strip(), int(number)))
        document.blocks.sort(key=lambda block: block.at)
    if document.unit != "row" and any(block.kind == "heading" and block.text for block in document.blocks):
        document.title = ""  # programs put a template's name there
    return document


_KINDS: Mapping[str, Kind] = {"title": "heading", "heading": "heading", "list_item": "item", "code": "code"}


def _node_blocks(nodes: Sequence[Mapping[str, Any]], unit: str, mark: str) -> Iterator[Block]:
    page, part = 1, ""
    texts = (node["content"].get("text") or "" for node in nodes if unit == "page")
    full = _wrapped_at(line.strip() for text in texts for line in text.split("\n"))
    for number, node in enumerate(nodes, start=1):
        content = node["content"]
        text = _CONTROLS.sub("", content.get("text") or "").strip("\n")
        if mark and text.strip().startswith(mark):
            page = int(text.strip().removeprefix(mark))
            yield Block("heading", "", page, 1)  # no slide goes on with the one before
            continue
        if not mark:
            page = node.get("page") or page  # of slides it counts tables
        at = page if unit in ("page", "slide") else number
        kind = _KINDS.get(content["node_type"], "text")
        if kind == "heading" and unit == "row":
            part = text
        if grid := content.get("grid"):
            rows = [[""] * grid["cols"] for _ in range(grid["rows"])]
            for cell in grid["cells"]:
                rows[cell["row"]][cell["col"]] = cell["content"].removesuffix(" 00:00:00")
            if unit == "page" and _is_prose(rows):
                yield Block("text", " ".join(cell for row in rows for cell in row if cell), at)
            else:
                numbers = range(1, len(rows) + 1) if unit == "row" else [at] * len(rows)
                yield from table_blocks(zip(numbers, rows, strict=True), part)
        elif kind == "text" and unit == "page":  # lines that were not wrapped may be rows
            lines, i = [line for line in map(str.strip, text.split("\n")) if not _is_contents(line)], 0
            while i < len(lines):
                paragraph, count = _paragraph(lines, i, full)
                if paragraph:
                    yield Block(kind, " ".join(paragraph.split()), at)
                i += count
        elif text and not _is_contents(text):
            text = text if kind == "code" else " ".join(text.split())
            yield Block(kind, f"- {text}" if kind == "item" else text, at, content.get("level") or 1, part)


def _is_prose(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether a table of a PDF is lines of a text whose blanks stand below each other: phrases are torn apart."""
    cells = [cell.split() for row in rows for cell in row if cell]
    torn = sum(words[0] in FUNCTION_WORDS or words[-1] in FUNCTION_WORDS for words in cells)
    return torn > 0.12 * len(cells)


_COLUMN = re.compile(r"\S+(?: \([^)]*\))?")  # `Region`, `2024 (EUR million)`
_CELLS = re.compile(r"(?P<key>[^\W\d].*?)(?P<figures>(?: [-–]?[€$£]?\d[\d.,]*%?)+)")


def _with_rows(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield blocks; lines of a name and two or more figures below as many names of columns are rows.

    A heading names columns where each but the first is a year or has its unit in brackets: "Key figures" does not.
    """
    i = 0
    while i < len(blocks):
        at, text = blocks[i].at, blocks[i].text
        names, rows = _COLUMN.findall(text) if len(text) <= 200 else [], list[list[str]]()
        of_heading = blocks[i].kind == "heading" and all(name[-1] == ")" or name.isdecimal() for name in names[1:])
        is_head = len(names) > 2 and (blocks[i].kind == "text" or of_heading)
        while is_head and i + len(rows) + 1 < len(blocks):
            block = blocks[i + len(rows) + 1]
            is_near = block.kind == "text" and len(block.text) <= 200 and block.at == at
            cells = _CELLS.fullmatch(block.text) if is_near else None
            if cells is None or len(row := [cells["key"], *cells["figures"].split()]) != len(names):
                break
            rows.append(row)
        if len(rows) > 1:
            yield from table_blocks([(at, row) for row in (names, *rows)])
            i += len(rows) + 1
        else:
            yield blocks[i]
            i += 1


_NUMERAL = re.compile(r"(\d+)")
_OFFSET = 30  # pages: how far a printed number may be from the page's own; "Total: 1,240" is no page number


def _without_furniture(blocks: Sequence[Block]) -> list[Block]:
    """Drop page headers, footers and numbers.

    Dropped is a short first or last block of a page that, page numbers aside, stands so on three pages, and on at least
    two in five of those from its first to its last: so running titles of chapters go as well.
    """
    places: dict[str, list[int]] = {}
    edges: dict[int, str] = {}
    sizes = Counter(block.at for block in blocks)
    for i, block in enumerate(blocks):
        is_edge = i in (0, len(blocks) - 1) or not blocks[i - 1].at == block.at == blocks[i + 1].at
        if is_edge and len(block.text) <= 100 and sizes[block.at] > 1:  # a lone block is what its page is about
            parts = _NUMERAL.split(block.text.casefold())  # every second one is a number
            near = {str(number) for number in range(block.at - _OFFSET, block.at + _OFFSET)}
            edges[i] = "".join("#" if part in near else part for part in parts)
            places.setdefault(edges[i], []).append(block.at)
    repeated = {text for text, at in places.items() if len(at) >= 3 and len(at) >= 0.4 * (at[-1] - at[0] + 1)}
    return [block for i, block in enumerate(blocks) if edges.get(i) not in repeated]


_OWN: Mapping[str, Callable[[Path], list[Document]]] = {
    ".csv": _read_table,
    ".eml": _read_mail,
    ".htm": _read_page,
    ".html": _read_page,
    ".jsonl": _read_records,
    ".md": _read_markdown,
    ".rst": _read_text,
    ".tsv": _read_table,
    ".txt": _read_text,
}
