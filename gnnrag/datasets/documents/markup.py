"""Read web pages, word processor files and e-books: all become HTML, and one walk over it gives the blocks."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from gnnrag.datasets.documents.blocks import Block, Document, Kind, table
from gnnrag.datasets.documents.office import members, needed, open_archive, xml_root
from gnnrag.datasets.documents.text import decoded
from gnnrag.datasets.jsonl import read_whole
from gnnrag.errors import DataError
from gnnrag.types import OnProgress, no_progress

MAX_PAGE = 20_000_000  # bytes of a web page or of a chapter
_SIFTED = 3_000_000  # characters of a page up to which trafilatura looks for its article: it takes seconds for more
_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_BLOCKS = (
    "p div section article main body blockquote quote dd dt dl figure figcaption address ul ol list header footer "
    "center fieldset details summary caption td th cell"
)
_BREAKS = frozenset(_BLOCKS.split())
_NO_TEXT = "script style noscript template nav form button select iframe svg math object head"
_LEFT_OUT = frozenset(_NO_TEXT.split())
_AROUND = frozenset(["footer", "aside", "header"])  # of a page; within an article they are its own
_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?([\w-]{2,20})|<\?xml[^>]+encoding=[\"']([\w-]{2,20})", re.I)
_PROLOG = re.compile(r"\s*<\?xml[^>]*\?>")
_PERMALINK = re.compile(r"\s*[¶#§\U0001f517\uf0c1]\s*$")


def read_html(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield a web page without what stands around its article.

    The article is what trafilatura takes for it, unless headings, tables or half of the words would be lost.
    """
    needed("trafilatura", path)
    raw = read_whole(path, MAX_PAGE)
    text, notes = _page_text(path, raw)
    document = Document(notes=notes)
    root = parse(path, text, document.notes)
    name = root.findtext(".//title")
    _clean(root, is_page=True)
    whole = _Walk(root).blocks()
    article = _article(root) if len(text) <= _SIFTED else []
    document.blocks = article if _is_as_good(article, whole) else whole
    if not any(block.kind == "heading" for block in document.blocks):
        document.title = " ".join((name or "").split())
    yield document


def _page_text(path: Path, raw: bytes) -> tuple[str, list[str]]:
    found = _CHARSET.search(raw[:4096])
    return decoded(path, raw, (found[1] or found[2]).decode("ascii") if found else "")


def parse(path: Path, text: str, notes: list[str]) -> Any:
    """Return the root of a text in HTML, however broken it is; DataError: there is nothing in it.

    Where its tags nest too deeply the parser stops, which is added to `notes`.
    """
    from lxml import etree, html

    parser = html.HTMLParser(no_network=True, huge_tree=False, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(_PROLOG.sub("", text, count=1), parser=parser)
    except (etree.LxmlError, ValueError) as error:
        raise DataError(path, f"is no HTML that can be read ({str(error)[:100]})") from error
    if any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log):
        notes.append("tags nest more than 256 deep: what follows is not read; close those that are open, or split it")
    return root


def _article(root: Any) -> list[Block]:
    from lxml import etree
    from trafilatura import bare_extraction

    try:
        found = bare_extraction(root, favor_recall=True, include_tables=True, include_comments=False, fast=True)
    except (etree.LxmlError, ValueError, TypeError, AttributeError, RecursionError):  # it trusts the page in places
        return []
    body = None if found is None or isinstance(found, dict) else found.body
    return [] if body is None else _Walk(body).blocks()


def _is_as_good(article: list[Block], whole: list[Block]) -> bool:
    kinds, all_kinds = (Counter(block.kind for block in blocks) for blocks in (article, whole))
    words, all_words = (sum(len(block.text.split()) for block in blocks) for blocks in (article, whole))
    keeps = all(3 * kinds[kind] >= 2 * all_kinds[kind] for kind in ("heading", "table", "verbatim"))
    return keeps and 2 * words >= all_words and words > 0


def _clean(root: Any, is_page: bool) -> None:
    """Take out of a tree what is no text of the document: scripts, menus, lists of links, tables of contents."""
    for element in list(root.iter()):
        if not isinstance(element.tag, str):
            continue
        is_around = is_page and (
            (element.tag in _AROUND and element.find(".//h1") is None)
            or element.get("role") in ("navigation", "search", "banner", "contentinfo")
        )
        is_list = element.tag in ("ul", "ol", "dl") and _is_links(element)
        # A word processor links its table of contents so.
        is_contents = element.tag in ("p", "li") and any(
            a.get("href", "").startswith("#_Toc") for a in element.iter("a")
        )
        if element.tag in _LEFT_OUT or is_around or is_list or is_contents:
            _drop(element)


def _drop(element: Any) -> None:
    if element.getparent() is not None:
        element.drop_tree()


def _is_links(element: Any) -> bool:
    """Tell whether a list is a menu or a table of contents: five links or more, and hardly a word besides."""
    links = list(element.iter("a"))
    if len(links) < 5:
        return False
    linked = sum(len("".join(link.itertext()).strip()) for link in links)
    return linked >= 0.8 * len(" ".join("".join(element.itertext()).split()))


