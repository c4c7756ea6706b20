"""Until every caller is rewritten (issue 30): the names of before for what `gnnrag.io` does."""

from __future__ import annotations

import fcntl
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from gnnrag import io
from gnnrag.io import Journal as Journal
from gnnrag.io import digest as digest
from gnnrag.io import exclusive_lock as exclusive_lock
from gnnrag.io import file_digest as file_digest
from gnnrag.io import read_journal as read_journal
from gnnrag.io import read_lines as read_lines
from gnnrag.io import read_object as read_object
from gnnrag.io import write_atomic as write_atomic
from gnnrag.io import write_folder as write_folder
from gnnrag.io import write_json as write_json
from gnnrag.io import write_jsonl as write_jsonl

content_digest, move, copy_file = io.file_digest, os.replace, shutil.copyfile


def read_json(path: Path, limit: int = 0) -> Any:
    """See `gnnrag.io.read_json`."""
    return io.read_json(path)


def child(folder: Path, name: str, pattern: str = "", may_link: bool = False) -> Path:
    """Return the path of something in a folder."""
    return folder / name


def remove(path: Path, within: Path | None = None) -> None:
    """See `gnnrag.io.remove`."""
    io.remove(path)


def tidy(path: Path, within: Path | None = None) -> None:
    """Delete leftovers; what the system does not let go stays."""
    with suppress(OSError):
        io.remove(path)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read."""
    return path.open("rb")


def lock_run(path: Path, what: str) -> ExitStack:
    """Return a stack that holds a run's lock (beside its folder) until closed; GnnragError: another `what` has it."""
    lock = ExitStack()
    lock.enter_context(io.exclusive_lock(path.with_name(f".{path.name}.lock"), f"{what} {path}"))
    return lock


# ---------------------------------------------------------------------- generations of the index (gone with issue 31)
def hold(path: Path, owner: object) -> Path:
    """Return a name for what a file is now; `unheld` finds it in use as long as `owner` lives. FileNotFoundError."""
    while True:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):  # without locks a writer waits for nobody
            fcntl.flock(handle, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(handle), path.stat()):  # else it was replaced in between
            weakref.finalize(owner, os.close, handle)
            return Path(f"/dev/fd/{handle}")
        os.close(handle)


@contextmanager
def unheld(path: Path) -> Iterator[bool]:
    """Tell whether nobody holds a file, and keep it so meanwhile; one that is missing nobody does."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    with os.fdopen(handle, "rb"):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except OSError as error:  # without locks nobody can hold it
            is_free = not isinstance(error, BlockingIOError)
        yield is_free
