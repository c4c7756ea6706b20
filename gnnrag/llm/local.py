"""Run a model in this process: messages to prompt tokens; one worker thread batches the requests of many questions."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from gnnrag.common.waiting import moved, waiting
from gnnrag.errors import ConfigError, GnnragError, LLMError
from gnnrag.llm.base import Backend, ContextLengthError, Message, Reply, Request, Variant, shaping, wants_small
from gnnrag.llm.folders import ModelFiles, find_model

_NO_LIMIT = 1_000_000  # tokenizers without a limit give a huge number


def encode(
    tokenizer: Any,
    messages: Sequence[Message],
    chat: str = "auto",
    options: Mapping[str, Any] | None = None,
    raw: bool = False,
    is_seq2seq: bool = False,
) -> list[int]:
    """Return the tokens of a prompt; ConfigError: the tokenizer has no template, or its template refuses the messages.

    `chat`: `auto` is the tokenizer's template, or `plain` for a sequence-to-sequence model without one; `plain` joins
    the texts with empty lines. `options` are variables of the template, such as enable_thinking; `raw` continues the
    joined text.
    """
    if raw:
        return list(tokenizer("".join(m.content for m in messages))["input_ids"])
    if chat == "plain" or (is_seq2seq and not tokenizer.chat_template):
        return list(tokenizer("\n\n".join(m.content for m in messages))["input_ids"])
    if not tokenizer.chat_template:
        raise ConfigError(
            f"the tokenizer of {tokenizer.name_or_path!r} has no chat template: take a chat model, or set "
            "llm.chat=plain for one that was trained on plain prompts"
        )
    from jinja2.exceptions import TemplateError

    try:
        return _apply(tokenizer, messages, options or {})
    except TemplateError as error:
        # Some families know no system turn: what it says then opens the user's.
        if [m.role for m in messages[:2]] == ["system", "user"]:
            joined = Message("user", f"{messages[0].content}\n\n{messages[1].content}")
            try:
                return _apply(tokenizer, (joined, *messages[2:]), options or {})
            except TemplateError:
                pass
        raise ConfigError(f"the chat template of {tokenizer.name_or_path!r} refuses the messages: {error}") from error


def check_length(prompt: int, reply: int, context: int | None, name: str, is_seq2seq: bool = False) -> None:
    """Raise ContextLengthError where prompt and reply (token counts) together pass the context, like a server's 400.

    The reply of a sequence-to-sequence model does not count; `context` None is no limit.
    """
    needed = prompt if is_seq2seq else prompt + reply
    if context is not None and needed > context:
        room = "" if is_seq2seq else f" and {reply} of reply"
        raise ContextLengthError(
            f"{name}: prompt longer than the model's context: {prompt} tokens of prompt{room} do not fit into "
            f"{context}; show fewer or shorter passages, ask for shorter replies, or raise the setting context if the "
            "model can take more"
        )


def own_context(config: Any, tokenizer: Any, is_seq2seq: bool) -> int | None:
    """Return the limit that a model states itself: of positions, or, with relative ones, its tokenizer's."""
    positions = None if is_seq2seq else getattr(config.get_text_config(), "max_position_embeddings", None)
    limit = positions or tokenizer.model_max_length
    return int(limit) if limit and limit < _NO_LIMIT else None


def cut_at(text: str, stop: Sequence[str]) -> str | None:
    """Return the text before the first of the stop strings; None if none is in it."""
    found = [at for at in (text.find(s) for s in stop if s) if at >= 0]
    return text[: min(found)] if found else None


def _apply(tokenizer: Any, messages: Sequence[Message], options: Mapping[str, Any]) -> list[int]:
    turns = [{"role": m.role, "content": m.content} for m in messages]
    encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True, **options)
    return list(encoded["input_ids"])


# -------------------------------------------------------------------------------------------------- one worker thread
@dataclass(frozen=True)
class Job:
    """A request with all that its backend's settings decide; backends with other settings may share the model.

    Temperature 0 is greedy; `seed` is of this request alone; `adapter` is a LoRA adapter's folder; `context` is the
    most tokens of prompt and reply, None the model's own limit; `presence_penalty` is taken from the score of each
    token that the reply has already; for `chat` and `options` see `gnnrag.llm.local.encode`.
    """

    request: Request
    temperature: float
    top_p: float
    seed: int
    schema: Mapping[str, Any] | None = None
    adapter: str | None = None
    name: str = ""
    chat: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    presence_penalty: float = 0.0


@dataclass(eq=False)
class Ticket:
    """A job, and the future that somebody awaits."""

    job: Job
    future: Future[Reply] = field(default_factory=Future)

    @property
    def is_over(self) -> bool:
        """Answered, failed, or given up by the one who asked."""
        return self.future.done()

    def finish(self, outcome: Reply | Exception) -> None:
        """Give the answer or the error; one who has given up is not told."""
        try:
            if isinstance(outcome, Reply):
                self.future.set_result(outcome)
            else:
                self.future.set_exception(outcome)
        except InvalidStateError:  # cancelled
            return


