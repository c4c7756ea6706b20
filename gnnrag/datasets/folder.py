"""A person's own documents: every readable file below a folder, cut into titled passages.

Ids are the file's path inside the folder and the passage's number (`notes/a.md#3`), so an unchanged file keeps its ids.
A record of a `.jsonl` file adds its `id`, or else its line (`faq.jsonl:42#1`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gnnrag.datasets.chunk import Chunking, count_words
from gnnrag.datasets.documents import READERS, read_document
from gnnrag.datasets.documents.blocks import Document
from gnnrag.datasets.documents.passages import cut_document, normalised
from gnnrag.datasets.fetch import advice
from gnnrag.datasets.jsonl import Skips
from gnnrag.errors import DataError, GnnragError
from gnnrag.io import read_object, write_json
from gnnrag.types import OnProgress, Passage, no_progress

REPORT = "documents.json"  # in an index folder
LEAST = 20  # words of a passage from which on its repetition in a file is left out
SHOWN = 20  # files with remarks that a terminal is told


@dataclass(slots=True)
class FileReport:
    """What was read of a file; `why` says what kept it, or a part of it, out, and how it was read."""

    file: str
    state: Literal["read", "partly", "empty", "skipped"] = "read"
    passages: int = 0
    why: list[str] = field(default_factory=list)


def write_report(index: Path, reports: Iterable[FileReport], gone: Collection[str] | None = None) -> None:
    """Write the report into an index folder, or bring the one that is there up to date.

    `gone` are files that are no longer in the index, others stay; None: `reports` are all there are.
    """
    rows, before = {report.file: asdict(report) for report in reports}, read_report(index)
    if gone is not None:
        rows = {name: row for name, row in before.items() if name not in gone} | rows
    if rows != before:
        write_json(index / REPORT, {"documents": list(rows.values())})


def read_report(index: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of an index's report by file; none where it has no report, or one that cannot be read."""
    try:
        return {row["file"]: row for row in read_object(index / REPORT)["documents"]}
    except (OSError, GnnragError, ValueError, KeyError, TypeError):
        return {}


def summary(reports: Sequence[FileReport]) -> list[str]:
    """Return lines for a terminal: counts, and the files with something to say."""
    states = Counter(report.state for report in reports)
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    passages = sum(report.passages for report in reports)
    lines = [f"{len(reports):,} file{'s' * (len(reports) != 1)}: {counts}; {passages:,} passage{'s' * (passages != 1)}"]
    remarked = [report for report in reports if report.why]
    lines += [f"  {report.file} ({report.state}): {'; '.join(report.why)}" for report in remarked[:SHOWN]]
    if len(remarked) > SHOWN:
        lines.append(f"  and {len(remarked) - SHOWN:,} more files with remarks")
    return lines


@dataclass
class Folder:
    """The passages of own documents by relative path, in the folder's order, and a report of every file."""

    documents: dict[str, list[Passage]] = field(default_factory=dict)
    report: tuple[FileReport, ...] = ()

    @property
    def passages(self) -> list[Passage]:
        """All passages, in order."""
        return [passage for passages in self.documents.values() for passage in passages]


def load_documents(path: Path, chunking: Chunking, skips: Skips, progress: OnProgress = no_progress) -> Folder:
    """Return the passages of all documents below `path`, or of the one file `path`.

    Hidden files and folders (`.git`) and `questions.<split>.jsonl` directly in the folder are not documents. Left out
    and recorded in `skips`: unreadable files and those of a library that is not installed, other types, links that lead
    out of the folder, documents without text, and all but the first pages of a long PDF.

    Raises DataError where not one document could be read.
    """
    root = path if path.is_dir() else path.parent
    files = sorted(_files(root, skips)) if path.is_dir() else [path.name]
    reports: list[FileReport] = []
    documents: dict[str, list[Passage]] = {}
    for relative in files:
        report = FileReport(os.fsencode(relative).decode("utf-8", "backslashreplace"))
        reports.append(report)
        parts = _read(root / relative, report, progress)
        if parts or report.state == "empty":
            passages = list(_cut(root / relative, report, parts, chunking))
            documents[report.file], report.passages = passages, len(passages)
        for reason in report.why if report.state != "read" else ():
            skips.add(reason, report.file)
        progress("files", 1, len(files))
    if not any(documents.values()):
        seen = f" What is there: {skips.summary()}" if skips.by_reason else " It is empty."
        where = f" {known}" if (known := advice(path)) else ""
        raise DataError(path, f"holds no documents with text ({', '.join(sorted(READERS))}).{seen}{where}")
    return Folder(documents, tuple(reports))


def _read(path: Path, report: FileReport, progress: OnProgress) -> list[Document]:
    """Return what a file holds; nothing, with the reason in `report`, where it cannot be used."""
    problem = "" if path.suffix.lower() in READERS else "unsupported file type"
    documents: list[Document] = []
    try:
        path.name.encode()
        documents = [] if problem else read_document(path, progress)
    except UnicodeEncodeError:
        problem = "file name is not UTF-8"
    except DataError as error:
        problem = str(error).removeprefix(str(path)).lstrip(":, ")
    if problem:
        report.state, report.why = "skipped", [problem]
        return []
    if cuts := [f"{document.cut}; split it to have all" for document in documents if document.cut]:
        report.state, report.why = "partly", cuts
    if not all(document.is_blank for document in documents):
        return documents
    has_headings = any(d.blocks or (d.title not in ("", path.stem) and not d.cut) for d in documents)
    reason = "headings only" if has_headings else "empty file"
    if path.suffix.lower() == ".pdf":
        reason = "PDF without text (scanned? recognise its text first)"
    report.state = "empty"
    report.why += [reason, *dict.fromkeys(note for document in documents for note in document.notes)]
    return []


def _cut(path: Path, report: FileReport, documents: list[Document], chunking: Chunking) -> Iterator[Passage]:
    numbers: Counter[str] = Counter()
    seen: set[str] = set()
    notes: dict[str, None] = {}
    for document in documents:
        name = f"{report.file}:{document.key}" if document.key else report.file
        cuts = cut_document(document, chunking, path.stem)
        if document.key and not cuts:  # a heading without text is normal, a record without text is not
            report.state = "partly"
            report.why.append(f"empty record {document.key}")
        notes |= dict.fromkeys(document.notes)
        for cut in cuts:
            numbers[name] += 1
            words = normalised(cut.text)
            if not document.key and words in seen:
                continue  # the others keep their numbers
            if count_words(cut.text) >= LEAST:
                seen.add(words)
            yield Passage(f"{name}#{numbers[name]}", cut.title, cut.text, cut.place)
    report.why += notes


def _files(root: Path, skips: Skips) -> Iterator[str]:
    """Yield relative paths with forward slashes, so that ids are the same on every system."""
    inside = root.resolve()

    def note(error: OSError) -> None:
        skips.add("unreadable folder", f"{Path(error.filename).relative_to(root).as_posix()} ({error.strerror})")

    for folder, folders, names in os.walk(root, onerror=note):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in links)
        for name in sorted((*names, *links)):
            path = Path(folder, name)
            relative = path.relative_to(root).as_posix()
            if name.startswith(".") or (name.startswith("questions.") and name.endswith(".jsonl")):
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
