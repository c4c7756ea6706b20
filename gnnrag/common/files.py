"""The one module that deletes and replaces: writing so that a kill loses nothing, inside of one folder alone.

Names read from a file pass through `child` before anything is opened, written or deleted under them. No link is
followed for writing or deleting: `refuse_links` is asked when a folder is opened to be written, the calls here open
without following, and what is deleted is the link (docs/security.md).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import IO, Any, TypeVar

from gnnrag.common.untrusted import parse_json
from gnnrag.common.waiting import moved
from gnnrag.common.yaml_config import recorded
from gnnrag.errors import ArtefactError, GnnragError

T = TypeVar("T")
MAX_JSON = 1 << 30  # bytes of a file that is read whole
_LARGE, _THERE = 1 << 30, 10  # bytes of a file of which one in so many has to be on the disk
_NAME_BYTES = 255  # of a name, on every common file system


def child(folder: Path, name: object, pattern: str = r"[^/]+", may_link: bool = False) -> Path:
    """Return the path of something in a folder whose name (relative, forward slashes) was read from a file.

    The whole name must match `pattern`. `may_link` is for what is only read, and compared with a digest: the cache of a
    hub is all links. Raises ArtefactError for a name of another form, or that leads out of the folder or through a
    link.
    """
    is_sound = isinstance(name, str) and len(name) < _LONGEST and not _ODD.search(name)
    parts = str(name).split("/")
    if not is_sound or not re.fullmatch(pattern, str(name)) or not all(map(_is_plain, parts)):
        shown = repr(name)[:_SHOWN]
        raise ArtefactError(f"{folder} names {shown}, which is no name of anything in it; it is damaged or forged")
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink() and not may_link:
            raise ArtefactError(_A_LINK.format(path=path))
    return path


_ODD = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_LONGEST, _SHOWN = 1024, 100  # characters of a name, and those of a wrong one that an error shows
_A_LINK = "{path} is a link, and links in such folders are not followed; delete it"


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and len(part.encode()) <= _NAME_BYTES


def refuse_links(folder: Path) -> None:
    """Raise ArtefactError for a folder with links, or pipes, which would wait for ever; it may itself be a link."""
    inside = folder.resolve()
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(where, name)
            kind = _kind(path)
            if stat.S_ISDIR(kind) or stat.S_ISREG(kind) or not kind:
                continue
            if not stat.S_ISLNK(kind):
                raise ArtefactError(f"{path} is neither a file nor a folder; delete it")
            if not _is_of_wandb(path.relative_to(folder), inside):
                raise ArtefactError(_A_LINK.format(path=path))


def _is_of_wandb(link: Path, folder: Path) -> bool:
    """Tell whether a link is one that W&B makes: nothing is written through those that lead out."""
    above = link.parts[:-1]
    if "wandb" not in above:
        return False
    own = folder.joinpath(*above[: above.index("wandb") + 1])
    inner = link.parts[above.index("wandb") + 1 :]
    is_log = len(inner) == 3 and "run-" in inner[0] and inner[1:] == ("logs", "debug-core.log")
    return is_log or (folder / link).resolve().is_relative_to(own)


def _kind(path: Path) -> int:
    """Return the mode of a file, folder or link; 0 where there is none, or none any more."""
    found = _facts(path)
    return found.st_mode if found else 0


def _facts(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def remove(path: Path, within: Path) -> None:
    """Delete a file, folder or link (never its target), if any; ArtefactError: not in `within`, or through a link."""
    _check_within(path, within)
    if stat.S_ISDIR(_kind(path)):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def tidy(path: Path, within: Path) -> None:
    """Delete leftovers, see `remove`; what the system does not let go stays, and is no failure."""
    _check_within(path, within)
    with suppress(OSError):
        if stat.S_ISDIR(_kind(path)):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _check_within(path: Path, within: Path) -> None:
    inner = path.parts[len(within.parts) :] if path.is_relative_to(within) else ()
    for above in inner[:-1]:  # the last one may be a link: it is what is deleted
        within = child(within, above)
    if not inner or not _is_plain(inner[-1]):
        raise ArtefactError(f"{path} is not in {within}")


def move(path: Path, target: Path) -> None:
    """Rename a file or folder to a name in the same folder, in the place of a file that has it."""
    if path.parent != target.parent:
        raise ValueError(f"{path} and {target} are not in one folder")
    os.replace(path, target)


def write_folder(folder: Path, write: Callable[[Path], T]) -> T:
    """Make or replace a folder so that readers see the old one or the new, but for the moment between two renamings.

    `write` fills the empty folder that it is given; its result is returned.
    """
    new, old = (folder.with_name(f".{folder.name}.{which}") for which in ("new", "old"))
    for leftover in (new, old):
        tidy(leftover, folder.parent)
    new.mkdir(parents=True)
    try:
        result = write(new)
        _settle(new)
    except BaseException as error:
        tidy(new, folder.parent)  # a full disk needs the room
        if isinstance(error, OSError) and "requested and" in str(error):  # numpy says that it wrote less than it has
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise
    if folder.is_symlink() or folder.exists():
        move(folder, old)
    move(new, folder)
    tidy(old, folder.parent)
    return result


def _settle(folder: Path) -> None:
    """Have a folder's content on the disk, so that whatever names it later does not outlive it when the power fails."""
    for where, _, files in os.walk(folder):
        for path in (*(Path(where, name) for name in files), Path(where)):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read; FileNotFoundError; ArtefactError: no plain file (a pipe would wait), or mostly a hole."""
    handle = os.fdopen(_checked(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path), "rb")
    if _is_hollow(handle.fileno()):
        handle.close()
        raise ArtefactError(f"{path} is large, and has next to nothing in it (a sparse file); it is damaged or forged")
    return handle


def _is_hollow(handle: int) -> bool:
    """Tell whether a large file is mostly a hole: a few bytes that are read for hours, or fill the memory."""
    size, at, there = os.fstat(handle).st_size, 0, 0
    if size <= _LARGE:
        return False
    try:
        while at < size and there * _THERE < size:
            start = os.lseek(handle, at, os.SEEK_DATA)
            at = os.lseek(handle, start, os.SEEK_HOLE)
            there += at - start
    except OSError as error:
        if error.errno != errno.ENXIO:  # the file system does not tell; ENXIO: all the rest is a hole
            return False
    finally:
        os.lseek(handle, 0, os.SEEK_SET)
    return there * _THERE < size


def _open_to_write(path: Path) -> int:
    """Return a descriptor that appends, of a file made where it is missing, never truncated, never behind a link."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return _checked(os.open(path, flags, 0o644), path)
    except OSError as error:
        if path.is_symlink():
            raise ArtefactError(_A_LINK.format(path=path)) from error
        raise


