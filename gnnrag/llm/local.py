"""Models that run in this process: their files, messages to tokens, and a thread that answers in batches."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge

from gnnrag.batching import MicroBatcher
from gnnrag.errors import ConfigError, GnnragError, LLMError
from gnnrag.io import digest, file_digest, read_object
from gnnrag.llm.base import (
    Backend,
    ContextLengthError,
    Message,
    RejectedError,
    Reply,
    Request,
    Variant,
    wants_small,
    without_system,
)

logger = logging.getLogger(__name__)
_NO_LIMIT = 1_000_000  # tokenizers without a limit give a huge number
_LEAST_REPLY = 256  # tokens that a prompt has to leave for the reply, where more are asked for
_MOST_JOBS = 1_000_000  # of a batch: an engine divides it itself
_WINDOW_S = 0.01  # how long a batch waits for further requests: those just answered come back within milliseconds

_DECIDING = ("*.json", "*.safetensors", "*.model", "*.jinja", "*.txt")  # the files that decide what a model replies
OPENVINO = (*_DECIDING, "*.xml", "*.bin")


@dataclass(frozen=True)
class ModelFiles:
    """A folder as `save_pretrained` writes it (`openvino`: or a file), perhaps with a LoRA adapter.

    `name` is for replies and error messages.
    """

    base: Path
    adapter: Path | None
    name: str

    @cached_property
    def fingerprint(self) -> str:
        """Digest of weights, tokenizer and settings: another after further training, the same after moving it."""
        return digest([_fingerprint(folder) for folder in (self.base, self.adapter) if folder])

    @cached_property
    def base_fingerprint(self) -> str:
        return digest(_fingerprint(self.base))


def _fingerprint(path: Path) -> list[Any]:
    files = [path] if path.is_file() else [file for pattern in OPENVINO for file in path.glob(pattern)]
    return [[file.name, file.stat().st_size, file_digest(file)] for file in sorted({*files}) if file.is_file()]


def find_model(model: str, adapter: str | None = None) -> ModelFiles:
    """Resolve `model` (folder or hub name, `name@revision` for a fixed one; an adapter names its base) and `adapter`.

    Raises ConfigError where there is no causal language model, or the adapter's weights are pickled.
    """
    if not model:
        raise ConfigError("llm=hf needs a model: give llm.model=FOLDER, or of one role roles.ROLE.model=FOLDER")
    base = local_folder(model)
    if (base / "adapter_config.json").is_file() and not (base / "config.json").is_file():
        adapter = str(base)
        named = read_object(base / "adapter_config.json").get("base_model_name_or_path")
        base = local_folder(str(named or f"(base of {adapter})"))
    folder = local_folder(adapter) if adapter else None
    if folder and not (folder / "adapter_model.safetensors").is_file():
        raise ConfigError(f"adapter={adapter!r} holds no adapter_model.safetensors: give a folder saved by peft")
    name = next(iter(read_object(base / "config.json").get("architectures") or ()), "(none named)")
    if not name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        raise ConfigError(f"model {str(base)!r} is a {name}: llm=hf runs causal language models (...ForCausalLM)")
    return ModelFiles(base, folder, base.name + (f"+{folder.name}" if folder else ""))


def require_openvino(package: str) -> None:
    """Raise ConfigError with the command to run where a package of the extra `openvino` is missing."""
    if find_spec(package) is None:
        raise ConfigError(f"llm=openvino needs the package {package}; run: pip install 'gnnrag[openvino]'")


def local_folder(name: str, patterns: tuple[str, ...] = _DECIDING) -> Path:
    """Return a folder, or the copy of a model of the hub that was fetched. Raises ConfigError where there is none."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path.resolve()
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(patterns)))
    except (OSError, ValueError) as error:
        problem = f"model {name!r} does not exist here, and the hub gave none: {brief(error)}"
        raise ConfigError(f"{problem}; an adapter's base is given by llm.model=BASE llm.adapter=FOLDER") from error


def encode(
    tokenizer: Any,
    messages: Sequence[Message],
    chat: str = "auto",
    options: Mapping[str, Any] | None = None,
    raw: bool = False,
) -> list[int]:
    """Return the tokens of a prompt; ConfigError: the tokenizer has no template, or its template refuses the messages.

    `chat`: `auto` is the tokenizer's template, `plain` joins the texts with empty lines. `options` are variables of the
    template, such as enable_thinking; `raw` continues the joined text.
    """
    if raw or chat == "plain":
        return list(tokenizer(("" if raw else "\n\n").join(m.content for m in messages))["input_ids"])
    if not tokenizer.chat_template:
        raise ConfigError(f"{tokenizer.name_or_path!r} has no chat template: take a chat model, or set llm.chat=plain")
    from jinja2.exceptions import TemplateError

    turns = [{"role": m.role, "content": m.content} for m in messages]
    try:
        encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True, **(options or {}))
    except TemplateError as error:
        if messages[0].role == "system" and len(messages) > 1:  # which some families do not know
            return encode(tokenizer, without_system(messages), chat, options)
        raise ConfigError(f"the chat template of {tokenizer.name_or_path!r} refuses the messages: {error}") from error
    return list(encoded["input_ids"])


