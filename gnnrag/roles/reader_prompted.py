"""The reader as a language model (prompt and `hipporag` parser after HippoRAG 2)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element, passage_elements, together
from gnnrag.roles.base import Answer, ReaderTask
from gnnrag.roles.hollow import NO_ANSWER, need_answer
from gnnrag.roles.parsing import strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

_ANSWER = re.compile(r"answer\s*:\s*", re.IGNORECASE)
_THOUGHT = re.compile(r"^\W*thought\s*:\s*", re.IGNORECASE)
_CITED = re.compile(r"\[(\d{1,9}(?:\s*,\s*\d{1,9})*)\]")
_ABSTAIN = re.compile(
    r"(?:unknown|unanswerable|not (?:known|stated|given|mentioned|provided|available|specified)|n/?a|none|"
    r"(?:i (?:do not|don['’]t) know|cannot be (?:determined|answered)|(?:insufficient|not enough) information).*)\W*",
    re.IGNORECASE,
)
_SHORT = 100  # characters; a longer reply without a label is no short answer


@dataclass
class PromptedReaderConfig(PromptedConfig):
    """`hipporag` parses as that code does, for comparison with published numbers; `robust` forgives more.

    With `abstain` the reader may say that the passages do not hold the answer; the answer's text is then empty.
    """

    max_tokens: int = 2048
    parser: Literal["hipporag", "robust"] = "hipporag"
    abstain: bool = False


class PromptedReader:
    """Reads a short answer out of passages and notes.

    Without either, and unless it may abstain, it answers from what the model knows (the closed-book baseline).
    No reply, or none that parses, gives an empty answer flagged `reader_failed`.

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedReaderConfig

    def __init__(self, backend: Backend, config: PromptedReaderConfig | None = None) -> None:
        config = config or PromptedReaderConfig()
        options = ("abstain",) if config.abstain else ()
        self._open = Prompter("reader", backend, config, options=options)
        # A prompt of the user's own replaces the open one; the closed one has other placeholders.
        self._closed = Prompter("reader", backend, replace(config, prompt=""), "reader_closed", options)
        self.prompters, self.config = (self._open, self._closed), config

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer the question."""
        read, question = parse_hipporag if self.config.parser == "hipporag" else parse_robust, task.question.text

        def parse(text: str) -> Answer:
            need_answer((answer := read(text)).text, question)
            return answer

        values = {"question": inline(task.question.text)}
        if task.passages or task.notes.strip() or self.config.abstain:
            notes = [notes_element(task.notes)] if task.notes.strip() else []
            values["context"] = together([passage_elements(task.passages), *notes], "\n\n")
            outcome = await self._open.ask(session, values, parse)
        else:
            outcome = await self._closed.ask(session, values, parse)
        return self._finish(outcome.value, task)

    def _finish(self, answer: Answer | None, task: ReaderTask) -> Answer:
        """Turn cited numbers into passage ids, and an abstention into an empty text."""
        if answer is None:
            return Answer("", flags=("reader_failed",))
        text, flags = answer.text, answer.flags
        if self.config.abstain and _ABSTAIN.fullmatch(text):
            text, flags = "", (*flags, "abstained")
        cited = (int(n) for group in _CITED.findall(answer.thought) for n in group.split(","))
        support = dict.fromkeys(task.passages[n - 1].id for n in cited if 1 <= n <= len(task.passages))
        return Answer(text, tuple(support), thought=answer.thought, flags=flags)


def parse_hipporag(text: str) -> Answer:
    """Return what stands between the first and the second `Answer:`; without one, the whole reply (flagged).

    Raises:
        MalformedError: the reply or its answer is empty.
    """
    text = strip_thinking(text)
    thought, label, rest = text.partition("Answer:")
    if not label:
        return _unlabelled(text)
    return _labelled(rest.partition("Answer:")[0], thought)


def parse_robust(text: str) -> Answer:
    """Return the first line after the last `answer:` in any case, without Markdown; a short one-line reply is taken.

    Raises:
        MalformedError: nothing after the label; no label, and the reply is empty or longer than a short answer.
    """
    text = strip_markup(strip_thinking(text))
    labels = list(_ANSWER.finditer(text))
    if not labels:
        if "\n" in text or len(text) > _SHORT:
            raise MalformedError("no line starts with 'Answer:'")
        return _unlabelled(text)
    return _labelled(text[labels[-1].end() :].partition("\n")[0], text[: labels[-1].start()])


def _labelled(answer: str, thought: str) -> Answer:
    """Build the answer; an empty one was cut off, and must not pass for an abstention."""
    if not answer.strip():
        raise MalformedError("nothing after 'Answer:'", NO_ANSWER)
    return Answer(answer.strip(), thought=_THOUGHT.sub("", thought).strip())


def _unlabelled(text: str) -> Answer:
    """Take the whole reply for the answer, and say so."""
    if not text:
        raise MalformedError("empty reply", NO_ANSWER)
    return Answer(text, flags=("answer_unlabelled",))