def open_log(path: Path, fresh: bool = False) -> BufferedRandom:
    """Open a file that another process appends to (`fresh`: an empty one instead); ArtefactError: a link, not plain."""
    if fresh:
        path.unlink(missing_ok=True)
    _part_from_others(path)
    return os.fdopen(_open_to_write(path), "a+b")


def _part_from_others(path: Path) -> None:
    """Replace a file that has other names (hard links), which may be anywhere, by a copy that is written into alone."""
    kind = _facts(path)
    if kind and stat.S_ISREG(kind.st_mode) and kind.st_nlink > 1:
        copy_file(path, path)


def _checked(handle: int, path: Path) -> int:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ArtefactError(f"{path} is no plain file; delete it")
    return handle


def read_json(path: Path, limit: int = MAX_JSON) -> Any:
    """Return a JSON file's content; FileNotFoundError; ArtefactError: not plain, too large; ValueError: no JSON."""
    with open_regular(path) as handle:
        if os.fstat(handle.fileno()).st_size > limit:
            raise ArtefactError(f"{path} is larger than {limit} bytes; it is damaged or forged")
        return parse_json(handle.read())


def digest(data: Any) -> str:
    """Return the SHA-256 of canonical JSON (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open_regular(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def content_digest(path: Path, whole: int = 1 << 26) -> str:
    """Return the SHA-256 of a file, above `whole` bytes that of 64 evenly spaced parts: training changes all."""
    size, summary, chunks, chunk = path.stat().st_size, hashlib.sha256(), 64, 1 << 16
    if size <= whole:
        return file_digest(path)
    with path.open("rb") as handle:
        for number in range(chunks):
            handle.seek(number * (size - chunk) // (chunks - 1))
            summary.update(handle.read(chunk))
    return summary.hexdigest()


def write_atomic(path: Path, data: str | bytes | Callable[[IO[bytes]], object]) -> None:
    """Write a file so that readers see the old content or the new; a link in its place is replaced, not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            if callable(data):
                data(out)
            else:
                out.write(data.encode("utf-8") if isinstance(data, str) else data)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def copy_file(source: Path, target: Path) -> None:
    """Copy a plain file, see `write_atomic`."""
    with open_regular(source) as held:
        write_atomic(target, lambda out: shutil.copyfileobj(held, out))


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON atomically."""
    write_atomic(path, json.dumps(recorded(data), indent=2, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON value a line, atomically."""
    write_atomic(path, "".join(json.dumps(recorded(row), ensure_ascii=False) + "\n" for row in rows))


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one where there is none, it is broken, or is being written."""
    try:
        found = read_json(path)
    except (OSError, ValueError, ArtefactError):
        return {}
    return found if isinstance(found, dict) else {}


def read_journal(path: Path) -> list[Any]:
    """Return the rows of a journal up to a cut or broken line; the file, which may be in use, stays as it is."""
    return [row for row, _ in read_lines(path)]


def read_lines(path: Path) -> Iterator[tuple[Any, bytes]]:
    """Yield each row with its line, but a last one cut short by a kill; ArtefactError: an earlier line is no JSON."""
    if not path.exists():
        return
    with open_regular(path) as handle:
        for number, line in enumerate(handle, start=1):
            try:
                row = parse_json(line) if line.endswith(b"\n") else None
            except ValueError:
                row = None
            if row is None:
                if handle.read(1):
                    raise ArtefactError(f"{path}, line {number} is damaged; mend or delete that line, or the file")
                return
            yield row, line


class Journal:
    """An append-only JSONL file, made when missing; a last line that a kill cut short is dropped on opening."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        _part_from_others(path)
        self.rows: list[Any] = []
        good = 0
        for row, line in read_lines(path):
            self.rows.append(row)
            good += len(line)
        self._out = os.fdopen(_open_to_write(path), "ab", buffering=0)  # a buffer would be written again at the end
        if good < os.fstat(self._out.fileno()).st_size:
            self._out.truncate(good)

    def append(self, *rows: Any) -> None:
        """Append rows, all or none, and hand them to the operating system: they survive the death of this process."""
        left = "".join(json.dumps(recorded(row), ensure_ascii=False) + "\n" for row in rows).encode("utf-8")
        size = os.fstat(self._out.fileno()).st_size
        try:
            while left:
                left = left[self._out.write(left) :]
            moved()
        except BaseException:  # a full disk, which may have taken a part of a row
            self._out.truncate(size)
            raise

    def close(self) -> None:
        """Close the file; further appends are an error."""
        self._out.close()


