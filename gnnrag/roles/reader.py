"""Reader: the answer from passages, by a model; without one it is in `tuned.reader`, by gold in `oracle`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field

from gnnrag.llm.base import Message
from gnnrag.parts import part
from gnnrag.prompts import cached_prompt
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.roles.base import Answer, Citation, ReaderTask, with_marks
from gnnrag.roles.parsing import (
    NO_ANSWER,
    OUT_OF_RANGE,
    MalformedError,
    ReplyModel,
    is_no_answer,
    json_value,
    need_answer,
    read_as,
    strip_markup,
    strip_thinking,
)
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session
from gnnrag.text.questions import answer_style, is_yes_no
from gnnrag.text.sentences import split_sentences
from gnnrag.text.support import Said, inverse_frequencies, said, support, windows, without_citations
from gnnrag.types import Passage

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
        self._closed = self.prompter("reader_closed", *options, is_replaceable=False)
        self._cited = self.prompter("reader_cited", *options, is_replaceable=False)
        self.prompters = (self._open, self._closed, self._cited)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        def parse(text: str) -> Answer:
            need_answer((answer := parse_hipporag(text, task.question.text)).text, task.question.text)
            return answer

        task = replace(task, style=task.style or answer_style(task.question.text))
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
        sentences, flags = outcome.value, tuple[str, ...]()
        if sentences is None:
            try:
                sentences, flags = read(outcome.reply, is_strict=False), (OUT_OF_RANGE,)
            except MalformedError:
                return Answer("", flags=("reader_failed",))
        evidence = Evidence(task.passages)
        answer = cited_answer(self.kept(sentences, evidence), evidence)
        return replace(answer, flags=(*flags, *answer.flags, *(() if answer.text else ("abstained",))))

    def kept(self, sentences: Sentences, evidence: Evidence) -> Sentences:
        """Return which sentences of a reply are said, with the numbers of their passages: here all of them."""
        return sentences


def reader_chat(task: ReaderTask, answer: str, numbers: Sequence[int], prompt: str = "") -> tuple[Message, ...]:
    """Return the chat of the prompt (or of the one named) that may abstain, with an answer from passages by number.

    An empty answer makes an abstention.
    """
    asked = cached_prompt(prompt or "reader", "abstain")
    reply = f"Thought: {''.join(f'[{n}]' for n in numbers)}\nAnswer: {inline(answer) or 'unknown'}"
    turns = asked.render(question=inline(task.question.text), context=_context(task))
    return (*turns, Message("assistant", reply))


def _context(task: ReaderTask) -> Shown:
    notes = [notes_element(task.notes)] if task.notes.strip() else []
    return together([passage_elements(task.passages), *notes], "\n\n")


def parse_hipporag(text: str, question: str = "") -> Answer:
    """Return what follows the first `Answer:` up to the next, else the reply (flagged); MalformedError if empty.

    In JSON: a text or a number under `answer`; true and false are yes and no where the question asks for that.
    """
    text = strip_thinking(text)
    if isinstance(value := json_value(strip_markup(text)), dict) and "answer" in value:
        if isinstance(answer := value["answer"], bool):
            answer = ("yes" if answer else "no") if is_yes_no(question) else None
        if not isinstance(answer, str | int | float):
            raise MalformedError("answer: neither a text nor a number")
        return Answer(need_answer(str(answer).strip(), ""), thought=str(value.get("thought") or "").strip())
    thought, label, rest = text.partition("Answer:")
    answer = rest.partition("Answer:")[0].strip() if label else text
    if not answer:  # it was cut off, and must not pass for an abstention
        raise MalformedError("nothing after 'Answer:'" if label else "empty reply", NO_ANSWER)
    if not label:
        return Answer(answer, flags=("answer_unlabelled",))
    return Answer(answer, thought=_THOUGHT.sub("", thought).strip())


BORNE_OUT = 0.5  # share of a sentence's words, by idf, that one passage it names must have in three sentences in a row
Sentences = list[tuple[str, tuple[int, ...]]]


class CitedSentence(ReplyModel):
    # Numbers in brackets alone say nothing.
    text: Annotated[
        str, AfterValidator(lambda text: without_citations(" ".join(text.split())).strip()), Field(min_length=1)
    ]
    passages: list[Annotated[int, Field(strict=True)]]


class CitedReply(ReplyModel):
    sentences: list[CitedSentence]


def parse_cited(text: str, count: int, question: str = "", is_strict: bool = True) -> Sentences:
    """Return the sentences of a reply with the numbers of their passages, 1 to `count`; none: it abstains.

    Numbers beyond are refused, or left out unless `is_strict`. Raises MalformedError where the reply is no
    `CitedReply`, or nothing in it answers.
    """
    sentences = [(row.text, tuple(dict.fromkeys(row.passages))) for row in read_as(CitedReply, text).sentences]
    if sentences and all(is_no_answer(each, question) for each, _ in sentences):
        raise MalformedError("no sentence answers", NO_ANSWER)
    beyond = sorted({n for _, numbers in sentences for n in numbers if not 1 <= n <= count})
    if beyond and is_strict:
        raise MalformedError(f"no passage {beyond[0]}", OUT_OF_RANGE)
    return [(each, tuple(n for n in numbers if 1 <= n <= count)) for each, numbers in sentences]


class Evidence:
    """What each run of up to three sentences of some passages says, together with the title."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self._weight = inverse_frequencies(passage.content for passage in passages)
        self._places = [_places_of(passage) for passage in passages]

    def support(self, statement: Said, number: int) -> float:
        """Return how much of a statement the passage of a number, from 1, supports; NaN: it has no stems."""
        return support(statement, self._places[number - 1], self._weight)


def _places_of(passage: Passage) -> list[Said]:
    title = said(passage.title)
    return [
        Said(place.stems | title.stems, place.numbers | title.numbers, place.names | title.names, place.is_negated)
        for place in windows(passage.text)
    ]


def cited_answer(sentences: Iterable[tuple[str, Sequence[int]]], evidence: Evidence) -> Answer:
    """Return the answer that sentences make; one that no passage it names bears out counts as `unsupported`."""
    citations, sentences = [], list(sentences)
    for text, numbers in sentences:
        # Of several sentences in one each must be there.
        shares = [[evidence.support(said(each), n) for n in numbers] for each in split_sentences(text)]
        shares = [row for row in shares if row and not math.isnan(row[0])]  # nan: of words that say nothing
        is_held = bool(numbers) and all(max(row) >= BORNE_OUT for row in shares)
        named = tuple(evidence.passages[n - 1].id for n in numbers)
        by = tuple(id_ for i, id_ in enumerate(named) if any(row[i] >= BORNE_OUT for row in shares) or not shares)
        citations.append(Citation(text, named, by, is_held))
    flags = tuple("unsupported" for each in citations if not each.supported)
    ids = tuple(dict.fromkeys(id_ for each in citations for id_ in each.passages))
    return Answer(with_marks(sentences), ids, flags=flags, citations=tuple(citations))
