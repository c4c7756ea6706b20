"""Send one HTTP request with bounded tries, waits and sizes."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from gnnrag.common.yaml_config import address, host
from gnnrag.errors import ConfigError, LLMError

if TYPE_CHECKING:
    import openai


logger = logging.getLogger(__name__)
T = TypeVar("T")
MAX_WAIT_S = 120.0  # a server that asks for more is out of quota, not busy
_CONTEXT = re.compile(
    r"context[ _](?:length|window|size)|maximum (?:context|prompt|input|sequence) length|max_model_len|too many tokens|"
    r"prompt is too long|input is too long|longer than the maximum|exceeds? the (?:model|maximum|available context)",
    re.IGNORECASE,
)


@dataclass
class RetryableError(Exception):
    """A failure that may pass; `error` is raised when it does not.

    `wait_s` is the server's wish; `is_connection`: not reached at all; `reason` is in our words, safe for the log.
    """

    error: LLMError
    wait_s: float | None = None
    is_connection: bool = False
    reason: str = ""
    server: str = ""


@dataclass
class RefusedError(Exception):
    """A 400 that may be about the response format."""

    error: LLMError


def import_openai() -> Any:
    """Import the client on first use: it costs half a second, and most runs need no server."""
    try:
        import openai
    except ImportError as error:
        raise LLMError("the openai package is not installed; run: pip install openai") from error
    return openai


async def with_retries(call: Callable[[], Awaitable[T]], attempts: int, backoff_s: float) -> T:
    """Await `call()` until it does not raise RetryableError, `attempts` times at most; each failure is logged at once.

    Waits as long as the server asks, else a random time below `backoff_s` * 2^n (at most 30 s), so that callers that
    failed together do not come back together. Raises the LLMError of the last attempt, or of one not worth repeating.
    """
    for number in range(attempts):
        try:
            return await call()
        except RetryableError as failure:
            wait = failure.wait_s
            if wait is None:
                wait = random.uniform(0.0, min(30.0, backoff_s * 2**number))  # for pauses only
            is_last = number + 1 == attempts
            then = "given up" if is_last else f"the next in {wait:.1f} s"
            tried = f"try {number + 1} of {attempts} failed ({failure.reason or 'no reply'})"
            logger.warning("%s: %s, %s", failure.server or "the server", tried, then)
            if is_last:
                raise
        await asyncio.sleep(wait)
    raise ValueError(f"attempts={attempts}: must be at least 1")


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that `Retry-After` (seconds or a date) or `retry-after-ms` asks for."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(value or "").timestamp() - (time.time() if now is None else now))
    except (ValueError, OverflowError):
        return None


def is_context_error(code: object, message: str) -> bool:
    """Tell whether a 400 says that the prompt is too long."""
    return code == "context_length_exceeded" or bool(_CONTEXT.search(message))


def shorten(text: str, secrets: Collection[str] = (), limit: int = 300) -> str:
    """Return a server's message on one line, cut, and without the secrets should the server have quoted them."""
    text = " ".join(text.split())
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if number == number else None


MAX_BODY = 8 << 20  # bytes of a reply: 60 for each of 130,000 tokens
_SHORT_SECRET, _SHORT_VALUE = 4, 8  # characters below which hiding would only make a message unreadable
_LOGGERS = ("httpx", "httpx2", "openai._base_client")  # they write addresses as they were called


class BodyError(ValueError):
    """What a server sent is not received any further."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a server, without user, password and query in `base`; `basic` is an Authorization header or empty.

    `query` goes with every request; `secrets` must not show in messages, in any spelling a server could quote.
    """

    base: str
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    basic: str = field(default="", repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


def take_apart(url: str, name: str = "llm.base_url") -> Address:
    """Return the parts of an address; ConfigError (names the setting, shows no credentials): it is none of a server."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its text quotes a part, which may be of the password
        is_address = False
    if not is_address:
        shown = url.rpartition("@")[2].partition("?")[0]
        fix = "give a URL such as http://127.0.0.1:8000/v1 (in a password, / ? # @ are %2F %3F %23 %40)"
        raise ConfigError(f"{name}={shown!r}: {fix}")
    user = parts.netloc.rpartition("@")[0]
    basic = b64encode(":".join(map(unquote, user.partition(":")[::2])).encode()).decode() if user else ""
    query = tuple(parse_qsl(parts.query, keep_blank_values=True))
    return Address(address(url), query, f"Basic {basic}" if user else "", frozenset(_secrets(parts, basic)))


def _secrets(parts: SplitResult, basic: str) -> Iterable[str]:
    user = parts.netloc.rpartition("@")[0]
    if user:
        yield from (user, unquote(user), basic, basic.rstrip("="))
    if parts.password and len(parts.password) >= _SHORT_SECRET:
        yield from spellings(unquote(parts.password))
        yield parts.password
    for _, value in parse_qsl(parts.query):
        if len(value) >= _SHORT_VALUE:
            yield from spellings(value)


def spellings(secret: str) -> set[str]:
    """Return a secret as it may stand in a message: as it is, in a URL, and in base64."""
    if len(secret) < _SHORT_SECRET:
        return set()
    return {secret, quote(secret, safe=""), b64encode(secret.encode("utf-8", "replace")).decode().rstrip("=")}


def open_client(at: Address, key: str, timeout_s: float) -> openai.AsyncOpenAI:
    """Return a client of a server; a `key` is sent in place of user and password."""
    _hide_in_logs()
    headers = {"Accept-Encoding": "identity"}  # what is counted while it arrives is then what fills the memory
    if at.basic:
        headers["Authorization"] = at.basic
    return import_openai().AsyncOpenAI(
        api_key=key or "none",  # the client insists on one; servers without keys ignore it
        base_url=at.base,
        timeout=timeout_s,
        max_retries=0,
        default_headers=headers,
        http_client=_bounded_client()(at.query, timeout_s),
    )


@cache
def _bounded_client() -> Any:
    """Return the class of the HTTP client: made here, since what it is derived from takes half a second to import."""

    class BoundedClient(import_openai().DefaultAsyncHttpxClient):  # type: ignore[misc]
        def __init__(self, query: tuple[tuple[str, str], ...], timeout_s: float) -> None:
            # A key and a prompt are for the host that they were meant for.
            super().__init__(timeout=timeout_s, follow_redirects=False)
            self.query = query

        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            if self.query:
                request.url = request.url.copy_merge_params(self.query)
            response = await super().send(request, stream=True, **(options | {"follow_redirects": False}))
            try:
                return await _received(response)
            finally:
                await response.aclose()

    return BoundedClient


async def _received(response: Any) -> Any:
    """Return a response with its whole body. Raises BodyError where that is too large, or packed."""
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise BodyError(f"its body is packed ({packed[:40]}), which was not asked for")
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > MAX_BODY:
            raise BodyError(f"its body has more than {MAX_BODY:,} bytes")
    return type(response)(
        response.status_code,
        headers=response.headers,
        content=bytes(body),
        request=response.request,
        extensions=response.extensions,
    )


@cache
def _hide_in_logs() -> None:
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_without_queries)


def _without_queries(record: logging.LogRecord) -> bool:
    """Take the query, which may hold a key, from addresses that a library is about to log."""
    if isinstance(record.args, tuple):
        record.args = tuple(_bare(one) if "://" in str(one) else one for one in record.args)
    return True


def _bare(value: Any) -> str:
    try:
        return address(str(value)) if host(str(value)) else str(value)
    except ValueError:
        return "(an address)"
