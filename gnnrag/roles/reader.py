"""Reader: the answer from passages; prompted, and by gold (the rule-based one is in `offline_reader`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.roles.base import Answer, ReaderTask, Role
from gnnrag.roles.citations import cited_answer, parse_cited
from gnnrag.roles.parsing import NO_ANSWER, OUT_OF_RANGE, need_answer, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedPart, Prompter
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


@part("role", "reader.prompted")
class PromptedReader(PromptedPart[ReaderTask, Answer]):
    """Reads an answer out of passages and notes: a short one, or sentences that name their passages.

    Without either, and unless it may abstain, it answers from what the model knows (the closed-book baseline). No
    reply, or none that parses, gives an empty answer flagged `reader_failed`.
    """

    max_tokens: int = 2048
    parser: Literal["hipporag", "robust"] = "hipporag"  # as that code parses, or one that forgives more
    abstain: bool = False  # an empty answer is allowed

    def setup(self) -> None:
        options = ("abstain",) if self.abstain else ()
        # A prompt of the user's own replaces the open one; the others have other placeholders.
        own = replace(self, prompt="")
        self._open = Prompter("reader", self.backend, self, options=options)
        self._closed = Prompter("reader", self.backend, own, "reader_closed", options)
        self._cited = Prompter("reader", self.backend, own, "reader_cited", options)
        self.prompters = (self._open, self._closed, self._cited)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        read, question = parse_hipporag if self.parser == "hipporag" else parse_robust, task.question.text

        def parse(text: str) -> Answer:
            need_answer((answer := read(text)).text, question)
            return answer

        values = {"question": inline(task.question.text)}
        if task.style != "short" and task.passages:
            return await self._in_sentences(task, session, values)
        if task.passages or task.notes.strip() or self.abstain:
            values["context"] = _context(task)
            outcome = await self._open.ask(session, values, parse)
        else:
            outcome = await self._closed.ask(session, values, parse)
        return self._finish(outcome.value, task)

    async def _in_sentences(self, task: ReaderTask, session: Session, values: Mapping[str, str]) -> Answer:
        """Ask for sentences with their passages. Where no reply is sound, the last one's sound citations are kept."""
        length = "one or two sentences" if task.style == "sentence" else f"at most {task.words} words"
        count = len(task.passages)
        read = partial(parse_cited, count=count, question=task.question.text)
        outcome = await self._cited.ask(
            session, {**values, "context": _context(task), "length": length}, read, shown=count
        )
        found, flags = outcome.value, tuple[str, ...]()
        if found is None:
            try:
                found, flags = read(outcome.reply, is_strict=False), (OUT_OF_RANGE,)
            except MalformedError:
                return Answer("", flags=("reader_failed",))
        answer = cited_answer(found, task.passages)
        return replace(answer, flags=(*flags, *answer.flags, *(() if found else ("abstained",))))

    def _finish(self, answer: Answer | None, task: ReaderTask) -> Answer:
        """Turn cited numbers into passage ids, and an abstention into an empty text."""
        if answer is None:
            return Answer("", flags=("reader_failed",))
        text, flags = answer.text, answer.flags
        if self.abstain and _ABSTAIN.fullmatch(text):
            text, flags = "", (*flags, "abstained")
        cited = (int(n) for group in _CITED.findall(answer.thought) for n in group.split(","))
        support = dict.fromkeys(task.passages[n - 1].id for n in cited if 1 <= n <= len(task.passages))
        return Answer(text, tuple(support), thought=answer.thought, flags=flags)


def _context(task: ReaderTask) -> Shown:
    """Return the passages and the notes, in their elements."""
    notes = [notes_element(task.notes)] if task.notes.strip() else []
    return together([passage_elements(task.passages), *notes], "\n\n")


def parse_hipporag(text: str) -> Answer:
    """Return what follows the first `Answer:` up to the next, else the reply (flagged); MalformedError if empty."""
    text = strip_thinking(text)
    thought, label, rest = text.partition("Answer:")
    if not label:
        return _unlabelled(text)
    return _labelled(rest.partition("Answer:")[0], thought)


def parse_robust(text: str) -> Answer:
    """Return the first line after the last `answer:` in any case, without Markdown; a short one-line reply is taken.

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


@part("role", "reader.oracle")
class OracleReader(Role[ReaderTask, Answer]):
    """Answers with the canonical gold answer if the gold evidence is among the passages, else abstains.

    A question without gold passages fulfils only `require=none`; one without answers cannot be answered by the corpus,
    so that abstaining is right.
    """

    require: Literal["all", "last", "none"] = "all"  # every gold passage, the last hop's, or nothing

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        return self.read(task)

    def read(self, task: ReaderTask) -> Answer:
        """Return the gold answer, or an empty one that says what is missing."""
        question, shown = task.question, {passage.id for passage in task.passages}
        if not question.answers:
            return Answer("", thought="the question has no gold answer")
        if not question.gold and self.require != "none":
            return Answer("", thought="the question has no gold passages")
        hops = [hop.gold for hop in question.decomposition]
        last = (hops[-1] if hops else None) or (question.gold[-1] if question.gold else "")
        required = {"all": question.gold, "last": (last,), "none": ()}[self.require]
        missing = [id_ for id_ in required if id_ not in shown]
        if missing:
            return Answer("", thought=f"missing: {', '.join(missing)}")
        support = tuple(id_ for id_ in question.gold if id_ in shown)
        return Answer(question.answers[0], support, 1.0, "gold evidence is here")
