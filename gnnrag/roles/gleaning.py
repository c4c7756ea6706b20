"""Asking a language model for what it missed: a conversation per passage, as GraphRAG and its children hold it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gnnrag.llm.base import Backend, Message, estimate_tokens
from gnnrag.prompts.untrusted import defuse_all_but, inline, passage_element
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.roles.records import Records
from gnnrag.roles.writing import TriplesTask
from gnnrag.session import Session

_FORMAT = re.compile(r"<\|(?:(?:COMPLETE|#)\|)?>")  # of records; no chat template has these
MAX_HISTORY = 20_480  # tokens beyond which nothing more is asked for (LightRAG)


@dataclass
class TriplesConfig(PromptedConfig):
    """Settings of prompted extraction."""

    max_tokens: int = 4096


class Conversation:
    """The extraction of one passage and the turns that ask for more.

    With gleaning g there are 1 call (g = 0), 2 (g = 1) or up to 2 g: after each turn but the last the model is asked
    whether anything is missing, and only `yes` goes on.

    Args:
        backend: the language model.
        config: sampling settings.
        prompt: name of the extraction prompt.
    """

    def __init__(self, backend: Backend, config: TriplesConfig, prompt: str) -> None:
        plain = TriplesConfig("", config.temperature, config.max_tokens, config.seed)
        brief = PromptedConfig("", config.temperature, 8, config.seed)
        # The records before a cut are whole, and what is missing is asked for; what is not "yes" alone is a no.
        self._first = Prompter("triples", backend, config, prompt, keeps_cut=True)
        self._more = Prompter("triples", backend, plain, "triples_more", keeps_cut=True)
        self._ask = Prompter("triples", backend, brief, "triples_ask", keeps_cut=True)
        self.prompters = (self._first, self._more, self._ask)

    async def __call__(
        self, task: TriplesTask, types: tuple[str, ...], session: Session, read: Callable[[str], Records]
    ) -> list[Records]:
        """Return the records of each reply; none where the first was malformed twice."""
        values = task_values(task, types)
        first = await self._first.ask(session, values, read)
        if first.value is None:
            return []
        replies = [first.value]
        turns = (*self._first.prompt.render(**values), _said(first.reply))
        for left in reversed(range(task.gleaning)):
            if sum(estimate_tokens(turn.content) for turn in turns) > MAX_HISTORY:
                session.flag("triples", "gleaning_skipped")
                break
            more = await self._more.ask(session, {}, lambda reply: _or_nothing(read, reply), turns)
            if more.value is None:
                break
            replies.append(more.value)
            turns = (*turns, *self._more.prompt.render(), _said(more.reply))
            if left and not (await self._ask.ask(session, {}, is_yes, turns)).value:
                break
        return replies


def task_values(task: TriplesTask, types: tuple[str, ...]) -> Mapping[str, str]:
    """Return what goes into an extraction prompt."""
    return {
        "types": inline(", ".join(task.types or types)),
        "language": inline(task.language),
        "passage": passage_element(task.passage, 1),
    }


def _said(reply: str) -> Message:
    """Return a reply as a turn of the conversation that goes on: it was written from the passage."""
    return Message("assistant", defuse_all_but(reply, _FORMAT))


def is_yes(reply: str) -> bool:
    """Tell whether a reply is the word yes and nothing else."""
    return re.sub(r"[\W_]", "", reply).casefold() == "yes"


def _or_nothing(read: Callable[[str], Records], reply: str) -> Records:
    """Return the records of a reply; a model that has nothing to add may say so in its own words."""
    try:
        return read(reply)
    except MalformedError:
        return Records(is_complete=True)
