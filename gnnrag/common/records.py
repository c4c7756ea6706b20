"""What others may have written: which kind a folder is; records, read strictly; weights, never unpickled."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from safetensors import SafetensorError

from gnnrag.common.files import child, open_regular, read_json, read_object, refuse_links, remove, write_atomic
from gnnrag.common.untrusted import parse_yaml
from gnnrag.config import DataConfig, read_plain
from gnnrag.errors import ArtefactError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor


NAMED = 3  # foreign files that an error spells out


@dataclass(frozen=True)
class Kind:
    """A kind of folder.

    `what` it is, with an article; `fix`: the setting to change where its folder is taken; `is_one` tells by a folder
    and its `meta.json`; `files` are all names that it may hold, where a command deletes such folders.
    """

    what: str
    fix: str
    is_one: Callable[[Path, Mapping[str, Any]], bool]
    files: tuple[str, ...] = ()


def _has(folder: Path, *names: str) -> bool:
    return any((folder / name).exists() for name in names)


def _is_evaluation(folder: Path, meta: Mapping[str, Any]) -> bool:
    # A kill can come before meta.json, and a disk can damage it.
    begun = _has(folder, "config.yaml") and _has(folder, "predictions.jsonl")
    return "decisive" in meta or (not meta and (begun or _has(folder, "shards")))


def _is_training(folder: Path, meta: Mapping[str, Any]) -> bool:
    if _has(folder, "folds.json") and not _has(folder, "predictions.jsonl"):  # a run over folds has both
        return True
    return (
        {"settings", "inputs", "versions"} <= meta.keys() or _has(folder, "state.pt", "best") or bool(folds_of(folder))
    )


def _is_data(folder: Path, meta: Mapping[str, Any]) -> bool:
    source = read_object(folder / "SOURCE.json")
    return _has(folder, "corpus.jsonl") or "origin" in source


_RUN = ("config.yaml", "meta.json", "metrics.json", "wandb", "wandb.json")
EVALUATION = Kind(
    "an evaluation",
    "run.name",
    _is_evaluation,
    (*_RUN, "predictions.jsonl", "traces.jsonl", "log.jsonl", "scores.jsonl", "shards", "judgements"),
)
TRAINING = Kind(
    "a training run",
    "run.name",
    _is_training,
    (*_RUN, "folds.json", "metrics.jsonl", "report.jsonl", "curves.png", "calibration.png", "state.pt", "best",
     "merged"),
)  # fmt: skip
CROSS = Kind("an evaluation over folds (cross_validate.py)", "run.name", lambda folder, meta: "merged" in meta)
AUDIT = Kind("an audit", "run.name", lambda folder, meta: _has(folder, "audit.json", "labels.jsonl", "flat"))
ROWS = Kind(
    "rows of collect_traces.py",
    "out",
    lambda folder, meta: "teachers" in meta or _has(folder, "recording.json", "verifier.jsonl", "thoughts.jsonl"),
)
JUDGEMENT = Kind("judgements", "name", lambda folder, meta: "runs" in meta or _has(folder, "replies.jsonl"))
DATA = Kind("a data set", "data.path", _is_data)
INDEX = Kind("an index", "index.path", lambda folder, meta: _has(folder, "manifest.json"))
KINDS = (EVALUATION, TRAINING, CROSS, AUDIT, ROWS, JUDGEMENT, DATA, INDEX)


def refuse_other(path: Path, kind: Kind) -> None:
    """Raise ConfigError for what is not a folder of this kind (it need not exist), ArtefactError for links in it."""
    if (path.exists() or path.is_symlink()) and not path.is_dir():
        what = "a file" if path.exists() else "a link to nothing"
        raise ConfigError(f"{path} is {what}; give another {kind.fix}")
    if not path.is_dir():
        return
    meta = read_object(path / "meta.json")
    others = [other.what for other in KINDS if other is not kind and other.is_one(path, meta)]
    if meta and not others and not kind.is_one(path, meta):
        others = ["a meta.json of something else"]
    if others and kind.is_one(path, meta):
        mixed = f"{path} holds {' and '.join(others)} beside {kind.what}"
        raise ConfigError(f"{mixed}; move what does not belong there away, or give another {kind.fix}")
    if others:
        raise ConfigError(f"{path} holds {' and '.join(others)}, not {kind.what}; give another {kind.fix}")
    refuse_links(path)


def start_over(path: Path, kind: Kind, settings: Mapping[str, Any]) -> None:
    """Delete a run directory, if there is one and `refuse_other` has passed it.

    Raises ConfigError where it is a link, or holds what no such run writes (a name can be mistyped) or `settings` read.
    """
    if path.is_symlink():
        raise ConfigError(
            f"run.fresh=true would delete {path}, which is a link; delete it yourself, or give another name"
        )
    if not path.exists():
        return
    foreign = sorted(file.name for file in path.iterdir() if not _is_of(file.name, kind))
    if foreign:
        named = ", ".join(foreign[:NAMED]) + (f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else "")
        raise ConfigError(
            f"run.fresh=true would delete {path}, with files that are not of {kind.what}: {named}; move them away, or "
            f"give another {kind.fix}"
        )
    for name, value in _texts({key: value for key, value in settings.items() if key != "run"}):
        if os.path.exists(value) and Path(value).resolve().is_relative_to(path.resolve()):
            raise ConfigError(
                f"run.fresh=true would delete {path}, where {name}={value} lies; move that away, or give another "
                f"{kind.fix}"
            )
    remove(path, path.parent)


def _is_of(name: str, kind: Kind) -> bool:
    """Whether a run of a kind leaves such a file; a kill leaves `.NAME.XYZ`, NFS keeps open files as `.nfs...`."""
    return name.startswith(".nfs") or any(name == own or name.startswith(f".{own}.") for own in kind.files)


def _texts(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, where)


def folds_of(run: Path) -> list[Path]:
    """Return the folders of a training with cross=true, `fold0`, `fold1`, ..., in its run directory; else none."""
    names = [path.name for path in run.glob("fold[0-9]*") if re.fullmatch("fold[0-9]{1,9}", path.name)]
    found = [path for name in names if (path := child(run, name)).is_dir()]
    return sorted(found, key=lambda path: int(path.name[4:]))


def folds_advice(run: Path, part: str) -> str:
    """Return what to do where a training with cross=true is given for one checkpoint of `part`; else an empty text."""
    folds = folds_of(run)
    if not folds:
        return ""
    return (
        f"{run} holds a checkpoint for each of {len(folds)} folds (cross=true): give one of them, such as {folds[0]}, "
        "or have each question answered by the fold that did not see it: "
        f"gnnrag cross-validate CONFIG {part}={run}"
    )


# ------------------------------------------------------------------------------------------------------------ records
AGAIN = "run its command again"
_SHOWN = 200  # characters of what went wrong
MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


@contextmanager
def interpreting(path: Path, fix: str = AGAIN) -> Iterator[None]:
    """Raise ArtefactError, with advice `fix`, where a record interpreted meanwhile lacks a field or has an odd one."""
    try:
        yield
    except MISSHAPEN as error:
        raise ArtefactError(f"{path} is damaged or forged ({in_short(error)}); {fix}") from error


def in_short(error: Exception) -> str:
    """Return what interpreting something stumbled over, in a line of bounded length."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]


