"""What a question gave, for a person or a program to read: the answer, its sources, the trace."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gnnrag.datasets.chunk import document_of
from gnnrag.index.index import Index
from gnnrag.roles.base import QUOTED
from gnnrag.text.sentences import span_of
from gnnrag.types import Passage, Prediction


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that supports a sentence of the answer, or from which a short answer was read."""

    number: int  # of the source, from 1, as in the mark `[2]`; citations of one passage share it
    at: int  # where this citation's mark begins in `Answer.marked`
    sentence: str  # of the answer; for a short answer, of the passage
    passage: str  # its id
    title: str
    place: str  # the file and the place in it
    start: int  # the supporting text is `text[start:end]` of the passage
    end: int
    supported: bool  # whether the passage bears the sentence out


@dataclass(frozen=True, slots=True)
class Answer:
    question: str
    text: str  # empty where no answer was found; a long answer marks its statements, as in `it is given [2].`
    citations: tuple[Citation, ...]
    context: tuple[Passage, ...]  # what was read, best first
    ranking: tuple[str, ...]  # all ids that were found, best first
    trace: tuple[Mapping[str, Any], ...]  # everything that happened, in order, as JSON data
    usage: Mapping[str, Any]  # calls, tokens and dollars (`cost`)
    seconds: float  # wall-clock time
    rounds: int
    generation: str  # the state of the index that answered
    error: str | None = None  # why there is no answer
    # in [0, 1]: how likely a short answer is right, or how well a quotation fits; None: from a language model
    confidence: float | None = None
    # quoted: the sentences nearest to the question, which may not answer it; none: there is no answer
    form: Literal["stated", "quoted", "none"] = "none"

    def __str__(self) -> str:
        is_empty = not self.ranking and any(event["event"] == "query" for event in self.trace)  # as by a filter
        nothing = "no passage was found" if is_empty else "no answer was found in the passages"
        return f"failed: {self.error}" if self.error else self.text or f"({nothing})"

    @property
    def head(self) -> str:
        """What stands before a quotation, which may not answer, wherever answers are shown as text."""
        return "Nearest: " if self.form == "quoted" else ""

    @property
    def marked(self) -> str:
        """The text with the marks of all its sources; those of a short answer are at its end."""
        tail = dict.fromkeys(f"[{c.number}]" for c in self.citations if c.at > len(self.text))
        return f"{self.text} {''.join(tail)}" if tail else self.text

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_MARK = re.compile(r"\[(\d{1,4}(?:, \d{1,4})*)\]")


def make_answer(question: str, prediction: Prediction, events: Sequence[Mapping[str, Any]], index: Index) -> Answer:
    """Return the outcome of a question from its row, the events of its trace and the index that answered."""
    context = index.lookup(prediction.context)
    text, cited = _cited(prediction, context, events, index)
    read = next((event for event in events if event["event"] == "answer"), {})
    return Answer(
        question,
        text,
        cited,
        context,
        prediction.ranking,
        tuple(events),
        prediction.usage,
        prediction.seconds,
        prediction.rounds,
        index.generation,
        prediction.error,
        read.get("confidence") or None,
        "none" if not text else "quoted" if read.get("thought") == QUOTED else "stated",
    )


def _cited(
    prediction: Prediction, context: Sequence[Passage], events: Sequence[Mapping[str, Any]], index: Index
) -> tuple[str, tuple[Citation, ...]]:
    """Return the text, with sources numbered by first mention, and its citations.

    The reader's own marks are the numbers of the passages that it was shown.
    """
    answer = next((event for event in events if event["event"] == "answer"), {})
    rows = [(statement, id_) for statement in answer.get("citations", ()) for id_ in statement["passages"]]
    known = {id_ for _, id_ in rows}
    numbers: dict[str, int] = {}  # of sources, by the passage
    text, marks, done = "", list[tuple[int, str]](), 0
    for mark in _MARK.finditer(prediction.answer) if rows else ():
        ids = [context[int(n) - 1].id for n in mark[1].split(", ") if 0 < int(n) <= len(context)]
        if known.issuperset(ids):
            text += prediction.answer[done : mark.start()]
            done = mark.end()
            for id_ in ids:
                marks.append((len(text), id_))
                text += f"[{numbers.setdefault(id_, len(numbers) + 1)}]"
    text += prediction.answer[done:]
    if not rows:
        asked = next((event["text"] for event in events if event["event"] == "query"), "")
        rows = [({"wanted": (prediction.answer, asked)}, id_) for id_ in answer.get("support", ())]
    passages = {passage.id: passage for passage in index.lookup(dict.fromkeys(id_ for _, id_ in rows))}
    citations, end_before, tail = [], 0, dict[str, int]()
    previous: Any = None
    for statement, id_ in rows:
        passage = passages[id_]
        start, end = span_of(passage.text, *statement.get("wanted", (statement.get("sentence", ""),)))
        sentence = statement.get("sentence") or " ".join(passage.text[start:end].split())
        if statement is not previous and (place := text.find(sentence[:-1], end_before)) >= 0:
            end_before = place + len(sentence) - 1  # the mark may come before the full stop
        previous = statement
        number = numbers.setdefault(id_, len(numbers) + 1)
        at = next((place for place, marked in marks if marked == id_ and place >= end_before), None)
        if at is None:
            before = sum(len(f"[{numbers[other]}]") for other in tail)
            at = tail.setdefault(id_, len(text) + 1 + before)
        is_supported = id_ in statement.get("borne_out_by", (id_,))
        citations.append(Citation(number, at, sentence, id_, passage.title, where(passage), start, end, is_supported))
    return text, tuple(citations)


def where(passage: Passage) -> str:
    """Return a passage's file and place, as in `guide.pdf, p. 3`; its id if these are unknown."""
    file = document_of(passage.id) if passage.place else ""
    return f"{file}, {passage.place}" if file else passage.id
