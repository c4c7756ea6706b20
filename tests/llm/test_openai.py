"""The client of an OpenAI-compatible server: requests, replies, retries, formats, concurrency, secrets."""

from __future__ import annotations

import asyncio
import json

import pytest

from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm import servers
from gnnrag.llm.base import ContextLengthError, Message, Reply, Request
from gnnrag.llm.openai import OpenAIBackend, OpenAIConfig
from tests.helpers.each import each
from tests.helpers.http_stub import StubServer, body_of, drip, drop, hang, ok, refuses_formats, status, stub

SCHEMA = {"type": "object", "properties": {"selected": {"type": "array"}}}
ASK = Request((Message("system", "be brief"), Message("user", "hello")), max_tokens=9, stop=("\n",), seed=5)


def backend(server: StubServer | str, **settings) -> OpenAIBackend:
    url = server if isinstance(server, str) else server.url
    defaults = {"model": "m", "backoff_s": 0.01, "max_retries": 3, "timeout_s": 5.0}
    return OpenAIBackend(OpenAIConfig(base_url=url, **{**defaults, **settings}))


def generate(llm: OpenAIBackend, *requests: Request) -> list[Reply | BaseException]:
    async def go():
        try:
            return await asyncio.gather(*(llm.generate(r) for r in requests), return_exceptions=True)
        finally:
            await llm.close()

    return asyncio.run(go())


def one(llm: OpenAIBackend, request: Request = ASK) -> Reply:
    (reply,) = generate(llm, request)
    if isinstance(reply, BaseException):
        raise reply
    return reply


def test_request_and_reply_carry_everything() -> None:
    with stub(ok("hi", usage=(2_000_000, 500_000))) as server:
        llm = backend(server, price_in=1.0, price_out=4.0, extra_body={"top_p": 0.5})
        reply = one(llm)
    assert reply == Reply("hi", "stop", 2_000_000, 500_000, cost=4.0, model="m")
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
            "max_tokens": 9,
            "temperature": 0.0,
            "stop": ["\n"],
            "seed": 5,
            "top_p": 0.5,
        }
    ]


def test_a_presence_penalty_is_sent_and_told_apart_only_where_there_is_one() -> None:
    with stub() as server:
        plain, other = backend(server), backend(server, presence_penalty=1.5)
        one(plain)
        one(other)
    assert "presence_penalty" not in server.bodies[0] and "presence_penalty" not in plain.identity
    assert server.bodies[1]["presence_penalty"] == 1.5 == other.identity["presence_penalty"]


def test_request_settings_win_over_the_backends_and_null_is_left_out() -> None:
    with stub() as server:
        llm = backend(server, temperature=None, token_limit="max_completion_tokens")
        one(llm, Request((Message("user", "a"),), temperature=0.7, model="other"))
        one(llm, Request((Message("user", "a"),)))
    first, second = server.bodies
    assert (first["temperature"], first["model"], first["max_completion_tokens"]) == (0.7, "other", 512)
    assert not {"temperature", "seed", "stop", "max_tokens", "response_format"} & second.keys()


def test_raw_continues_text_without_a_template() -> None:
    with stub(ok("and on")) as server:
        reply = one(
            backend(server), Request((Message("user", "User: q\n"), Message("assistant", "A: <think>")), raw=True)
        )
    assert (reply.text, server.paths, server.bodies[0]["prompt"]) == (
        "and on",
        ["/v1/completions"],
        "User: q\nA: <think>",
    )


def test_missing_usage_is_estimated_and_says_so() -> None:
    with stub(ok("12345", usage=None)) as server:
        reply = one(backend(server, price_out=1e6))
    assert reply.is_estimated and reply.completion_tokens == 2 and reply.cost == 2.0
    assert reply.prompt_tokens == 4  # "be brief\nhello"


@each(
    "behaviour, text, finish",
    [
        (ok(None, finish="length"), "", "length"),
        (ok("cut", finish="content_filter"), "cut", "content_filter"),
        (ok(None, refusal="I cannot"), "", "content_filter"),
        (ok("x", finish=None), "x", "unknown"),
    ],
)
def test_finish_reasons(behaviour, text: str, finish: str) -> None:
    with stub(behaviour) as server:
        reply = one(backend(server))
    assert (reply.text, reply.finish_reason) == (text, finish)


