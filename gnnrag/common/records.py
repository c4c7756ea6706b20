"""Until every caller is rewritten (issue 30): the names of before for what `gnnrag.io` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.config import DataConfig, read_plain
from gnnrag.errors import ConfigError
from gnnrag.io import WEIGHTS as WEIGHTS
from gnnrag.io import check_shapes as check_shapes
from gnnrag.io import check_tokenizer as check_tokenizer
from gnnrag.io import difference as difference
from gnnrag.io import fill as fill
from gnnrag.io import folds_advice as folds_advice
from gnnrag.io import folds_of as folds_of
from gnnrag.io import interpreting as interpreting
from gnnrag.io import load_tensors as load_tensors
from gnnrag.io import read_record as read_record
from gnnrag.io import read_settings as read_settings
from gnnrag.io import remove
from gnnrag.io import save_tensors as save_tensors

<<<<<<< HEAD
=======
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
>>>>>>> main
AGAIN = "run its command again"
LARGEST = 1 << 16
MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
EVALUATION = TRAINING = CROSS = AUDIT = ROWS = QUESTIONS = JUDGEMENT = DATA = INDEX = None


def refuse_other(path: Path, kind: object) -> None:
    """Raise ConfigError where a folder is wanted and a file is there."""
    if path.is_file():
        raise ConfigError(f"{path} is a file; name a folder")


def start_over(path: Path, kind: object, settings: Mapping[str, Any]) -> None:
    """Delete an earlier run."""
    remove(path)


def number(value: Any) -> float:
    """Return a number of a record. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r:.40} is no number")
    return value


def text(value: Any) -> str:
    """Return a text of a record. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def in_short(error: Exception) -> str:
    """Return what interpreting something stumbled over."""
    return f"{type(error).__name__}: {error}"


def refuse_references(values: Any, path: Path) -> None:
    """Nothing in a record is evaluated."""


def read_config(run: Path) -> dict[str, Any]:
    """Return the settings in a run's `config.yaml`, empty without one."""
    path = run / "config.yaml"
    with interpreting(path):
        return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}


def recorded_data(run: Path, fix: str) -> DataConfig:
    """Return where a run found its data and how it read them. Raises ArtefactError, with advice `fix`."""
    with interpreting(run / "config.yaml", fix):
        section = read_config(run)["data"]
        return read_plain(DataConfig, {f.name: section[f.name] for f in fields(DataConfig) if f.name in section})
