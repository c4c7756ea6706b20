"""Which questions shaped a checkpoint, and how many of a run's questions had: figures on those are no result.

`questions.json` beside a checkpoint's weights holds hashes of the ids of training and validation questions. Ids of
different sets are not told apart: a set is the same under another name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gnnrag.config import EvaluateConfig, RoleConfig, implementation
from gnnrag.errors import ArtefactError
from gnnrag.io import interpreting, read_json, write_json
from gnnrag.roles.tuned.checkpoint import shipped_folder, tuned_folder
from gnnrag.run.pipeline import asked_roles, pairs
from gnnrag.types import Question

SEEN = "questions.json"


def seen_hash(question_id: str) -> str:
    """Return the hash that stands for a question."""
    return hashlib.sha256(question_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def seen_in(parts: Mapping[str, Mapping[str, Iterable[str]]]) -> frozenset[str]:
    """Return the hashes of the questions that train or validate."""
    names = ("train", "validation")
    return frozenset(seen_hash(id_) for part in parts.values() for name in names for id_ in part.get(name, ()))


def write_seen(folder: Path, seen: Iterable[str]) -> None:
    """Write which questions shaped the checkpoint of a folder."""
    write_json(folder / SEEN, {"what": "sha256 of question ids, 12 digits", "questions": sorted(seen)})


def read_seen(folder: Path) -> frozenset[str] | None:
    """Return the hashes of the questions that shaped a checkpoint; None where they are not recorded.

    `folder` may be a training run with a checkpoint in `best`, also one that has not ended.
    """
    for place in (folder, folder / "best"):
        if (place / SEEN).is_file():
            with interpreting(place / SEEN, "copy the checkpoint again"):
                return frozenset(map(str, read_json(place / SEEN)["questions"]))
    run = next((run for run in (folder, folder.parent) if (run / "folds.json").is_file()), None)
    return seen_in(read_parts(run)) if run and (run / "best").is_dir() else None


def read_parts(run: Path) -> dict[str, dict[str, list[str]]]:
    """Return a training run's ids by set (trained, validated, reported). Raises ArtefactError for bad `folds.json`."""
    if not (run / "folds.json").is_file():
        raise ArtefactError(f"{run / 'folds.json'} is missing: {run} is no training run")
    with interpreting(run / "folds.json"):
        found = read_json(run / "folds.json").items()
        return {name: {part: list(ids) for part, ids in parts.items()} for name, parts in found}


def checkpoints(config: EvaluateConfig) -> dict[str, list[Path]]:
    """Return folders of the trained parts and local models that a run may ask, by setting (`roles.verifier`, ...)."""
    found: dict[str, list[Path]] = {}
    for number, (_, retriever) in enumerate(pairs(config)):
        if folders := retriever.part.checkpoints:
            found[f"route {number}, retriever" if number else "retriever"] = list(folders)
    for name in asked_roles(config):
        role: RoleConfig = getattr(config.roles, name)
        impl = implementation(config.roles, name)
        if impl == "tuned":
            found[f"roles.{name}"] = [tuned_folder(role.path) if role.path else shipped_folder(name)]
        elif impl == "prompted":
            given = [role.model or getattr(config.llm.part, "model", None)]
            given += [getattr(config.llm.part, "adapter", None), (role.settings or {}).get("adapter")]
            if folders := [Path(one) for one in given if one and Path(one).is_dir()]:
                found[f"roles.{name}"] = folders
    return found


def trained_on(config: EvaluateConfig, questions: Sequence[Question]) -> dict[str, str]:
    """Return how many of the questions ("3 of 50") had shaped each trained part of a run, if any had."""
    counts = {}
    for name, folders in checkpoints(config).items():
        seen = frozenset[str]().union(*(read_seen(folder) or () for folder in folders))
        if count := sum(seen_hash(question.id) in seen for question in questions):
            counts[name] = f"{count} of {len(questions)}"
    return counts
