"""A reader that a language model was trained for: a short answer with the passages that it rests on, or `unknown`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from gnnrag.llm.base import Message
from gnnrag.parts import part
from gnnrag.prompts import cached_prompt
from gnnrag.prompts.untrusted import inline, passage_elements
from gnnrag.roles.base import Answer, ReaderTask
from gnnrag.roles.parsing import NO_ANSWER, OUT_OF_RANGE, need_answer, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.session import Session

PROMPT = "reader_brief"
UNKNOWN = "unknown"
_REPLY = re.compile(r"(?P<text>[^\n]*?[^\s\[])\s*(?P<cited>(?:\[\d{1,4}\]\s*)+)")
_NUMBER = re.compile(r"\d+")


@part("role", "reader.brief")
class BriefReader(PromptedPart[ReaderTask, Answer]):
    """Asks for `answer [n]`. A reply of another form, or that cites what was not shown, is asked for once more.

    A second one gives an empty answer flagged `reader_failed`; `unknown` one flagged `abstained`, as does a task
    without passages, for which nothing is asked. Answers are short in every style, and notes are not read.
    """

    prompt_name = PROMPT

    max_tokens: int = 48
    max_passages: int = 10  # passages beyond this are not read

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        passages, question = task.passages[: self.max_passages], task.question.text
        if not passages:
            return Answer("", thought="no passages", flags=("abstained",))
        values = {"question": inline(question), "passages": passage_elements(passages)}
        read = partial(parse_brief, count=len(passages), question=question)
        reply = (await self.ask(session, values, read, shown=len(passages))).value
        if reply is None:
            return Answer("", flags=("reader_failed",))
        text, numbers = reply
        return Answer(text, tuple(passages[n - 1].id for n in numbers), flags=() if text else ("abstained",))


def parse_brief(text: str, count: int, question: str = "") -> tuple[str, tuple[int, ...]]:
    """Return the answer of a reply and the numbers of its passages, 1 to `count`; an abstention has neither.

    MalformedError: not one line of an answer and numbers in brackets, or a number of no passage.
    """
    text = strip_thinking(text).strip()
    if text.rstrip(".").lower() == UNKNOWN:
        return "", ()
    found = _REPLY.fullmatch(text)
    if not found:
        raise MalformedError("not an answer with its passages in brackets", "" if text else NO_ANSWER)
    numbers = tuple(dict.fromkeys(int(n) for n in _NUMBER.findall(found["cited"])))
    if beyond := [n for n in numbers if not 1 <= n <= count]:
        raise MalformedError(f"no passage {beyond[0]}", OUT_OF_RANGE)
    return need_answer(found["text"], question), numbers


def brief_chat(task: ReaderTask, answer: str, numbers: Sequence[int], prompt: str = "") -> tuple[Message, ...]:
    """Return the prompt (or another, by its name) for a task, and its reply; an empty answer makes an abstention."""
    reply = f"{inline(answer)} {''.join(f'[{n}]' for n in numbers)}" if answer else UNKNOWN
    values = {"question": inline(task.question.text), "passages": passage_elements(task.passages)}
    return (*cached_prompt(prompt or PROMPT).render(**values), Message("assistant", reply))
