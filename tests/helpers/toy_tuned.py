"""Training runs of roles without any training: folders that say which questions trained, and roles that read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnrag import parts
from gnnrag.errors import ConfigError
from gnnrag.parts import has_class, part
from gnnrag.roles.base import Answer, Role, Verdict
from gnnrag.roles.tuned.checkpoint import TunedRecord, read_tuned, tuned_folder, write_tuned
from gnnrag.run.rundir import seen_in, write_seen
from gnnrag.training.config import FoldConfig, split_questions


@dataclass
class ToyRole(Role[Any, Any]):
    """Does its job by the name of its checkpoint's fold."""

    path: str | None = None  # checkpoint
    answer: str | None = None  # what the reader says; null: the name of its fold

    def setup(self) -> None:
        role = self.name.split(".")[0]
        if self.path is None:
            raise ConfigError(f"roles.{role}.path: give a checkpoint")
        self.fingerprint = read_tuned(self.path, role, ("toy",)).fingerprint
        self.fold = tuned_folder(self.path).parent.name


class ToyVerifier(ToyRole):
    """Promotes the last passage shown."""

    async def __call__(self, task: Any, session: Any) -> Verdict:
        """See `Verifier`."""
        return Verdict((task.passages[-1].id,))


class ToyReader(ToyRole):
    """Answers with the name of its fold."""

    async def __call__(self, task: Any, session: Any) -> Answer:
        """See `Reader`."""
        return Answer(self.answer or self.fold)


def register_toys(monkeypatch: Any, *roles: str) -> None:
    """Let the toys be the trained forms of roles, as long as a test runs."""
    toys = {"verifier": ToyVerifier, "reader": ToyReader}
    for role in roles or toys:
        key = ("role", f"{role}.tuned")
        has_class(*key)  # so that its module is imported before, not after
        monkeypatch.setitem(parts._PARTS, key, parts._PARTS[key])  # the real one comes back
        part(*key)(toys[role])


def toy_training(
    path: Path, role: str, ids: Sequence[str], folds: int = 2, name: str = "sample", salt: str = "a"
) -> Path:
    """Write what a training with `cross=true` leaves behind; `folds=0`: one network, trained on all."""
    for fold in range(folds) if folds else (None,):
        folder = path / f"fold{fold}" if folds else path
        parts = split_questions(ids, FoldConfig(count=max(folds, 2), report=fold, salt=salt)).plain()
        toy_checkpoint(folder, role, {name: parts})
    return path


def toy_checkpoint(folder: Path, role: str, parts: dict[str, Any]) -> None:
    """Write a run directory of one training."""
    (folder / "best").mkdir(parents=True)
    (folder / "folds.json").write_text(json.dumps(parts))
    (folder / "metrics.json").write_text("{}")
    (folder / "best" / "weights").write_text(folder.as_posix())
    write_tuned(folder / "best", TunedRecord(role, "toy"))
    write_seen(folder / "best", seen_in(parts))
