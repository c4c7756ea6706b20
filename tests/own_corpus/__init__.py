"""Twelve documents in twelve formats about an invented firm, and 80 questions on them.

`documents/` holds the text of each. `NAME.docx.md` and the like are written as `.docx` by `write_documents`, from a few
marks: `#` and `##` headings, `- ` items, `| a | b |` rows (the first one holds the columns), `> ` a slide's notes.
`questions.jsonl`: `kind`, `reference` (null: the documents do not say) and `files`, which hold the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

from tests.helpers import office

FOLDER = Path(__file__).parent
Block = tuple[str, Any]  # ("heading1" | "heading2" | "item" | "note" | "text", words) or ("table", rows)


def questions() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / "questions.jsonl").read_text("utf-8").splitlines()]


def write_documents(folder: Path) -> None:
    """Write the documents into `folder`, each in its own format."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted((FOLDER / "documents").iterdir()):
        name = source.name.removesuffix(".md") if source.name.count(".") == 2 else source.name
        if name == source.name:
            (folder / name).write_bytes(source.read_bytes())
        else:
            (folder / name).write_bytes(WRITERS[name.rpartition(".")[2]]([*blocks(source.read_text("utf-8"))]))


def blocks(text: str) -> Iterator[Block]:
    """Yield the parts of a source in order; paragraphs stand on one line each."""
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        if rows:
            yield "table", rows
            rows = []
        for mark, kind in (("## ", "heading2"), ("# ", "heading1"), ("- ", "item"), ("> ", "note"), ("", "text")):
            if line.startswith(mark):
                if words := line.removeprefix(mark).strip():
                    yield kind, words
                break


def _sections(parts: list[Block]) -> Iterator[tuple[str, list[Block]]]:
    """Yield each heading of the first level with what stands under it."""
    starts = [i for i, (kind, _) in enumerate(parts) if kind == "heading1"]
    for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
        yield parts[start][1], parts[start + 1 : end]


def _docx(parts: list[Block]) -> bytes:
    styles = {"heading1": "heading 1", "heading2": "heading 2", "item": "List Bullet", "text": ""}
    return office.docx([value if kind == "table" else (styles[kind], value) for kind, value in parts])


def _odt(parts: list[Block]) -> bytes:
    return office.open_document("".join(_odt_part(*part) for part in parts))


def _odt_part(kind: str, value: Any) -> str:
    if kind == "table":
        return office.open_table(value)
    if kind.startswith("heading"):
        return f'<text:h text:outline-level="{kind[-1]}">{value}</text:h>'
    paragraph = f"<text:p>{value}</text:p>"
    return f"<text:list><text:list-item>{paragraph}</text:list-item></text:list>" if kind == "item" else paragraph


def _pptx(parts: list[Block]) -> bytes:
    return office.pptx(
        [
            (title, [v for kind, v in body if kind == "item"], " ".join(v for kind, v in body if kind == "note"))
            for title, body in _sections(parts)
        ]
    )


def _xlsx(parts: list[Block]) -> bytes:
    def value(cell: str) -> str | int | float:
        return (float(cell) if "." in cell else int(cell)) if re.fullmatch(r"[\d.]+", cell) else cell

    return office.xlsx(
        {title: [[*map(value, row)] for _, rows in body for row in rows] for title, body in _sections(parts)}
    )


def _epub(parts: list[Block]) -> bytes:
    tags = {"heading2": "h2", "text": "p"}
    (title, _), *chapters = _sections(parts)
    return office.epub(
        title,
        {
            f"c{n}.xhtml": f"<h1>{name}</h1>" + "".join(f"<{tags[kind]}>{v}</{tags[kind]}>" for kind, v in body)
            for n, (name, body) in enumerate(chapters, start=1)
        },
    )


def _pdf(parts: list[Block]) -> bytes:
    """A page for each heading of the first level: letters by level, cells of tables in columns."""
    pages = []
    for title, body in _sections(parts):
        drawn, y = [_line(title, 18, 72, 720)], 690
        for kind, value in body:
            if kind == "table":
                for row in value:
                    drawn += [_line(cell, 11, 72 + 150 * i, y) for i, cell in enumerate(row)]
                    y -= 16
            elif kind == "heading2":
                y -= 8
                drawn.append(_line(value, 14, 72, y))
                y -= 20
            else:
                for line in wrap(value, 88):
                    drawn.append(_line(line, 11, 72, y))
                    y -= 14
                y -= 6
        pages.append("\n".join(drawn).encode())
    return office.pdf(pages, title=parts[0][1])


def _line(text: str, size: int, x: int, y: int) -> str:
    escaped = re.sub(r"([()\\])", r"\\\1", text)
    return f"BT /F1 {size} Tf {x} {y} Td ({escaped}) Tj ET"


WRITERS = {"docx": _docx, "epub": _epub, "odt": _odt, "pdf": _pdf, "pptx": _pptx, "xlsx": _xlsx}