@dataclass(frozen=True)
class Limits:
    """Of one batch: rows, rows times the widest, and the share of padding among its prompts."""

    rows: int
    tokens: int
    padding: float

    def allow(self, prompts: Sequence[int], replies: Sequence[int]) -> bool:
        """Whether prompts and replies of these lengths make one batch; a single one always does."""
        size, widest = len(prompts), max(prompts)
        fits = size <= self.rows and size * (widest + max(replies)) <= self.tokens
        return size == 1 or (fits and sum(prompts) >= (1 - self.padding) * size * widest)


class Model(Protocol):
    """What runs in the thread; only that thread ever touches it."""

    def take(self, tickets: Sequence[Ticket]) -> None:
        """Accept tickets; one that cannot be answered (too long a prompt) is finished with its error at once."""
        ...

    def advance(self) -> None:
        """Do a part of the work and finish what is ready. An exception means that the model is beyond use."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether `advance` has something to do."""
        ...


logger = logging.getLogger(__name__)
T = TypeVar("T")
_GOODBYE_S = 2.0  # how long the end of the program waits for the thread


class ModelThread:
    """Loads a model on the first request, in a thread, and answers there.

    `load` is called once; its failure is the answer to every request. Before each `advance`, it waits `window_s` for
    further requests: answered coroutines come back within milliseconds, worth waiting for where a running batch cannot
    grow.
    """

    def __init__(self, load: Callable[[], Model], window_s: float = 0.0) -> None:
        self._load, self._window_s = load, window_s
        self._inbox: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    async def ask(self, job: Job) -> Reply:
        """Answer one job; LLMError: no reply; ContextLengthError: prompt too long; ConfigError: model not loaded."""
        ticket = Ticket(job)
        self._start()
        self._inbox.put(ticket)
        return await asyncio.wrap_future(ticket.future)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                # The thread knows the inbox, not this object: when the last backend is gone, so is the model.
                arguments = (self._inbox, self._load, self._window_s)
                self._thread = threading.Thread(target=_serve, args=arguments, name="gnnrag-llm", daemon=True)
                weakref.finalize(self, _end, self._inbox, self._thread)
                self._thread.start()


_SHARED: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
_SHARING = threading.Lock()


def shared(key: Hashable, make: Callable[[], T]) -> T:
    """Return the object of this key that some backend of the process still holds, else a new one: weights load once."""
    with _SHARING:
        found = _SHARED.get(key)
        if found is None:
            found = _SHARED[key] = make()
        return found


def _end(inbox: queue.SimpleQueue[Ticket | None], thread: threading.Thread) -> None:
    inbox.put(None)
    if thread is not threading.current_thread():
        thread.join(_GOODBYE_S)


def _serve(inbox: queue.SimpleQueue[Ticket | None], load: Callable[[], Model], window_s: float) -> None:
    model: Model | None = None
    failure: Exception | None = None
    open_tickets: list[Ticket] = []
    while True:
        is_idle = model is None or not model.is_busy
        arrived, is_ending = _gather(inbox, window_s, is_idle)
        if is_ending:
            return
        open_tickets = [t for t in (*open_tickets, *arrived) if not t.is_over]
        try:
            if failure is not None:
                raise failure
            model = model or _loaded(load)
            model.take(arrived)
            if model.is_busy:
                model.advance()
                moved()
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            failure = error if isinstance(error, GnnragError) else LLMError(f"{type(error).__name__}: {error}")
            model = None
            for ticket in open_tickets:
                ticket.finish(failure)


def _loaded(load: Callable[[], Model]) -> Model:
    started = time.perf_counter()
    model = load()
    logger.info("model loaded in %.1f s", time.perf_counter() - started)
    return model


def _gather(inbox: queue.SimpleQueue[Ticket | None], window_s: float, is_idle: bool) -> tuple[list[Ticket], bool]:
    """Return the tickets that arrive within the window, and whether to end; with nothing to do, wait for the first."""
    tickets: list[Ticket] = []
    until = time.monotonic() + window_s
    while True:
        try:
            if is_idle and not tickets:
                ticket = inbox.get()
                until = time.monotonic() + window_s
            else:
                left = until - time.monotonic()
                ticket = inbox.get(timeout=left) if left > 0 else inbox.get_nowait()
        except queue.Empty:
            return tickets, False
        if ticket is None:
            return tickets, True
        tickets.append(ticket)


