"""Ask any server that speaks the OpenAI chat protocol: retries, schemas, prices, strict reading of replies."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urljoin

from gnnrag.common.waiting import waiting
from gnnrag.common.yaml_config import address, host, shown
from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import (
    MOST_TOKENS,
    Backend,
    ContextLengthError,
    NoReplyError,
    Reply,
    Request,
    Variant,
    estimate_tokens,
    shaping,
    wants_small,
)
from gnnrag.llm.servers import (
    MAX_WAIT_S,
    Clients,
    RefusedError,
    Replicas,
    RetryableError,
    Server,
    import_openai,
    spellings,
    take_apart,
    with_retries,
)

if TYPE_CHECKING:
    import openai


_LONGEST_NAME = 200


def request_body(request: Request, defaults: Mapping[str, Any], token_limit: str, level: str) -> dict[str, Any]:
    """Return the arguments of a (chat) completion call.

    `defaults` (`model`, `temperature`, `seed`) fill what the request leaves open; null ones are left out. `token_limit`
    names the field that limits the reply; `level` is how the schema is sent: `json_schema`, `json_object` or `off`.
    """
    own = {"model": request.model, "temperature": request.temperature, "seed": request.seed, "presence_penalty": None}
    sampling = {k: own[k] if own[k] is not None else defaults.get(k) for k in own}
    body = {k: v for k, v in sampling.items() if v is not None}
    if request.stop:
        body["stop"] = list(request.stop)
    if request.raw:
        return body | {"prompt": request.text, "max_tokens": request.max_tokens}
    body |= {"messages": [{"role": m.role, "content": m.content} for m in request.messages]}
    body[token_limit] = request.max_tokens
    if level == "json_schema":
        schema = {"name": "reply", "strict": True, "schema": dict(request.schema or {})}
        body["response_format"] = {"type": level, "json_schema": schema}
    elif level == "json_object":
        body["response_format"] = {"type": level}
    return body


def read_reply(answer: Any, request: Request, model: str, price_in: float, price_out: float) -> Reply:
    """Turn a completion object into a Reply; missing usage is estimated; ValueError: no reply in it (an error page)."""
    try:
        choice = answer.choices[0]
        text = choice.text if request.raw else choice.message.content
        # A model that declines sends its excuse in a field of its own; that is no answer in any format.
        refused = not request.raw and bool(getattr(choice.message, "refusal", None))
        finish = "content_filter" if refused else str(choice.finish_reason or "unknown")
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no choices in {_excerpt(answer)}") from error
    if text is not None and not isinstance(text, str):
        raise ValueError(f"content is {type(text).__name__}, not text")
    prompt_tokens, completion_tokens = _usage(answer)
    is_estimated = prompt_tokens is None or completion_tokens is None
    prompt_tokens = estimate_tokens(request.text) if prompt_tokens is None else prompt_tokens
    completion_tokens = estimate_tokens(text or "") if completion_tokens is None else completion_tokens
    return Reply(
        text=text or "",
        finish_reason=finish[:_LONGEST_NAME],
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost=(prompt_tokens * price_in + completion_tokens * price_out) / 1e6,
        model=str(getattr(answer, "model", None) or model)[:_LONGEST_NAME],
        is_estimated=is_estimated,
    )


def error_details(body: object) -> tuple[object, str]:
    """Return code and message of an error body; servers nest them in different ways."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(inner, Mapping):
        message = inner.get("message") or inner.get("detail") or json.dumps(dict(inner), default=str)
        return inner.get("code"), str(message)
    return None, str(inner or "")


def _usage(answer: Any) -> tuple[int | None, int | None]:
    usage = getattr(answer, "usage", None)
    counts = (getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None))
    first, second = (n if isinstance(n, int) and 0 <= n < MOST_TOKENS else None for n in counts)
    return first, second


def _excerpt(answer: Any) -> str:
    text = " ".join(str(answer).split())
    return repr(text if len(text) <= 200 else f"{text[:197]}...")


# US dollars per million tokens of prompt and reply, undiscounted, as OpenAI listed them in mid 2025. Prices change:
# check them before a large run. A model that is not here costs nothing until llm.price_in and llm.price_out say more.
PRICES = {
    "api.openai.com": {
        "gpt-3.5-turbo": (0.50, 1.50),
        "gpt-4o": (2.50, 10.00),
        "gpt-4o-mini": (0.15, 0.60),
        "gpt-4.1": (2.00, 8.00),
        "gpt-4.1-mini": (0.40, 1.60),
        "gpt-4.1-nano": (0.10, 0.40),
    }
}
_DATED = re.compile(r"-\d{4}-\d\d-\d\d$")  # a snapshot costs what its model costs


