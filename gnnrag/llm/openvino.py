"""OpenVINO GenAI in this process: quantised models (a GGUF file, or a folder) on a CPU, in little memory."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.base import Reply
from gnnrag.llm.local import (
    OPENVINO,
    Engine,
    Job,
    LocalModel,
    ModelFiles,
    ModelThread,
    brief,
    local_folder,
    require_openvino,
    shared,
)
from gnnrag.parts import part

logger = logging.getLogger(__name__)
# Otherwise activations and the key-value cache are rounded to 8 bits in groups, and replies depend on the batch.
_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
_SHORTER = {"bfloat16": {"INFERENCE_PRECISION_HINT": "bf16"}, "float16": {"INFERENCE_PRECISION_HINT": "f16"}}
_PROBE = 1 << 17  # tokens: a text so long shows where the tokenizer cuts prompts in silence (that of a GGUF at 8,192)
_SEEDS = 1 << 32  # that OpenVINO tells apart


class Pipeline(Engine):
    def __init__(self, pipeline: Any, name: str) -> None:
        self.pipeline, self.tokenizer = pipeline, _Tokenizer(pipeline.get_tokenizer(), name)
        self.context = len(self.tokenizer("a " * _PROBE)["input_ids"])
        self._ends = pipeline.get_config().stop_token_ids | {self.tokenizer.own.get_eos_token_id()}

    def generate(self, jobs: Sequence[Job], prompts: Sequence[list[int]]) -> list[Reply]:
        import numpy as np
        from openvino import Tensor

        inputs = [Tensor(np.array([ids], np.int64)) for ids in prompts]
        results = self.pipeline.generate(inputs, [self._sampling(job) for job in jobs])
        return [self._reply(*row) for row in zip(results, jobs, map(len, prompts), strict=True)]

    def _sampling(self, job: Job) -> Any:
        from openvino_genai import GenerationConfig, StructuredOutputConfig

        config = GenerationConfig()
        config.stop_token_ids, config.max_new_tokens = self._ends, job.request.max_tokens
        request, config.presence_penalty = job.request, job.part.presence_penalty
        if request.temperature:
            config.do_sample, config.temperature = True, request.temperature
            config.rng_seed = (request.seed or 0) % _SEEDS
        if request.stop:
            config.stop_strings, config.include_stop_str_in_output = {*request.stop}, True
        if request.schema is not None:
            try:
                pattern = pattern_of(request.schema).replace("\\ ", " ")  # it would warn of each marked blank
                config.structured_output_config = StructuredOutputConfig(regex=pattern)
            except ValueError as error:
                logger.warning("a schema is not enforced, only parsed for (%s)", error)
        return config

    def _reply(self, result: Any, job: Job, prompt: int) -> Reply:
        tokens = list(result.m_generation_ids[0])
        has_ended = len(tokens) < job.request.max_tokens or tokens[-1] in self._ends
        return job.reply(self.tokenizer.own.decode(tokens), prompt, len(tokens), has_ended)


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

        try:
            text = self.own.apply_chat_template(turns, add_generation_prompt, extra_context=options or None)
        except RuntimeError as error:
            raise TemplateError(str(error)) from error
        return self(text, special=False)


@part("llm", "openvino")
class OpenVINO(LocalModel):
    """Answers with a model that OpenVINO runs. `dtype`: auto is float32, where a reply does not depend on its batch."""

    device: str = "CPU"  # as OpenVINO names it: CPU, GPU (Intel's), AUTO
    max_batch: Annotated[int, Ge(1)] = 16  # replies that are made together

    grammar = "openvino_genai"

    def locate(self) -> ModelFiles:
        """Return a GGUF file or a folder that optimum-intel exported."""
        require_openvino("openvino_genai")
        if self.adapter:
            raise ConfigError(f"adapter={self.adapter!r}: llm=openvino puts on no adapter; merge it, or take llm=hf")
        path = Path(self.model).expanduser()
        if path.is_dir() and len(files := sorted(path.glob("*.gguf"))) == 1:
            path = files[0]
        if path.is_file():
            return ModelFiles(path.resolve(), None, path.stem)
        if not self.model or path.suffix == ".gguf":
            raise ConfigError(f"llm=openvino: there is no model {self.model!r}; give llm.model=FILE.gguf or a folder")
        folder = local_folder(self.model, OPENVINO)
        if not (folder / "openvino_model.xml").is_file():
            raise ConfigError(f"model={self.model!r}: neither one *.gguf nor openvino_model.xml is in {folder}")
        return ModelFiles(folder, None, folder.name)

    def open(self) -> ModelThread:
        path, device, dtype, max_batch = self.files.base, self.device, self.dtype, self.max_batch

        def load() -> Pipeline:
            import openvino_genai

            scheduler = openvino_genai.SchedulerConfig()
            scheduler.max_num_seqs, scheduler.enable_prefix_caching = max_batch, True
            properties: dict[str, Any] = dict(_SHORTER.get(dtype, _EXACT))
            if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():  # which OpenVINO itself overlooks
                properties["INFERENCE_NUM_THREADS"] = int(threads)
            try:
                pipeline = openvino_genai.ContinuousBatchingPipeline(str(path), scheduler, device, properties)
                return Pipeline(pipeline, path.stem)
            except Exception as error:  # OpenVINO raises whatever a missing device or a damaged file leads to
                raise ArtefactError(f"OpenVINO cannot run {str(path)!r} on {device}: {brief(error)}") from error

        return shared(("openvino", path, self.files.fingerprint, device, dtype, max_batch), load)


_STRING = r'([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})'
_PLAIN = {
    "boolean": "(true|false)",
    "null": "null",
    "integer": "-?(0|[1-9][0-9]{0,15})",
    "number": r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,8})?",
}
_MOST_CHOICES = 1000  # of an integer between bounds
_LETTER = _STRING.replace("x1f]", "x1f ]")
# Longer texts than so many characters are counted in words: a state for each character takes minutes to compile. The
# last word has a bound of its own, since a model that may write no further blank would go on in one word.
_COUNTED, _LAST = 20, 12


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
    fields, needed = schema.get("properties", {}), {*schema.get("required", ())}
    if kind == "object" and needed and needed <= fields.keys() and next(iter(fields)) in needed:
        parts = {name: f", {re.escape(json.dumps(name))}: {pattern_of(part)}" for name, part in fields.items()}
        return rf"\{{{''.join(row if name in needed else f'({row})?' for name, row in parts.items())[2:]}\}}"
    low, high = (schema.get(f"{end}{'Items' if kind == 'array' else 'Length'}") for end in ("min", "max"))
    if kind == "array" and "items" in schema:
        item = pattern_of(schema["items"])
        more = "" if high == 1 else f"(, {item}){{{max((low or 1) - 1, 0)},{'' if high is None else high - 1}}}"
        return rf"\[{item}{more}\]" if low else rf"\[({item}{more})?\]"
    if kind == "string" and high is not None and high > _COUNTED:
        words = f"{_LETTER}+( {_LETTER}+){{0,{high // 6}}}( {_LETTER}{{1,{_LAST}}})?"
        return f'"{_STRING}{{{low - 1}}}{words}"' if low else f'"({words})?"'
    if kind == "string":
        return f'"{_STRING}{{{low or 0},{"" if high is None else high}}}"'
    if kind in _PLAIN:
        return _PLAIN[kind]
    raise ValueError(f"OpenVINO is given no schema with {json.dumps(dict(schema))[:100]}")
