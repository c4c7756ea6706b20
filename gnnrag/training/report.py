"""Model cards: what a checkpoint is, what it was trained on, and how good it is on what it has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnrag.common.files import read_json
from gnnrag.common.records import read_config
from gnnrag.common.untrusted import markdown
from gnnrag.common.weights import difference
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.training.base import score_rows

UNSTATED = "not stated by whoever trained it; ask before you pass it on"


@dataclass(frozen=True)
class Card:
    """What a model card says.

    Attributes:
        name: heading.
        summary: one paragraph on what the model does.
        facts: short statements by name: parameters, encoder, commit, the command that makes it.
        data: one row per set of training data: name, questions of each part, passages, licence.
        scores: one row per evaluation: set, part, metric, value with its interval, number of questions.
        notes: limits, and what else a user should know.
        licence: under which the weights may be used (`run.licence`).
    """

    name: str
    summary: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[Mapping[str, Any], ...] = ()
    scores: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    licence: str = ""

    def render(self) -> str:
        """Return the card as Markdown."""
        parts = [f"# {markdown(self.name)}", self.summary]
        parts.append("\n".join(f"- {markdown(name)}: {markdown(str(value))}" for name, value in self.facts.items()))
        parts += ["## Licence", self._licences()]
        if self.data:
            parts += ["## Training data", _table(self.data)]
        if self.scores:
            parts += ["## Evaluation", _table(self.scores)]
        if self.notes:
            parts += ["## Notes", "\n".join(f"- {markdown(note)}" for note in self.notes)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _licences(self) -> str:
        """Return under what the weights stand, and what they were made from."""
        of_data = {str(row.get("set")): str(row.get("licence") or UNSTATED) for row in self.data}
        lines = [f"- weights: {markdown(self.licence or UNSTATED)}"]
        lines += [f"- data, {markdown(name)}: {markdown(licence)}" for name, licence in of_data.items()]
        return "\n".join(lines)


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(name)) for name in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else markdown(str(value))


def measured_rows(runs: Sequence[str], settings: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return rows of a model card's evaluation table from finished runs.

    Args:
        runs: their folders.
        settings: sections that must be the same in each of them, or its figures would be those of another model.

    Raises:
        ConfigError: no finished run, or one with other settings.
    """
    rows: list[dict[str, Any]] = []
    for name in runs:
        path = Path(name)
        try:
            first = path / "fold0" if (path / "fold0").is_dir() else path
            held, metrics = read_config(first), dict(read_json(path / "metrics.json"))
            is_crossed = len(metrics.pop("folds")) > 1
        except (OSError, ValueError, TypeError, KeyError, GnnragError) as error:
            raise ConfigError(f"run.measured: {name} is no finished training run ({error})") from error
        if problem := difference(held, settings):
            raise ConfigError(f"run.measured: {name}: {problem}; name a run with the settings of this one")
        part = "cross-validated" if is_crossed else "left out of training"
        rows += [row | {"part": part} for row in score_rows({"validation": {}, "report": metrics})]
    return tuple(rows)
