"""Documents of other programs, made in a test: .pptx and .xlsx with their libraries, the others by hand."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def docx(paragraphs: Sequence[tuple[str, str] | list[list[str]]], before: str = "") -> bytes:
    """Paragraphs are (name of the style, text), tables rows of cells; `before` precedes the root."""
    body = ""
    styles = sorted({part[0] for part in paragraphs if isinstance(part, tuple) and part[0]})
    for part in paragraphs:
        if isinstance(part, tuple):
            style = f'<w:pPr><w:pStyle w:val="{part[0].replace(" ", "")}"/></w:pPr>' if part[0] else ""
            body += f"<w:p>{style}<w:r><w:t>{part[1]}</w:t></w:r></w:p>"
        else:
            cell = "<w:tc><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>"
            rows = ("".join(cell.format(text) for text in row) for row in part)
            body += f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    named = "".join(
        f'<w:style w:type="paragraph" w:styleId="{name.replace(" ", "")}"><w:name w:val="{name}"/></w:style>'
        for name in styles
    )
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    link = "<Relationship Id='r{}' Type='{}' Target='{}'/>"
    relations = "<Relationships xmlns='{}/relationships'>{}</Relationships>"
    return zipped(
        {
            "[Content_Types].xml": f"<Types xmlns='{_PACKAGE}/content-types'>"
            "<Default Extension='rels' ContentType='application/vnd.openxmlformats-package.relationships+xml'/>"
            f"<Override PartName='/word/document.xml' ContentType='{kind}.document.main+xml'/>"
            f"<Override PartName='/word/styles.xml' ContentType='{kind}.styles+xml'/></Types>",
            "_rels/.rels": relations.format(
                _PACKAGE, link.format(1, f"{_RELATIONS}/officeDocument", "word/document.xml")
            ),
            "word/_rels/document.xml.rels": relations.format(
                _PACKAGE, link.format(1, f"{_RELATIONS}/styles", "styles.xml")
            ),
            "word/styles.xml": f"<w:styles xmlns:w='{_W}'>{named}</w:styles>",
            "word/document.xml": f"{before}<w:document xmlns:w='{_W}'><w:body>{body}</w:body></w:document>",
        }
    )


def xlsx(sheets: Mapping[str, Sequence[Sequence[Any]]]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def pptx(slides: Sequence[tuple[str, Sequence[str], str]]) -> bytes:
    """Slides are (title, lines, notes)."""
    from pptx import Presentation

    presentation = Presentation()
    for title, lines, notes in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = "\n".join(lines)
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    out = io.BytesIO()
    presentation.save(out)
    return out.getvalue()


def open_document(body: str, kind: str = "text") -> bytes:
    """`body` is what the root's `office:text` or `office:spreadsheet` holds, with the usual prefixes."""
    names = {"office": "office", "text": "text", "table": "table"}
    spaces = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for name, n in names.items())
    listed = '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
    content = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": listed,
            "content.xml": f"<office:document-content {spaces}>{content}</office:document-content>",
        }
    )


def open_table(rows: Sequence[Sequence[str]], name: str = "Table") -> str:
    cell = "<table:table-cell office:value-type='string'><text:p>{}</text:p></table:table-cell>"
    lines = (f"<table:table-row>{''.join(map(cell.format, row))}</table:table-row>" for row in rows)
    return f"<table:table table:name='{name}'>{''.join(lines)}</table:table>"


def epub(title: str, chapters: Mapping[str, str]) -> bytes:
    """Chapters are name -> body in XHTML."""
    items = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in chapters)
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    page = '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
            "OPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
            f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></metadata>'
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
            **{f"OPS/{name}": page.format(body) for name, body in chapters.items()},
        }
    )


def pdf(pages: Sequence[str | bytes | Sequence[str]], title: str = "", stream: bytes = b"") -> bytes:
    """Pages are lines, one or several below each other, or what is drawn; `stream` is what all pages draw, packed."""
    font = "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        f"<< /Title ({title}) >>".encode(),
    ]
    for i, page in enumerate(pages):
        if isinstance(page, bytes):
            drawn = page
        else:
            lines = " 0 -14 Td ".join(f"({line}) Tj" for line in ([page] if isinstance(page, str) else page))
            drawn = stream or f"BT /F1 12 Tf 72 720 Td {lines} ET".encode()
        packed = " /Filter /FlateDecode" if stream else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R {font} >>".encode()
        )
        objects.append(f"<< /Length {len(drawn)}{packed} >>\nstream\n".encode() + drawn + b"\nendstream")
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 3 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()
