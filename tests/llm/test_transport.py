from __future__ import annotations

import asyncio

import pytest

from gnnrag.common.credentials import host
from gnnrag.errors import LLMError
from gnnrag.llm.http import RetryableError, is_context_error, retry_after, shorten, with_retries
from tests.helpers.each import each


@each(
    "headers, seconds",
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_retry_after(headers, seconds) -> None:
    assert retry_after(headers, now=10.0) == seconds


def test_retries_wait_as_asked_and_return_the_last_error(caplog: pytest.LogCaptureFixture) -> None:
    """Each failure is told as it happens, in our words: an error may quote what was sent."""
    calls: list[int] = []

    async def call() -> str:
        calls.append(1)
        told.append(len(caplog.messages))
        raise RetryableError(LLMError(f"no {len(calls)}"), 0.0, reason="status 503", server="h:1")

    told: list[int] = []
    with pytest.raises(RetryableError) as caught:
        asyncio.run(with_retries(call, 3, 100.0))
    assert len(calls) == 3 and str(caught.value.error) == "no 3" and told == [0, 1, 2]
    assert caplog.messages == [
        "h:1: try 1 of 3 failed (status 503), the next in 0.0 s",
        "h:1: try 2 of 3 failed (status 503), the next in 0.0 s",
        "h:1: try 3 of 3 failed (status 503), given up",
    ]


def test_other_errors_are_not_repeated() -> None:
    calls: list[int] = []

    async def call() -> str:
        calls.append(1)
        raise LLMError("no")

    with pytest.raises(LLMError):
        asyncio.run(with_retries(call, 4, 0.0))
    assert len(calls) == 1


def test_texts() -> None:
    assert host("http://u:p@h:1/v1") == "h:1" and host("https://api.x.com/v1") == "api.x.com"
    assert shorten("a\n  key b", {"key"}) == "a *** b" and len(shorten("x" * 999)) == 300
    assert is_context_error(None, "Input is too long") and not is_context_error(None, "max_tokens is too large")
