"""Training runs of roles without any training: folders that say which questions trained, and roles that read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.roles.base import Answer, Role, Verdict
from gnnrag.roles.tuned.checkpoint import TunedRecord, read_tuned, tuned_folder, write_tuned
from gnnrag.run.trained import seen_in, write_seen
from gnnrag.training.config import FoldConfig, split_questions


@dataclass
class ToyConfig:
    """Settings of the toy roles."""

    path: str | None = None  # checkpoint
    answer: str | None = None  # what the reader says; null: the name of its fold


class ToyRole(Role[Any, Any]):
    """Does its job by the name of its checkpoint's fold."""

    config_class = ToyConfig
    role = ""

    def __init__(self, index: Any, config: ToyConfig) -> None:
        if config.path is None:
            raise ConfigError(f"roles.{self.role}.path: give a checkpoint")
        record = read_tuned(config.path, self.role, ("toy",))
        self.fingerprint = record.fingerprint
        self.said = config.answer
        self.fold = tuned_folder(config.path).parent.name


class ToyVerifier(ToyRole):
    """Promotes the last passage shown."""

    role = "verifier"

    async def __call__(self, task: Any, session: Any) -> Verdict:
        """See `Verifier`."""
        return Verdict((task.passages[-1].id,))


class ToyReader(ToyRole):
    """Answers with the name of its fold."""

    role = "reader"

    async def __call__(self, task: Any, session: Any) -> Answer:
        """See `Reader`."""
        return Answer(self.said or self.fold)


REGISTERED = {role: f"{__name__}:Toy{role.title()}" for role in ("verifier", "reader")}


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
