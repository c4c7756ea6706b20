"""What was read of each file of a folder, how many passages came of it, what was left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gnnrag.datasets.documents.language import language_of
from gnnrag.errors import GnnragError
from gnnrag.io import read_object, write_json

REPORT = "documents.json"  # in an index folder
State = Literal["read", "partly", "empty", "skipped"]
SHOWN = 20  # files with something to say that are told in a terminal


@dataclass(slots=True)
class FileReport:
    """A file's part in a report; `why` says what kept it, or a part of it, out."""

    file: str
    state: State = "read"
    passages: int = 0
    why: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)  # lines, lists and paragraphs that were left out, by kind
    notes: list[str] = field(default_factory=list)
    language: str = ""  # empty: not known

    def to_json(self) -> dict[str, Any]:
        """Return the row of the report in JSON, without what is empty."""
        row = {
            "file": self.file,
            "state": self.state,
            "passages": self.passages,
            "why": self.why,
            "dropped": dict(self.dropped),
            "notes": self.notes,
            "language": self.language,
        }
        return {key: value for key, value in row.items() if value or key == "passages"}


def write_report(index: Path, reports: Iterable[FileReport], gone: Collection[str] | None = None) -> None:
    """Write the report into an index folder, or bring the one that is there up to date.

    Args:
        index: the folder.
        reports: of the files that were read.
        gone: files that are no longer in the index, others stay; None: `reports` are all there are.
    """
    rows, there = {report.file: report.to_json() for report in reports}, read_report(index)
    if gone is not None:
        rows = {name: row for name, row in there.items() if name not in gone} | rows
    if rows != there or (not rows and (index / REPORT).exists()):  # the same again is not written
        write_json(index / REPORT, {"documents": list(rows.values())})


def read_report(index: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of an index's report by file; none where it has no report, or one that cannot be read."""
    try:
        rows = read_object(index / REPORT)["documents"]
        return {row["file"]: row for row in rows if isinstance(row["file"], str)}
    except (OSError, GnnragError, ValueError, KeyError, TypeError):
        return {}


def name_languages(reports: Iterable[FileReport], texts: Mapping[str, Sequence[str]]) -> None:
    """Fill in the language of each file by its passages; note files, and parts of files, that are in another."""
    shares: Counter[str] = Counter()
    found = {}
    for report in reports:
        own = Counter[str]()
        for text in texts.get(report.file, ()):
            if language := language_of(text):
                own[language] += len(text)
        found[report.file] = (report, own)
        if own:
            report.language = own.most_common(1)[0][0]
            shares[report.language] += own.total()
    usual = shares.most_common(1)[0][0] if shares else ""
    for report, own in found.values():
        if report.language and report.language != usual:
            report.notes.append(f"is in {report.language}, most of the rest in {usual}")
        for language, size in own.items():
            if language != report.language and size > 0.02 * own.total():
                report.notes.append(f"{size / own.total():.0%} of it looks like {language}")


def counted(number: int, noun: str) -> str:
    """Return `1 file`, `2 files`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def summary(reports: Sequence[FileReport]) -> list[str]:
    """Return lines for a terminal: counts, and the files with something to say."""
    states = Counter(report.state for report in reports)
    passages = sum(report.passages for report in reports)
    told = ", ".join(f"{states[state]:,} {state}" for state in ("read", "partly", "empty", "skipped") if states[state])
    dropped = sum((report.dropped for report in reports), Counter[str]())
    lines = [f"{counted(len(reports), 'file')}: {told}; {counted(passages, 'passage')}"]
    if dropped:
        lines.append("left out: " + ", ".join(f"{count:,} {kind}" for kind, count in dropped.most_common()))
    loud = [report for report in reports if report.why or report.notes]
    for report in loud[:SHOWN]:
        lines.append(f"  {report.file} ({report.state}): {'; '.join([*report.why, *report.notes])}")
    if len(loud) > SHOWN:
        lines.append(f"  and {len(loud) - SHOWN:,} more files with remarks")
    return lines
