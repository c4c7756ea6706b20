"""The client of an OpenAI-compatible server: requests, replies, retries, refusals, forms, concurrency, keys."""

from __future__ import annotations

import asyncio
import json

import pytest

from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import (
    ContentFilterError,
    ContextLengthError,
    Message,
    NoReplyError,
    RejectedError,
    Reply,
    Request,
    UnansweredError,
)
from gnnrag.llm.openai import OpenAI
from gnnrag.llm.providers import PROVIDERS
from gnnrag.parts import build
from tests.helpers.http_stub import Handler, StubServer, body_of, drip, drop, hang, ok, refuses_formats, status, stub

SCHEMA = {"type": "object", "properties": {"selected": {"type": "array"}}}
ASK = Request((Message("system", "be brief"), Message("user", "hello")), max_tokens=9, stop=("\n",), seed=5)
JSON = Request(ASK.messages, schema=SCHEMA)
PARTS = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def model(server: StubServer | str, **settings) -> OpenAI:
    url = server if isinstance(server, str) else server.url
    defaults = {"model": "m", "max_retries": 3, "timeout_s": 5.0, "api_key_env": None}
    return build("llm", {"name": "openai", "base_url": url, **defaults, **settings})


def generate(llm: OpenAI, *requests: Request) -> list[Reply | BaseException]:
    async def go():
        try:
            return await asyncio.gather(*(llm.generate(r) for r in requests), return_exceptions=True)
        finally:
            await llm.close()

    return asyncio.run(go())


def one(llm: OpenAI, request: Request = ASK) -> Reply:
    (reply,) = generate(llm, request)
    if isinstance(reply, BaseException):
        raise reply
    return reply


# -------------------------------------------------------------------------------------------- requests and replies
def test_request_and_reply_carry_everything() -> None:
    with stub(ok("hi", usage=(2_000_000, 500_000))) as server:
        llm = model(server, price_in=1.0, price_out=4.0, extra_body={"top_p": 0.5}, presence_penalty=1.5)
        reply = one(llm)
    assert reply == Reply("hi", "stop", 2_000_000, 500_000, cost=4.0, model="m")
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}],
            "max_tokens": 9,
            "temperature": 0.0,
            "presence_penalty": 1.5,
            "stop": ["\n"],
            "seed": 5,
            "top_p": 0.5,
        }
    ]


def test_request_settings_win_and_null_is_left_out() -> None:
    with stub() as server:
        llm = model(server, temperature=None, token_limit="max_completion_tokens")
        one(llm, Request((Message("user", "a"),), temperature=0.7))
        one(llm, Request((Message("user", "a"),)))
    first, second = server.bodies
    assert (first["temperature"], first["max_completion_tokens"]) == (0.7, 512)
    assert not {"temperature", "seed", "stop", "max_tokens", "response_format"} & second.keys()


def test_raw_continues_text_without_a_template() -> None:
    request = Request((Message("user", "User: q\n"), Message("assistant", "A: <think>")), raw=True)
    with stub(ok("and on")) as server:
        assert one(model(server), request).text == "and on"
    assert (server.paths, server.bodies[0]["prompt"]) == (["/v1/completions"], "User: q\nA: <think>")


@pytest.mark.parametrize("usage", [None, (10**4000, 7)])
def test_missing_usage_is_estimated_and_says_so(usage) -> None:
    with stub(ok("12345", usage=usage)) as server:
        reply = one(model(server, price_out=1e6))
    assert reply.is_estimated and reply.completion_tokens == 2 and reply.cost == 2.0
    assert reply.prompt_tokens == 4  # "be brief\nhello"


