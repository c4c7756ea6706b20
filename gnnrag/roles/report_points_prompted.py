"""GraphRAG's map step by a language model (Edge et al., arXiv 2404.16130, section 3.1.6; the wording is ours)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element, together
from gnnrag.roles.asking import Point, ReportPoints, ReportPointsTask
from gnnrag.roles.parsing import json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session


@dataclass
class PromptedReportPointsConfig(PromptedConfig):
    """Settings of `PromptedReportPoints`."""

    max_tokens: int = 2048


class PromptedReportPoints:
    """Asks what a batch of reports says on a query. A batch without a usable reply has no points (`points_failed`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedReportPointsConfig

    def __init__(self, backend: Backend, config: PromptedReportPointsConfig | None = None) -> None:
        self._prompter = Prompter("report_points", backend, config or PromptedReportPointsConfig())
        self.prompters = (self._prompter,)

    async def __call__(self, task: ReportPointsTask, session: Session) -> ReportPoints:
        """Return the points in the order of the reply; citations of reports that were not shown are dropped."""
        ids = {f"R{n}": id_ for n, (id_, _) in enumerate(task.reports, start=1)}
        numbered = enumerate((text for _, text in task.reports), start=1)
        shown = together((together((f"R{n}", notes_element(text))) for n, text in numbered), "\n\n")
        values = {"reports": shown, "question": inline(task.query)}
        outcome = await self._prompter.ask(session, values, parse_points)
        if outcome.value is None:
            return ReportPoints((), ("points_failed",))
        points = []
        for point in outcome.value:
            cited = dict.fromkeys(ids[r] for r in point.reports if r in ids)
            points.append(replace(point, reports=tuple(cited)))
        return ReportPoints(tuple(points))


def parse_points(text: str) -> tuple[Point, ...]:
    """Return the points with the short ids of their reports; what is no point is left out.

    Raises:
        MalformedError: no JSON object with a list `points`, or one of which nothing is a point.
    """
    for data in json_objects(strip_thinking(text)):
        rows = data.get("points")
        if isinstance(rows, list):
            points = tuple(p for row in rows if (p := _point(row)))
            if rows and not points:
                raise MalformedError("no element of points has a text and a score from 0 to 100")
            return points
    raise MalformedError("no JSON object with a list 'points'")


def _point(row: Any) -> Point | None:
    if not isinstance(row, Mapping):
        return None
    text, score, reports = row.get("text", row.get("description")), row.get("score"), row.get("reports")
    if isinstance(score, str) and score.strip().isdecimal():
        score = int(score)
    is_number = isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 100
    if not isinstance(text, str) or not text.strip() or not is_number:
        return None
    cited = tuple(str(r).strip(" []").upper() for r in reports) if isinstance(reports, list) else ()
    return Point(" ".join(text.split()), float(score), cited)  # type: ignore[arg-type]