def number(value: Any) -> float:
    """Return a number of a record. Raises ValueError for anything else, and for one that is not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is no number")
    return value


def text(value: Any) -> str:
    """Return a text of a record. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def read_config(run: Path) -> dict[str, Any]:
    """Return the unresolved settings in a run's `config.yaml`, empty without one; ArtefactError: damaged or forged."""
    path = run / "config.yaml"
    with interpreting(path):
        try:
            with open_regular(path) as handle:
                found = parse_yaml(handle.read())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        if not isinstance(found, dict):
            raise ValueError("no mapping of settings")
        return found


def recorded_data(run: Path, fix: str) -> DataConfig:
    """Return where a run found its data and how it read them; nothing is evaluated or compared with what lies there.

    Raises ArtefactError, with advice `fix`, where the record does not say, or is of another form.
    """
    path = run / "config.yaml"
    with interpreting(path, fix):
        section = read_config(run)["data"]
        known = {field.name: section[field.name] for field in fields(DataConfig) if field.name in section}
        if any("\0" in str(value) for value in known.values()):
            raise ValueError("a path with a null character")
        try:
            return read_plain(DataConfig, known)
        except ConfigError as error:
            raise ValueError(str(error)) from error


# ------------------------------------------------------------------------------------------------------------ weights
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
