"""Download published data sets: resumed, checked, unpacked without leaving their folder.

Authors publish no checksums: a lock file, if asked for, keeps the first download's SHA-256 for later checks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from gnnrag.common.files import (
    child,
    exclusive_lock,
    file_digest,
    move,
    open_log,
    read_json,
    read_object,
    remove,
    write_json,
)
from gnnrag.datasets.releases import Release, ReleaseFile, described
from gnnrag.errors import DataError

Progress = Callable[[str, int, int | None], None]  # path, bytes so far, bytes in all if known
_BLOCK = 1 << 18
_HEADER = re.compile("[ -~]{1,200}")
_SIZE = re.compile("[0-9]{1,18}")  # what a server writes for a number of bytes
_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))  # what another try may mend


def part_of(target: Path) -> Path:
    """Return where a file is kept while it is incomplete."""
    return target.with_name(f"{target.name}.part")


def download(
    url: str,
    target: Path,
    tries: int = 5,
    wait_s: float = 1.0,
    timeout_s: float = 60.0,
    on_progress: Progress | None = None,
) -> Path:
    """Fetch `url` (http, https) into `target`.part and return that path; the caller checks and moves it into place.

    A part is resumed only if the server still has the same version (ETag or date). `tries` counts connections; `wait_s`
    precedes the second one and doubles; `timeout_s` is without a byte.

    Raises DataError where the server refuses, or the file is incomplete after all tries; the part stays for the next
    time.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise DataError(target, f"cannot be fetched from {url!r}: only http and https addresses are")
    part, problem = part_of(target), ""
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(tries):
        if attempt:
            time.sleep(wait_s * 2 ** (attempt - 1))
        try:
            _receive(url, part, timeout_s, on_progress)
            return part
        except HTTPError as error:
            problem = f"was answered {error.code} {error.reason}"
            if error.code not in _AGAIN:
                break
        except (HTTPException, URLError) as error:
            problem = f"failed: {_cause(error)}"
    size = part.stat().st_size if part.exists() else 0
    kept = f"; {size:,} bytes are kept in {part.name}, the same command goes on from there" if size else ""
    raise DataError(target, f"could not be fetched: {url} {problem}{kept}")


def _receive(url: str, part: Path, timeout_s: float, on_progress: Progress | None) -> None:
    """Receive what is missing of a part; raises HTTPException where the connection ends early."""
    facts, have = read_object(_facts_of(part)), part.stat().st_size if part.exists() else 0
    version = facts.get("version") if facts.get("url") == url else None
    version = version if isinstance(version, str) and _HEADER.fullmatch(version) else None
    asked = {"User-Agent": "gnnrag", "Accept-Encoding": "identity"}
    if have and version:
        asked |= {"Range": f"bytes={have}-", "If-Range": version}
    response = _open(Request(url, headers=asked), part, have, timeout_s)
    if response is None:
        return  # it was complete: the process ended before it was moved into its place
    with response:
        goes_on = response.status == 206 and _first_byte(response.headers.get("Content-Range")) == have
        if response.status == 206 and not goes_on:
            remove(part, part.parent)
            raise HTTPException("another range than the one asked for")
        have = have if goes_on else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and _SIZE.fullmatch(length) else None
        # A weak tag promises the same meaning, not the same bytes.
        tag = response.headers.get("ETag") or ""
        version = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")
        if not goes_on:
            # The old bytes go first: a kill in between must not leave them under the new version's name.
            remove(part, part.parent)
            write_json(_facts_of(part), {"url": url, "version": version})
        with open_log(part) as out:
            while block := _read(response):
                out.write(block)
                have += len(block)
                if on_progress:
                    on_progress(part.name.removesuffix(".part"), have, total)
            out.flush()
            os.fsync(out.fileno())
    if total is not None and have != total:
        raise HTTPException(f"the connection ended after {have:,} of {total:,} bytes")


def _open(request: Request, part: Path, have: int, timeout_s: float) -> Any:
    """Return the answer to a request, None where the part is the whole file; raises HTTPException where it breaks."""
    try:
        return urlopen(request, timeout=timeout_s)
    except HTTPError as error:
        if error.code == 416 and have and (error.headers.get("Content-Range") or "").endswith(f"*/{have}"):
            return None
        if error.code == 416:  # the part is no beginning of what is there now
            remove(part, part.parent)
            raise HTTPException("the part was longer than the file; it was begun anew") from error
        raise
    except URLError:
        raise
    except OSError as error:  # while the answer's head is read; urllib wraps only what sending raises
        raise _lost(error) from error


class _Redirects(HTTPRedirectHandler):
    """Follows to any host, as mirrors do, but from https to https alone, and without reading the page in between."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the next request. Raises URLError where it would leave TLS, or the web."""
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise URLError(f"sent on to {newurl!r:.200}, which is not {req.type}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Follow; the page, which may have any length, stays unread."""
        fp.close()
        return super().http_error_302(req, BytesIO(), code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def urlopen(request: Request, timeout: float) -> Any:
    """Open a URL as `urllib.request.urlopen` does, but for its redirects."""
    return build_opener(_Redirects).open(request, timeout=timeout)


def _read(response: IO[bytes]) -> bytes:
    """Return the next block; raises HTTPException where the connection breaks, so that writing's errors stay apart."""
    try:
        return response.read(_BLOCK)
    except OSError as error:  # a timeout, a reset, and whatever TLS makes of either
        raise _lost(error) from error


def _lost(error: OSError) -> HTTPException:
    return HTTPException(f"the connection broke: {error or type(error).__name__}")


def put_in_place(target: Path) -> None:
    """Move a complete part into its place, whole or not at all."""
    move(part_of(target), target)
    forget(target)


def forget(target: Path) -> None:
    """Delete the part of a file, so that the next try begins anew."""
    for path in (part_of(target), _facts_of(part_of(target))):
        remove(path, target.parent)


def _cause(error: Exception) -> str:
    """Return why there was no answer, in words: an OSError's text begins with its number."""
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason) or type(error).__name__


def _facts_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _first_byte(content_range: str | None) -> int | None:
    first = (content_range or "").removeprefix("bytes ").partition("-")[0].strip()
    return int(first) if _SIZE.fullmatch(first) else None


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
    """Fetch the files of a release that `folder` lacks, and return them; arguments otherwise as in `download`.

    A file that is what the lock says stays. A download that the lock (by default `folder`/release.lock.json) knows must
    have its SHA-256; `record` writes those it lacks. DataError: a file cannot be fetched, is not what the lock says, or
    has to be fetched by hand; GnnragError: another process fetches into the folder.
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
    """Write the SHA-256 of the files that are there into the lock, and return it; DataError: no file, or it differs."""
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
    """Return a lock, an empty one for a `release` without a file; DataError: none, damaged, or another release's."""
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
