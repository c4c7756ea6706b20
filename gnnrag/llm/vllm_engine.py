"""vLLM in this process, for work in large batches; a server (`vllm serve`) is the part `vllm`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.io import digest
from gnnrag.llm.base import Reply
from gnnrag.llm.local import Engine, Job, LocalModel, ModelThread, brief, require, shared
from gnnrag.parts import part

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has kernels for


class _Engine(Engine):
    """`vllm.LLM`, which batches continuously within what it is handed at once."""

    def __init__(self, llm: Any) -> None:
        self.llm, self.tokenizer = llm, llm.get_tokenizer()
        self.context = int(llm.llm_engine.model_config.max_model_len)
        self._adapters: dict[str, Any] = {}

    def generate(self, jobs: Sequence[Job], prompts: Sequence[list[int]]) -> list[Reply]:
        outputs = self.llm.generate(
            [{"prompt_token_ids": ids} for ids in prompts],
            [_sampling(job) for job in jobs],
            lora_request=[self._adapter(job.adapter) for job in jobs] if any(job.adapter for job in jobs) else None,
            use_tqdm=False,
        )
        return [
            Reply(
                text=output.outputs[0].text,
                finish_reason=str(output.outputs[0].finish_reason or "unknown"),
                prompt_tokens=len(output.prompt_token_ids or ()),
                completion_tokens=len(output.outputs[0].token_ids),
                model=job.name,
            )
            for output, job in zip(outputs, jobs, strict=True)
        ]

    def _adapter(self, folder: str | None) -> Any:
        from vllm.lora.request import LoRARequest

        if folder is None:
            return None
        if folder not in self._adapters:
            number = len(self._adapters) + 1
            self._adapters[folder] = LoRARequest(f"adapter{number}", number, folder)
        return self._adapters[folder]


def _sampling(job: Job) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    return SamplingParams(
        temperature=job.temperature,
        top_p=job.top_p,
        presence_penalty=job.presence_penalty,
        seed=job.seed,
        max_tokens=job.request.max_tokens,
        stop=list(job.request.stop) or None,
        structured_outputs=None if job.schema is None else StructuredOutputsParams(json=dict(job.schema)),
    )


@part("llm", "vllm_engine")
class VLLMEngine(LocalModel):
    """Answers with a vLLM engine that this process owns; schemas are enforced by vLLM.

    Parts that name one base share an engine, also with different adapters of at most `lora_rank`.
    """

    lora_rank: int | None = None  # highest rank of adapters; null: that of this part's adapter
    engine: dict[str, Any] = field(default_factory=dict)  # of vllm.EngineArgs: tensor_parallel_size, max_loras, ...

    grammar = "vllm"

    def open(self) -> ModelThread:
        require("vllm", self.name, "pip install vllm")
        settings: dict[str, Any] = {
            "model": str(self.files.base),
            "dtype": self.dtype,
            "max_model_len": self.context,
            "load_format": "safetensors",  # else vLLM would take pickled weights beside them, which can run code
            "trust_remote_code": False,
        }
        if twice := sorted(settings.keys() & self.engine.keys()):
            raise ConfigError(f"llm.engine: {', '.join(twice)} are settings of llm, or fixed")
        # Free white space is where small models run in circles until their limit.
        settings |= {"structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True}}
        if rank := self.lora_rank or self.files.rank:
            rank = next((r for r in _RANKS if r >= rank), rank)
            settings |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": 4}
        settings |= self.engine

        def load() -> _Engine:
            from vllm import LLM

            try:
                return _Engine(LLM(**{name: value for name, value in settings.items() if value is not None}))
            except Exception as error:  # vLLM raises whatever a missing device, kernel or file leads to
                raise ArtefactError(f"vLLM cannot start with {settings['model']!r} ({brief(error)})") from error

        return shared(("vllm", digest(settings), self.files.base_fingerprint), load)
