"""Models on disk or from the hub: find the folder, its base and its LoRA adapter; tell what they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.io import digest, file_digest, read_json

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
        """Digest of the base alone."""
        return digest(_fingerprint(self.base))

    @cached_property
    def rank(self) -> int:
        """Rank of the adapter's matrices; 0 without one."""
        if self.adapter is None:
            return 0
        config = read_json(self.adapter / "adapter_config.json")
        return max([int(config.get("r") or 0), *map(int, (config.get("rank_pattern") or {}).values())])


def _fingerprint(path: Path) -> list[Any]:
    found = [path] if path.is_file() else [file for pattern in OPENVINO for file in path.glob(pattern)]
    return [[file.name, file.stat().st_size, file_digest(file)] for file in sorted({*found}) if file.is_file()]


def find_model(model: str, adapter: str | None, backend: str) -> ModelFiles:
    """Resolve `model` (folder or hub name, `name@revision` for a fixed one; an adapter names its base) and `adapter`.

    Raises ConfigError where there is no model, or its weights are pickled.
    """
    if not model:
        raise ConfigError(f"llm={backend} needs a model: give llm.model=FOLDER, or of one role roles.ROLE.model=FOLDER")
    base = local_folder(model, backend)
    if (base / "adapter_config.json").is_file() and not (base / "config.json").is_file():
        if adapter:
            raise ConfigError(f"model={model!r} is itself an adapter, adapter={adapter!r} another: give one of them")
        adapter, wanted = str(base), str(read_json(base / "adapter_config.json").get("base_model_name_or_path") or "")
        try:
            base = local_folder(wanted, backend)
        except ConfigError as error:
            fix = "give model=BASE and settings.adapter=ADAPTER"
            raise ConfigError(f"adapter {model!r} was trained on {wanted!r}, which is not there: {fix}") from error
    if not (base / "config.json").is_file():
        raise ConfigError(f"model folder {str(base)!r} has no config.json: give one written by save_pretrained")
    if not any(base.glob("*.safetensors")):
        raise ConfigError(
            f"model folder {str(base)!r} has no *.safetensors; pickled weights are not loaded, since a pickle can run "
            "code: load it where you trust it and save it again with save_pretrained"
        )
    folder = local_folder(adapter, backend) if adapter else None
    if folder and not (folder / "adapter_model.safetensors").is_file():
        raise ConfigError(f"adapter={adapter!r} holds no adapter_model.safetensors: give a folder saved by peft")
    return ModelFiles(base, folder, base.name + (f"+{folder.name}" if folder else ""))


def kind_of(files: ModelFiles) -> str:
    """Return `causal` or `seq2seq`, by config.json; ConfigError: a model that writes no text."""
    from transformers.models.auto import modeling_auto as auto

    name = next(iter(read_json(files.base / "config.json").get("architectures") or ()), "(none named)")
    for kind, table in (
        ("seq2seq", auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
        ("causal", auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    ):
        if name in {name for value in table.values() for name in ((value,) if isinstance(value, str) else value)}:
            return kind
    raise ConfigError(
        f"model {str(files.base)!r} is a {name}: llm=hf runs causal and sequence-to-sequence language models "
        "(...ForCausalLM, ...ForConditionalGeneration); a classifier goes into a tuned role"
    )


def require(package: str, backend: str, fix: str) -> None:
    """Raise ConfigError with the command to run where a package is missing."""
    if find_spec(package) is None:
        raise ConfigError(f"llm={backend} needs the package {package}, which is not installed; run: {fix}")


def local_folder(name: str, backend: str, patterns: tuple[str, ...] = _DECIDING) -> Path:
    """Return a folder, or the copy of a model of the hub that was fetched. Raises ConfigError where there is none."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path.resolve()
    if not name or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ConfigError(f"model folder {name!r} does not exist: give the folder of a saved model, or a hub name")
    require("huggingface_hub", backend, "pip install huggingface_hub")
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(patterns)))
    except (OSError, ValueError) as error:
        problem = " ".join(str(error).split())[:300]
        raise ConfigError(f"model {name!r} is no folder here, and the hub gave none: {problem}") from error
