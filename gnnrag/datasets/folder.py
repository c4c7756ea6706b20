"""A person's own documents: every readable file below a folder, cut into titled passages.

Ids are the file's path inside the folder and the passage's number (`notes/a.md#3`), so an unchanged file keeps its ids.
A record of a `.jsonl` file adds its `id`, or else its line (`faq.jsonl:42#1`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents import SUFFIXES
from gnnrag.datasets.documents.child import DocumentReader
from gnnrag.datasets.jsonl import Skips
from gnnrag.datasets.metadata import with_one_type
from gnnrag.errors import DataError
from gnnrag.io import read_object, well_formed, write_json
from gnnrag.types import OnProgress, Passage, no_progress

REPORT = "documents.json"  # in an index folder
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
    """Return the rows of an index's report by file; none where it has no report."""
    return {row["file"]: row for row in read_object(index / REPORT).get("documents", ()) if "file" in row}


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
        """All passages, in order; each metadata field has one type."""
        return with_one_type(passage for passages in self.documents.values() for passage in passages)


def load_documents(
    path: Path,
    chunking: Chunking,
    skips: Skips,
    progress: OnProgress = no_progress,
    reader: DocumentReader | None = None,
    within: str | None = None,
) -> Folder:
    """Return the passages of all documents below `path`, or of the one file `path`; `reader` is one to use again.

    They are named by their paths below `within`, if they lie there, else below `path`.

    Hidden files and folders (`.git`) and `questions.<split>.jsonl`, at any depth, are not documents. Left out and
    recorded in `skips`: files that cannot be read within the limits of `child.DocumentReader`, other types, documents
    without text.

    The metadata of a passage are `source` (as in its id), `folder` (empty for the top one), `date` (which the document
    states, else of the file's last change), `page` (the first one), and its own fields (`metadata.own_fields`).

    Raises DataError where not one document could be read.
    """
    chunking.check()
    root = path if path.is_dir() else path.parent
    files = sorted(_files(root, skips)) if path.is_dir() else [path.name]
    below = Path()
    if within and root.resolve().is_relative_to(Path(within).resolve()):
        below = root.resolve().relative_to(Path(within).resolve())
    reports: list[FileReport] = []
    documents: dict[str, list[Passage]] = {}
    with nullcontext(reader) if reader else DocumentReader(chunking) as reader:
        for relative in files:
            # A Mac writes e and an accent where others write é: names are compared in one form.
            name = well_formed(os.fsencode((below / relative).as_posix()).decode("utf-8", "backslashreplace"))
            report = FileReport(name)
            reports.append(report)
            if Path(relative).suffix.lower() not in SUFFIXES:
                report.state, report.why = "skipped", ["unsupported file type"]
            elif name in documents:
                report.state, report.why = "skipped", ["another file has this name, its accents written otherwise"]
            else:
                passages = _read(reader, root / relative, report)
                if report.state != "skipped":
                    documents[name], report.passages = passages, len(passages)
            for reason in report.why if report.state != "read" else ():
                skips.add(reason, name)
            progress("files", 1, len(files))
    if not any(documents.values()):
        seen = f" What is there: {'; '.join(skips.remarks())}" if skips.by_reason else " It is empty."
        raise DataError(path, f"holds no documents with text ({', '.join(sorted(SUFFIXES))}).{seen}")
    return Folder(documents, tuple(reports))


def _read(reader: DocumentReader, path: Path, report: FileReport) -> list[Passage]:
    """Return a file's passages with their ids, and say in `report` what became of it."""
    reading = reader.read(path)
    report.why += reading.notes
    if reading.problem:
        report.state, report.why = "skipped", [reading.problem]
    elif not any(passages for _, passages in reading.records):
        is_pdf = path.suffix.lower() == ".pdf"
        report.state = "empty"
        report.why.insert(0, "PDF without text (scanned? recognise its text first)" if is_pdf else "empty file")
    elif empty := [key for key, passages in reading.records if key and not passages]:
        report.state = "partly"
        report.why += [f"empty record {key}" for key in empty]
    if not reading.records:
        return []
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    about = {"source": report.file, "folder": report.file.rpartition("/")[0], "date": changed}
    return [
        replace(passage, id=f"{report.file}{f':{key}' if key else ''}#{number}", metadata={**about, **passage.metadata})
        for key, passages in reading.records
        for number, passage in enumerate(passages, start=1)
    ]


def _files(root: Path, skips: Skips) -> Iterator[str]:
    """Yield relative paths with forward slashes, so that ids are the same on every system."""
    for folder, folders, names in os.walk(root):  # links to folders are not followed
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or (name.startswith("questions.") and name.endswith(".jsonl")):
                continue
            relative = path.relative_to(root).as_posix()
            if path.is_file():
                yield relative
            else:
                skips.add("no regular file", relative)
