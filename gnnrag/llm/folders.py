"""Check a model folder before it is loaded: weights, adapters, GGUF files, nothing pickled."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from typing import Any

from gnnrag.common.files import content_digest, digest, open_regular, read_json
from gnnrag.errors import ArtefactError, ConfigError

LARGEST_RANK = 4096
_PATTERNS = ("target_modules", "exclude_modules", "layers_pattern")
_START = re.compile(r"[A-Za-z_]{1,40}\d{0,2}")  # how the matrices began: `pissa_niter_16` computes so many rounds
_GROUP = re.compile(r"\)[*+{]")
_REPEATED = re.compile(r"(?<!\()(?:[*+?]\??|\{)")
_REPEATS = 5  # in a pattern; a name has a hundred characters


def check_adapter(folder: Path) -> None:
    """Raise ConfigError for a LoRA adapter of another kind, or whose settings peft would import, start or copy from."""
    if not (folder / "adapter_config.json").is_file():
        raise ConfigError(f"adapter {str(folder)!r} has no adapter_config.json: give a folder saved by peft")
    config = read_settings(folder / "adapter_config.json")
    kind, task = config.get("peft_type"), config.get("task_type")
    if kind != "LORA" or task not in (None, "CAUSAL_LM", "SEQ_2_SEQ_LM"):
        raise ConfigError(
            f"adapter {str(folder)!r} is {kind} for {task}: only LORA for CAUSAL_LM or SEQ_2_SEQ_LM is loaded here"
        )
    if not (folder / "adapter_model.safetensors").is_file():
        raise ConfigError(f"adapter {str(folder)!r} has no adapter_model.safetensors; pickled weights are not loaded")
    for name, value in config.items():
        if not _is_plain(name, value):
            raise ConfigError(
                f"adapter {str(folder)!r}: {name} in adapter_config.json holds {str(value)!r:.80}, and only shapes, "
                "names and simple patterns are loaded here; where you trust it, set it to null, or merge the adapter"
            )


def refuse_adapter(folder: Path, where: str = "adapter_config.json") -> None:
    """Raise ConfigError for a model with an adapter in its folder: transformers would apply it, and load its base."""
    if found := next(folder.glob(where), None):
        problem = f"model folder {str(folder)!r} holds an adapter as well ({found.relative_to(folder)})"
        raise ConfigError(f"{problem}: move the two into folders of their own, or merge them")


def _is_plain(name: str, value: Any) -> bool:
    """Tell whether a setting is a number, a name, a list of them, or ranks by module."""
    if name == "auto_mapping":  # not read where the base is given
        return True
    if name in ("rank_pattern", "alpha_pattern") and isinstance(value, dict):
        return all(map(_is_quick, value)) and all(map(_is_rank, value.values()))
    if name == "init_lora_weights" and isinstance(value, str):
        return bool(_START.fullmatch(value))
    if isinstance(value, list):
        return all(isinstance(one, str | int) and (name != "layers_pattern" or _is_quick(str(one))) for one in value)
    if name in _PATTERNS and isinstance(value, str):
        return _is_quick(value)
    return not value if isinstance(value, dict) else name != "r" or _is_rank(value)


def _is_rank(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and value <= LARGEST_RANK)


def _is_quick(pattern: str) -> bool:
    """Tell whether a pattern of names of modules has nothing repeated that could be divided in many ways."""
    return not _GROUP.search(pattern) and len(_REPEATED.findall(pattern)) <= _REPEATS


def read_settings(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ConfigError where there is none."""
    try:
        data = read_json(path)
    except (OSError, ValueError, ArtefactError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a JSON object")
    return data


_NUMBERS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by type of value
_TEXT, _ARRAY = 8, 9
# Values and bytes of a block, by type of tensor: F32, F16, Q4_0 to Q8_0, Q2_K to Q6_K, BF16.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2),
}  # fmt: skip
_MOST, _LONGEST = 1 << 20, 1 << 24  # entries of a list, bytes of a text


