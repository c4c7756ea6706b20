"""Folders of local models and of LoRA adapters: found, checked before anything heavy is imported, fingerprinted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.files import content_digest, digest
from gnnrag.llm.adapters import check_adapter, read_settings, refuse_adapter

_DECIDING = ("*.json", "*.safetensors", "*.model", "*.jinja", "*.txt")  # the files that decide what a model replies
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk.

    Attributes:
        base: folder of the model, as `save_pretrained` writes it; for `openvino` also a file.
        adapter: folder of a LoRA adapter on top of it, or None.
        name: what replies and error messages call it.
        deciding: patterns of the files in a folder that decide what the model replies.
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
    """Resolve the settings `model` and `adapter`.

    Args:
        model: a folder, or a hub name, `name@revision` for a fixed one; a folder of an adapter names its own base.
        adapter: folder or hub name of a LoRA adapter.
        backend: for error messages.

    Raises:
        ConfigError: nothing there, no model in it, or weights and adapters of a kind that is not loaded.
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
    """Return `causal` or `seq2seq`, by the architecture that transformers knows under the name in config.json.

    Raises:
        ConfigError: a classifier, an encoder, or something that this version of transformers does not know.
    """
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