@pytest.mark.parametrize(
    "behaviour, text, finish",
    [
        (ok(None, finish="length"), "", "length"),
        (ok("cut", finish="content_filter"), "cut", "content_filter"),
        (ok(None, refusal="I cannot"), "I cannot", "content_filter"),
        (ok("x", finish=None), "x", "unknown"),
        (ok(PARTS), "ab", "stop"),
        (ok([{"type": "output_text", "text": "a"}, "b", {"text": {"value": "c"}}]), "abc", "stop"),
        (ok([{"type": "reasoning", "text": "no"}, {"type": "text", "text": "yes"}]), "yes", "stop"),
        (ok({"type": "text", "text": "alone"}), "alone", "stop"),
        (ok([{"type": "refusal", "refusal": "I cannot help"}]), "I cannot help", "stop"),
        (ok([]), "", "stop"),
        (ok([{"type": "text", "text": "no", "thought": True}, {"text": "yes"}]), "yes", "stop"),
        (ok("a", finish="end_turn"), "a", "stop"),
        (ok("a", finish="MAX_TOKENS"), "a", "length"),
        (ok("a", finish="insufficient_system_resource"), "a", "length"),
        (ok("", finish="content_filter: RECITATION"), "", "content_filter"),
        (ok("", finish="sensitive"), "", "content_filter"),
        (ok("half \ud83d"), "half ?", "stop"),
    ],
)
def test_contents_and_finish_reasons(behaviour, text: str, finish: str) -> None:
    with stub(behaviour) as server:
        reply = one(model(server))
    assert (reply.text, reply.finish_reason) == (text, finish)


# -------------------------------------------------------------------------------------- failures of the server
@pytest.mark.parametrize("failure", [*map(status, (408, 429, 500, 503)), drop, body_of(b'{"error": {"code": "429"}}')])
def test_passing_failures_are_retried(failure) -> None:
    with stub(failure, failure, ok("at last")) as server:
        assert one(model(server)).text == "at last"
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    "behaviour, settings, kind, message, tries",
    [
        (status(429, "quota", Retry_After="7200"), {}, LLMError, "429", 1),  # waiting for hours
        (status(429, "Please try again in 1h2m3.5s."), {}, LLMError, "429", 1),
        (status(500, "broken"), {"max_retries": 2}, LLMError, "status 500: broken", 3),
        (hang(1.0), {"timeout_s": 0.2, "max_retries": 0}, NoReplyError, "0.2 s", 1),
        (body_of(b"<html>a page</html>", "text/html"), {}, LLMError, "base_url", 1),
        (body_of(b'{"id": "x", "choi'), {}, LLMError, "unreadable", 1),
        (body_of(b'{"choices": []}'), {}, LLMError, "no choices", 1),
        (body_of(b'{"choices": [{"message": {"content": 5}, "finish_reason": "stop"}]}'), {}, LLMError, "int", 1),
        (status(401), {}, LLMError, "401", 1),
        (status(403), {}, LLMError, "403", 1),
        (status(404, "no such model"), {}, LLMError, "404", 1),
        (status(400, "API key not valid"), {}, LLMError, "400", 1),
        (status(400, "Your credit balance is too low to access the API"), {}, LLMError, "credit", 1),
        (status(400, "Access denied, make sure your account is in good standing", "Arrearage"), {}, LLMError, "400", 1),
        (status(400, "User location is not supported for the API use."), {}, LLMError, "location", 1),
        (status(400, "This organization has been disabled for its safety violations."), {}, LLMError, "disabled", 1),
        (status(400, "You have reached your specified API usage limits."), {}, LLMError, "limits", 1),
        (status(400, "Too many tokens, please wait before trying again."), {}, LLMError, "wait", 1),
        (body_of(b'{"error": {"code": 502, "message": "upstream"}}'), {"max_retries": 1}, LLMError, "502: upstream", 2),
        (body_of(b'{"error": {"code": "401", "message": "denied"}}'), {}, LLMError, "401: denied", 1),
        (body_of(b'{"error": {"code": "rate_limit_exceeded"}}'), {"max_retries": 1}, LLMError, "rate_limit", 2),
        (body_of(b'{"error": "internal error"}'), {"max_retries": 1}, LLMError, "internal error", 2),
        (status(400, "The model `m` has been decommissioned", "model_decommissioned"), {}, LLMError, "llm.model", 1),
        (status(429, "You exceeded your quota", "insufficient_quota"), {}, LLMError, "llm.concurrency", 1),
        (status(501, "not implemented"), {}, LLMError, "501", 1),
    ],
)
def test_failures_of_the_server_are_everybodys(behaviour, settings, kind, message: str, tries: int) -> None:
    with stub(default=behaviour) as server, pytest.raises(kind) as caught:
        one(model(server, **settings))
    assert message in str(caught.value) and not isinstance(caught.value, RejectedError)
    assert len(server.bodies) == tries


