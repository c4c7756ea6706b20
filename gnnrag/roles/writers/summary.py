"""Write summaries of clustered passages (RAPTOR); prompted, and by salience."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.prompts.untrusted import inline, notes_element, together
from gnnrag.roles.base import Role
from gnnrag.roles.offline_reader.spans import words
from gnnrag.roles.parsing import strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedRole, at_most
from gnnrag.roles.writers.base import Summary, SummaryTask
from gnnrag.session import Session
from gnnrag.text.sentences import extract_summary, first_sentences, split_sentences

_ENDINGS = ".!?…。！？"
_CLOSING = "\"'”’)]"


class PromptedSummary(PromptedRole[SummaryTask, Summary]):
    """Asks for one paragraph that keeps as many facts of the texts as its length allows.

    A reply that is too long loses its last sentences (`summary_shortened`), one that the token limit cut off its torn
    end. Where every reply is empty, the most salient sentences of the texts stand in (`summary_failed`).
    """

    role = "summary"
    config_class = at_most(400)  # wide, so that the model ends its summary

    async def __call__(self, task: SummaryTask, session: Session) -> Summary:
        """Summarise `task.texts` in about `task.max_words` words."""
        if not any(text.strip() for text in task.texts):
            return Summary("", ("summary_empty",))
        values = {
            # Newlines inside a text go, as released: a blank line then always parts two texts.
            "texts": together(notes_element(" ".join(text.split())) for text in task.texts),
            "subject": f"They are about: {inline(task.subject)}\n" if task.subject else "",
            "words": str(task.max_words),
        }
        outcome = await self.ask(session, values, parse_summary)
        if outcome.value is None:
            return Summary(extract_summary(task.texts, task.max_words, words), ("summary_failed",))
        kept = first_sentences(outcome.value, task.max_words)
        return Summary(kept, ("summary_shortened",) if kept != outcome.value else ())


def parse_summary(text: str) -> str:
    """Return the reply as one paragraph, without a last sentence that was cut off; MalformedError where it is empty."""
    text = " ".join(strip_markup(strip_thinking(text)).split())
    sentences = split_sentences(text)
    if len(sentences) > 1 and not sentences[-1].rstrip(_CLOSING).endswith(tuple(_ENDINGS)):
        sentences.pop()
    if not sentences:
        raise MalformedError("empty summary")
    return " ".join(sentences)


@dataclass
class OfflineSummaryConfig:
    """Settings of `OfflineSummary`."""

    redundancy: float = 0.4  # what a sentence loses for repeating chosen ones, from 0 to 1


class OfflineSummary(Role[SummaryTask, Summary]):
    """Extractive summaries: whole sentences of the texts, chosen by salience and against repetition.

    They depend on their own texts alone, so that they stay valid when other parts of a corpus change; empty without any
    text (`summary_empty`). ConfigError: `redundancy` is outside its range.
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
