"""Run a model in this process: messages to prompt tokens; a thread answers what waits together as one batch."""

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
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from gnnrag.errors import ArtefactError, ConfigError, GnnragError, LLMError
from gnnrag.llm.base import Backend, ContextLengthError, Message, Reply, Request, Variant, wants_small
from gnnrag.llm.model_files import ModelFiles, find_model

logger = logging.getLogger(__name__)
_NO_LIMIT = 1_000_000  # tokenizers without a limit give a huge number
_WINDOW_S = 0.01  # how long a batch waits for further requests: those just answered come back within milliseconds
_GOODBYE_S = 2.0  # how long the end of the program waits for the thread


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
    if raw or chat == "plain" or (is_seq2seq and not tokenizer.chat_template):
        return list(tokenizer(("" if raw else "\n\n").join(m.content for m in messages))["input_ids"])
    if not tokenizer.chat_template:
        raise ConfigError(
            f"the tokenizer of {tokenizer.name_or_path!r} has no chat template: take a chat model, or set "
            "llm.chat=plain for one that was trained on plain prompts"
        )
    from jinja2.exceptions import TemplateError

    tries = [messages]
    if [m.role for m in messages[:2]] == ["system", "user"]:
        # Some families know no system turn: what it says then opens the user's.
        tries.append([Message("user", f"{messages[0].content}\n\n{messages[1].content}"), *messages[2:]])
    problem: Exception | None = None
    for turns in tries:
        plain = [{"role": m.role, "content": m.content} for m in turns]
        try:
            encoded = tokenizer.apply_chat_template(
                plain, add_generation_prompt=True, return_dict=True, **(options or {})
            )
            return list(encoded["input_ids"])
        except TemplateError as error:
            problem = problem or error
    raise ConfigError(f"the chat template of {tokenizer.name_or_path!r} refuses the messages: {problem}") from problem


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


@dataclass(frozen=True)
class Job:
    """A request with all that the settings decide; models with other settings may share the weights.

    Temperature 0 is greedy; `seed` is of this request alone; `adapter` is a LoRA adapter's folder; `context` is the
    most tokens of prompt and reply, None the model's own limit; for `chat` and `options` see `encode`.
    """

    request: Request
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    schema: Mapping[str, Any] | None = None
    adapter: str | None = None
    name: str = ""
    chat: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    presence_penalty: float = 0.0


class Engine:
    """A model that is loaded; only its thread ever touches it."""

    tokenizer: Any
    context: int | None = None  # most tokens of prompt and reply
    is_seq2seq = False

    def generate(self, jobs: Sequence[Job], prompts: Sequence[list[int]]) -> list[Reply]:
        """Return the replies to prompts, which are tokens."""
        raise NotImplementedError

    def batches(self, jobs: Sequence[Job], prompts: Mapping[int, list[int]]) -> list[list[int]]:
        """Divide the numbers of jobs into those that are answered together."""
        return [list(prompts)]

    def answer(self, jobs: Sequence[Job]) -> list[Reply | Exception]:
        """Return the reply to each job, or why there is none; an ArtefactError means that it is beyond use."""
        outcomes: dict[int, Reply | Exception] = {}
        prompts: dict[int, list[int]] = {}
        for at, job in enumerate(jobs):
            request = job.request
            try:
                ids = encode(self.tokenizer, request.messages, job.chat, job.options, request.raw, self.is_seq2seq)
                limit = min((n for n in (job.context, self.context) if n), default=None)
                check_length(len(ids), request.max_tokens, limit, job.name, self.is_seq2seq)
                prompts[at] = ids
            except Exception as error:  # noqa: BLE001 - what a tokenizer chokes on must not fail the others
                outcomes[at] = _failed(job, error)
        for batch in self.batches(jobs, prompts) if prompts else ():
            replies = self._try([jobs[at] for at in batch], [prompts[at] for at in batch])
            outcomes.update(zip(batch, replies, strict=True))
        return [outcomes[at] for at in range(len(jobs))]

    def _try(self, jobs: Sequence[Job], prompts: Sequence[list[int]]) -> list[Reply | Exception]:
        """Generate; a batch that fails, of memory or of one bad row, is tried in halves."""
        try:
            return [*self.generate(jobs, prompts)]
        except ArtefactError:
            raise
        except Exception as error:  # noqa: BLE001 - one row's failure must not fail its neighbours
            if len(jobs) == 1:
                return [_failed(jobs[0], error)]
            half = len(jobs) // 2
            return self._try(jobs[:half], prompts[:half]) + self._try(jobs[half:], prompts[half:])


def _failed(job: Job, error: Exception) -> Exception:
    """Return an error of one job as what its request gets: our own as it is, others by name."""
    if isinstance(error, GnnragError):
        return error
    return LLMError(f"{job.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")


