"""How much a report helps with a query, by a language model (Microsoft GraphRAG's dynamic selection)."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.asking import RateReportTask, ReportRating
from gnnrag.roles.parsing import json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

UNKNOWN = 1.0  # a report whose rating nobody could read is read, as in the release


@dataclass
class PromptedRatingConfig(PromptedConfig):
    """Settings of `PromptedRating`."""

    max_tokens: int = 64


class PromptedRating:
    """Asks for a rating from 0 to 5; one that cannot be read counts as 1 (`rating_failed`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedRatingConfig

    def __init__(self, backend: Backend, config: PromptedRatingConfig | None = None) -> None:
        self._prompter = Prompter("report_rating", backend, config or PromptedRatingConfig())
        self.prompters = (self._prompter,)

    async def __call__(self, task: RateReportTask, session: Session) -> ReportRating:
        """Rate the report."""
        values = {"report": notes_element(task.report[1]), "question": inline(task.query)}
        outcome = await self._prompter.ask(session, values, parse_rating)
        if outcome.value is None:
            return ReportRating(UNKNOWN, ("rating_failed",))
        return ReportRating(outcome.value)


def parse_rating(text: str) -> float:
    """Return the rating. Raises MalformedError where there is no JSON object with one from 0 to 5."""
    for data in json_objects(strip_thinking(text)):
        rating = data.get("rating")
        if isinstance(rating, int | float) and not isinstance(rating, bool) and 0 <= rating <= 5:
            return float(rating)
    raise MalformedError("no JSON object with a rating from 0 to 5")