def prices_of(settings: Any) -> tuple[float, float]:
    """Return the prices of a backend's model, per million tokens of prompt and of reply; zeros where none is known."""
    url = "" if getattr(settings, "server_file", None) else getattr(settings, "base_url", "")
    known = PRICES.get(host(url), {})
    listed = known.get(_DATED.sub("", getattr(settings, "model", "")), (0.0, 0.0))
    own = (getattr(settings, "price_in", None), getattr(settings, "price_out", None))
    first, second = (price if said is None else said for said, price in zip(own, listed, strict=True))
    return first, second


# Strictest first; a server that refuses one is offered the next.
_LEVELS = ("json_schema", "json_object", "off")


@dataclass
class OpenAIConfig:
    """Which server, which model, and how to treat them."""

    model: str = "gpt-4o-mini"
    base_url: str = field(default="https://api.openai.com/v1", repr=False)  # user, password and query are sent along
    server_file: str | None = None  # file with the addresses of servers, instead of base_url: see gnnrag.llm.servers
    server_wait_s: float = 1800.0  # how long to wait until one of them answers
    api_key_env: str | None = "OPENAI_API_KEY"  # variable that holds the key; null for servers without one
    temperature: float | None = 0.0  # null leaves it out, for models that refuse it
    seed: int | None = None
    presence_penalty: float = 0.0  # taken from the score of each token that the reply has already
    timeout_s: float = 120.0  # for one attempt, connecting included
    max_retries: int = 5
    backoff_s: float = 0.5  # doubles with every retry
    concurrency: int = 8  # requests in flight, retries included
    structured: Literal["auto", "json_schema", "json_object", "off"] = "auto"
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"  # the latter for reasoning models
    prompts: Variant = "auto"  # full, or small: short and without examples; auto: by the size in the model's name
    price_in: float | None = None  # per million prompt tokens; null: what gnnrag/llm/openai.py knows
    price_out: float | None = None  # per million completion tokens
    extra_body: dict[str, Any] = field(default_factory=dict)  # further fields: top_p, chat_template_kwargs, ...


