"""Downloading one file so that a broken connection costs little, and a broken file is never left in its place."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from gnnrag.errors import DataError
from gnnrag.files import move, open_log, read_object, remove, write_json

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
    """Fetch `url` into `target`.part, going on from what an earlier try left there, and return that path.

    The part is gone on with only if the server still has the same version of the file (ETag or date), else begun anew.
    The caller checks it and moves it into its place.

    Args:
        url: http or https.
        target: the file that it will be.
        tries: connections, before giving up.
        wait_s: before the second try; doubled each time.
        timeout_s: without a byte.
        on_progress: told after each block.

    Raises:
        DataError: the server refuses, or the file is incomplete after all tries; the part stays for the next time.
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