def check_gguf(path: Path) -> int | None:
    """Return the context length of a GGUF file, None where it does not say it.

    Raises ArtefactError: cut off or damaged (which ends the process in OpenVINO), or tensors of an unknown type.
    """
    with open_regular(path) as handle:
        try:
            return _Walk(handle, path.stat().st_size).context()
        except ValueError as error:
            raise ArtefactError(f"{str(path)!r} is no whole GGUF file ({error}); copy it again") from error


class _Walk:
    """Reads a file from its start; raises ValueError where it does not go on as its format says."""

    def __init__(self, handle: BufferedReader, size: int) -> None:
        self._handle, self._size = handle, size

    def context(self) -> int | None:
        if self._bytes(4) != b"GGUF" or self._number(4) not in (2, 3):
            raise ValueError("it begins otherwise")
        tensors, settings = self._count(), self._count()
        context, alignment = None, 32
        for _ in range(settings):
            name, value = self._bytes(self._number(8)), self._value(self._number(4))
            if name.endswith(b".context_length"):
                context = value
            if name == b"general.alignment":
                alignment = value
        ends = [self._end_of_tensor() for _ in range(tensors)]
        start = math.ceil(self._handle.tell() / (alignment or 32)) * (alignment or 32)
        if start + max(ends, default=0) > self._size:
            raise ValueError(f"{self._size:,} bytes, where its tensors need {start + max(ends):,}")
        return context if isinstance(context, int) else None

    def _bytes(self, length: int) -> bytes:
        data = self._handle.read(length) if length <= _LONGEST else b""
        if len(data) < length or length > _LONGEST:
            raise ValueError("its header is cut off")
        return data

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "little")

    def _count(self) -> int:
        if (count := self._number(8)) > _MOST:
            raise ValueError(f"a list of {count:,}")
        return count

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._bytes(self._number(8))
        if kind == _ARRAY:
            kind, count = self._number(4), self._count()
            if kind in _NUMBERS:
                return self._bytes(count * _NUMBERS[kind])
            return [self._value(kind if kind == _TEXT else -1) for _ in range(count)]
        if kind not in _NUMBERS:
            raise ValueError(f"a value of type {kind}")
        return self._number(_NUMBERS[kind])

    def _end_of_tensor(self) -> int:
        """Return where the next tensor's values end, in bytes from where the first one's begin."""
        self._bytes(self._number(8))
        sides = [self._number(8) for _ in range(min(self._number(4), 5))]
        kind, offset = self._number(4), self._number(8)
        if kind not in _BLOCKS or not 0 < len(sides) < 5:
            raise ValueError(f"a tensor of type {kind} with {len(sides)} sides")
        values, size = _BLOCKS[kind]
        return offset + math.prod(sides) // values * size


_DECIDING = ("*.json", "*.safetensors", "*.model", "*.jinja", "*.txt")  # the files that decide what a model replies
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk: a folder as `save_pretrained` writes it (`openvino`: or a file), perhaps with a LoRA adapter.

    `name` is for replies and error messages; `deciding` are patterns of the files that decide what the model replies.
    """

    base: Path
    adapter: Path | None
    name: str
    deciding: tuple[str, ...] = _DECIDING

    @cached_property
    def fingerprint(self) -> str:
        """Digest of weights, tokenizer and settings: another after further training, the same after moving it."""
        return digest([_fingerprint(folder, self.deciding) for folder in (self.base, self.adapter) if folder])

    @cached_property
    def base_fingerprint(self) -> str:
        """Digest of the base alone."""
        return digest(_fingerprint(self.base, self.deciding))

    @cached_property
    def rank(self) -> int:
        """Rank of the adapter's matrices, the largest where they differ; 0 without one."""
        if self.adapter is None:
            return 0
        path = self.adapter / "adapter_config.json"
        config = read_settings(path)
        try:
            return max([int(config.get("r") or 0), *map(int, (config.get("rank_pattern") or {}).values())])
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}: r and rank_pattern must be whole numbers ({error}); copy it again") from error