@pytest.mark.parametrize(
    "behaviour, is_unclear",
    [
        (status(403), True),
        (status(500, "disallowed special token"), True),
        (status(524, "a timeout occurred"), True),
        (body_of(b'{"choices": [{"message": null, "finish_reason": "content_filter"}]}'), True),
        (drop, True),
        (status(401), False),
        (status(403, "Your account has been disabled"), False),
        (status(429, "slow down"), False),
    ],
)
def test_whose_a_failure_is_may_be_unclear(behaviour, is_unclear) -> None:
    with stub(default=behaviour) as server:
        (error,) = generate(model(server, max_retries=0), ASK)
    assert isinstance(error, UnansweredError) is is_unclear


def test_a_time_out_is_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends a byte now and then never hits the client's time-out, which is per read."""
    monkeypatch.setattr("gnnrag.llm.openai._LONGEST_WAIT_S", 0.0)
    with stub(default=drip) as server, pytest.raises(NoReplyError):
        one(model(server, timeout_s=0.3, max_retries=0))


@pytest.mark.parametrize("code", [301, 307])
def test_a_redirect_is_not_followed(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret-123")
    with stub() as other:

        def to_other(handler: Handler, body: object) -> None:
            handler.send(code, b"{}", Location=f"{other.url}/chat/completions")

        with stub(default=to_other) as server, pytest.raises(LLMError, match=str(code)):
            one(model(server, api_key_env="SOME_KEY"))
    assert not other.bodies


# ------------------------------------------------------------------------------------- refusals of one request
@pytest.mark.parametrize(
    "behaviour, kind",
    [
        (status(400, "This model's maximum context length is 1024 tokens. You requested 9000"), ContextLengthError),
        (status(400, "bad", "context_length_exceeded"), ContextLengthError),
        (status(422, "the request exceeds the available context size"), ContextLengthError),
        (status(400, "The prompt was filtered", "content_filter"), ContentFilterError),
        (status(403, 'Your input was flagged for "violence". No credits were charged.'), ContentFilterError),
        (status(429, "Request too large for m: Limit 30000, Requested 45000."), ContextLengthError),
        (body_of(b'{"error": {"code": 403, "message": "flagged"}}'), ContentFilterError),
        (body_of(b'{"error": {"code": "context_length_exceeded", "message": "bad"}}'), ContextLengthError),
        (body_of(b'{"object": "chat.completion", "choices": [], "usage": {"prompt_tokens": 4}}'), ContentFilterError),
        (status(400, "The input token count (9) exceeds the maximum number of tokens allowed (8)"), ContextLengthError),
        (status(400, "Range of input length should be [1, 30720]"), ContextLengthError),
        (status(422, "`inputs` tokens + `max_new_tokens` must be <= 4097"), ContextLengthError),
        (
            status(413, "Request body too large for m. Max size: 8000 tokens", "tokens_limit_reached"),
            ContextLengthError,
        ),
        (status(500, "the request exceeds the available context size, try increasing it"), ContextLengthError),
        (status(400, "Input data may contain inappropriate content.", "data_inspection_failed"), ContentFilterError),
        (status(400, "Content Exists Risk"), ContentFilterError),
        (status(403, "Content violates usage guidelines. Failed check: SAFETY_CHECK"), ContentFilterError),
        (status(400, "系统检测到输入内容可能包含不安全或敏感内容", "1301"), ContentFilterError),
        (status(500, "Output blocked by content filtering policy"), ContentFilterError),
        (status(422, "Input should be shorter: 'the quarterly " + "x" * 300 + " balance of credit'"), RejectedError),
        (status(400, "The model got messages[1].content that is invalid"), RejectedError),
        (status(413, "too large"), ContextLengthError),
        (status(422, "no"), RejectedError),
    ],
)
def test_a_refused_request_is_its_own_failure_and_not_sent_again(behaviour, kind) -> None:
    with stub(default=behaviour) as server:
        (error,) = generate(model(server), ASK)
    assert type(error) is kind and "m at 127.0.0.1" in str(error)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "said, setting",
    [("maxOutputTokens is 9000", "llm.token_limit"), ("enable_thinking must be false for this call", "llm.extra_body")],
)
def test_a_refusal_names_the_setting_that_helps(said: str, setting: str) -> None:
    with stub(default=status(400, said)) as server, pytest.raises(RejectedError, match=setting):
        one(model(server))


