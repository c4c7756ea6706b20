"""Releases on this machine: fetch them, write down what was fetched, and tell later whether it is still the same.

Authors of benchmarks publish no checksums. The first download is therefore taken as it is, and its SHA-256 goes into a
lock file if that is asked for; whoever has the lock file, here or elsewhere, can tell whether they have the same data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gnnrag.datasets.download import Progress, download, forget, part_of, put_in_place
from gnnrag.datasets.releases import Release, ReleaseFile, described
from gnnrag.errors import DataError
from gnnrag.files import child, exclusive_lock, file_digest, read_json, write_json

LOCK = "release.lock.json"
State = Literal["same", "differs", "missing", "not locked"]
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Checked:
    """A file of a release beside the lock; `wanted` and `found` are SHA-256, None where there is none."""

    path: str
    state: State
    wanted: str | None = None
    found: str | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the folder does not hold what the lock says."""
        return self.state in ("differs", "missing")


@dataclass(frozen=True, slots=True)
class Lock:
    """What was fetched: file below the folder -> SHA-256 and size in bytes."""

    release: str
    files: dict[str, tuple[str, int]]


def get(
    release: Release,
    folder: Path,
    lock_file: Path | None = None,
    record: bool = False,
    tries: int = 5,
    wait_s: float = 1.0,
    on_progress: Progress | None = None,
    on_note: Callable[[str], None] = lambda note: None,
) -> list[Path]:
    """Fetch the files of a release that `folder` lacks, and return them.

    Args:
        release: perhaps only some of its files.
        folder: where they go; a file that is there and is what the lock says stays.
        lock_file: by default `folder`/release.lock.json. A download that it knows must have its SHA-256.
        record: write SHA-256s that the lock does not have into it.
        tries: see `download`.
        wait_s: see `download`.
        on_progress: see `download`.
        on_note: told what else is worth knowing.

    Raises:
        DataError: a file cannot be fetched, is not what the lock says, or has to be fetched by hand.
        GnnragError: another process fetches into the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock_file = lock_file or folder / LOCK
    fetched = []
    with exclusive_lock(folder / ".fetch.lock", str(folder)):
        lock = read_lock(lock_file, release.name)
        for file in release.files:
            target = folder / file.path
            if target.exists() and _is_kept(target, file, lock, on_note):
                continue
            if file.url is None:
                raise DataError(target, f"has to be fetched by hand. {described(release, str(folder))}")
            child(folder, f"{file.path}.part", ".+")  # a link on the way would have it written elsewhere
            download(file.url, target, tries, wait_s, on_progress=on_progress)
            _check(part_of(target), target, file, lock, on_note)
            put_in_place(target)
            fetched.append(target)
        if record:
            write_down(release, folder, lock_file)
        elif unlocked := [file.path for file in release.files if file.path not in lock.files]:
            fix = "the release publishes none; --record writes down what came"
            on_note(f"SHA-256 UNKNOWN for {len(unlocked)} files: {fix}")
    return fetched


def write_down(release: Release, folder: Path, lock_file: Path | None = None) -> Path:
    """Write the SHA-256 of the files that are there into the lock, and return it.

    Raises:
        DataError: none is there, or one differs from what the lock says already.
    """
    lock_file = lock_file or folder / LOCK
    lock = read_lock(lock_file, release.name)
    for file in release.files:
        path = folder / file.path
        if path.is_file() and file.path not in lock.files:
            lock = _with_file(lock, file.path, path)
    if wrong := [c for c in verify(folder, lock, release) if c.state == "differs"]:
        fix = f"fetch it again, or delete its line from {lock_file} to accept it"
        raise DataError(folder / wrong[0].path, f"has SHA-256 {wrong[0].found}, the lock says {wrong[0].wanted}; {fix}")
    if not lock.files:
        raise DataError(folder, f"holds no file of {release.name}. {described(release, str(folder))}")
    _write_lock(lock_file, lock, release)
    return lock_file


def verify(folder: Path, lock: Lock, release: Release | None = None) -> list[Checked]:
    """Return how each file of the lock, and each of the release that it does not know, is in `folder`."""
    checked = []
    for path, (sha256, _) in lock.files.items():
        found = file_digest(folder / path) if (folder / path).is_file() else None
        state: State = "missing" if found is None else "same" if found == sha256 else "differs"
        checked.append(Checked(path, state, sha256, found))
    for file in release.files if release else ():
        if file.path not in lock.files:
            there = (folder / file.path).is_file()
            checked.append(Checked(file.path, "not locked", None, file_digest(folder / file.path) if there else None))
    return checked


def read_lock(path: Path, release: str | None = None) -> Lock:
    """Return a lock; an empty one where there is no file and `release` says what it will be about.

    Raises:
        DataError: there is none, it is damaged, or is about another release.
    """
    if not path.exists() and release is not None:
        return Lock(release, {})
    try:
        content: Any = read_json(path)
        files = {name: (row["sha256"], row["size"]) for name, row in content["files"].items()}
        about = str(content["release"])
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}; `record` writes one") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(path, f"is damaged ({error!r}); delete it and record anew") from error
    for name, (sha256, size) in files.items():
        leads_out = Path(name).is_absolute() or ".." in Path(name).parts
        if leads_out or not (isinstance(sha256, str) and _SHA256.fullmatch(sha256) and isinstance(size, int)):
            raise DataError(path, f"is damaged: {name!r} has {sha256!r} and {size!r}; delete it and record anew")
    if release is not None and about != release:
        raise DataError(path, f"is about {about}, not {release}; give another folder, or another lock=FILE")
    return Lock(about, files)


def _is_kept(target: Path, file: ReleaseFile, lock: Lock, on_note: Callable[[str], None]) -> bool:
    """Tell whether a file that is there stays; one that is not what the lock says is fetched again."""
    if file.path not in lock.files:
        on_note(f"{target} is there and stays; nothing says whether it is whole (SHA-256 unknown)")
        return True
    return file_digest(target) == lock.files[file.path][0]


def _check(part: Path, target: Path, file: ReleaseFile, lock: Lock, on_note: Callable[[str], None]) -> None:
    """Raise DataError where a download is not what the lock says."""
    found, (wanted, size) = file_digest(part), lock.files.get(file.path, (None, None))
    if wanted and found != wanted:
        have = part.stat().st_size
        forget(target)
        raise DataError(
            target,
            f"came with SHA-256 {found} ({have:,} bytes), the lock says {wanted} ({size:,} bytes): it was damaged on "
            "the way, or the release has changed. Nothing was replaced. Try again; to accept another version, delete "
            "its line from the lock",
        )
    if file.reported and not wanted:
        same = "has the SHA-256" if found == file.reported else f"has SHA-256 {found}, not {file.reported}"
        on_note(f"{file.path} {same} that is reported by {file.reported_by}")


def _with_file(lock: Lock, name: str, path: Path) -> Lock:
    return Lock(lock.release, {**lock.files, name: (file_digest(path), path.stat().st_size)})


def _write_lock(path: Path, lock: Lock, release: Release) -> None:
    files = {name: {"sha256": sha256, "size": size} for name, (sha256, size) in sorted(lock.files.items())}
    about = {"release": lock.release, "title": release.title, "page": release.page, "licence": release.licence}
    write_json(path, {**about, "files": files})