class _Walk:
    """Walks over a tree of HTML, or of trafilatura's form of it, and gives its blocks; they are counted from 1."""

    def __init__(self, root: Any, part: str = "") -> None:
        self._root, self._part = root, part
        self._done: list[Block] = []
        self._text: list[str] = []
        self._depth = 0  # of lists

    def blocks(self) -> list[Block]:
        """Return the blocks, in order."""
        self._visit(self._root, "text")
        self._flush("text")
        return self._done

    def _flush(self, kind: Kind, level: int = 0, is_set: bool = False) -> None:
        text, self._text = "".join(self._text), []
        lines = [line.rstrip() if is_set else " ".join(line.split()) for line in text.split("\n")]
        text = "\n".join(lines).strip("\n") if is_set else "\n".join(line for line in lines if line)
        if kind == "heading":
            text = _PERMALINK.sub("", text.replace("\n", " "))
        if text.strip():
            text = f"{'  ' * max(self._depth - 1, 0)}- {text}" if kind == "item" and text[:1] not in "-•" else text
            self._done.append(Block(kind, text, [(0, len(self._done) + 1)], level, self._part))

    def _visit(self, element: Any, kind: Kind) -> None:
        tag = element.tag if isinstance(element.tag, str) else ""
        level = _HEADINGS.get(element.get("rend", "h2") if tag == "head" else tag, 0)
        if level and element.getparent() is not None and element.getparent().tag != "table":
            self._whole(element, kind, "heading", level)
        elif tag == "pre" or (tag == "code" and "\n" in "".join(element.itertext()).strip()):
            self._whole(element, kind, "verbatim")
        elif tag == "table":
            self._table(element, kind)
        elif tag in ("li", "item"):
            self._flush(kind)
            self._inside(element, "item")
            self._flush("item")
        elif tag in ("br", "lb"):
            self._text.append("\n")
        elif tag in _BREAKS:
            self._flush(kind)
            self._depth += tag in ("ul", "ol", "list")
            self._inside(element, kind)
            self._flush(kind)
            self._depth -= tag in ("ul", "ol", "list")
        else:
            self._inside(element, kind)

    def _inside(self, element: Any, kind: Kind) -> None:
        # Outside `pre` a line feed is a blank.
        self._text.append((element.text or "").replace("\n", " "))
        for child in element:
            self._visit(child, kind)
            self._text.append((child.tail or "").replace("\n", " "))

    def _whole(self, element: Any, outer: Kind, kind: Kind, level: int = 0) -> None:
        self._flush(outer)
        for line in element.iter("br", "lb"):
            line.tail = f"\n{line.tail or ''}"
        self._text.append("".join(element.itertext()))
        self._flush(kind, level, is_set=kind == "verbatim")

    def _table(self, element: Any, kind: Kind) -> None:
        """A table with several columns and rows is one; any other lays out a page, and is read as text."""
        rows = [[c for c in row if c.tag in ("td", "th", "cell")] for row in element.iter("tr", "row")]
        rows = [row for row in rows if row]
        self._flush(kind)
        is_nested = next(element.iterdescendants("table"), None) is not None
        if is_nested or len(rows) < 2 or max(map(len, rows)) < 2:
            self._inside(element, kind)
            self._flush(kind)
            return
        cells = [["".join(cell.itertext()) for cell in row] for row in rows]
        self._done.append(table(cells, [len(self._done) + 1] * len(cells), self._part))


_STYLES = """
p[style-name='Title'] => p.title:fresh
p[style-name='Subtitle'] => h2:fresh
"""


def read_docx(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield a word processor file by its styles of headings, lists and tables; its page headers are no part of it."""
    mammoth = needed("mammoth", path)
    nothing = mammoth.images.img_element(lambda image: {"src": ""})
    with open_archive(path) as (file, archive):
        members(path, archive, "word/document.xml")
        try:
            html = mammoth.convert_to_html(file, style_map=_STYLES, convert_image=nothing).value
        except Exception as error:
            raise DataError(path, f"is a damaged or unsupported .docx ({type(error).__name__}: {error})") from error
    document = Document()
    root = parse(path, f"<body>{html}</body>", document.notes)
    _clean(root, is_page=False)
    for element in root.find_class("title")[:1]:
        document.title = " ".join(element.text_content().split())
        _drop(element)
    document.blocks = _Walk(root).blocks()
    yield document


def read_epub(path: Path, progress: OnProgress = no_progress) -> Iterator[Document]:
    """Yield an e-book in the order of its spine; the parts are the files of its chapters."""
    needed("lxml", path)
    document = Document()
    long: list[str] = []
    with open_archive(path) as (_, archive):
        names = members(path, archive, "META-INF/container.xml")
        container = xml_root(path, archive, "META-INF/container.xml")
        package = next((e.get("full-path", "") for e in container.iter("{*}rootfile")), "")
        if package not in names:
            raise DataError(path, "is a damaged .epub: its container names no package that it holds")
        root = xml_root(path, archive, package)
        document.title = next((" ".join((e.text or "").split()) for e in root.iter("{*}title")), "")
        items = {e.get("id"): e for e in root.iter("{*}item")}
        spine = [items[ref] for e in root.iter("{*}itemref") if (ref := e.get("idref")) in items]
        for item in spine:
            name = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(item.get("href", ""))))
            progress(f"chapters of {path.name}", 1, len(spine))
            if name not in names:
                document.notes.append(f"chapter {name} is named and not there")
            elif "nav" in (item.get("properties") or "").split():
                continue
            elif archive.getinfo(name).file_size > MAX_PAGE:
                long.append(posixpath.basename(name))
            else:
                text, _ = _page_text(path, archive.read(name))
                page = parse(path, text, document.notes)
                _clean(page, is_page=False)
                document.blocks += _Walk(page, posixpath.basename(name)).blocks()
    if not spine:
        raise DataError(path, "is a damaged .epub: it names no chapters")
    if long:
        document.cut = f"without {', '.join(long[:3])}{' ...' if len(long) > 3 else ''}: over {MAX_PAGE:,} bytes"
    yield document
