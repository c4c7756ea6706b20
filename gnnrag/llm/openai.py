"""Ask any server that speaks the OpenAI chat protocol: `openai.AsyncOpenAI`, with its retries and Retry-After."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from annotated_types import Ge, Gt

from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import (
    Backend,
    ContentFilterError,
    ContextLengthError,
    NoReplyError,
    RejectedError,
    Reply,
    Request,
    UnansweredError,
    Variant,
    wants_small,
    without_system,
)
from gnnrag.llm.providers import PROVIDERS, Structured, TokenLimit
from gnnrag.parts import part
from gnnrag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    import openai

    _Slots = tuple[asyncio.Semaphore, openai.AsyncOpenAI]

logger = logging.getLogger(__name__)
_FORMATS = ("json_schema", "json_object", "off")  # strictest first; a server that refuses one is offered the next
_LONGEST_WAIT_S = 120.0  # between two tries: what the client honours of a Retry-After
# What servers say of a refusal, in their first words: they may quote the prompt after that.
_SAID = 300  # characters
_EVERYBODYS = re.compile(  # it is no matter of this request
    r"api[ _-]?(?:key|version)|authenti|credential|billing|credit|quota|arrear|good standing|(?:balance|funds)\b|"
    r"permission|usage limits?\b|throttl|please wait|token\b.{0,40}expired|https port|must be verified|"
    r"(?:account|organi[sz]ation|project|subscription|workspace)\b.{0,60}(?:disabled|suspended|deactivated|not active)|"
    r"location is not supported|model_(?:not_found|decommissioned|not_available)|"
    r"model\W.{0,80}\b(?:not found|not exist|unknown|unavailable|decommissioned|deprecated)|"
    r"(?:invalid|unknown|unsupported|no such) model|model id(?:entifier)?\b|no models? loaded",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context[ _]?(?:length|window|size|shift)|(?:maximum|max) (?:context|prompt|input|sequence|model)|"
    r"max_(?:model|seq)_len|too many tokens(?!, please)|max_new_tokens\W{1,3}must be|longer than the m|"
    r"range of input length|tokens_limit|"
    r"(?:prompt|input|request|message|string|text|body|payload)s?\b.{0,60}(?:too (?:long|large)|exceeds?\b)|"
    r"reduce (?:the|your) (?:length|prompt|input|message)|exceeds? the (?:model|maximum|available context)",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"content[ _-]?(?:filter|policy|management|violat|safety|exists risk)|moderation|flagged|data_inspection|"
    r"inappropriate|sensitive[ _]?(?:content|information|words)|new_sensitive|unsafe|safety|prohibited|guardrail|"
    r"high risk|risk ?detect|recitation|modify(?:ing)? your prompt|responsible ?ai|"
    r"usage (?:policy|policies|guidelines)|不安全|敏感",
    re.IGNORECASE,
)
# What fails with a status that passes elsewhere, and fails again.
_LASTING = re.compile(
    r"insufficient[ _](?:quota|balance|credit|funds)|billing_(?:hard_limit|not_active)|balance is too low",
    re.IGNORECASE,
)
# The setting that helps, by what was said: (status, or none for any; words; advice).
_ADVICE = (
    (401, "", "llm.api_key_env names the variable with the key"),
    (404, "", "look at llm.model and llm.base_url"),
    (429, "", "fewer requests at a time with llm.concurrency, more tries with llm.max_retries"),
    (0, "max_?(?:output_?)?tokens|completion.tokens", "a smaller max_tokens of the role, or llm.token_limit"),
    (0, "enable_thinking|thinking", "llm.extra_body holds further fields: {enable_thinking: false}"),
    (0, "response_format|json_schema|json_object|guided", "llm.structured=auto takes what the server has"),
    (0, "model_not_found|no such model|model .{0,60}(?:not (?:found|exist)|decommissioned)", "look at llm.model"),
)
# How servers spell why a reply ended; what they broke off themselves is cut, too.
_FINISHES = (
    ("stop", r"eos(?:_token)?|end_turn|stop(?:_sequence)?|completed?"),
    ("length", r".*(?:length|limit|context_window).*|max_(?:output_|new_)?tokens?|error|abort(?:ed)?|insufficient_.*"),
    (
        "content_filter",
        r".*(?:filter|safety|sensitive|prohibited|blocklist|guardrail|recitation|spii|toxic|moderation).*|refusal",
    ),
)
# "Please try again in 1m3.5s" of an error 429, where no header says it.
_WAIT = re.compile(
    r"(?:again|retry)\s+(?:in|after)\s+(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)\s?(m?)s)?", re.IGNORECASE
)
_TOO_LARGE = re.compile(r"request too large|tokens must be reduced", re.IGNORECASE)  # for any minute of a rate limit


def error_class(status: int, code: object, message: str) -> type[LLMError]:
    """Return whose error a status is: of this request alone (a `RejectedError`), of the server, or not clear."""
    said = f"{code} {message[:_SAID]}"
    if status in (401, 402, 404, 405) or (status == 429 and not _TOO_LARGE.search(said)):
        return LLMError
    # The first that is said is the cause; a filter may quote "credit", and an account be disabled for its "safety".
    kinds = ((_EVERYBODYS, LLMError), (_CONTEXT, ContextLengthError), (_FILTER, ContentFilterError))
    causes = [(match.start(), kind) for words, kind in kinds if (match := words.search(said))]
    if status in (413, 429):
        return ContextLengthError
    if causes:
        return min(causes, key=itemgetter(0))[1]
    return RejectedError if status in (400, 422, 451) else UnansweredError


async def _prepare_response(response: Any) -> None:
    """Give a hidden error its status, and tell the client which failures stay: it repeats all of some statuses."""
    if response.status_code == 200:  # as which some gateways send an error
        with suppress(ValueError, RecursionError):  # no JSON, as the client will say
            answer = json.loads(await response.aread())
            if isinstance(answer, dict) and answer.get("error") and not answer.get("choices"):
                code = str(error_details(answer)[0])
                response.status_code = int(code) if re.fullmatch("[45][0-9]{2}", code) else 500
    if response.status_code in (409, 429) or response.status_code >= 500:
        said = (await response.aread()).decode("utf-8", "replace")[: 2 * _SAID]
        is_lasting = bool(_LASTING.search(said)) or response.status_code in (501, 505)
        if (wait := _WAIT.search(said)) and "retry-after" not in response.headers:
            hours, minutes, seconds, milli = wait.groups(default="0")
            waited_s = 3600 * int(hours) + 60 * int(minutes) + float(seconds) / (1000 if milli else 1)
            response.headers["retry-after"] = str(waited_s)
        if is_lasting or issubclass(error_class(response.status_code, "", said), RejectedError):
            response.headers["x-should-retry"] = "false"


@dataclass(eq=False)
class OpenAI(Backend):
    """Calls a server, at most `concurrency` requests at a time for each event loop.

    What a server refuses of a request (a response format, `max_tokens`, `temperature`, `seed`) is sent in the next
    weaker form, or left out, from then on; that is logged once. A reply's content may be a list of parts: those of type
    `text` are the reply, the others reasoning. A redirect is an error: prompts and keys go to the named server alone.

    The parts `openai`, `anthropic`, `ollama`, ... are this class with the defaults of `gnnrag.llm.providers`.
    """

    model: str = ""
    base_url: str = ""
    api_key_env: str | None = None  # name of the variable that holds the key; null for servers without one
    temperature: float | None = 0.0  # null leaves it to the server
    seed: int | None = None
    presence_penalty: float | None = None  # taken from the score of each token that the reply has already
    timeout_s: Annotated[float, Gt(0)] = 120.0  # for one attempt
    max_retries: Annotated[int, Ge(0)] = 5  # after rate limits, server errors, time-outs and lost connections
    concurrency: Annotated[int, Ge(1)] = 8  # requests in flight, retries included
    structured: Structured = "auto"  # response format for replies in JSON; auto: the strictest that the server takes
    token_limit: TokenLimit = "max_tokens"  # parameter that limits a reply; the other one is tried if it is refused
    prompts: Variant = "auto"  # full, or small: short, with one example at most; auto: by the size in the model's name
    price_in: float = 0.0  # per million prompt tokens
    price_out: float = 0.0  # per million completion tokens
    extra_body: dict[str, Any] = field(default_factory=dict)  # further fields: top_p, chat_template_kwargs, ...

    def setup(self) -> None:
        """Check addresses and key. Raises ConfigError naming the setting."""
        if not self.model:
            raise ConfigError(f"llm={self.name}: give llm.model=NAME")
        if not self.base_url:
            raise ConfigError(f"llm={self.name}: give llm.base_url=ADDRESS")
        address = urlsplit(self.base_url)
        if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc or address.query:
            shown = self.base_url.rpartition("@")[2].partition("?")[0]
            form = "an address such as http://127.0.0.1:8000/v1, without a password or query"
            raise ConfigError(f"llm.base_url={shown!r}: give {form}; a key goes by llm.api_key_env=VARIABLE")
        provider = PROVIDERS[self.name]
        if provider.api_key_env and self.base_url == provider.base_url and not self._key():
            raise ConfigError(f"llm={self.name}: set the variable {self.api_key_env} to your key, or llm.api_key_env")
        structured = "json_schema" if self.structured == "auto" else self.structured
        self._form = _Form(structured, self.token_limit, frozenset(provider.without))
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Slots] = WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def identity(self) -> Mapping[str, Any]:
        names = ("model", "base_url", "temperature", "seed", "presence_penalty", "structured", "extra_body")
        return {"type": "openai", **{name: getattr(self, name) for name in names}}

    @property
    def wants_small(self) -> bool:
        return wants_small(self.prompts, self.model)

    async def generate(self, request: Request) -> Reply:
        slots, client = self._state()
        async with slots:
            return await self._ask(client, request)

    async def close(self) -> None:
        with self._lock:
            state = self._loops.pop(asyncio.get_running_loop(), None)
        if state:
            await state[1].close()

    def _key(self) -> str:
        return os.environ.get(self.api_key_env, "") if self.api_key_env else ""

    def _state(self) -> _Slots:
        """Return the client of the running event loop: connections cannot move between loops."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._loops:
                for ended in [other for other in self._loops if other.is_closed()]:
                    del self._loops[ended]  # its connections keep it alive otherwise
                import openai

                client = openai.AsyncOpenAI(
                    api_key=self._key() or "none",  # the client insists on one; servers without keys ignore it
                    base_url=self.base_url,
                    timeout=self.timeout_s,
                    http_client=openai.DefaultAsyncHttpxClient(
                        follow_redirects=False, event_hooks={"response": [_prepare_response]}
                    ),
                )
                self._loops[loop] = (asyncio.Semaphore(self.concurrency), client)
            return self._loops[loop]

    async def _ask(self, client: openai.AsyncOpenAI, request: Request) -> Reply:
        """Send a request, in a weaker form as long as the server refuses a part of it that can be left out."""
        import openai

        form: _Form = self._form
        refusal: LLMError | None = None
        tried: set[_Form] = set()
        client = client.with_options(max_retries=self.max_retries)
        create: Any = client.completions.create if request.raw else client.chat.completions.create
        while True:
            tried.add(form)
            body = self._body(request, form)
            try:
                # The client's own time-out is per read: a server that sends a byte now and then would never hit it.
                async with asyncio.timeout((self.max_retries + 1) * (self.timeout_s + _LONGEST_WAIT_S)):
                    answer = await create(**body, extra_body=self.extra_body or None)
                if getattr(answer, "choices", 0) in ([], None) and getattr(answer, "usage", None):
                    raise ContentFilterError(self._message(client, "no choices: a filter left nothing"))
                reply = self._reply(answer, request)
            except (TimeoutError, openai.APITimeoutError):
                problem = f"no reply within llm.timeout_s={self.timeout_s:g} s"
                raise NoReplyError(self._message(client, problem)) from None
            except openai.APIStatusError as error:
                code, message = error_details(error.body)
                message = message or error.message
                refusal = refusal or self._refusal(client, error.status_code, code, message)
                weaker = _weaker(form, body, message) if type(refusal) is RejectedError else None
                if weaker is None or weaker in tried:
                    raise refusal from None
                if weaker.structured != self._form.structured and self.structured != "auto":
                    raise refusal from None
                form = weaker
            except openai.APIConnectionError as error:
                problem = f"connection failed: {error.__cause__ or error}; is there a server at llm.base_url?"
                raise UnansweredError(self._message(client, problem)) from None
            except (openai.APIError, ValueError, RecursionError) as error:
                problem = f"unreadable reply: {error}; does llm.base_url lead to an API, as .../v1?"
                raise UnansweredError(self._message(client, problem)) from None
            else:
                if refusal and form != self._form:
                    self._form = form
                    logger.warning("%s; requests are sent as %s from now on", refusal, form)
                return reply

    def _body(self, request: Request, form: _Form) -> dict[str, Any]:
        """Return the arguments of a (chat) completion call."""
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": self.temperature if request.temperature is None else request.temperature,
            "seed": self.seed if request.seed is None else request.seed,
            "presence_penalty": self.presence_penalty or None,
            "stop": list(request.stop) or None,
        }
        body = {k: v for k, v in body.items() if v is not None and k not in form.without}
        if request.raw:
            return body | {"prompt": request.text, "max_tokens": request.max_tokens}
        messages = request.messages if "system" not in form.without else without_system(request.messages)
        body["messages"] = [{"role": m.role, "content": m.content} for m in messages]
        body[form.token_limit] = request.max_tokens
        if request.schema and form.structured == "json_schema":
            schema = {"name": "reply", "strict": True, "schema": dict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif request.schema and form.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _reply(self, answer: Any, request: Request) -> Reply:
        """Turn a completion into a Reply; missing usage is estimated. ValueError: it is none (an error page)."""
        try:
            choice = answer.choices[0]
            content = choice.text if request.raw else choice.message.content
            refusal = None if request.raw else getattr(choice.message, "refusal", None)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"no choices in {' '.join(str(answer).split())[:200]!r}") from error
        text, finish = refusal or text_of(content), str(choice.finish_reason or "unknown")
        finish = next((kind for kind, words in _FINISHES if re.fullmatch(words, finish, re.IGNORECASE)), finish)
        if request.raw and isinstance(stopped_by := getattr(choice, "stop_reason", None), str):  # vLLM names it
            text = text.removesuffix(stopped_by) + stopped_by
        usage: Any = getattr(answer, "usage", None)
        counts = [getattr(usage, f"{part}_tokens", None) for part in ("prompt", "completion")]
        prompt, completion = (count if isinstance(count, int) and 0 <= count < 10**9 else -1 for count in counts)
        if is_estimated := min(prompt, completion) < 0:
            prompt, completion = estimate_tokens(request.text), estimate_tokens(text)
        return Reply(
            text=text,
            finish_reason="content_filter" if refusal else finish,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cost=(prompt * self.price_in + completion * self.price_out) / 1e6,
            model=str(getattr(answer, "model", None) or self.model),
            is_estimated=is_estimated,
        )

    def _refusal(self, client: openai.AsyncOpenAI, status: int, code: object, message: str) -> LLMError:
        """Return the error for a status, with the setting that helps."""
        kind = error_class(status, code, message)
        text = self._message(client, f"status {status}: {message}")
        if kind is ContextLengthError:
            return kind(f"prompt longer than the model's context: {text}; show fewer or shorter passages")
        for of, words, advice in _ADVICE:
            if of in (0, status) and re.search(words, f"{code} {message[:_SAID]}", re.IGNORECASE):
                return kind(f"{text[:_SAID]}; {advice}")
        return kind(text)

    def _message(self, client: openai.AsyncOpenAI, problem: str) -> str:
        """Name model and server; never the key, should the server have quoted it."""
        text = f"{self.model} at {client.base_url.host}: {' '.join(problem.split())}"
        return (text.replace(key, "***") if len(key := self._key()) > 3 else text)[:400]


