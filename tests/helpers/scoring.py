"""The figures of predictions, without a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gnnrag.config import MetricsConfig
from gnnrag.metrics.report import per_question, summarise
from gnnrag.types import Prediction, Question


def score(
    questions: Sequence[Question],
    predictions: Iterable[Prediction],
    nodes: Mapping[str, Sequence[str]] | None = None,
    resamples: int = 1000,
    **settings: Any,
) -> dict[str, Any]:
    """Return the means of predictions, scored with `settings` of MetricsConfig."""
    columns = per_question(questions, predictions, MetricsConfig(**settings), nodes)
    return summarise(questions, columns, resamples)