@dataclass
class LocalConfig:
    """Which model, and how it answers."""

    model: str = ""  # folder, or hub name (name@revision); the folder of an adapter finds its own base
    adapter: str | None = None  # folder or hub name of a LoRA adapter
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"  # auto: bfloat16 on a GPU, float32 on a CPU
    context: int | None = None  # most tokens of prompt and reply together; null: the model's own limit
    temperature: float = 0.0
    top_p: float = 1.0
    presence_penalty: float = 0.0  # taken from the score of each token that the reply has already
    seed: int = 0  # of sampled replies; each request draws from a generator of its own
    structured: Literal["auto", "json_schema", "off"] = "auto"  # auto: constrained to the schema where possible
    chat: Literal["auto", "plain"] = "auto"  # auto: the chat template; plain: the bare texts
    template_options: dict[str, Any] = field(default_factory=dict)  # variables of the template: enable_thinking, ...
    prompts: Variant = "auto"  # full, or small: short and without examples; auto: small below a billion parameters

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ConfigError(f"temperature={self.temperature}, top_p={self.top_p}: give >= 0, and 0 < top_p <= 1")
        if self.context is not None and self.context < 1:
            raise ConfigError(f"context={self.context}: must be positive, or null for the model's own limit")


class LocalBackend(Backend):
    """Base of `hf`, `vllm` and `openvino`; backends of a process that run the same weights share `thread`."""

    kind: ClassVar[str]
    grammar: ClassVar[str]  # the package that constrains replies to a schema

    config: Any
    files: ModelFiles
    thread: ModelThread

    def _find(self, config: LocalConfig) -> ModelFiles:
        """Resolve and check what can be checked before loading. Raises ConfigError."""
        self._said: set[str] = set()
        if config.structured == "json_schema" and not self.is_constrained(config):
            raise ConfigError(
                f"structured=json_schema needs the package {self.grammar}; run: pip install {self.grammar}, or set "
                "structured=auto, which leaves it to the parsers where the package is missing"
            )
        return self._locate(config)

    def _locate(self, config: LocalConfig) -> ModelFiles:
        return find_model(config.model, config.adapter, self.kind)

    @classmethod
    def is_constrained(cls, config: LocalConfig) -> bool:
        """Whether replies are held to the schema of a request; else it is ignored, and only the parsers look."""
        return config.structured != "off" and find_spec(cls.grammar) is not None

    @property
    def identity(self) -> Mapping[str, Any]:
        """Weights by their content, so that training in place is noticed, and all that shapes prompt and reply."""
        kept = ("dtype", "context", "temperature", "top_p", "seed", "chat", "template_options")
        settings = shaping(self.config, kept)
        constrained = self.is_constrained(self.config)
        fingerprint = self.files.fingerprint
        return {"type": self.kind, "model": self.files.name, "weights": fingerprint, "schema": constrained, **settings}

    @property
    def wants_small(self) -> bool:
        """Whether it gets the small variant of prompts; an adapter has learned what it was trained on."""
        prompts: Variant = "full" if self.config.prompts == "auto" and self.files.adapter else self.config.prompts
        return wants_small(prompts, self.files.name, self.files.base)

    async def generate(self, request: Request) -> Reply:
        """Answer one request; ContextLengthError: too long; LLMError: failed, or another model; ConfigError."""
        with waiting(f"call of {self.files.name}"):
            return await self.thread.ask(self.job(request))

    def job(self, request: Request) -> Job:
        """Return the request with this backend's settings where it leaves them open."""
        c = self.config
        if request.model not in (None, c.model, self.files.name):
            raise LLMError(f"{self.files.name}: the request asks for {request.model!r}, and this backend has one model")
        schema = None if request.raw else request.schema
        if schema is not None and not self.is_constrained(c):
            schema = None
            self._say_once(f"{self.files.name}: replies are not held to a schema, only parsed for it")
        return Job(
            request=request,
            temperature=c.temperature if request.temperature is None else request.temperature,
            top_p=c.top_p,
            seed=own_seed(request, c.seed),
            schema=schema,
            adapter=self._adapter(),
            name=self.files.name,
            chat=c.chat,
            options=c.template_options,
            context=c.context,
            presence_penalty=c.presence_penalty,
        )

    async def close(self) -> None:
        """Hold nothing of the event loop. The model goes when the last backend that shares it does."""

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            why = "structured=off" if self.config.structured == "off" else f"{self.grammar} is not installed"
            logger.warning("%s (%s)", line, why)

    def _adapter(self) -> str | None:
        return str(self.files.adapter) if self.files.adapter else None


def own_seed(request: Request, default: int) -> int:
    """Return the seed of a request, below 2^63: from the seed and its messages, so that no two draw the same noise."""
    seed = default if request.seed is None else request.seed
    text = json.dumps([seed, [[m.role, m.content] for m in request.messages]])
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 1
