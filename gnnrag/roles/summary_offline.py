"""Summaries without a language model: the sentences that say most of the texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.roles.extractive.spans import words
from gnnrag.roles.writing import Summary, SummaryTask
from gnnrag.session import Session
from gnnrag.text.salience import extract_summary


@dataclass
class OfflineSummaryConfig:
    """Settings of `OfflineSummary`."""

    redundancy: float = 0.4  # what a sentence loses for repeating chosen ones, from 0 to 1


class OfflineSummary:
    """Extractive summaries: whole sentences of the texts, chosen by salience and against repetition.

    A summary depends on its own texts alone: no corpus statistics, no vectors. That makes it fast, and keeps summaries
    valid when other parts of a corpus change. Without any text it is empty (`summary_empty`).

    Args:
        index: not used.
        config: settings.

    Raises:
        ConfigError: `redundancy` is outside its range.
    """

    config_class = OfflineSummaryConfig
    version = 1

    def __init__(self, index: Any = None, config: OfflineSummaryConfig | None = None) -> None:
        self.config = config or OfflineSummaryConfig()
        if not 0 <= self.config.redundancy <= 1:
            raise ConfigError(f"summary.redundancy={self.config.redundancy}: give a number from 0 to 1")

    async def __call__(self, task: SummaryTask, session: Session) -> Summary:
        """Return sentences of `task.texts`, in their order."""
        text = extract_summary(task.texts, task.max_words, words, self.config.redundancy)
        return Summary(text, () if text else ("summary_empty",))