def own_context(config: Any, tokenizer: Any) -> int | None:
    """Return the limit that a model states itself: of positions, or, with relative ones, its tokenizer's."""
    limit = getattr(config.get_text_config(), "max_position_embeddings", None) or tokenizer.model_max_length
    return int(limit) if limit and limit < _NO_LIMIT else None


@dataclass(frozen=True)
class Job:
    """A request with its temperature, seed and schema filled in, and the backend with all other settings."""

    request: Request
    part: LocalModel

    @property
    def adapter(self) -> str | None:
        adapter = self.part.files.adapter
        return str(adapter) if adapter else None

    def reply(self, text: str, prompt: int, tokens: int, has_ended: bool) -> Reply:
        """Return a text as the reply, cut before the first stop string (`raw`: after it); both counts are tokens."""
        request = self.request
        if places := [(text.index(stop), len(stop)) for stop in request.stop if stop in text]:
            text, has_ended = text[: min(places)[0] + min(places)[1] * request.raw], True
        finish = "stop" if has_ended else "length"
        return Reply(text, finish, prompt_tokens=prompt, completion_tokens=tokens, model=self.part.files.name)


class Engine:
    """A model that is loaded; only its thread ever touches it."""

    tokenizer: Any
    context: int | None = None  # most tokens of prompt and reply

    def generate(self, jobs: Sequence[Job], prompts: Sequence[list[int]]) -> list[Reply]:
        raise NotImplementedError

    def batches(self, jobs: Sequence[Job], prompts: Mapping[int, list[int]]) -> list[list[int]]:
        return [list(prompts)]

    def answer(self, jobs: Sequence[Job]) -> list[Reply | Exception]:
        """Return the reply to each job, or why there is none."""
        jobs, outcomes = list(jobs), dict[int, Reply | Exception]()
        prompts: dict[int, list[int]] = {}
        for at, job in enumerate(jobs):
            request, part = job.request, job.part
            try:
                ids = encode(self.tokenizer, request.messages, part.chat, part.template_options, request.raw)
                limit = min((n for n in (part.context, self.context) if n), default=_NO_LIMIT)
                room = min(request.max_tokens, max(limit - len(ids), _LEAST_REPLY))
                if len(ids) + room > limit:
                    raise ContextLengthError(
                        f"{part.files.name}: {len(ids)} tokens of prompt and {room} of reply do not fit into {limit}; "
                        "show fewer or shorter passages, ask for shorter replies, or raise llm.context"
                    )
                prompts[at], jobs[at] = ids, replace(job, request=replace(request, max_tokens=room))
            except Exception as error:  # noqa: BLE001 - what a tokenizer chokes on must not fail the others
                outcomes[at] = _failed(part.files.name, error, RejectedError)
        for batch in self.batches(jobs, prompts) if prompts else ():
            replies = self._try([jobs[at] for at in batch], [prompts[at] for at in batch])
            outcomes.update(zip(batch, replies, strict=True))
        return [outcomes[at] for at in range(len(jobs))]

    def _try(self, jobs: Sequence[Job], prompts: Sequence[list[int]]) -> list[Reply | Exception]:
        """Generate; a batch that fails, of memory or of one bad row, is tried in halves."""
        try:
            return [*self.generate(jobs, prompts)]
        except Exception as error:  # noqa: BLE001 - one row's failure must not fail its neighbours
            if len(jobs) == 1:
                return [_failed(jobs[0].part.files.name, error)]
            half = len(jobs) // 2
            return self._try(jobs[:half], prompts[:half]) + self._try(jobs[half:], prompts[half:])


def _failed(name: str, error: Exception, kind: type[LLMError] = LLMError) -> Exception:
    """Return the error of a request: one of gnnrag's own unchanged, any other as `kind` with its type's name."""
    if isinstance(error, GnnragError):
        return error
    if type(error).__name__ == "OutOfMemoryError":  # alone in its batch: shorter ones fit
        kind = RejectedError
    return kind(f"{name}: {type(error).__name__}: {brief(error)}")


