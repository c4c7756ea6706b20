"""Files: written so that a kill loses nothing, JSON and JSON Lines, digests, weights."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar
from unicodedata import normalize

from gnnrag.errors import ArtefactError, ConfigError, GnnragError
from gnnrag.parts import from_settings

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
WEIGHTS = "model.safetensors"


def cache_folder() -> Path:
    """Return the folder of what all indexes share: `GNNRAG_CACHE`, else `~/.cache/gnnrag`."""
    return Path(os.environ.get("GNNRAG_CACHE") or Path.home() / ".cache" / "gnnrag")


def digest(data: Any) -> str:
    """Return the SHA-256 of canonical JSON (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def hash64(text: str) -> int:
    """Return a hash of a text below 2**64 that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def file_digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_atomic(path: Path, data: str | bytes | Callable[[IO[bytes]], object]) -> None:
    """Write a file so that readers see the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            if callable(data):
                data(out)
            else:
                out.write(data.encode("utf-8", "replace") if isinstance(data, str) else data)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_folder(folder: Path, write: Callable[[Path], T]) -> T:
    """Make or replace a folder so that it appears whole; `write` fills the empty folder that it is given."""
    new, old = (folder.with_name(f".{folder.name}.{which}") for which in ("new", "old"))
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        result = write(new)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)  # a full disk needs the room
        if isinstance(error, OSError) and "requested and" in str(error):  # numpy says that it wrote less than it has
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return result


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def exclusive_lock(
    path: Path, what: str, wait_s: float = 0.0, needless: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold a lock file, after `wait_s` at most, else GnnragError; go on without it once `needless()` is true."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as handle:
        started = time.monotonic()
        while not needless():
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() - started >= wait_s:
                    problem = f"{what} is being written by another process; wait for it, or use another folder"
                    raise GnnragError(problem) from error
                time.sleep(0.1)
            except OSError as error:
                problem = f"{path} cannot be locked ({error.strerror}); use a file system with locks"
                raise GnnragError(problem) from error
        yield


# --------------------------------------------------------------------------------------------------------------- JSON
def read_json(path: Path) -> Any:
    """Return a JSON file's content; FileNotFoundError, ValueError: no JSON."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def well_formed(text: str) -> str:
    """Return text in Unicode's form NFC, in which texts are compared, that can be encoded as UTF-8.

    Halves of surrogate pairs become question marks. (Names of files on a Mac are not in NFC: é is two characters.)
    """
    return text if text.isascii() else normalize("NFC", text).encode("utf-8", "replace").decode()


def well_formed_json(value: Any) -> Any:
    """Return JSON data, or literals of Python, with every string in it, keys included, `well_formed`."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list | tuple):
        return type(value)(map(well_formed_json, value))
    if isinstance(value, dict):
        return {well_formed_json(key): well_formed_json(item) for key, item in value.items()}
    return value


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one where there is none, or it is broken."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON atomically."""
    write_atomic(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON value a line, atomically."""
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_lines(path: Path) -> Iterator[tuple[Any, bytes]]:
    """Yield each row of a journal with its line; a last line that a kill cut short is left out.

    Raises ArtefactError for an earlier line that is no JSON.
    """
    if not path.exists():
        return
    with path.open("rb") as handle:
        for number, line in enumerate(handle, start=1):
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except (ValueError, RecursionError):
                row = None
            if row is None:
                if handle.read(1):
                    raise ArtefactError(f"{path}, line {number} is damaged; mend or delete that line, or the file")
                return
            yield row, line


def read_journal(path: Path) -> list[Any]:
    """Return the rows of a journal; see `read_lines`."""
    return [row for row, _ in read_lines(path)]


class Journal:
    """An append-only JSONL file, made when missing; a last line that a kill cut short is dropped on opening."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        pairs = list(read_lines(path))
        self.rows = [row for row, _ in pairs]
        self._out = path.open("ab", buffering=0)
        self._out.truncate(sum(len(line) for _, line in pairs))

    def append(self, *rows: Any) -> None:
        """Append rows, all or none; they survive the death of this process."""
        left = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "replace")
        size = os.fstat(self._out.fileno()).st_size
        try:
            while left:
                left = left[self._out.write(left) :]
        except BaseException:  # a full disk, which may have taken a part of a row
            self._out.truncate(size)
            raise

    def close(self) -> None:
        """Close the file; further appends are an error."""
        self._out.close()


@contextmanager
def interpreting(path: Path, fix: str = "run its command again") -> Iterator[None]:
    """Raise ArtefactError, with advice `fix`, where a record interpreted meanwhile lacks a field or has an odd one."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ArtefactError(f"{path} is damaged ({type(error).__name__}: {error}); {fix}") from error


def difference(found: Any, expected: Any, name: str = "") -> str:
    """Return the first difference of a record from `expected` (mappings: by its keys, in order), or an empty text."""
    if isinstance(expected, Mapping):
        for key, value in expected.items():
            inner = found.get(key) if isinstance(found, Mapping) else None
            if problem := difference(inner, value, f"{name}.{key}" if name else str(key)):
                return problem
        return ""
    return "" if found == expected else f"{name} is {found!r}, needed is {expected!r}"


# ------------------------------------------------------------------------------------------------------------ weights
def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save

    write_atomic(path, save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors. Raises ArtefactError where the file is none of its kind, or a number is NaN or infinite."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ArtefactError(f"{path} is no safetensors file ({error}); copy the checkpoint again") from error
    if broken := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise ArtefactError(f"{path}: tensor {broken[0]!r} has NaN or infinite numbers; train it again")
    return tensors


def fill(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path) -> None:
    """Copy weights into a network. Raises ArtefactError naming a tensor that is missing, too many, or misshapen."""
    import torch

    for name in [*wanted, *given]:
        shapes = [tuple(of[name].shape) if name in of else None for of in (given, wanted)]
        if shapes[0] != shapes[1]:
            raise ArtefactError(f"{path}: tensor {name!r} has shape {shapes[0]}, the architecture wants {shapes[1]}")
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(given[name])


def read_record(path: Path, kinds: Mapping[str, Any], missing: str) -> dict[str, Any]:
    """Read a checkpoint's record; ArtefactError: none, no JSON, or a field is missing or of the wrong type."""
    try:
        record = read_json(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtefactError(f"{path} is missing; {missing}") from error
    except ValueError as error:
        raise ArtefactError(f"{path} is no JSON ({error}); copy the checkpoint again") from error
    for name, kind in kinds.items():
        if not isinstance(record, dict) or not isinstance(record.get(name), kind):
            raise ArtefactError(f"{path}: {name} is missing or of the wrong type; copy the checkpoint again")
    return record


def read_settings(kind: type[T], values: Mapping[str, Any], path: Path) -> T:
    """Return recorded settings of a network; ArtefactError: unknown field, or wrong type."""
    try:
        return from_settings(kind, values, "")
    except ConfigError as error:
        raise ArtefactError(f"{path}: {error}; the checkpoint is of another version") from error


def folds_of(run: Path) -> list[Path]:
    """Return the folders of a training with cross=true, `fold0`, `fold1`, ..., in its run directory; else none."""
    folders = [path for path in run.glob("fold*") if path.name[4:].isdecimal() and path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name[4:]))