def test_no_message_shows_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret-123")
    with stub(default=status(401, "Wrong key sk-secret-123. " + "x" * 900)) as server:
        llm = model(server, api_key_env="SOME_KEY")
        (error,) = generate(llm, ASK)
    assert "Wrong key ***" in str(error) and "secret" not in str(error) and len(str(error)) <= 400
    assert server.headers[0]["authorization"] == "Bearer sk-secret-123"
    assert "secret" not in repr(llm) + repr(vars(llm)) + json.dumps(dict(llm.identity))


# ------------------------------------------------------------------------------------- forms that a server takes
def formats(server: StubServer) -> list[str | None]:
    return [b.get("response_format", {}).get("type") for b in server.bodies]


@pytest.mark.parametrize(
    "refused, expected",
    [
        ((), ["json_schema", "json_schema"]),
        (("json_schema",), ["json_schema", "json_object", "json_object"]),
        (("json_schema", "json_object"), ["json_schema", "json_object", None, None]),
    ],
)
def test_a_weaker_response_format_is_tried_and_remembered(refused, expected) -> None:
    with stub(default=refuses_formats(*refused)) as server:
        llm = model(server)
        assert [one(llm, JSON).text for _ in range(2)] == ["{}", "{}"]
    assert formats(server) == expected


def test_a_400_about_something_else_is_not_remembered() -> None:
    with stub(*[status(400, "bad stop")] * 3) as server:
        llm = model(server)
        with pytest.raises(RejectedError, match="bad stop"):
            one(llm, JSON)
        one(llm, JSON)
    assert formats(server) == ["json_schema", "json_object", None, "json_schema"]


@pytest.mark.parametrize("structured, expected", [("json_schema", ["json_schema"]), ("off", [None])])
def test_a_fixed_format_does_not_fall_back(structured: str, expected: list[str | None]) -> None:
    with stub(default=refuses_formats("json_schema", "json_object")) as server:
        generate(model(server, structured=structured), JSON)
    assert formats(server) == expected


def newer_model(handler: Handler, body: dict) -> None:
    """Answer as gpt-5 and its like do."""
    if "max_tokens" in body:
        message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
        status(400, message, "unsupported_parameter")(handler, body)
    elif "temperature" in body:
        status(400, "Unsupported value: 'temperature' does not support 0.0", "unsupported_value")(handler, body)
    else:
        ok("fine")(handler, body)


def without_system(handler: Handler, body: dict) -> None:
    """Answer as a server of Gemma does, and refuse stop strings as grok-4 does."""
    if any(message["role"] == "system" for message in body["messages"]):
        status(400, "System role not supported")(handler, body)
    elif "stop" in body:
        status(400, "Argument not supported on this model: stop")(handler, body)
    else:
        assert body["messages"] == [{"role": "user", "content": "be brief\n\nhello"}]
        ok("fine")(handler, body)


def older_server(handler: Handler, body: dict) -> None:
    refused = next((name for name in ("max_completion_tokens", "seed") if name in body), None)
    (status(422, f"Extra inputs are not permitted: {refused}") if refused else ok("fine"))(handler, body)


