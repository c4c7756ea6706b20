"""Language models by OpenVINO GenAI: the backend, and its pipeline driven step by step by one thread."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError, ConfigError, GnnragError, LLMError
from gnnrag.llm.base import Reply
from gnnrag.llm.folders import ModelFiles, check_gguf, local_folder, read_settings, require
from gnnrag.llm.local import Job, LocalBackend, LocalConfig, ModelThread, Ticket, check_length, cut_at, encode, shared

logger = logging.getLogger(__name__)
# Else activations and the cache of keys and values are rounded to 8 bits in groups, which neighbours have a part in.
_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
_SHORTER = {"bfloat16": {"INFERENCE_PRECISION_HINT": "bf16"}, "float16": {"INFERENCE_PRECISION_HINT": "f16"}}
_PROBE = 1 << 17  # tokens: a text so long shows where the tokenizer cuts prompts in silence (that of a GGUF at 8,192)
_SEEDS = 1 << 32  # that OpenVINO tells apart


class OpenVINOEngine:
    """A `gnnrag.llm.local.Model` on a `ContinuousBatchingPipeline`: requests join and leave the batch at every step.

    A step holds Python's lock: other threads run between steps. `context`, of prompt and reply, is None if unknown.
    """

    def __init__(self, pipeline: Any, name: str, context: int | None) -> None:
        self.pipeline, self.tokenizer = pipeline, _Tokenizer(pipeline.get_tokenizer(), name)
        self.context, self._room = context, len(self.tokenizer("a " * _PROBE)["input_ids"])
        self._ends = pipeline.get_config().stop_token_ids | {self.tokenizer.own.get_eos_token_id()}
        self._running: dict[int, tuple[Ticket, Any, int]] = {}
        self._numbers = count()
        self._loose: set[str] = set()

    @property
    def is_busy(self) -> bool:
        """Whether requests are in the pipeline."""
        return bool(self._running)

    def take(self, tickets: Sequence[Ticket]) -> None:
        """Tokenize prompts and hand them in; one that cannot be answered is finished with its error."""
        import numpy as np
        from openvino import Tensor

        for ticket in tickets:
            job, request = ticket.job, ticket.job.request
            try:
                ids = encode(self.tokenizer, request.messages, job.chat, job.options, request.raw)
                cut = self._room if len(ids) >= self._room else None
                limits = [limit for limit in (job.context, self.context, cut) if limit]
                check_length(len(ids), request.max_tokens, min(limits, default=None), job.name)
                if not ids:
                    raise LLMError(f"{job.name}: the prompt is empty")
                number = next(self._numbers)
                handle = self.pipeline.add_request(number, Tensor(np.array([ids], np.int64)), self._sampling(job))
                self._running[number] = (ticket, handle, len(ids))
            except GnnragError as error:
                ticket.finish(error)
            except Exception as error:  # noqa: BLE001 - whatever it chokes on must not fail the others
                ticket.finish(LLMError(f"{job.name}: {type(error).__name__}: {_told(error)}"))

    def advance(self) -> None:
        """Do one step: a part of the prompts, or one more token of every reply."""
        from openvino_genai import GenerationStatus

        for number, (ticket, handle, _) in list(self._running.items()):
            if ticket.is_over:
                handle.cancel()
                del self._running[number]
        if self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        for number, (ticket, handle, prompt) in list(self._running.items()):
            if (status := handle.get_status()) == GenerationStatus.RUNNING:
                continue
            del self._running[number]
            outputs = handle.read_all() if status == GenerationStatus.FINISHED else []
            if outputs:
                ticket.finish(self._reply(outputs[0], ticket.job, prompt))
            else:  # it has no memory for the prompt
                ticket.finish(LLMError(f"{ticket.job.name}: OpenVINO gave the request up ({status.name})"))

    def _sampling(self, job: Job) -> Any:
        from openvino_genai import GenerationConfig, StructuredOutputConfig

        found = GenerationConfig()
        found.stop_token_ids, found.max_new_tokens = self._ends, job.request.max_tokens
        found.presence_penalty = job.presence_penalty
        if job.temperature > 0:
            found.do_sample, found.temperature, found.top_p = True, job.temperature, job.top_p
            found.rng_seed = job.seed % _SEEDS
        if stop := {text for text in job.request.stop if text}:
            found.stop_strings, found.include_stop_str_in_output = stop, True
        if job.schema is not None and (pattern := self._pattern(job.schema)):
            found.structured_output_config = StructuredOutputConfig(regex=pattern)
        return found

    def _pattern(self, schema: Mapping[str, Any]) -> str | None:
        """Return what holds a reply to a schema; None, with a line in the log, where nothing can."""
        try:
            return pattern_of(schema)
        except ValueError as error:
            if str(error) not in self._loose:
                self._loose.add(str(error))
                logger.warning("a schema is not enforced, only parsed for (%s)", error)
            return None

    def _reply(self, output: Any, job: Job, prompt: int) -> Reply:
        from openvino_genai import GenerationFinishReason

        text = self.tokenizer.own.decode(output.generated_ids, skip_special_tokens=True)
        cut = cut_at(text, job.request.stop)
        is_cut_off = cut is None and output.finish_reason == GenerationFinishReason.LENGTH
        return Reply(
            text=text if cut is None else cut,
            finish_reason="length" if is_cut_off else "stop",
            prompt_tokens=prompt,
            completion_tokens=len(output.generated_ids),
            model=job.name,
        )


class _Tokenizer:
    """OpenVINO's tokenizer as `gnnrag.llm.local.encode` wants it; templates are run by a C++ library, not by Python."""

    def __init__(self, own: Any, name: str) -> None:
        self.own, self.name_or_path, self.chat_template = own, name, own.chat_template

    def __call__(self, text: str, special: bool = True) -> dict[str, list[int]]:
        return {"input_ids": self.own.encode(text, add_special_tokens=special).input_ids.data[0].tolist()}

    def apply_chat_template(
        self, turns: list[dict[str, str]], add_generation_prompt: bool, return_dict: bool, **options: Any
    ) -> dict[str, list[int]]:
        from jinja2.exceptions import TemplateError

        "".join(turn["content"] for turn in turns).encode()  # half a pair is no fault of the template
        try:
            text = self.own.apply_chat_template(turns, add_generation_prompt, extra_context=options or None)
        except RuntimeError as error:
            raise TemplateError(_told(error)) from error
        return self(text, special=False)