@pytest.mark.slow
@each(
    "failure",
    [
        status(500),
        status(503, Retry_After="0.01"),
        status(429),
        status(408),
        body_of(b"<html>bad gateway</html>", "text/html"),
        body_of(b'{"id": "x", "choi'),
        body_of(b'{"error": {"message": "overloaded"}}'),
        body_of(b'{"choices": []}'),
        body_of(b'{"choices": [{"message": {"content": ["a"]}, "finish_reason": "stop"}]}'),
        body_of(b"\xff\xfe\x00"),
        drop,
    ],
)
def test_passing_failures_are_retried(failure) -> None:
    with stub(failure, failure, ok("at last")) as server:
        assert one(backend(server)).text == "at last"
    assert len(server.bodies) == 3


def test_retry_after_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep
    monkeypatch.setattr(servers.asyncio, "sleep", lambda seconds: waits.append(seconds) or sleep(0))
    with stub(status(429, Retry_After="17")) as server:
        assert one(backend(server, backoff_s=0.0001)).text == "fine"
    assert waits == [17.0]


@each(
    "behaviour, settings, message, tries",
    [
        (status(429, "quota", Retry_After="7200"), {}, r"429.*7200", 1),  # waiting for hours
        (status(429, "pay", "insufficient_quota"), {}, "pay", 1),
        (status(500, "broken"), {"max_retries": 2}, r"m at 127\.0\.0\.1:\d+: status 500: broken", 3),
        (hang(1.0), {"timeout_s": 0.2, "max_retries": 0}, r"no reply within 0\.2 s", 1),
        (drip, {"timeout_s": 0.2, "max_retries": 0}, r"no reply within 0\.2 s", 1),
    ],
)
def test_retries_end_or_are_not_begun(behaviour, settings, message, tries) -> None:
    with stub(default=behaviour) as server, pytest.raises(LLMError, match=message):
        one(backend(server, **settings))
    assert len(server.bodies) == tries


@each("behaviour", [hang(2.0), drip])
def test_timeouts_are_total_and_retried(behaviour) -> None:
    with stub(behaviour) as server:
        assert one(backend(server, timeout_s=0.4)).text == "fine"
    assert len(server.bodies) == 2


