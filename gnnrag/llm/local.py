"""What the backends that run a model in this process have in common: settings, identity, requests to jobs."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from gnnrag.cluster.standstill import waiting
from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import Reply, Request, shaping
from gnnrag.llm.folders import ModelFiles, find_model
from gnnrag.llm.sizes import Variant, wants_small
from gnnrag.llm.tickets import Job
from gnnrag.llm.worker import ModelThread

logger = logging.getLogger(__name__)


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
        """Refuse values that no model can sample with."""
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ConfigError(f"temperature={self.temperature}, top_p={self.top_p}: give >= 0, and 0 < top_p <= 1")
        if self.context is not None and self.context < 1:
            raise ConfigError(f"context={self.context}: must be positive, or null for the model's own limit")


class LocalBackend:
    """Base of `hf`, `vllm` and `openvino`.

    Args:
        config: settings.

    Attributes:
        files: the model on disk.
        thread: the thread that answers, shared by all backends of the process that run the same weights.
    """

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
        """Answer one request, in a batch with those of other coroutines.

        Raises:
            ContextLengthError: the prompt does not fit.
            LLMError: the model failed, or the request names another one.
            ConfigError: the model cannot be loaded, or has no chat template.
        """
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