class OpenAIBackend(Backend):
    """Calls an OpenAI-compatible server, at most `concurrency` requests at a time for each event loop.

    Rate limits, server errors, timeouts and lost connections are retried with growing, random pauses; other refusals
    raise at once, but that of a key from a file of servers, which is read again. Once the server could not be reached
    at all, calls try it once each until one gets through, so that a run against a dead server ends in minutes.

    With `structured=auto` a schema is sent as `json_schema`; a server that refuses it gets `json_object`, then nothing,
    and the level it took is remembered. A redirect is a refusal: prompts and keys go to the named server alone. A reply
    of more than `gnnrag.llm.servers.MAX_BODY` bytes is not received, and counts as unreadable.

    Raises ConfigError where the API has no key, base_url is no URL, or a limit is not positive.
    """

    config_class = OpenAIConfig

    def __init__(self, config: OpenAIConfig | None = None) -> None:
        c = self.config = config or OpenAIConfig()
        if c.concurrency < 1 or c.max_retries < 0 or c.timeout_s <= 0:
            raise ConfigError("llm: concurrency and timeout_s must be positive, max_retries at least 0")
        take_apart(c.base_url)
        self._host = f"the servers of {shown(c.server_file)}" if c.server_file else host(c.base_url)
        if self._host == "api.openai.com" and not self._key():
            raise ConfigError(f"llm: set the variable {c.api_key_env} to your key, or base_url to your server")
        replicas = Replicas(c.server_file, c.server_wait_s) if c.server_file else None
        self._clients = Clients(lambda: Server(c.base_url, key=self._key() or ""), c.timeout_s, c.concurrency, replicas)
        self._level: str = "json_schema" if c.structured == "auto" else c.structured
        self._prices = prices_of(c)
        self._is_unreachable = False  # since the last call that ran out of retries

    @property
    def identity(self) -> Mapping[str, Any]:
        """Model, server and default sampling."""
        kept = ("model", "temperature", "seed", "structured", "extra_body")
        # Servers of a file come back at other addresses.
        url = "server_file" if self.config.server_file else address(self.config.base_url)
        return {"type": "openai", "base_url": url, **shaping(self.config, kept)}

    @property
    def wants_small(self) -> bool:
        """Whether it gets the small variant of prompts."""
        return wants_small(self.config.prompts, self.config.model)

    async def generate(self, request: Request) -> Reply:
        """Answer one request; see the class for retries and limits."""
        async with self._clients.slots:
            attempts = 1 if self._is_unreachable else self.config.max_retries + 1
            try:
                with waiting(f"call to {shown(self._host)}"):
                    reply = await with_retries(lambda: self._negotiate(request), attempts, self.config.backoff_s)
                self._is_unreachable = False
                return reply
            except RetryableError as failure:
                self._is_unreachable, error = failure.is_connection, failure.error
            raise error

    async def close(self) -> None:
        """Close the running loop's connections."""
        await self._clients.close()

    def _key(self) -> str | None:
        """Read the key where it is needed; it is never kept here."""
        return os.environ.get(self.config.api_key_env) if self.config.api_key_env else None

    async def _negotiate(self, request: Request) -> Reply:
        """Make one attempt, at the highest level of structured output that the server takes."""
        highest = self._level if request.schema and not request.raw else "off"
        levels = _LEVELS[_LEVELS.index(highest) :] if self.config.structured == "auto" else (highest,)
        refusal: LLMError | None = None
        for level in levels:
            try:
                reply = await self._attempt(request, level)
            except RefusedError as refused:
                # Was it the response format? Known only when the same request passes without it.
                refusal = refusal or refused.error
                continue
            if refusal:
                self._level = level
            return reply
        assert refusal is not None
        raise refusal

    async def _attempt(self, request: Request, level: str) -> Reply:
        openai, c = import_openai(), self.config
        body = request_body(request, self.identity, c.token_limit, level)
        client, server = await self._clients.pick()
        secrets = take_apart(server.url).secrets | spellings(server.key)
        failure: Exception
        create: Any = client.completions.create if request.raw else client.chat.completions.create
        try:
            # The client's own timeout is per read: a server that sends a byte now and then would never hit it.
            async with asyncio.timeout(c.timeout_s):
                answer = await create(**body, extra_body=c.extra_body or None)
            return read_reply(answer, request, str(body["model"]), *self._prices)
        except (TimeoutError, openai.APITimeoutError):
            late = f"no reply within {c.timeout_s:g} s"
            failure = RetryableError(NoReplyError(str(self._error(late))), reason=late)
        except openai.APIStatusError as error:
            failure = self._status_error(error, level, secrets)
        except (openai.APIError, ValueError, RecursionError) as error:
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
            if is_lost := not isinstance(cause, openai.APIError | ValueError | RecursionError):
                self._clients.lost(server)
            what = "connection failed" if is_lost else "unreadable reply"
            problem = self._error(f"{what}: {cause or error}", secrets)
            failure = RetryableError(problem, is_connection=is_lost, reason=f"{what}: {type(cause or error).__name__}")
        if isinstance(failure, RetryableError):
            failure.server = shown(host(server.url))
        raise failure  # not from the library's own error, which quotes the server and the address

    def _status_error(self, error: openai.APIStatusError, level: str, secrets: Collection[str]) -> Exception:
        code, message = error_details(error.body)
        status = error.status_code
        described = f"status {status}: {message or error.message}"
        if 300 <= status < 400:
            there = host(urljoin(str(error.request.url), error.response.headers.get("location", "")))
            described = f"status {status}: a redirect to {there}, which is not followed; give its address as base_url"
        if status == 429 or status >= 500 or status in (408, 409):
            wait = retry_after(error.response.headers)
            # `insufficient_quota` comes as a 429, but no pause mends it.
            if code == "insufficient_quota" or (wait or 0.0) > MAX_WAIT_S:
                return self._error(f"{described} (asks to wait {wait:g} s)" if wait else described, secrets)
            return RetryableError(self._error(described, secrets), wait, reason=f"status {status}")
        if status == 401 and self._clients.refused():
            return RetryableError(self._error(described, secrets), reason=f"status {status}")
        if status in (400, 413, 422) and is_context_error(code, message):
            problem = f"prompt longer than the model's context: {described}"
            return ContextLengthError(str(self._error(problem, secrets)))
        if status in (400, 422) and level != "off":
            return RefusedError(self._error(described, secrets))
        return self._error(described, secrets)

    def _error(self, problem: str, secrets: Collection[str] = ()) -> LLMError:
        """Name the model and the host; never what the server is called with."""
        return LLMError(f"{shown(self.config.model)} at {shown(self._host)}: {shorten(problem, secrets)}")


# ------------------------------------------------------------------------------------------- what a server says
_CONTEXT = re.compile(
    r"context[ _](?:length|window|size)|maximum (?:context|prompt|input|sequence) length|max_model_len|too many tokens|"
    r"prompt is too long|input is too long|longer than the maximum|exceeds? the (?:model|maximum|available context)",
    re.IGNORECASE,
)


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
