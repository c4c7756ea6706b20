"""Any server that speaks the OpenAI protocol: the API itself, vLLM, `transformers serve`, llama.cpp, and others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gnnrag.credentials import address, host
from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import ContextLengthError, Reply, Request, shaping
from gnnrag.llm.clients import Clients
from gnnrag.llm.servers import Replicas, Server
from gnnrag.llm.transport import (
    MAX_WAIT_S,
    RefusedError,
    RetryableError,
    import_openai,
    is_context_error,
    retry_after,
    shorten,
    with_retries,
)
from gnnrag.llm.wire import error_details, read_reply, request_body

if TYPE_CHECKING:
    import openai

# Strictest first; a server that refuses one is offered the next.
_LEVELS = ("json_schema", "json_object", "off")


@dataclass
class OpenAIConfig:
    """Which server, which model, and how to treat them."""

    model: str = "gpt-4o-mini"
    base_url: str = "https://api.openai.com/v1"
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
    price_in: float = 0.0  # per million prompt tokens
    price_out: float = 0.0  # per million completion tokens
    extra_body: dict[str, Any] = field(default_factory=dict)  # further fields: top_p, chat_template_kwargs, ...


class OpenAIBackend:
    """Calls an OpenAI-compatible server, at most `concurrency` requests at a time for each event loop.

    Rate limits, server errors, timeouts and lost connections are retried with growing, random pauses; other refusals
    raise at once, but that of a key from a file of servers, which is read again. Once the server could not be reached
    at all, calls try it only once each until one gets through, so that a run against a dead server ends in minutes.

    With `structured=auto` a request's schema is sent as `json_schema`; a server that refuses it gets `json_object`,
    then nothing, and the level it took is remembered.

    Args:
        config: settings.

    Raises:
        ConfigError: there is no key for the API, base_url is no URL, or a limit is not positive.
    """

    config_class = OpenAIConfig

    def __init__(self, config: OpenAIConfig | None = None) -> None:
        c = self.config = config or OpenAIConfig()
        if c.concurrency < 1 or c.max_retries < 0 or c.timeout_s <= 0:
            raise ConfigError("llm: concurrency and timeout_s must be positive, max_retries at least 0")
        if not c.base_url.startswith(("http://", "https://")):
            raise ConfigError(f"llm.base_url={c.base_url!r}: give a URL such as http://127.0.0.1:8000/v1")
        self._host = f"the servers of {c.server_file}" if c.server_file else host(c.base_url)
        if self._host == "api.openai.com" and not self._key():
            raise ConfigError(f"llm: set the variable {c.api_key_env} to your key, or base_url to your server")
        replicas = Replicas(c.server_file, c.server_wait_s) if c.server_file else None
        self._clients = Clients(lambda: Server(c.base_url, key=self._key() or ""), c.timeout_s, c.concurrency, replicas)
        self._level: str = "json_schema" if c.structured == "auto" else c.structured
        self._is_unreachable = False  # since the last call that ran out of retries

    @property
    def identity(self) -> Mapping[str, Any]:
        """Model, server and default sampling."""
        kept = ("model", "temperature", "seed", "structured", "extra_body")
        # Servers of a file come back at other addresses.
        url = "server_file" if self.config.server_file else address(self.config.base_url)
        return {"type": "openai", "base_url": url, **shaping(self.config, kept)}

    async def generate(self, request: Request) -> Reply:
        """Answer one request; see the class for retries and limits."""
        async with self._clients.slots:
            attempts = 1 if self._is_unreachable else self.config.max_retries + 1
            try:
                reply = await with_retries(lambda: self._negotiate(request), attempts, self.config.backoff_s)
            except RetryableError as failure:
                self._is_unreachable = failure.is_connection
                raise failure.error from failure.__cause__
            self._is_unreachable = False
            return reply

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
        """Send one HTTP request and translate its failures."""
        openai, c = import_openai(), self.config
        body = request_body(request, self.identity, c.token_limit, level)
        client, server = await self._clients.pick()
        create: Any = client.completions.create if request.raw else client.chat.completions.create
        try:
            # The client's own timeout is per read: a server that sends a byte now and then would never hit it.
            async with asyncio.timeout(c.timeout_s):
                answer = await create(**body, extra_body=c.extra_body or None)
            return read_reply(answer, request, str(body["model"]), c.price_in, c.price_out)
        except (TimeoutError, openai.APITimeoutError) as error:
            raise RetryableError(self._error(f"no reply within {c.timeout_s:g} s")) from error
        except openai.APIStatusError as error:
            raise self._status_error(error, level) from error
        except openai.APIConnectionError as error:
            self._clients.lost(server)
            problem = f"connection failed: {error.__cause__ or error}"
            raise RetryableError(self._error(problem), is_connection=True) from error
        except (openai.APIError, ValueError) as error:
            raise RetryableError(self._error(f"unreadable reply: {error}")) from error

    def _status_error(self, error: openai.APIStatusError, level: str) -> Exception:
        """Tell what may pass from what will not."""
        code, message = error_details(error.body)
        status = error.status_code
        described = f"status {status}: {message or error.message}"
        if status == 429 or status >= 500 or status in (408, 409):
            wait = retry_after(error.response.headers)
            # `insufficient_quota` comes as a 429, but no pause mends it.
            if code == "insufficient_quota" or (wait or 0.0) > MAX_WAIT_S:
                return self._error(f"{described} (asks to wait {wait:g} s)" if wait else described)
            return RetryableError(self._error(described), wait)
        if status == 401 and self._clients.refused():
            return RetryableError(self._error(described))
        if status in (400, 413, 422) and is_context_error(code, message):
            return ContextLengthError(str(self._error(f"prompt longer than the model's context: {described}")))
        if status in (400, 422) and level != "off":
            return RefusedError(self._error(described))
        return self._error(described)

    def _error(self, problem: str) -> LLMError:
        """Name the model and the host; never the key."""
        return LLMError(f"{self.config.model} at {self._host}: {shorten(problem, self._key())}")