def start_engine(path: Path, device: str, dtype: str, max_batch: int) -> OpenVINOEngine:
    """Load a GGUF file or a folder; the rest as in `OpenVINOConfig`; ArtefactError: damaged, or not for this device."""
    try:
        import openvino_genai

        context = check_gguf(path) if path.is_file() else _folder_context(path)
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_seqs, scheduler.enable_prefix_caching = max_batch, True
        properties: dict[str, Any] = dict(_SHORTER.get(dtype, _EXACT))
        if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():  # which OpenVINO itself overlooks
            properties["INFERENCE_NUM_THREADS"] = int(threads)
        pipeline = openvino_genai.ContinuousBatchingPipeline(str(path), scheduler, device, properties)
        return OpenVINOEngine(pipeline, path.stem, context)
    except GnnragError:
        raise
    except Exception as error:  # OpenVINO raises whatever a missing device or a damaged file leads to
        raise ArtefactError(
            f"OpenVINO cannot run {str(path)!r} on {device} ({type(error).__name__}: {_told(error)}); copy it "
            "again, or take llm=hf for an architecture that it does not know"
        ) from error


def _folder_context(folder: Path) -> int | None:
    path = folder / "config.json"
    found = read_settings(path).get("max_position_embeddings") if path.is_file() else None
    return found if isinstance(found, int) else None


def _told(error: Exception) -> str:
    """Return what OpenVINO says, on one line, without the names of the files that it was built from."""
    lines = [line for line in str(error).splitlines() if not line.startswith(("Exception from", "Check '"))]
    return " ".join(" ".join(lines or str(error).splitlines()).split())[:300]


_DECIDING = ("*.json", "*.xml", "*.bin", "*.jinja", "*.txt")
_PARTS = ("openvino_model.xml", "openvino_model.bin", "openvino_tokenizer.xml", "openvino_detokenizer.xml")

_STRING = r'([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})'
_PLAIN = {
    "boolean": "(true|false)",
    "null": "null",
    "integer": "-?(0|[1-9][0-9]{0,15})",
    "number": r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,8})?",
}
_MOST_CHOICES = 1000  # of an integer between bounds


