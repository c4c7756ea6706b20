"""How a model server is spoken to: its address taken apart, no redirects, replies of bounded size, secrets hidden."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from gnnrag.credentials import address, host
from gnnrag.errors import ConfigError
from gnnrag.llm.transport import import_openai

if TYPE_CHECKING:
    import openai

MAX_BODY = 8 << 20  # bytes of a reply: 60 for each of 130,000 tokens
_SHORT_SECRET, _SHORT_VALUE = 4, 8  # characters below which hiding would only make a message unreadable
_LOGGERS = ("httpx", "httpx2", "openai._base_client")  # they write addresses as they were called


class BodyError(ValueError):
    """What a server sent is not received any further."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a server.

    Attributes:
        base: without user, password and query.
        query: what goes with every request, such as `api-version`.
        basic: the Authorization header that user and password make; empty without them.
        secrets: what no message may show, in every spelling that a server could quote it in.
    """

    base: str
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    basic: str = field(default="", repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


def take_apart(url: str, name: str = "llm.base_url") -> Address:
    """Return the parts of an address.

    Args:
        url: of a server; may hold user, password and query.
        name: of the setting, for the message.

    Raises:
        ConfigError: it is no address of a server; the message shows no credentials.
    """
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
    """Return a client of a server.

    Args:
        at: its address.
        key: what it is called with, in place of user and password.
        timeout_s: of one request.
    """
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