@each("code", [400, 401, 403, 404, 422])
def test_refusals_raise_at_once_and_never_show_the_key(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret-123")
    refusal = status(code, "Wrong key sk-secret-123. " + "x" * 900)
    with stub(default=refusal) as server, pytest.raises(LLMError) as caught:
        one(backend(server.url.replace("//", "//user:pw@"), api_key_env="SOME_KEY"))
    message = str(caught.value)
    assert f"m at 127.0.0.1:{server.server_address[1]}: status {code}: Wrong key ***" in message
    assert "secret" not in message and "pw" not in message and len(message) < 400
    assert len(server.bodies) == 1


def test_the_key_goes_to_the_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret-123")
    with stub() as server:
        llm = backend(server, api_key_env="SOME_KEY")
        assert "secret" not in repr(one(llm)) + repr(llm.config)
        one(backend(server, api_key_env=None))
    assert [h["authorization"] for h in server.headers] == ["Bearer sk-secret-123", "Bearer none"]


def test_identity_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123")
    llm = backend("http://user:pw@host:8000/v1")
    assert llm.identity["base_url"] == "http://host:8000/v1"
    assert backend("http://me:pw@h/v1?key=SEKRET").identity["base_url"] == "http://h/v1"
    assert "secret" not in repr(vars(llm)) and "secret" not in json.dumps(llm.identity)


@each(
    "message, code",
    [
        ("This model's maximum context length is 1024 tokens. However, you requested 9000", None),
        ("prompt is too long: 9 > 8", None),
        ("bad", "context_length_exceeded"),
        ("the request exceeds the available context size", None),
    ],
)
def test_context_errors_have_their_own_name(message: str, code: str | None) -> None:
    with stub(default=status(400, message, code)) as server, pytest.raises(ContextLengthError, match="context"):
        one(backend(server), Request(ASK.messages, schema=SCHEMA))
    assert len(server.bodies) == 1  # no other response format was tried


def formats(server: StubServer) -> list[str | None]:
    return [b.get("response_format", {}).get("type") for b in server.bodies]


@each(
    "refused, expected",
    [
        ((), ["json_schema", "json_schema"]),
        (("json_schema",), ["json_schema", "json_object", "json_object"]),
        (("json_schema", "json_object"), ["json_schema", "json_object", None, None]),
    ],
)
def test_schema_falls_back_and_is_remembered(refused, expected) -> None:
    with stub(default=refuses_formats(*refused)) as server:
        llm = backend(server)
        for _ in range(2):
            assert one(llm, Request(ASK.messages, schema=SCHEMA)).text == "{}"
    assert formats(server) == expected


def test_a_400_about_something_else_is_not_remembered() -> None:
    with stub(*[status(400, "bad stop")] * 3) as server:
        llm = backend(server)
        with pytest.raises(LLMError, match="bad stop"):
            one(llm, Request(ASK.messages, schema=SCHEMA))
        one(llm, Request(ASK.messages, schema=SCHEMA))
    assert formats(server) == ["json_schema", "json_object", None, "json_schema"]


def test_a_fixed_format_does_not_fall_back() -> None:
    with stub(default=refuses_formats("json_schema")) as server, pytest.raises(LLMError, match="response_format"):
        one(backend(server, structured="json_schema"), Request(ASK.messages, schema=SCHEMA))
    with stub() as server:
        one(backend(server, structured="off"), Request(ASK.messages, schema=SCHEMA))
    assert formats(server) == [None]


def test_concurrency_is_bounded_and_no_slot_is_lost() -> None:
    failing = [status(401), status(500), drop, body_of(b"?"), hang(0.5)] * 4
    with stub(*failing, delay=0.03) as server:
        llm = backend(server, concurrency=3, max_retries=0, timeout_s=0.3)

        async def go():
            # Cancelled calls must give their slots back, too.
            early = [asyncio.create_task(llm.generate(ASK)) for _ in range(6)]
            await asyncio.sleep(0.01)
            for task in early:
                task.cancel()
            first = await asyncio.gather(*early, *(llm.generate(ASK) for _ in range(20)), return_exceptions=True)
            while server.current:  # what the client gave up, the server may still be busy with
                await asyncio.sleep(0.01)
            server.peak = 0
            later = await asyncio.wait_for(asyncio.gather(*(llm.generate(ASK) for _ in range(12))), 5)
            await llm.close()
            return first, later

        first, later = asyncio.run(go())
    assert all(isinstance(r, (LLMError, asyncio.CancelledError, Reply)) for r in first)
    assert [r.text for r in later] == ["fine"] * 12
    assert server.peak == 3


class Counting(OpenAIBackend):
    """Counts its HTTP attempts, those included that reach no server."""

    attempts = 0

    async def _attempt(self, *args) -> Reply:
        self.attempts += 1
        return await super()._attempt(*args)


def test_a_dead_server_is_given_up_quickly_and_found_again() -> None:
    with stub() as server:
        settings = OpenAIConfig(model="m", base_url=server.url, max_retries=3, backoff_s=0.05, concurrency=2)
        llm = Counting(settings)
        assert one(llm).text == "fine"
    failures = generate(llm, *[ASK] * 20)
    assert all(isinstance(f, LLMError) and "connection failed" in str(f) for f in failures)
    assert 1 + 4 + 18 <= llm.attempts <= 1 + 2 * 4 + 18, "only the first two calls came back for more"
    with stub(status(500)) as again:
        llm.config.base_url = again.url
        with pytest.raises(LLMError):
            one(llm)  # known to be dead: one attempt only
        assert one(llm).text == "fine"


def test_one_backend_serves_several_event_loops() -> None:
    with stub() as server:
        llm = backend(server, concurrency=1)
        for _ in range(3):  # without close(): loops that ended are forgotten
            replies = asyncio.run(asyncio.wait_for(_three(llm), 5))
            assert [r.text for r in replies] == ["fine"] * 3
        assert len(llm._clients._loops) == 1


async def _three(llm: OpenAIBackend) -> list[Reply]:
    return await asyncio.gather(*(llm.generate(ASK) for _ in range(3)))


@each(
    "settings, message",
    [
        ({"concurrency": 0}, "concurrency"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"base_url": "localhost:8000"}, "base_url='localhost:8000'"),
        ({"base_url": "https://api.openai.com/v1", "api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY"),
    ],
)
def test_bad_settings(settings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OpenAIBackend(OpenAIConfig(**{"base_url": "http://h/v1", **settings}))