@pytest.mark.parametrize(
    "behaviour, settings, sent, left_out",
    [
        (newer_model, {}, {"max_completion_tokens"}, {"max_tokens", "temperature"}),
        (without_system, {}, {"messages"}, {"stop"}),
        (older_server, {"token_limit": "max_completion_tokens"}, {"max_tokens"}, {"max_completion_tokens", "seed"}),
    ],
)
def test_refused_parameters_are_sent_otherwise_and_remembered(behaviour, settings, sent, left_out, caplog) -> None:
    with stub(default=behaviour) as server:
        llm = model(server, **settings)
        assert [one(llm).text for _ in range(2)] == ["fine", "fine"]
    assert len(server.bodies) == 4, "three for the first call, one for the second"
    assert sent <= server.bodies[-1].keys() and not left_out & server.bodies[-1].keys()
    assert sum("from now on" in message for message in caplog.messages) == 1


def test_a_server_that_takes_neither_limit_is_not_asked_for_ever() -> None:
    both = status(400, "max_tokens and max_completion_tokens are not supported")
    with stub(default=both) as server, pytest.raises(RejectedError):
        one(model(server))
    assert len(server.bodies) == 2


# --------------------------------------------------------------------------------------- concurrency and servers
def test_concurrency_is_bounded_and_no_slot_is_lost() -> None:
    failing = [status(401), status(500), drop, body_of(b"?"), hang(0.5)] * 3
    with stub(*failing, delay=0.03) as server:
        llm = model(server, concurrency=3, max_retries=0, timeout_s=0.3)

        async def go():
            early = [asyncio.create_task(llm.generate(ASK)) for _ in range(6)]
            await asyncio.sleep(0.01)
            for task in early:  # cancelled calls must give their slots back, too
                task.cancel()
            await asyncio.gather(*early, *(llm.generate(ASK) for _ in range(20)), return_exceptions=True)
            while server.current:  # what the client gave up, the server may still be busy with
                await asyncio.sleep(0.01)
            server.peak = 0
            later = await asyncio.wait_for(asyncio.gather(*(llm.generate(ASK) for _ in range(12))), 5)
            await llm.close()
            return later

        assert [r.text for r in asyncio.run(go())] == ["fine"] * 12
    assert server.peak == 3


def test_a_dead_server_is_found_again() -> None:
    with stub() as server:
        url = server.url
    llm = model(url, max_retries=0)
    assert all("connection failed" in str(failure) for failure in generate(llm, ASK, ASK))
    with stub() as server:
        llm.base_url = server.url
        assert one(llm).text == "fine"


def test_one_client_serves_several_event_loops() -> None:
    with stub() as server:
        llm = model(server, concurrency=1)

        async def three():
            return await asyncio.gather(*(llm.generate(ASK) for _ in range(3)))

        for _ in range(3):  # without close(): loops that ended are forgotten
            assert [r.text for r in asyncio.run(asyncio.wait_for(three(), 5))] == ["fine"] * 3
        assert len(llm._loops) == 1


# ------------------------------------------------------------------------------------------- settings and providers
@pytest.mark.parametrize(
    "settings, name",
    [
        ({"base_url": "localhost:8000"}, "llm.base_url"),
        ({"base_url": "http://u:pass@h/v1"}, "llm.base_url"),
        ({"base_url": "http://h/v1?key=x"}, "llm.base_url"),
        ({"base_url": ""}, "llm.base_url"),
    ],
)
def test_bad_settings_are_named(settings, name: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        build("llm", {"name": "openai", "model": "m", "base_url": "http://h/v1", **settings})
    assert "pass@" not in str(caught.value)


@pytest.mark.parametrize("name", PROVIDERS)
def test_providers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = PROVIDERS[name]
    address = {} if known.base_url else {"base_url": "https://mine.example/openai/v1"}
    if known.api_key_env and known.base_url:
        monkeypatch.delenv(known.api_key_env, raising=False)
        with pytest.raises(ConfigError, match=known.api_key_env):
            build("llm", {"name": name, "model": "m"})
        monkeypatch.setenv(known.api_key_env, "k")
    llm = build("llm", {"name": name, "model": "m", **address})
    assert llm.base_url == (known.base_url or address["base_url"]) and llm.api_key_env == known.api_key_env
    body = llm._body(JSON, llm._form)
    assert known.token_limit in body and "seed" not in body
    assert ("response_format" in body) == (known.structured != "off")