@dataclass(frozen=True)
class _Form:
    """In which form requests are sent: a server may take less than the whole protocol."""

    structured: str  # one of `_FORMATS`
    token_limit: str
    without: frozenset[str]  # parameters that are left out


def _weaker(form: _Form, body: Mapping[str, Any], message: str) -> _Form | None:
    """Return the form to try after a server refused `body` with `message`; None where nothing can be left out."""
    for name in ("temperature", "presence_penalty", "seed", "stop"):
        if name in body and re.search(rf"\b{name}\b", message):
            return replace(form, without=form.without | {name})
    if "max_tokens" in body and "max_completion_tokens" in message:
        return replace(form, token_limit="max_completion_tokens")
    if "max_completion_tokens" in body and "max_completion_tokens" in message:
        return replace(form, token_limit="max_tokens")
    if any(turn["role"] == "system" for turn in body.get("messages", ())) and re.search(
        r"\bsystem\b|\broles?\b", message, re.IGNORECASE
    ):
        return replace(form, without=form.without | {"system"})
    if "response_format" in body:
        return replace(form, structured=_FORMATS[_FORMATS.index(form.structured) + 1])
    return None


def text_of(content: Any) -> str:
    """Return the text of a message's content: as it is, or the parts of a type that is text (others are reasoning)."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | Mapping):
        raise ValueError(f"content is {type(content).__name__}, not text")
    return "".join(map(_text_of_part, content if isinstance(content, list) else [content]))


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    part = part if isinstance(part, Mapping) else getattr(part, "__dict__", {})
    if part.get("type") == "refusal":
        return str(part.get("refusal") or "")
    is_text = part.get("type") in (None, "text", "output_text", "input_text") and part.get("thought") is not True
    text = part.get("text") if is_text else ""
    return str((text.get("value") if isinstance(text, Mapping) else text) or "")


def error_details(body: object) -> tuple[object, str]:
    """Return code and message of an error body; servers nest them in different ways."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(inner, Mapping):
        message = inner.get("message") or inner.get("detail") or json.dumps(dict(inner), default=str)
        return inner.get("code"), str(message)
    return None, str(inner or "")


_FROM_PROVIDER = ("model", "base_url", "api_key_env", "structured", "token_limit")

for _name, _provider in PROVIDERS.items():  # one part each: its own defaults, everything else alike
    _body: dict[str, Any] = {setting: getattr(_provider, setting) for setting in _FROM_PROVIDER}
    _body["__annotations__"] = {setting: OpenAI.__annotations__[setting] for setting in _FROM_PROVIDER}
    part("llm", _name)(type("OpenAI", (OpenAI,), {**_body, "__module__": __name__, "__doc__": OpenAI.__doc__}))
