"""Failures of an HTTP language-model server: which to retry, how long to wait, and how to tell the user."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from gnnrag.errors import LLMError

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
    """A failure that may pass.

    Attributes:
        error: what to raise when it does not.
        wait_s: how long the server asks to wait.
        is_connection: the server could not be reached at all.
        reason: why, for the log: in our words, as a server may quote what it was sent.
        server: host and port.
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

    Waits as long as the server asks, else a random time below `backoff_s` * 2^n (at most 30 s): a crowd of callers
    that failed together must not come back together.

    Raises:
        LLMError: of the last attempt, or of one that is not worth repeating.
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
