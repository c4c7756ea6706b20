"""What a training says of its model: the report on questions that it has not seen, and the model card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.files import read_json, write_json, write_jsonl
from gnnrag.common.records import read_config
from gnnrag.common.untrusted import markdown
from gnnrag.common.weights import difference
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.metrics.statistics import bootstrap_interval, with_interval
from gnnrag.training.calibration import pooled_metrics

Report = list[dict[str, Any]]
PRIVATE = ("chances", "is_right", "probabilities", "truths")  # what a threshold was learned from: not for the report
UNSTATED = "not stated by whoever trained it; ask before you pass it on"


def told(row: Mapping[str, Any], steps: int) -> str:
    """Return a row of metrics as a person reads it."""
    shown = {name.rpartition("/")[2]: value for name, value in row.items() if name not in ("step", "seconds")}
    values = ", ".join(f"{name} {value:.3g}" for name, value in shown.items())
    return f"step {row['step']} of {steps}, {row['seconds']:.0f} s: {values}"


def write_report(path: Path, rows: Report, more: Mapping[str, Any]) -> dict[str, Any]:
    """Write `report.jsonl`, `metrics.json`: means and 95% intervals by set and hops, over questions with the metric."""
    groups: dict[str, Report] = {}
    for row in rows:
        for name in [row["set"]] + ([f"{row['set']}/{row['hops']}-hop"] if row.get("hops") else []):
            groups.setdefault(name, []).append(row)
    write_jsonl(path / "report.jsonl", [{k: v for k, v in row.items() if k not in PRIVATE} for row in rows])
    metrics: dict[str, Any] = dict(more)
    for name, group in sorted(groups.items()):
        measured: list[dict[str, float]] = [row["metrics"] for row in group]
        metrics[name] = {"questions": len(measured), **pooled_metrics(group)}  # the pooled ones have no interval
        for key in dict.fromkeys(key for row in measured for key in row):
            interval = bootstrap_interval(np.array([row[key] for row in measured if key in row]))
            metrics[name] |= {key: interval.mean, f"{key}_ci": [interval.low, interval.high]}
    write_json(path / "metrics.json", metrics)
    return metrics


def score_rows(record: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the rows of a model card's evaluation table from a checkpoint's record."""
    scores = [{"set": "all", "part": "validation", "metric": k, "value": v} for k, v in record["validation"].items()]
    for name, row in record.get("report", {}).items():
        for key, value in row.items():
            if f"{key}_ci" in row:
                shown = with_interval(value, row[f"{key}_ci"])
                scores.append({"set": name, "part": "report", "metric": key, "value": shown, "n": row["questions"]})
    return tuple(scores)


def measured_rows(runs: Sequence[str], settings: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return a card's evaluation rows of finished runs. Raises ConfigError: not finished, or `settings` differ."""
    rows: list[dict[str, Any]] = []
    for name in runs:
        path = Path(name)
        try:
            held = read_config(path / "fold0" if (path / "fold0").is_dir() else path)
            metrics = dict(read_json(path / "metrics.json"))
            is_crossed = len(metrics.pop("folds")) > 1
        except (OSError, ValueError, TypeError, KeyError, GnnragError) as error:
            raise ConfigError(f"run.measured: {name} is no finished training run ({error})") from error
        if problem := difference(held, settings):
            raise ConfigError(f"run.measured: {name}: {problem}; name a run with the settings of this one")
        part = "cross-validated" if is_crossed else "left out of training"
        rows += [row | {"part": part} for row in score_rows({"validation": {}, "report": metrics})]
    return tuple(rows)


@dataclass(frozen=True)
class Card:
    """A model card."""

    name: str  # heading
    summary: str  # one paragraph on what the model does
    # Short statements by name: parameters, encoder, commit, the command that makes it
    facts: Mapping[str, Any] = field(default_factory=dict)
    # One row per set of training data: name, questions of each part, passages, licence
    data: Sequence[Mapping[str, Any]] = ()
    # One row per evaluation: set, part, metric, value with its interval, number of questions
    scores: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()  # limits, and what else a user should know
    licence: str = ""  # under which the weights may be used (`run.licence`)

    def render(self) -> str:
        """Return the card as Markdown."""
        parts = [f"# {markdown(self.name)}", self.summary]
        parts.append("\n".join(f"- {markdown(name)}: {markdown(str(value))}" for name, value in self.facts.items()))
        of_data = {str(row.get("set")): str(row.get("licence") or UNSTATED) for row in self.data}
        licences = [f"- weights: {markdown(self.licence or UNSTATED)}"]
        licences += [f"- data, {markdown(name)}: {markdown(licence)}" for name, licence in of_data.items()]
        parts += ["## Licence", "\n".join(licences)]
        if self.data:
            parts += ["## Training data", _table(self.data)]
        if self.scores:
            parts += ["## Evaluation", _table(self.scores)]
        if self.notes:
            parts += ["## Notes", "\n".join(f"- {markdown(note)}" for note in self.notes)]
        return "\n\n".join(part for part in parts if part) + "\n"


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
