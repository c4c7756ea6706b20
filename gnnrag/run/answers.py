"""What a question gave, for a person or a program to read: the answer, its sources, the hops, the trace."""

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
    """A passage that the answer names, or that a short answer was read from.

    `number` is its source's place among those shown, from 1, which marks in the answer name; several citations may have
    one source. `at` is where the mark of this one stands in `Answer.marked`. `sentence` is that of the answer, or of
    the passage where the answer is short; the passage says it at the characters [start, end) of its text. `place`: the
    file and where in it; `supported`: the passage bears the sentence out.
    """

    number: int
    at: int
    sentence: str
    passage: str  # its id
    title: str
    place: str
    start: int
    end: int
    supported: bool


@dataclass(frozen=True, slots=True)
class Hop:
    """One query of one round (0-based) with the best passages that it found: at most `FOUND` ids, best first."""

    round: int
    origin: str  # question, fast, slow, ...: where the query came from
    query: str
    found: tuple[str, ...]
    retriever: str | None = None  # None: the run's own


@dataclass(frozen=True, slots=True)
class Answer:
    """A question's outcome; `error` says why there is none, and is None where all went well.

    `text` is empty where the passages do not say; a longer one marks its statements, as in `it is given [2].`, and
    `marked` is the text with a mark in any case. `context` are the passages that were read, best first; `ranking` all
    ids that were found, best first; `trace` everything that happened, in order, as JSON data; `usage` counts calls,
    tokens and dollars (`cost`); `seconds` is wall-clock time; `generation` tells the state of the index that answered.
    `confidence`, in [0, 1], is how likely a short answer is right, or how well what is quoted fits; None from a
    language model, which does not tell. `form` tells a `stated` answer from one that is `quoted`: the sentences nearest
    to the question, which may not answer it. `none`: there is no answer.
    """

    question: str
    text: str
    citations: tuple[Citation, ...]
    hops: tuple[Hop, ...]
    context: tuple[Passage, ...]
    ranking: tuple[str, ...]
    trace: tuple[Mapping[str, Any], ...]
    usage: Mapping[str, Any]
    seconds: float
    rounds: int
    generation: str
    error: str | None = None
    confidence: float | None = None
    form: Literal["stated", "quoted", "none"] = "none"

    def __str__(self) -> str:
        return f"failed: {self.error}" if self.error else self.text or "(the passages do not say)"

    @property
    def marked(self) -> str:
        """The text with the numbers of all its sources; those of a short answer follow it."""
        tail = dict.fromkeys(f"[{c.number}]" for c in self.citations if c.at > len(self.text))
        return f"{self.text} {''.join(tail)}" if tail else self.text

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)


FOUND = 3  # passages of a hop
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
        tuple(hop for event in events if (hop := hop_of(event))),
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


def hop_of(event: Mapping[str, Any]) -> Hop | None:
    """Return an event of a trace as a hop; None where it is no query."""
    if event["event"] != "query":
        return None
    found = tuple(event["ranking"]["ids"][:FOUND])
    return Hop(event["round"], event["origin"], event["text"], found, event["retriever"])


def _cited(
    prediction: Prediction, context: Sequence[Passage], events: Sequence[Mapping[str, Any]], index: Index
) -> tuple[str, tuple[Citation, ...]]:
    """Return the text with marks that count the sources in the order of the text, and its citations.

    The reader's marks count the passages that it was shown.
    """
    answer = next((event for event in events if event["event"] == "answer"), {})
    rows = [(one, id_) for one in answer.get("citations", ()) for id_ in one["passages"]]
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
    one_before: Any = None
    for one, id_ in rows:
        passage = passages[id_]
        start, end = span_of(passage.text, *one.get("wanted", (one.get("sentence", ""),)))
        sentence = one.get("sentence") or " ".join(passage.text[start:end].split())
        if one is not one_before and (found := text.find(sentence[:-1], end_before)) >= 0:
            end_before = found + len(sentence) - 1  # the mark may stand before the full stop
        one_before = one
        number = numbers.setdefault(id_, len(numbers) + 1)
        at = next((place for place, of in marks if of == id_ and place >= end_before), None)
        if at is None:
            before = sum(len(f"[{numbers[other]}]") for other in tail)
            at = tail.setdefault(id_, len(text) + 1 + before)
        is_held = id_ in one.get("borne_out_by", (id_,))
        citations.append(Citation(number, at, sentence, id_, passage.title, where(passage), start, end, is_held))
    return text, tuple(citations)


def where(passage: Passage) -> str:
    """Return the file of a passage and its place there, `guide.pdf, p. 3`; its id where they are not known."""
    file = document_of(passage.id) if passage.place else ""
    return f"{file}, {passage.place}" if file else passage.id
