"""What jobs leave behind: logs, how each task ended, and rows of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnrag.cluster.job import Job
from gnnrag.common.files import open_regular, read_journal, read_object
from gnnrag.common.outputs import folds_of
from gnnrag.common.untrusted import parse_json
from gnnrag.errors import ArtefactError

_LINE = 1000  # bytes of how a task ended


def ended_file(job: Job, task: int) -> Path:
    """Return the file in which a task's exit code is written at its end."""
    return Path(job.folder) / f"ended-{task}"


def log_file(job: Job, task: int) -> Path:
    """Return the file that takes what a task says."""
    return Path(job.folder) / (f"log-{task}.txt" if job.tasks else "log.txt")


def ended(job: Job, task: int) -> tuple[int | None, str]:
    """Return exit code and remark of the last time that a task ran; None where it never ended."""
    try:
        with open_regular(ended_file(job, task)) as handle:
            code, _, told = handle.read(_LINE).decode("utf-8").strip().partition(" ")
        return int(code), told
    except (OSError, ValueError, ArtefactError):
        return None, ""


def was_cut_off(job: Job, task: int) -> bool:
    """Tell whether a task has started since it last ended: it was killed, or runs."""
    started, end = Path(job.folder) / f"started-{task}", ended_file(job, task)
    return started.exists() and (not end.exists() or end.stat().st_mtime < started.stat().st_mtime)


def log_tail(job: Job, task: int, lines: int = 8) -> list[str]:
    """Return the last lines of a task's log."""
    try:
        with open_regular(log_file(job, task)) as handle:
            handle.seek(max(0, handle.seek(0, 2) - 8192))
            text = handle.read().decode("utf-8", "replace")
    except (OSError, ArtefactError):
        return []
    # A progress bar writes over itself: what it showed last is left.
    return [line.rpartition("\r")[2].rstrip() for line in text.strip().splitlines()][-lines:]


def rows(run: Path, name: str = "predictions.jsonl") -> int:
    """Return how many whole rows a journal of a run has."""
    try:
        with open_regular(run / name) as handle:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: handle.read(1 << 20), b""))
    except (OSError, ArtefactError):
        return 0


def is_whole(run: Path) -> bool:
    """Tell whether each question of a shard has a row; one that was tried again has several."""
    count = asked(run)
    if not 0 < count <= rows(run):
        return False
    return len({row["question_id"] for row in read_journal(run / "predictions.jsonl")}) >= count


def asked(run: Path) -> int:
    """Return how many questions a run will hold; 0 where it does not say."""
    count = read_object(run / "meta.json").get("questions", 0)
    return count if type(count) is int else 0


def last_rows(run: Path) -> list[dict[str, Any]]:
    """Return the last row of metrics of a training, of each of its folds."""
    found = []
    for folder in (run, *folds_of(run)):
        try:
            with open_regular(folder / "metrics.jsonl") as handle:
                lines = handle.read().splitlines()
        except (OSError, ArtefactError):
            continue
        for line in reversed(lines):
            try:
                found.append(dict(parse_json(line)))
                break
            except (ValueError, TypeError):
                continue
    return found
