"""HTTP to a server that may be hostile: what it sends, where it points, what it quotes; retries and their waits."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import traceback
from typing import Any

import pytest

from gnnrag.common.yaml_config import host
from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import Message, Reply, Request
from gnnrag.llm.openai import OpenAIBackend, OpenAIConfig, is_context_error, retry_after, shorten
from gnnrag.llm.servers import (
    MAX_BODY,
    RetryableError,
    Server,
    is_healthy,
    read_servers,
    take_apart,
    with_retries,
)
from tests.helpers.each import each
from tests.helpers.http_stub import Handler, StubServer, body_of, ok, status, stub
from tests.llm.test_openai import generate

ASK = Request((Message("user", "hello"),), max_tokens=9)
BLOCK = b" " * (1 << 20)


def ask(url: str, **settings: Any) -> Reply:
    """Ask once; raises what the backend raised."""
    defaults = {"model": "m", "backoff_s": 0.001, "max_retries": 0, "timeout_s": 20.0}
    (reply,) = generate(OpenAIBackend(OpenAIConfig(base_url=url, **{**defaults, **settings})), ASK)
    if isinstance(reply, BaseException):
        raise reply
    return reply


class Flood:
    """Sends blocks until the client has had enough, or `most` of them."""

    def __init__(self, code: int, most: int = 64) -> None:
        self.code, self.most, self.sent = code, most, 0

    def __call__(self, handler: Handler, body: dict[str, Any]) -> None:
        handler.send_response(self.code)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        handler.close_connection = True
        for _ in range(self.most):
            handler.wfile.write(BLOCK)
            self.sent += len(BLOCK)


@each("code", [200, 500])
def test_a_body_without_end_is_not_received(code: int) -> None:
    flood = Flood(code)
    with stub(flood) as server, pytest.raises(LLMError, match=rf"its body has more than {MAX_BODY:,} bytes"):
        ask(server.url)
    assert flood.sent < 2 * MAX_BODY + (8 << 20)  # what the sockets had taken in already


def test_a_packed_body_is_refused_and_none_is_asked_for() -> None:
    packed = gzip.compress(b" " * (20 << 20))
    bomb = lambda handler, body: handler.send(200, packed, Content_Encoding="gzip")  # noqa: E731
    with stub(bomb) as server:
        assert ask(server.url, max_retries=1).text == "fine"
        assert server.headers[0]["accept-encoding"] == "identity"
    with stub(bomb) as server, pytest.raises(LLMError, match=r"its body is packed \(gzip\), which was not asked for"):
        ask(server.url)


@each(
    "body",
    [
        b"[" * 200_000,
        b'{"choices": ' + b'{"a":' * 100_000,
        b'{"choices": [' + b"9" * 10_000 + b"]}",
        json.dumps({"error": "x"}).encode().replace(b'"x"', b"[" * 500 + b"]" * 500),
    ],
)
def test_what_no_parser_takes_is_retried(body: bytes) -> None:
    with stub(body_of(body)) as server:
        assert ask(server.url, max_retries=1).text == "fine"
    with stub(default=body_of(body)) as server, pytest.raises(LLMError, match="unreadable reply"):
        ask(server.url)


def test_a_count_beyond_all_measure_is_no_count() -> None:
    with stub(ok("four", usage=(10**4000, 7))) as server:
        reply = ask(server.url, price_in=1.0)
    assert reply.is_estimated and reply.prompt_tokens == 2 and reply.cost < 1


def test_a_query_goes_along_with_each_request() -> None:
    with stub() as server:
        ask(f"{server.url}?api-version=2024-02-01&tag=a&tag=b")
    assert server.paths == ["/v1/chat/completions?api-version=2024-02-01&tag=a&tag=b"]


def test_user_and_password_are_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    wanted = "Basic " + base64.b64encode(b"jane:s3cr3t/p@ss").decode()

    def quotes(handler: Handler, body: dict[str, Any]) -> None:
        sent = f"{handler.headers['Authorization']} {handler.path} s3cr3t/p@ss s3cr3t%2Fp%40ss tokenvalue9"
        status(400, sent)(handler, body)

    caplog.set_level(logging.DEBUG)
    with stub(default=quotes) as server:
        url = server.url.replace("//", "//jane:s3cr3t%2Fp%40ss@") + "?sig=tokenvalue9"
        with pytest.raises(LLMError, match="status 400") as caught:
            ask(url, api_key_env=None)
    assert server.headers[0]["authorization"] == wanted
    shown = str(caught.value) + "".join(traceback.format_exception(caught.value)) + caplog.text
    error: BaseException | None = caught.value
    while error is not None:
        shown += repr(error)
        error = error.__cause__ or error.__context__
    shown += repr(OpenAIConfig(base_url=url)) + repr(take_apart(url)) + repr(Server(url, key="k"))
    for secret in ("s3cr3t", "tokenvalue9", wanted.split()[1]):
        assert secret not in shown


@each("url", ["http://u:p/ss@h/v1", "ftp://u:pass@h", "http://u:pass@h:99999/v1", "http://"])
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"llm\.base_url=") as caught:
        OpenAIBackend(OpenAIConfig(base_url=url))
    assert "pass" not in str(caught.value).replace("in a password", "") and "u:p" not in str(caught.value)


@each("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_refusal(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret-123")
    with stub() as other:
        there = other.url.replace("127.0.0.1", "localhost")
        to_other = lambda handler, body: handler.send(code, b"{}", Location=f"{there}/chat/completions?sig=x")  # noqa: E731
        with stub(default=to_other) as server:
            with pytest.raises(LLMError, match=rf"status {code}: a redirect to localhost:\d+, which is not followed"):
                ask(server.url, api_key_env="SOME_KEY", max_retries=3)
            assert len(server.bodies) == 1
    assert other.bodies == [] and other.headers == []


class Health(Handler):
    """Answers GET as its server's `answer` says."""

    def do_GET(self) -> None:
        self.server.answer(self)  # type: ignore[attr-defined]


def health(server: StubServer, answer: Any, url: str = "") -> bool:
    server.RequestHandlerClass, server.answer = Health, answer  # type: ignore[attr-defined]
    return is_healthy(Server(url or server.url))


def test_health_follows_nobody_and_survives_other_protocols() -> None:
    with stub() as other, stub() as server:
        other.RequestHandlerClass, other.answer = Health, lambda h: h.send(200, b"")  # type: ignore[attr-defined]
        assert health(server, lambda h: h.send(200, b"fine"))
        assert not health(server, lambda h: h.send(302, b"", Location=other.url.replace("/v1", "/health")))
        assert not health(server, lambda h: h.wfile.write(b"\x00\x01 no HTTP at all\r\n\r\n"))
        seen: list[str] = []
        url = server.url.replace("//", "//me:pw@") + "?sig=abc"
        assert health(
            server, lambda h: (seen.append(f"{h.path} {h.headers['Authorization']}"), h.send(200, b""))[1] is None, url
        )
    assert seen == ["/health Basic " + base64.b64encode(b"me:pw").decode()]


def test_a_file_of_servers_holds_addresses_alone(tmp_path) -> None:
    path = tmp_path / "servers.txt"
    path.write_text("http://h:port/v1 job=1\n")
    with pytest.raises(LLMError, match=r"servers.txt, line 1: not of the form"):
        read_servers(path)


# ------------------------------------------------------------------------------------- retries and their waits
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