@dataclass
class OpenVINOConfig(LocalConfig):
    """Settings of an OpenVINO model. `dtype`: auto is float32; the others are faster, and leave more to OpenVINO."""

    device: str = "CPU"  # as OpenVINO names it: CPU, GPU (Intel's), AUTO
    max_batch: int = 16  # replies that are made together; further requests wait

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batch < 1:
            raise ConfigError(f"openvino: max_batch={self.max_batch}: must be positive")


class OpenVINOBackend(LocalBackend):
    """Answers with a model that OpenVINO runs (a GGUF file, or a folder): quantised ones on a CPU, in little memory.

    Requests join the running batch. In float32 a reply does not depend on its neighbours; in the shorter types now and
    then. A schema is enforced where `pattern_of` can read it. ConfigError: openvino-genai or the model is missing, or
    an adapter given.
    """

    kind, grammar = "openvino", "openvino_genai"
    config_class = OpenVINOConfig

    def __init__(self, config: OpenVINOConfig | None = None) -> None:
        c = self.config = config or OpenVINOConfig()
        require("openvino_genai", "openvino", "pip install 'gnnrag[openvino]'")
        files = self.files = self._find(c)

        def load() -> OpenVINOEngine:

            return start_engine(files.base, c.device, c.dtype, c.max_batch)

        key = ("openvino", files.base, files.fingerprint, c.device, c.dtype, c.max_batch)
        self.thread = shared(key, lambda: ModelThread(load))

    def _locate(self, config: LocalConfig) -> ModelFiles:
        if config.adapter:
            raise ConfigError(f"adapter={config.adapter!r}: llm=openvino puts on no adapter; merge it, or take llm=hf")
        path = Path(config.model).expanduser()
        if config.model and path.is_dir() and not (path / _PARTS[0]).is_file():
            found = sorted(path.glob("*.gguf"))
            if len(found) != 1:
                raise ConfigError(
                    f"model folder {config.model!r} has neither {_PARTS[0]} nor one *.gguf (it has {len(found)}): give "
                    "a GGUF file, or a folder that optimum-intel exported for OpenVINO"
                )
            path = found[0]
        if path.is_file():
            return ModelFiles(path.resolve(), None, path.stem)
        if not config.model or path.suffix == ".gguf":
            raise ConfigError(f"llm=openvino: there is no model {config.model!r}; give llm.model=FILE.gguf or a folder")
        folder = local_folder(config.model, "openvino", _DECIDING)
        if lacking := [name for name in _PARTS if not (folder / name).is_file()]:
            raise ConfigError(f"model folder {str(folder)!r} has no {', '.join(lacking)}: export it again for OpenVINO")
        return ModelFiles(folder, None, folder.name, _DECIDING)


def pattern_of(schema: Mapping[str, Any]) -> str:
    """Return a regular expression of the JSON texts that follow a schema, with one space after `:` and `,`.

    OpenVINO's own schemas allow any white space, where small models run in circles until their limit; one that it
    cannot read leaves the pipeline beyond use. ValueError: more than objects of fixed properties, arrays, choices and
    plain values.
    """
    kind, choices = schema.get("type"), schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is None and kind == "integer" and {"minimum", "maximum"} <= schema.keys():
        choices = range(schema["minimum"], min(schema["maximum"], schema["minimum"] + _MOST_CHOICES) + 1)
    if choices is not None:
        return f"({'|'.join(re.escape(json.dumps(choice, ensure_ascii=False)) for choice in choices)})"
    if (
        kind == "object"
        and schema.keys() >= {"properties"}
        and {*schema.get("required", ())} == {*schema["properties"]}
    ):
        parts = [f"{re.escape(json.dumps(name))}: {pattern_of(part)}" for name, part in schema["properties"].items()]
        return rf"\{{{', '.join(parts)}\}}"
    low, high = (
        schema.get(name) for name in (("minItems", "maxItems") if kind == "array" else ("minLength", "maxLength"))
    )
    if kind == "array" and "items" in schema:
        item = pattern_of(schema["items"])
        more = "" if high == 1 else f"(, {item}){{{max((low or 1) - 1, 0)},{'' if high is None else high - 1}}}"
        return rf"\[{item}{more}\]" if low else rf"\[({item}{more})?\]"
    if kind == "string":
        return f'"{_STRING}{{{low or 0},{"" if high is None else high}}}"'
    if kind in _PLAIN:
        return _PLAIN[kind]
    raise ValueError(f"OpenVINO is given no schema with {json.dumps(dict(schema))[:100]}")