@contextmanager
def exclusive_lock(
    path: Path, what: str, wait_s: float = 0.0, waiting: Callable[[float], None] = lambda waited: None
) -> Iterator[None]:
    """Hold a lock file, after `wait_s` at most, else GnnragError; `waiting` gets the seconds waited, and may raise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(_open_to_write(path), "rb") as handle:
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if (waited := time.monotonic() - started) >= wait_s:
                    problem = f"{what} is being written by another process; wait for it, or use another folder"
                    raise GnnragError(problem) from error
                waiting(waited)
                time.sleep(0.2)
            except OSError as error:
                problem = f"{path} cannot be locked ({error.strerror}): its file system has no locks; use another one"
                raise GnnragError(f"{problem}, or mount it with them (Lustre: -o flock)") from error
        yield


def hold(path: Path, owner: object) -> Path:
    """Return a name for what a file is now; `unheld` finds it in use as long as `owner` lives. FileNotFoundError."""
    while True:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # without locks a writer waits for nobody
            fcntl.flock(handle, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(handle), path.stat()):  # else it was replaced in between
            weakref.finalize(owner, os.close, handle)
            return Path(f"/dev/fd/{handle}")
        os.close(handle)


@contextmanager
def unheld(path: Path) -> Iterator[bool]:
    """Tell whether nobody holds a file, and keep it so meanwhile; one that is missing, or a link, nobody does."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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


def keep_as(path: Path, target: Path) -> None:
    """Give a file a second name in its folder, where there can be one, under which it stays when it is replaced."""
    if path.parent != target.parent:
        raise ValueError(f"{path} and {target} are not in one folder")
    with suppress(OSError):
        os.link(path, target, follow_symlinks=False)


def lock_run(path: Path, what: str) -> ExitStack:
    """Return a stack that holds a run's lock (beside its folder) until closed; GnnragError: another `what` has it."""
    lock = ExitStack()
    lock.enter_context(exclusive_lock(path.with_name(f".{path.name}.lock"), f"{what} {path}"))
    return lock