def find_model(model: str, adapter: str | None, backend: str) -> ModelFiles:
    """Resolve `model` (folder or hub name, `name@revision` for a fixed one; an adapter names its base) and `adapter`.

    Raises ConfigError where there is no model, or weights or adapters of a kind that is not loaded.
    """
    if not model:
        raise ConfigError(f"llm={backend} needs a model: give llm.model=FOLDER, or of one role roles.ROLE.model=FOLDER")
    base = local_folder(model, backend)
    if (base / "adapter_config.json").is_file() and not (base / "config.json").is_file():
        if adapter:
            raise ConfigError(
                f"model={model!r} is itself an adapter, and adapter={adapter!r} another: give one of them"
            )
        adapter, wanted = (
            str(base),
            str(read_settings(base / "adapter_config.json").get("base_model_name_or_path") or ""),
        )
        try:
            base = local_folder(wanted, backend)
        except ConfigError as error:
            fix = "give model=BASE and settings.adapter=ADAPTER"
            raise ConfigError(f"adapter {model!r} was trained on {wanted!r}, which is not there: {fix}") from error
    _check_base(base)
    folder = None
    if adapter:
        folder = local_folder(adapter, backend)
        check_adapter(folder)
    return ModelFiles(base, folder, base.name + (f"+{folder.name}" if folder else ""))


def kind_of(files: ModelFiles) -> str:
    """Return `causal` or `seq2seq`, by config.json; ConfigError: a classifier, an encoder, or one not known here."""
    from transformers.models.auto import modeling_auto as auto

    named = read_settings(files.base / "config.json").get("architectures")
    found = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    found = found or ["(none named)"]
    for kind, table in (
        ("seq2seq", auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
        ("causal", auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    ):
        known = {name for value in table.values() for name in ((value,) if isinstance(value, str) else value)}
        if found[0] in known:
            return kind
    raise ConfigError(
        f"model {str(files.base)!r} is a {found[0]}: llm=hf runs causal and sequence-to-sequence language models "
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
        raise ConfigError(f"model {name!r} is no folder here, and {_reason(error, repository, revision)}") from error


def _reason(error: Exception, repository: str, revision: str) -> str:
    """Return why the hub gave no model: its own errors run over several lines, and name neither setting nor remedy."""
    from huggingface_hub import constants, errors

    if isinstance(error, errors.HFValidationError):
        return "no hub name either, which is OWNER/NAME or OWNER/NAME@REVISION: check the spelling"
    if isinstance(error, errors.GatedRepoError):
        return f"{repository} on the hub is for those whom its owner lets in: ask there, then log in (hf auth login)"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the hub has no {repository}, or hides it from you: check the spelling, or log in (hf auth login)"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} on the hub has no revision {revision!r}"
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"
        return f"no copy of it was fetched from the hub before ({why}): check the spelling, or fetch it first"
    return f"the hub did not give it ({type(error).__name__}): {' '.join(str(error).split())[:200]}"


def _check_base(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model folder {str(folder)!r} has no config.json: give one written by save_pretrained")
    read_settings(folder / "config.json")
    refuse_adapter(folder)
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(
            f"model folder {str(folder)!r} has no *.safetensors: pickled weights are not loaded, since a pickle can "
            "run code; load it where you trust it and save it again with save_pretrained"
        )
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ConfigError(
            f"model folder {str(folder)!r} has no tokenizer: save it there with tokenizer.save_pretrained"
        )


def _fingerprint(folder: Path, patterns: tuple[str, ...]) -> list[Any]:
    found = [folder] if folder.is_file() else [path for pattern in patterns for path in folder.glob(pattern)]
    paths = sorted({path for path in found if path.is_file()})
    return [[path.name, path.stat().st_size, content_digest(path)] for path in paths]
