"""Reader: the answer from passages; prompted, and by gold (the rule-based one is in `offline_reader`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.roles.base import Answer, ReaderTask, Role
from gnnrag.roles.citations import cited_answer, parse_cited
from gnnrag.roles.parsing import NO_ANSWER, OUT_OF_RANGE, need_answer, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.session import Session

_THOUGHT = re.compile(r"^\W*thought\s*:\s*", re.IGNORECASE)
_CITED = re.compile(r"\[(\d{1,9}(?:\s*,\s*\d{1,9})*)\]")
_ABSTAIN = re.compile(
    r"(?:unknown|unanswerable|not (?:known|stated|given|mentioned|provided|available|specified)|n/?a|none|"
    r"(?:i (?:do not|don['’]t) know|cannot be (?:determined|answered)|(?:insufficient|not enough) information).*)\W*",
    re.IGNORECASE,
)


@part("role", "reader.prompted")
class PromptedReader(PromptedPart[ReaderTask, Answer]):
    """Reads an answer out of passages and notes: a short one, or sentences that name their passages.

    Without either, and unless it may abstain, it answers from what the model knows (the closed-book baseline). No
    reply, or none that parses, gives an empty answer flagged `reader_failed`.
    """

    max_tokens: int = 2048
    abstain: bool = False  # an empty answer is allowed

    def setup(self) -> None:
        options = ["abstain"] * self.abstain
        # A prompt of the user's own replaces the open one; the others have other placeholders.
        self._open = self.prompter("reader", *options)
        self._closed = self.prompter("reader_closed", *options, own=False)
        self._cited = self.prompter("reader_cited", *options, own=False)
        self.prompters = (self._open, self._closed, self._cited)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        def parse(text: str) -> Answer:
            need_answer((answer := parse_hipporag(text)).text, task.question.text)
            return answer

        values = {"question": inline(task.question.text)}
        if task.style != "short" and task.passages:
            return await self._in_sentences(task, session, values)
        if task.passages or task.notes.strip() or self.abstain:
            outcome = await self._open.ask(session, {**values, "context": _context(task)}, parse)
        else:
            outcome = await self._closed.ask(session, values, parse)
        if (answer := outcome.value) is None:
            return Answer("", flags=("reader_failed",))
        if self.abstain and _ABSTAIN.fullmatch(answer.text):
            answer = replace(answer, text="", flags=(*answer.flags, "abstained"))
        numbers = (int(n) for group in _CITED.findall(answer.thought) for n in group.split(","))
        support = dict.fromkeys(task.passages[n - 1].id for n in numbers if 1 <= n <= len(task.passages))
        return replace(answer, support=tuple(support))

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


def _context(task: ReaderTask) -> Shown:
    """Return the passages and the notes, in their elements."""
    notes = [notes_element(task.notes)] if task.notes.strip() else []
    return together([passage_elements(task.passages), *notes], "\n\n")


def parse_hipporag(text: str) -> Answer:
    """Return what follows the first `Answer:` up to the next, else the reply (flagged); MalformedError if empty."""
    text = strip_thinking(text)
    thought, label, rest = text.partition("Answer:")
    answer = rest.partition("Answer:")[0].strip() if label else text
    if not answer:  # it was cut off, and must not pass for an abstention
        raise MalformedError("nothing after 'Answer:'" if label else "empty reply", NO_ANSWER)
    if not label:
        return Answer(answer, flags=("answer_unlabelled",))
    return Answer(answer, thought=_THOUGHT.sub("", thought).strip())


@part("role", "reader.oracle")
class OracleReader(Role[ReaderTask, Answer]):
    """Answers with the canonical gold answer if the gold evidence is among the passages, else abstains.

    A question without answers or gold passages cannot be answered by the corpus, so that abstaining is right.
    """

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        return self.read(task)

    def read(self, task: ReaderTask) -> Answer:
        """Return the gold answer, or an empty one that says what is missing."""
        question, shown = task.question, {passage.id for passage in task.passages}
        if not question.answers:
            return Answer("", thought="the question has no gold answer")
        if not question.gold:
            return Answer("", thought="the question has no gold passages")
        if missing := [id_ for id_ in question.gold if id_ not in shown]:
            return Answer("", thought=f"missing: {', '.join(missing)}")
        return Answer(question.answers[0], tuple(question.gold), 1.0, "gold evidence is here")