def brief(error: Exception) -> str:
    """Return what a library says of its error, on one line."""
    return " ".join(str(error).split())[:300]


class _Loaded:
    """A model that is loaded on the first request; why it cannot be, or is beyond use, answers all requests."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._model: Engine | None = None
        self._failure: Exception | None = None

    def __call__(self, jobs: Sequence[Job]) -> Sequence[Reply | Exception]:
        if self._failure is None:
            try:
                self._model = self._model or self._load()
                return self._model.answer(jobs)
            except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
                self._model, self._failure = None, _failed("llm", error)
        return [self._failure] * len(jobs)


ModelThread: TypeAlias = MicroBatcher[Job, Reply]
_SHARED: weakref.WeakValueDictionary[Hashable, ModelThread] = weakref.WeakValueDictionary()
_SHARING = threading.Lock()


def shared(key: Hashable, load: Callable[[], Engine]) -> ModelThread:
    """Return the thread of this key that some part of the process still holds, else a new one: weights load once."""
    with _SHARING:
        thread = _SHARED.get(key)
        if thread is None:
            thread = _SHARED[key] = MicroBatcher(_Loaded(load), _MOST_JOBS, _WINDOW_S)
        return thread


@dataclass(eq=False)
class LocalModel(Backend):
    """Base of `hf` and `openvino`; parts of a process that run the same weights share `thread`."""

    grammar: ClassVar[str]  # the package that holds replies to a schema

    model: str = ""  # folder, or hub name (name@revision); the folder of an adapter finds its own base
    adapter: str | None = None  # folder or hub name of a LoRA adapter
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"  # auto: bfloat16 on a GPU, float32 on a CPU
    context: int | None = None  # most tokens of prompt and reply together; null: the model's own limit
    temperature: Annotated[float, Ge(0)] = 0.0
    presence_penalty: float = 0.0  # taken from the score of each token that the reply has already
    seed: int = 0  # of sampled replies; each request draws from a generator of its own
    chat: Literal["auto", "plain"] = "auto"  # auto: the chat template; plain: the bare texts
    template_options: dict[str, Any] = field(default_factory=dict)  # variables of the template: enable_thinking, ...
    prompts: Variant = "auto"  # full, or small: short, with one example at most; auto: by the size in the model's name

    def setup(self) -> None:
        """Find the model, and the thread of others that run it. ConfigError: no model, or a package is missing."""
        self.files = self.locate()
        self.thread = self.open()

    def locate(self) -> ModelFiles:
        return find_model(self.model, self.adapter)

    def open(self) -> ModelThread:
        """Return the thread that answers; `shared` by parts of the same weights."""
        raise NotImplementedError

    @cached_property
    def is_constrained(self) -> bool:
        """Whether replies are held to the schema of a request; else only the parsers look."""
        is_installed = find_spec(self.grammar) is not None
        if not is_installed:
            logger.warning("%s: replies are not held to a schema, only parsed (no %s)", self.model, self.grammar)
        return is_installed

    @property
    def identity(self) -> Mapping[str, Any]:
        """A digest of the weights, which changes if they are trained in place, and all that shapes prompt and reply."""
        names = ("dtype", "context", "temperature", "presence_penalty", "seed", "chat", "template_options")
        known = {"type": self.name, "model": self.files.name, "weights": self.files.fingerprint}
        return {**known, "schema": self.is_constrained, **{name: getattr(self, name) for name in names}}

    @property
    def wants_small(self) -> bool:
        prompts: Variant = "full" if self.prompts == "auto" and self.files.adapter else self.prompts  # as trained
        weights = sum(file.stat().st_size for file in self.files.base.glob("*.safetensors"))
        return wants_small(prompts, self.files.name, weights / 2)  # bytes of a parameter in half precision

    async def generate(self, request: Request) -> Reply:
        """Answer a request. ConfigError, ArtefactError: the model cannot be loaded; that answers every request."""
        (reply,) = await self.thread([self.job(request)])
        return reply

    def job(self, request: Request) -> Job:
        """Return the request with these settings where it leaves them open."""
        seed = self.seed if request.seed is None else request.seed
        # Of the seed and the messages: no two requests draw the same noise.
        text = json.dumps([seed, [[m.role, m.content] for m in request.messages]])
        settled = replace(
            request,
            temperature=self.temperature if request.temperature is None else request.temperature,
            seed=int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1,  # below 2^63
            schema=request.schema if self.is_constrained and not request.raw else None,
            stop=tuple(filter(None, request.stop)),
        )
        return Job(settled, self)
