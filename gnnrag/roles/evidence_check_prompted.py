"""Evidence verification by a language model (GraphSearch, arXiv 2509.22009; the wording is ours)."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.roles.searching import Check, CheckTask
from gnnrag.roles.searching_parse import parse_free, parse_verdict
from gnnrag.session import Session


@dataclass
class PromptedEvidenceCheckConfig(PromptedConfig):
    """Settings of `PromptedEvidenceCheck`."""

    max_tokens: int = 1024


class PromptedEvidenceCheck:
    """Asks whether the context supports a draft; a reply without a verdict is `unknown` (`evidence_check_failed`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedEvidenceCheckConfig

    def __init__(self, backend: Backend, config: PromptedEvidenceCheckConfig | None = None) -> None:
        self._prompter = Prompter("evidence_check", backend, config or PromptedEvidenceCheckConfig())
        self.prompters = (self._prompter,)

    async def __call__(self, task: CheckTask, session: Session) -> Check:
        """See `Role`."""

        def parse(text: str) -> Check:
            analysis = parse_free(text)
            verdict = parse_verdict(analysis, task.parse)
            if verdict == "unknown":
                raise MalformedError("neither yes nor no")
            return Check(verdict, analysis)

        values = {
            "context": notes_element(task.context),
            "question": inline(task.question.text),
            "response": notes_element(task.draft),
        }
        outcome = await self._prompter.ask(session, values, parse)
        return outcome.value or Check("unknown", outcome.reply.strip(), ("evidence_check_failed",))
