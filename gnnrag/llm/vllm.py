"""vLLM in this process: its continuous batching over all questions in flight, without a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnnrag.common.files import digest
from gnnrag.errors import ConfigError
from gnnrag.llm.folders import require
from gnnrag.llm.local import LocalBackend, LocalConfig, ModelThread, shared

if TYPE_CHECKING:
    from gnnrag.llm.vllm_engine import VLLMEngine

_INSTALL = "pip install vllm (with CUDA), or see `make test-vllm` for a CPU"


@dataclass
class VLLMConfig(LocalConfig):
    """Settings of an engine. Backends of a process that agree on these, and on model and context, share it."""

    gpu_memory: float = 0.9  # share of the GPU's memory that the engine may take
    tensor_parallel: int = 1  # GPUs that share one copy of the weights
    lora_rank: int | None = None  # highest rank of adapters; null: that of those known when the engine starts
    engine: dict[str, Any] = field(default_factory=dict)  # further arguments of vllm.EngineArgs: enforce_eager, ...


class VLLMBackend(LocalBackend):
    """Answers with a vLLM engine that this process owns.

    Requests join the running batch as they come. A request's schema is enforced by vLLM itself. Roles that name the
    same model with other adapters share one engine, which is started with the first request and with room for the
    adapters of all backends made until then.

    Args:
        config: settings.

    Raises:
        ConfigError: vLLM is not installed, no such folder, a broken adapter, or a setting given twice.
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
            from gnnrag.llm.vllm_engine import start_engine

            return start_engine(settings, ranks, c.lora_rank)

        def make() -> EngineThread:
            return EngineThread(load, ranks)

        thread = shared(("vllm", digest(settings), c.lora_rank, files.base), make)
        if files.adapter:
            thread.ranks[str(files.adapter)] = files.rank
        self.thread = thread


class EngineThread(ModelThread):
    """A thread with an engine, and the adapters that its backends have named: it must know the highest rank to start.

    Args:
        load: starts the engine.
        ranks: adapter folder to rank; backends add theirs.
    """

    def __init__(self, load: Any, ranks: dict[str, int]) -> None:
        super().__init__(load)
        self.ranks = ranks
