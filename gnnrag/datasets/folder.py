"""A person's own documents: every readable file below a folder, cut into titled passages.

Ids are the file's path inside the folder and the passage's number (`notes/a.md#3`), so an unchanged file keeps its ids.
A record of a `.jsonl` file adds its `id`, or else its line (`faq.jsonl:42#1`).
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents.blocks import Document, Progress, silent
from gnnrag.datasets.documents.merging import merge_repeated
from gnnrag.datasets.documents.needs import MissingLibraryError
from gnnrag.datasets.documents.passages import cut_document
from gnnrag.datasets.documents.readers import READERS, read_document
from gnnrag.datasets.documents.report import FileReport, name_languages
from gnnrag.datasets.jsonl import Skips
from gnnrag.datasets.releases import advice
from gnnrag.errors import DataError
from gnnrag.types import Passage


@dataclass
class Folder:
    """The passages of own documents by relative path, in the folder's order, and a report of every file."""

    documents: dict[str, list[Passage]] = field(default_factory=dict)
    report: tuple[FileReport, ...] = ()

    @property
    def passages(self) -> list[Passage]:
        """All passages, in order."""
        return [passage for own in self.documents.values() for passage in own]


def load_documents(path: Path, chunking: Chunking, skips: Skips, progress: Progress = silent) -> Folder:
    """Return the passages of all documents below `path`, or of the one file `path`.

    Hidden files and folders (`.git`) and `questions.<split>.jsonl` directly in the folder are not documents. Left out
    and recorded in `skips`: unreadable files and those of a library that is not installed, other types, links that lead
    out of the folder, documents without text, and all but the first pages of a long PDF. A passage that stands in
    several places is kept once, with all of them.

    Raises DataError where not one document could be read.
    """
    root = path if path.is_dir() else path.parent
    files = sorted(_files(root, skips)) if path.is_dir() else [path.name]
    reader = _Reader(root, chunking, skips, progress)
    for relative in files:
        reader.read(relative)
        progress("files", 1, len(files))
    if not any(reader.documents.values()):
        seen = f" What is there: {skips.summary()}" if skips.by_reason else " It is empty."
        where = f" {known}" if (known := advice(path)) else ""
        raise DataError(path, f"holds no documents with text ({', '.join(sorted(READERS))}).{seen}{where}")
    documents = merge_repeated(reader.documents, reader.reports)
    name_languages(reader.reports.values(), {name: [p.text for p in own] for name, own in documents.items()})
    return Folder(documents, tuple(reader.reports.values()))


class _Reader:
    """Reads the files of a folder one by one, and reports of each."""

    def __init__(self, root: Path, chunking: Chunking, skips: Skips, progress: Progress) -> None:
        self._root, self._chunking, self._skips, self._progress = root, chunking, skips, progress
        self.documents: dict[str, list[Passage]] = {}
        self.reports: dict[str, FileReport] = {}

    def read(self, relative: str) -> None:
        """Read one file; what keeps it out is recorded."""
        path = self._root / relative
        report = FileReport(os.fsencode(relative).decode("utf-8", "backslashreplace"))
        self.reports[report.file] = report
        try:
            relative.encode()
        except UnicodeEncodeError:
            return self._skip(report, "file name is not UTF-8", report.file)
        if path.suffix.lower() not in READERS:
            return self._skip(report, "unsupported file type", relative)
        try:
            documents = read_document(path, self._progress)
        except MissingLibraryError as error:
            return self._skip(report, _without(error, path), relative)
        except DataError as error:
            why = _without(error, path)
            self._skip(report, "unreadable file", f"{relative} ({why})")
            report.why = [why]
            return None
        self._keep(path, report, documents)
        return None

    def _skip(self, report: FileReport, reason: str, name: str) -> None:
        self._skips.add(reason, name)
        report.state, report.why = "skipped", [reason]

    def _keep(self, path: Path, report: FileReport, documents: list[Document]) -> None:
        relative = report.file
        for document in documents:
            if document.cut:
                report.state = "partly"
                report.why.append(f"{document.cut}; split it to have all")
                self._skips.add("end of a long document", f"{relative} ({document.cut}; split it to have all)")
        if all(document.is_blank for document in documents):
            is_pdf = path.suffix.lower() == ".pdf"
            has_headings = any(d.blocks or (d.title not in ("", path.stem) and not d.cut) for d in documents)
            reason = "headings only" if has_headings else "empty file"
            reason = "PDF without text (scanned? recognise its text first)" if is_pdf else reason
            self._skips.add(reason, relative)
            report.state, report.why = "empty", [*report.why, reason]
            report.notes += [note for document in documents for note in document.notes]
            self.documents[relative] = []
            return
        self.documents[relative] = list(self._cut(path, report, documents))
        report.passages = len(self.documents[relative])

    def _cut(self, path: Path, report: FileReport, documents: list[Document]) -> Iterator[Passage]:
        numbers: Counter[str] = Counter()
        notes: defaultdict[str, int] = defaultdict(int)
        for document in documents:
            name = f"{report.file}:{document.key}" if document.key else report.file
            cuts = cut_document(document, self._chunking, path.stem)
            report.dropped += document.dropped
            if document.key and not cuts:  # a heading without text is normal, a record without text is not
                self._skips.add("empty record", name)
                report.why.append(f"empty record {document.key}")
            for note in document.notes:
                notes[note] += 1
            for cut in cuts:
                numbers[name] += 1
                yield Passage(f"{name}#{numbers[name]}", cut.title, cut.text, cut.place)
        report.notes += notes


def _without(error: DataError, path: Path) -> str:
    return str(error).removeprefix(str(path)).lstrip(":, ")


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
