"""Which questions train and which are reported on: decided by each question's id alone, and written into the run.

Where a set asks a question under two ids, both go where the lesser id goes: no part is to know another's answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.fit.config import FoldConfig
from gnnrag.session import folded


@dataclass(frozen=True)
class Parts:
    """Ids of the questions of each part, in the order given; no id is in two."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    report: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """Return the parts as JSON data."""
        return {name: list(ids) for name, ids in asdict(self).items()}


def draw(text: str, salt: str) -> float:
    """Return a number in [0, 1) that only the text and the salt decide."""
    return int(hashlib.sha256(f"{salt}:{text}".encode()).hexdigest()[:12], 16) / 16**12


def fold_of(question_id: str, config: FoldConfig) -> int:
    """Return the fold of a question, in 0 .. count - 1."""
    return int(draw(question_id, config.salt) * config.count)


def split_questions(ids: Iterable[str], config: FoldConfig, texts: Mapping[str, str] | None = None) -> Parts:
    """Split the questions of a set into parts.

    Args:
        ids: of the questions.
        config: how many folds, and how they are drawn.
        texts: of the questions, by id; those of equal text, but for case and spacing, are on one side.

    Raises:
        ConfigError: there is no such fold, or the share of validation is not in [0, 1).
    """
    if config.count < 2 or (config.report is not None and not 0 <= config.report < config.count):
        raise ConfigError(
            f"folds.report={config.report} with folds.count={config.count}: at least 2 folds, and one of them or null"
        )
    if not 0 <= config.validation < 1:
        raise ConfigError(f"folds.validation={config.validation}: must be at least 0 and below 1")
    ids = list(ids)
    known = {id_: text for id_ in ids if (text := folded(texts[id_]))} if texts else {}
    least: dict[str, str] = {}
    for id_ in sorted(known):
        least.setdefault(known[id_], id_)
    parts: dict[str, list[str]] = {"train": [], "validation": [], "report": []}
    for id_ in ids:
        lead = least[known[id_]] if id_ in known else id_
        if config.report is not None and fold_of(lead, config) == config.report:
            part = "report"
        else:
            part = "validation" if draw(lead, f"{config.salt}/validation") < config.validation else "train"
        parts[part].append(id_)
    return Parts(**{name: tuple(rows) for name, rows in parts.items()})
