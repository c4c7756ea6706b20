"""Weights on disk: safetensors beside a JSON record that names their digest. Nothing here is ever unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from safetensors import SafetensorError

from gnnrag.common.files import open_regular, read_json, write_atomic
from gnnrag.errors import ArtefactError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"
LARGEST = 1 << 16  # of any whole number in the settings of a network: sizes, counts of layers and tokens
T = TypeVar("T")


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors."""
    from safetensors.torch import save

    write_atomic(path, save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors. Raises ArtefactError where the file is none of its kind, or holds what is no number."""
    import torch
    from safetensors.torch import load_file

    try:
        open_regular(path).close()  # a pipe would be waited for
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ArtefactError(f"{path} is no safetensors file ({error}); copy the checkpoint again") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ArtefactError(
                f"{path}: tensor {name!r} holds NaN or Infinity; train again, or copy the checkpoint again"
            )
    return tensors


def check_shapes(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path) -> None:
    """Compare weights with a network's (perhaps on `meta`); ArtefactError: first missing, odd or superfluous tensor."""
    for name, tensor in wanted.items():
        if name not in given:
            raise ArtefactError(f"{path}: tensor {name!r} is missing; the checkpoint is of another architecture")
        if given[name].shape != tensor.shape:
            shapes = f"{tuple(given[name].shape)}, needed is {tuple(tensor.shape)}"
            raise ArtefactError(f"{path}: tensor {name!r} has shape {shapes}; it is of another architecture")
    if superfluous := sorted(set(given) - set(wanted)):
        raise ArtefactError(
            f"{path}: tensor {superfluous[0]!r} has no place; the checkpoint is of another architecture"
        )


def fill(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], path: Path) -> None:
    """Copy weights into a network. Raises ArtefactError where they are of another one; see `check_shapes`."""
    import torch

    check_shapes(wanted, given, path)
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(given[name])


def check_tokenizer(folder: Path) -> None:
    """Raise ConfigError for a SentencePiece tokenizer (DeBERTa-v3, T5, Llama-2) without sentencepiece installed."""
    if (folder / "tokenizer.json").is_file() or find_spec("sentencepiece") is not None:
        return
    names = ("spm.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
    if found := next((name for name in names if (folder / name).is_file()), None):
        raise ConfigError(
            f"{folder}: its tokenizer is a SentencePiece file ({found}), and sentencepiece is not installed: "
            "pip install 'gnnrag[sentencepiece]'"
        )


def read_record(path: Path, kinds: Mapping[str, Any], missing: str) -> dict[str, Any]:
    """Read a checkpoint's record; ArtefactError: none, no JSON, or a field is missing or of the wrong type."""
    try:
        record = read_json(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtefactError(f"{path} is missing; {missing}") from error
    except ValueError as error:
        raise ArtefactError(f"{path} is no JSON ({error}); copy the checkpoint again") from error
    for name, kind in kinds.items():
        if not isinstance(record, dict) or name not in record or not isinstance(record[name], kind):
            raise ArtefactError(f"{path}: {name} is missing or of the wrong type; copy the checkpoint again")
    return record


def read_settings(kind: type[T], values: Mapping[str, Any], path: Path) -> T:
    """Return recorded settings; ArtefactError: unknown field, wrong type, or a size that no network of ours has."""
    refuse_references(values, path)
    plain = {name: value for name, value in values.items() if isinstance(name, str)}
    for name, value in plain.items():
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ArtefactError(f"{path}: {name}={str(value)[:20]} is more than {LARGEST}; it is damaged or forged")
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise ArtefactError(f"{path}: {name} lists something else than names; it is damaged or forged")
    try:
        return cast(T, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(kind), plain)))
    except (OmegaConfBaseException, ValueError, RecursionError) as error:
        problem = str(error).splitlines()[0]
        raise ArtefactError(f"{path}: {problem}; the checkpoint is of another version") from error


def refuse_references(values: Any, path: Path) -> None:
    """Raise ArtefactError where settings of a record hold a `${...}`: OmegaConf would fill in what it names."""
    if "${" in str(values):
        raise ArtefactError(f"{path}: a setting holds ${{...}}, which no record does; it is damaged or forged")


def difference(found: Any, expected: Any, name: str = "") -> str:
    """Return the first difference of a record from `expected` (mappings: by its keys, in order), or an empty text."""
    if isinstance(expected, Mapping):
        for key, value in expected.items():
            inner = found.get(key) if isinstance(found, Mapping) else None
            if problem := difference(inner, value, f"{name}.{key}" if name else str(key)):
                return problem
        return ""
    return "" if found == expected else f"{name} is {found!r}, needed is {expected!r}"
