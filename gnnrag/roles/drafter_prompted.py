"""Logic drafts and the final answer by a language model (GraphSearch, arXiv 2509.22009; the wording is ours)."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.hollow import need_answer
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.roles.searching import Draft, DraftTask
from gnnrag.roles.searching_parse import parse_answer_line, parse_free
from gnnrag.session import Session


@dataclass
class PromptedDrafterConfig(PromptedConfig):
    """Settings of `PromptedDrafter`."""

    max_tokens: int = 2048


class PromptedDrafter:
    """Asks for a step-by-step answer; no reply, or none with an answer, gives an empty draft (`drafter_failed`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedDrafterConfig

    def __init__(self, backend: Backend, config: PromptedDrafterConfig | None = None) -> None:
        config = config or PromptedDrafterConfig()
        self._plain = Prompter("drafter", backend, config)
        self._line = Prompter("drafter", backend, config, options=("answer_line",))
        self.prompters = (self._plain, self._line)

    async def __call__(self, task: DraftTask, session: Session) -> Draft:
        """See `Role`."""
        values = {"context": notes_element(task.context), "question": inline(task.question.text)}
        prompter = self._line if task.answer_line else self._plain
        read = parse_lined if task.answer_line else parse_plain

        def parse(text: str) -> Draft:
            need_answer((draft := read(text)).answer, task.question.text)
            return draft

        outcome = await prompter.ask(session, values, parse)
        return outcome.value or Draft(flags=("drafter_failed",))


def parse_plain(text: str) -> Draft:
    """Return a reply that is reasoning and answer in one. Raises MalformedError for an empty one."""
    text = parse_free(text)
    return Draft(text, text)


def parse_lined(text: str) -> Draft:
    """Return the reasoning and the answer of its last line. Raises MalformedError where there is no answer."""
    text = parse_free(text)
    if not (answer := parse_answer_line(text)):
        raise MalformedError("no answer line")
    return Draft(text, answer)
