"""OpenVINO in this process: a GGUF file or an OpenVINO folder on a CPU, batched over all questions in flight."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnrag.errors import ConfigError
from gnnrag.llm.folders import ModelFiles, local_folder, require
from gnnrag.llm.local import LocalBackend, LocalConfig, ModelThread, shared

if TYPE_CHECKING:
    from gnnrag.llm.openvino_engine import OpenVINOEngine

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
        """Refuse limits under which nothing could run."""
        super().__post_init__()
        if self.max_batch < 1:
            raise ConfigError(f"openvino: max_batch={self.max_batch}: must be positive")


class OpenVINOBackend(LocalBackend):
    """Answers with a model that OpenVINO runs: quantised ones on a CPU, in a fraction of the memory that `hf` needs.

    Requests join the running batch as they come, and what prompts begin with in common is computed once. In float32
    a reply does not depend on its neighbours; in the shorter types now and then. A request's schema is enforced where
    it asks for nothing but objects of fixed properties, arrays, choices and plain values, as all of ours do.

    Args:
        config: settings; `model` is a GGUF file, a folder with one, or a folder that OpenVINO has written.

    Raises:
        ConfigError: openvino-genai is not installed, there is no such model, or an adapter was given.
    """

    kind, grammar = "openvino", "openvino_genai"
    config_class = OpenVINOConfig

    def __init__(self, config: OpenVINOConfig | None = None) -> None:
        c = self.config = config or OpenVINOConfig()
        require("openvino_genai", "openvino", "pip install 'gnnrag[openvino]'")
        files = self.files = self._find(c)

        def load() -> OpenVINOEngine:
            from gnnrag.llm.openvino_engine import start_engine

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

    OpenVINO takes schemas, too, but then allows any white space, where small models run in circles until their limit;
    and one that it cannot read leaves the pipeline beyond use.

    Raises:
        ValueError: the schema has more than objects of fixed properties, arrays, choices and plain values.
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
