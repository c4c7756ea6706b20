"""Own documents: a reader for each format (suffix to reader)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from gnnrag.datasets.documents.blocks import Document
from gnnrag.datasets.documents.markup import read_docx, read_epub, read_html
from gnnrag.datasets.documents.office import read_csv, read_pptx, read_xlsx
from gnnrag.datasets.documents.pdf import read_pdf
from gnnrag.datasets.documents.text import read_markdown, read_plain, read_records
from gnnrag.types import OnProgress, no_progress

READERS: dict[str, Callable[[Path, OnProgress], Iterator[Document]]] = {
    ".csv": read_csv,
    ".docx": read_docx,
    ".epub": read_epub,
    ".htm": read_html,
    ".html": read_html,
    ".jsonl": read_records,
    ".md": read_markdown,
    ".pdf": read_pdf,
    ".pptx": read_pptx,
    ".rst": read_plain,
    ".txt": read_plain,
    ".xlsx": read_xlsx,
}


def read_document(path: Path, progress: OnProgress = no_progress) -> list[Document]:
    """Return what a file holds: one document, or one for each record of a `.jsonl`; some may be blank.

    Raises DataError: unreadable, damaged, too large, or of a library that is not installed.
    """
    return list(READERS[path.suffix.lower()](path, progress))