class ModelThread:
    """Loads a model on the first request, in a thread, and answers there: coroutines of any event loop may ask."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._inbox: queue.SimpleQueue[tuple[Job, Future[Reply]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    async def ask(self, job: Job) -> Reply:
        """Answer one job. ConfigError, ArtefactError: the model cannot be loaded; that answers every request."""
        future: Future[Reply] = Future()
        with self._lock:
            if self._thread is None:
                # The thread knows the inbox, not this object: when the last who asks is gone, so is the model.
                arguments = (self._inbox, self._load)
                self._thread = threading.Thread(target=_serve, args=arguments, name="gnnrag-llm", daemon=True)
                weakref.finalize(self, _end, self._inbox, self._thread)
                self._thread.start()
        self._inbox.put((job, future))
        return await asyncio.wrap_future(future)


def _end(inbox: queue.SimpleQueue[Any], thread: threading.Thread) -> None:
    inbox.put(None)
    if thread is not threading.current_thread():
        thread.join(_GOODBYE_S)


def _serve(inbox: queue.SimpleQueue[tuple[Job, Future[Reply]] | None], load: Callable[[], Engine]) -> None:
    model: Engine | None = None
    failure: Exception | None = None
    while (first := inbox.get()) is not None:
        time.sleep(_WINDOW_S)
        waiting = [first, *(inbox.get() for _ in range(inbox.qsize()))]
        batch = [item for item in waiting if item is not None and not item[1].cancelled()]
        outcomes: Sequence[Reply | Exception]
        try:
            if failure is None:
                model = model or load()
                outcomes = model.answer([job for job, _ in batch])
            else:
                outcomes = [failure] * len(batch)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            failure = error if isinstance(error, GnnragError) else LLMError(f"{type(error).__name__}: {error}")
            model, outcomes = None, [failure] * len(batch)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            try:
                future.set_result(outcome) if isinstance(outcome, Reply) else future.set_exception(outcome)
            except InvalidStateError:  # cancelled meanwhile
                continue
        if None in waiting:
            return


_SHARED: weakref.WeakValueDictionary[Hashable, ModelThread] = weakref.WeakValueDictionary()
_SHARING = threading.Lock()


def shared(key: Hashable, load: Callable[[], Engine]) -> ModelThread:
    """Return the thread of this key that some part of the process still holds, else a new one: weights load once."""
    with _SHARING:
        thread = _SHARED.get(key)
        if thread is None:
            thread = _SHARED[key] = ModelThread(load)
        return thread


@dataclass(eq=False)
class LocalModel(Backend):
    """Base of `hf`, `vllm_engine` and `openvino`; parts of a process that run the same weights share `thread`."""

    grammar: ClassVar[str]  # the package that holds replies to a schema

    model: str = ""  # folder, or hub name (name@revision); the folder of an adapter finds its own base
    adapter: str | None = None  # folder or hub name of a LoRA adapter
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"  # auto: bfloat16 on a GPU, float32 on a CPU
    context: int | None = None  # most tokens of prompt and reply together; null: the model's own limit
    temperature: float = 0.0
    top_p: float = 1.0
    presence_penalty: float = 0.0  # taken from the score of each token that the reply has already
    seed: int = 0  # of sampled replies; each request draws from a generator of its own
    structured: Literal["auto", "json_schema", "off"] = "auto"  # auto: held to the schema where possible
    chat: Literal["auto", "plain"] = "auto"  # auto: the chat template; plain: the bare texts
    template_options: dict[str, Any] = field(default_factory=dict)  # variables of the template: enable_thinking, ...
    prompts: Variant = "auto"  # full, or small: short and without examples; auto: small below a billion parameters

    def setup(self) -> None:
        """Find the model, and the thread of others that run it. ConfigError: no model, or a package is missing."""
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ConfigError(f"temperature={self.temperature}, top_p={self.top_p}: give >= 0, and 0 < top_p <= 1")
        if self.structured == "json_schema" and not self.is_constrained:
            raise ConfigError(
                f"structured=json_schema needs the package {self.grammar}; run: pip install {self.grammar}, or set "
                "structured=auto, which leaves it to the parsers where the package is missing"
            )
        self.files = self.locate()
        self.thread = self.open()

    def locate(self) -> ModelFiles:
        """Return the model's files."""
        return find_model(self.model, self.adapter, self.name)

    def open(self) -> ModelThread:
        """Return the thread that answers."""
        raise NotImplementedError

    @cached_property
    def is_constrained(self) -> bool:
        """Whether replies are held to the schema of a request; else only the parsers look."""
        found = self.structured != "off" and find_spec(self.grammar) is not None
        if not found and self.structured != "off":
            logger.warning("%s: replies are not held to a schema, only parsed (no %s)", self.model, self.grammar)
        return found

    @property
    def identity(self) -> Mapping[str, Any]:
        """Weights by their content, so that training in place is noticed, and all that shapes prompt and reply."""
        kept = ("dtype", "context", "temperature", "top_p", "presence_penalty", "seed", "chat", "template_options")
        known = {"type": self.name, "model": self.files.name, "weights": self.files.fingerprint}
        return {**known, "schema": self.is_constrained, **{name: getattr(self, name) for name in kept}}

    @property
    def wants_small(self) -> bool:
        """Whether it gets the small variant of prompts; an adapter has learned what it was trained on."""
        prompts: Variant = "full" if self.prompts == "auto" and self.files.adapter else self.prompts
        return wants_small(prompts, self.files.name, self.files.base)

    async def generate(self, request: Request) -> Reply:
        """Answer one request; see `Backend`."""
        return await self.thread.ask(self.job(request))

    def job(self, request: Request) -> Job:
        """Return the request with these settings where it leaves them open."""
        if request.model not in (None, self.model, self.files.name):
            raise LLMError(f"{self.files.name}: the request asks for {request.model!r}, and this is one model")
        seed = self.seed if request.seed is None else request.seed
        return Job(
            request=request,
            temperature=self.temperature if request.temperature is None else request.temperature,
            top_p=self.top_p,
            seed=own_seed(request, seed),
            schema=request.schema if self.is_constrained and not request.raw else None,
            adapter=str(self.files.adapter) if self.files.adapter else None,
            name=self.files.name,
            chat=self.chat,
            options=self.template_options,
            context=self.context,
            presence_penalty=self.presence_penalty,
        )


def own_seed(request: Request, seed: int) -> int:
    """Return the seed of a request, below 2^63: from the seed and its messages, so that no two draw the same noise."""
    text = json.dumps([seed, [[m.role, m.content] for m in request.messages]])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
