"""A person's own documents: every readable file below a folder, cut into titled passages.

Ids are the file's path inside the folder and the passage's number (`notes/a.md#3`), so an unchanged file keeps its ids.
A record of a `.jsonl` file adds its `id`, or else its line (`faq.jsonl:42#1`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gnnrag.datasets.chunk import Chunking, chunk_text
from gnnrag.datasets.documents import READERS, Progress, Section, read_sections, silent
from gnnrag.datasets.jsonl import Skips
from gnnrag.datasets.releases import advice
from gnnrag.errors import DataError
from gnnrag.types import Passage


def load_documents(
    path: Path, chunking: Chunking, skips: Skips, progress: Progress = silent
) -> dict[str, list[Passage]]:
    """Return the passages of all documents below `path`, or of the one file `path`, by relative path, in its order.

    Hidden files and folders (`.git`) and `questions.<split>.jsonl` directly in the folder are not documents. Left out
    and recorded in `skips`: unreadable files, other types, links that lead out of the folder, documents without text,
    and all but the first pages of a long PDF.

    Raises DataError where not one document could be read, ModuleNotFoundError where a PDF needs pypdf.
    """
    root = path if path.is_dir() else path.parent
    files = sorted(_files(root, skips)) if path.is_dir() else [path.name]
    found = {relative: _passages_of(root, relative, chunking, skips, progress) for relative in files}
    documents = {relative: passages for relative, passages in found.items() if passages is not None}
    if not any(documents.values()):
        seen = f" What is there: {skips.summary()}" if skips.by_reason else " It is empty."
        where = f" {known}" if (known := advice(path)) else ""
        raise DataError(path, f"holds no documents with text ({', '.join(sorted(READERS))}).{seen}{where}")
    return documents


def _passages_of(
    root: Path, relative: str, chunking: Chunking, skips: Skips, progress: Progress
) -> list[Passage] | None:
    path = root / relative
    try:
        relative.encode()
    except UnicodeEncodeError:
        skips.add("file name is not UTF-8", os.fsencode(relative).decode("utf-8", "backslashreplace"))
        return None
    if path.suffix.lower() not in READERS:
        skips.add("unsupported file type", relative)
        return None
    try:
        sections = read_sections(path, progress)
    except DataError as error:
        skips.add("unreadable file", f"{relative} ({str(error).removeprefix(str(path)).lstrip(':, ')})")
        return None
    for section in sections:
        if section.cut:
            skips.add("end of a long document", f"{relative} ({section.cut}; split it to have all)")
    if not any(section.text.strip() for section in sections):
        is_pdf = path.suffix.lower() == ".pdf"
        skips.add("PDF without text (scanned? recognise its text first)" if is_pdf else "empty file", relative)
        return []
    return list(_cut(relative, sections, chunking, skips))


def _cut(relative: str, sections: list[Section], chunking: Chunking, skips: Skips) -> Iterator[Passage]:
    numbers: Counter[str] = Counter()
    for section in sections:
        document = f"{relative}:{section.key}" if section.key else relative
        texts = chunk_text(section.text, chunking)
        if section.key and not texts:  # a heading without text is normal, a record without text is not
            skips.add("empty record", document)
        for text in texts:
            numbers[document] += 1
            yield Passage(f"{document}#{numbers[document]}", section.title, text)


def _files(root: Path, skips: Skips) -> Iterator[str]:
    """Yield relative paths with forward slashes, so that ids are the same on every system."""
    inside = root.resolve()

    def note(error: OSError) -> None:
        skips.add("unreadable folder", f"{Path(error.filename).relative_to(root).as_posix()} ({error.strerror})")

    for folder, folders, names in os.walk(root, onerror=note):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [name for name in folders if not name.startswith(".") and name not in links]
        folders.sort()  # the file system's order would otherwise show in what is reported as left out
        for name in sorted((*names, *links)):
            path = Path(folder, name)
            relative = path.relative_to(root).as_posix()
            if name.startswith(".") or _is_questions_file(name):
                continue
            if path.is_symlink() and (path.is_dir() or not _leads_inside(path, inside)):
                skips.add("link not followed", relative)
            elif path.is_file():
                yield relative
            else:
                skips.add("not a regular file", relative)


def _leads_inside(link: Path, folder: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # the latter is what pathlib raises for a link that leads back to itself
        return False


def _is_questions_file(name: str) -> bool:
    return name.startswith("questions.") and name.endswith(".jsonl")
