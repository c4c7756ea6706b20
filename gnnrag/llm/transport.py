"""Failures of an HTTP language-model server: which to retry, how long to wait, and how to tell the user."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from gnnrag.errors import LLMError

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
    """

    error: LLMError
    wait_s: float | None = None
    is_connection: bool = False


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
    """Await `call()` until it does not raise RetryableError, `attempts` times at most.

    Waits as long as the server asks, else a random time below `backoff_s` * 2^n (at most 30 s): a crowd of callers
    that failed together must not come back together.

    Raises:
        LLMError: of the last attempt, or of one that is not worth repeating.
    """
    from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
    from tenacity.wait import wait_random_exponential

    backoff = wait_random_exponential(multiplier=backoff_s, max=30.0)

    def wait(state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        asked = failure.wait_s if isinstance(failure, RetryableError) else None
        return backoff(state) if asked is None else asked

    async def attempt() -> T:  # tenacity awaits only what it can see to be a coroutine function
        return await call()

    retrying = AsyncRetrying(
        stop=stop_after_attempt(attempts), wait=wait, retry=retry_if_exception_type(RetryableError), reraise=True
    )
    return await retrying(attempt)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that `Retry-After` (seconds or a date) or `retry-after-ms` asks for."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(value or "").timestamp() - (time.time() if now is None else now))
    except ValueError:
        return None


def is_context_error(code: object, message: str) -> bool:
    """Tell whether a 400 says that the prompt is too long."""
    return code == "context_length_exceeded" or bool(_CONTEXT.search(message))


def shorten(text: str, secret: str | None = None, limit: int = 300) -> str:
    """Return a server's message on one line, cut, and without the key should the server have quoted it."""
    text = " ".join(text.split())
    if secret:
        text = text.replace(secret, "***")
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if number == number else None
