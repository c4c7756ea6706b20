"""Which trained parts a run uses, and how many of its questions had shaped them: figures on those are no result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gnnrag.config import EvaluateConfig, RoleConfig
from gnnrag.fit.seen import read_seen, seen_hash
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.run.pipeline import asked_roles, pairs
from gnnrag.tuned.folder import shipped_folder, tuned_folder
from gnnrag.types import Question


def checkpoints(config: EvaluateConfig) -> dict[str, list[Path]]:
    """Return the folders of the trained parts that a run may ask, by setting: `retriever`, `roles.verifier`, ...

    Models of prompted roles count where they lie in a folder: they may have been tuned here.
    """
    found: dict[str, list[Path]] = {}
    for number, (_, retriever) in enumerate(pairs(config)):
        cls = resolve("retriever", retriever.name, RETRIEVERS)
        if hasattr(cls, "checkpoints_for") and (folders := cls.checkpoints_for(retriever.settings)):
            found[f"route {number}, retriever" if number else "retriever"] = list(folders)
    for name in asked_roles(config):
        role: RoleConfig = getattr(config.roles, name)
        impl = role.impl or config.roles.default  # type: ignore[attr-defined]
        if impl == "tuned":
            found[f"roles.{name}"] = [tuned_folder(role.path) if role.path else shipped_folder(name)]
        elif impl == "prompted":
            given = [role.model or getattr(config.llm.settings, "model", None)]
            given += [getattr(config.llm.settings, "adapter", None), (role.settings or {}).get("adapter")]
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
