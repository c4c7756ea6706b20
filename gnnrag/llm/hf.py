"""transformers in this process: any causal or sequence-to-sequence model of a folder, with LoRA adapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnrag.errors import ConfigError
from gnnrag.llm.folders import ModelFiles, kind_of, require
from gnnrag.llm.local import Limits, LocalBackend, LocalConfig, ModelThread, shared

if TYPE_CHECKING:
    from gnnrag.llm.hf_model import HFModel


@dataclass
class HFConfig(LocalConfig):
    """Settings of a transformers model. `structured` needs the package xgrammar."""

    device: str = "auto"  # auto: a GPU where there is one; cpu, cuda, cuda:1, mps
    merge: bool = False  # put the adapter into weights of its own: faster replies, but the base is not shared any more
    max_batch: int = 16  # requests that are answered together; 1: no reply depends on its neighbours' rounding
    batch_tokens: int = 32768  # limit of rows times (longest prompt + longest reply) of a batch: its memory
    max_padding: float = 0.5  # share of a batch's prompts that may be padding: on a CPU it costs, on a GPU hardly
    window_s: float = 0.02  # how long a batch waits for further requests

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batch < 1 or self.batch_tokens < 1 or self.window_s < 0 or not 0 <= self.max_padding < 1:
            raise ConfigError(
                "hf: max_batch and batch_tokens must be positive, window_s at least 0, max_padding in [0, 1)"
            )


class HFBackend(LocalBackend):
    """Answers with a transformers model, in padded batches over all questions in flight.

    Requests that arrive within `window_s`, or while a batch runs, are answered together, in a thread, each with its own
    temperature, seed, limit, stop strings and schema. A reply does not depend on its batch, up to the rounding of
    matrix products: in float32 next to never seen, in bfloat16 now and then; `max_batch=1` and the response cache
    exclude it. A schema is enforced where xgrammar is installed, else ignored (logged). Backends of a process share one
    copy of the weights.

    Raises ConfigError for a missing folder or package, an architecture that does not generate text, or a broken
    adapter.
    """

    kind, grammar = "hf", "xgrammar"
    config_class = HFConfig

    def __init__(self, config: HFConfig | None = None) -> None:
        c = self.config = config or HFConfig()
        for package in ("torch", "transformers"):
            require(package, "hf", f"pip install {package}")
        files = self.files = self._find(c)
        if files.adapter:
            require("peft", "hf", "pip install peft")
        kind = kind_of(files)
        merged = files.adapter if c.merge else None
        limits = Limits(c.max_batch, c.batch_tokens, c.max_padding)
        key = ("hf", files.base, _mark(files, c.merge), c.device, c.dtype, limits, c.window_s)

        def load() -> HFModel:
            from gnnrag.llm.hf_model import HFModel, load_model

            model, tokenizer = load_model(files.base, kind, merged, c.device, c.dtype)
            return HFModel(model, tokenizer, kind == "seq2seq", limits)

        self.thread = shared(key, lambda: ModelThread(load, c.window_s))

    def _adapter(self) -> str | None:
        return None if self.config.merge else super()._adapter()


def _mark(files: ModelFiles, merge: bool) -> str:
    """Tell weights apart that lie in one folder one after the other; a shared base is told by its own files alone."""
    return files.fingerprint if merge else ModelFiles(files.base, None, "").fingerprint
