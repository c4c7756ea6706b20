"""Writing so that a kill loses nothing, and reading so that damage is named."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError, GnnragError


def digest(data: Any) -> str:
    """Return the SHA-256 of canonical JSON (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def content_digest(path: Path, whole: int = 1 << 26) -> str:
    """Return the SHA-256 of a file, of one above `whole` bytes that of 64 evenly spaced parts: training changes all.

    Reading 16 GB of weights would take half a minute at every start.
    """
    size, summary, chunks, chunk = path.stat().st_size, hashlib.sha256(), 64, 1 << 16
    if size <= whole:
        return file_digest(path)
    with path.open("rb") as handle:
        for number in range(chunks):
            handle.seek(number * (size - chunk) // (chunks - 1))
            summary.update(handle.read(chunk))
    return summary.hexdigest()


def write_atomic(path: Path, data: str | bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data.encode("utf-8") if isinstance(data, str) else data)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON atomically."""
    write_atomic(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON value a line, atomically."""
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one where there is none, it is broken, or is being written."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_journal(path: Path) -> list[Any]:
    """Return the rows of a journal up to a cut or broken line; the file, which may be in use, stays as it is."""
    return [row for row, _ in read_lines(path)]


def read_lines(path: Path) -> Iterator[tuple[Any, bytes]]:
    """Yield each row of a journal with its line as it stands; what a kill left of the last line is passed over.

    Raises:
        ArtefactError: a line before the last is no JSON. No kill does that, and dropping the rest would lose it.
    """
    if not path.exists():
        return
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                row = None
            if row is None:
                if handle.read(1):
                    raise ArtefactError(f"{path}, line {number} is damaged; mend or delete that line, or the file")
                return
            yield row, line


class Journal:
    """An append-only JSONL file that survives a kill: a line cut short at the end is dropped when it is opened.

    Args:
        path: the file; made when missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Any] = []
        good = 0
        for row, line in read_lines(path):
            self.rows.append(row)
            good += len(line)
        if path.exists() and good < path.stat().st_size:
            os.truncate(path, good)
        self._out = path.open("a", encoding="utf-8")

    def append(self, *rows: Any) -> None:
        """Append rows and hand them to the operating system: they survive the death of this process."""
        self._out.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        self._out.flush()

    def close(self) -> None:
        """Close the file; further appends are an error."""
        self._out.close()


@contextmanager
def exclusive_lock(path: Path, what: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold a lock file while one process writes; a second writer waits, then gets an error instead of a race.

    Raises:
        GnnragError: another process holds the lock, or the file system has none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    problem = f"{what} is being written by another process; wait for it, or use another folder"
                    raise GnnragError(problem) from error
                time.sleep(0.2)
            except OSError as error:
                problem = f"{path} cannot be locked ({error.strerror}): its file system has no locks; use another one"
                raise GnnragError(f"{problem}, or mount it with them (Lustre: -o flock)") from error
        yield


def lock_run(path: Path, what: str) -> ExitStack:
    """Return a stack that holds the lock of a run directory until it is closed; `what` names its kind in the error.

    The lock file is beside the folder, because starting a run over deletes what is in it.

    Raises:
        GnnragError: another process is writing the run.
    """
    lock = ExitStack()
    lock.enter_context(exclusive_lock(path.with_name(f".{path.name}.lock"), f"{what} {path}"))
    return lock


def folds_of(run: Path) -> list[Path]:
    """Return the folders of a training with cross=true, `fold0`, `fold1`, ..., in its run directory; else none."""
    found = [path for path in run.glob("fold[0-9]*") if path.name[4:].isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name[4:]))


def folds_advice(run: Path, part: str) -> str:
    """Return what to do where a training with cross=true is given for a single checkpoint; empty for other folders.

    Args:
        run: the folder given.
        part: `gnn` or a role, as `inference/cross_validate.py` names it.
    """
    folds = folds_of(run)
    if not folds:
        return ""
    return (
        f"{run} holds a checkpoint for each of {len(folds)} folds (cross=true): give one of them, such as {folds[0]}, "
        "or have each question answered by the fold that did not see it: "
        f"python inference/cross_validate.py CONFIG {part}={run}"
    )
