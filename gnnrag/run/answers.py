"""What a question gave, for a person or a program to read: the answer, its sources, the hops, the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import Any

from gnnrag.datasets.chunk import document_of
from gnnrag.index.index import Index
from gnnrag.text.sentences import content_words, split_sentences
from gnnrag.types import Passage, Prediction


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that the answer names, or that a short answer was read from.

    `sentence` is that of the answer, or of the passage where the answer is short; `place` the file and where in it;
    `supported`: the passage bears the sentence out.
    """

    sentence: str
    passage: str  # its id
    title: str
    place: str
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

    `text` is empty where the passages do not say. `context` are the passages that were read, best first; `ranking` all
    ids that were found, best first; `trace` everything that happened, in order, as JSON data; `usage` counts calls,
    tokens and dollars (`cost`); `seconds` is wall-clock time; `generation` tells the state of the index that answered.
    `confidence`, in [0, 1], is how likely a short answer is right, or how well what is quoted fits; None from a
    language model, which does not tell.
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

    def __str__(self) -> str:
        return f"failed: {self.error}" if self.error else self.text or "(the passages do not say)"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)


FOUND = 3  # passages of a hop
_LONGEST = 1200  # characters of what is cited


def make_answer(question: str, prediction: Prediction, events: Sequence[Mapping[str, Any]], index: Index) -> Answer:
    """Return the outcome of a question from its row, the events of its trace and the index that answered."""
    return Answer(
        question,
        prediction.answer,
        _cited(prediction, events, index),
        tuple(hop for event in events if (hop := hop_of(event))),
        index.lookup(prediction.context),
        prediction.ranking,
        tuple(events),
        prediction.usage,
        prediction.seconds,
        prediction.rounds,
        index.generation,
        prediction.error,
        next((event.get("confidence") or None for event in events if event["event"] == "answer"), None),
    )


def hop_of(event: Mapping[str, Any]) -> Hop | None:
    """Return an event of a trace as a hop; None where it is no query."""
    if event["event"] != "query":
        return None
    found = tuple(event["ranking"]["ids"][:FOUND])
    return Hop(event["round"], event["origin"], event["text"], found, event["retriever"])


def _cited(prediction: Prediction, events: Sequence[Mapping[str, Any]], index: Index) -> tuple[Citation, ...]:
    if rows := citations(events, index):
        titles = {passage.id: passage.title for passage in index.lookup(row["passage"] for row in rows)}
        return tuple(Citation(title=titles[row["passage"]], **row) for row in rows)
    support = next((e.get("support", ()) for e in events if e["event"] == "answer"), ())
    asked = next((e["text"] for e in events if e["event"] == "query"), "")
    return tuple(
        Citation(_the_sentence(passage.text, prediction.answer, asked), passage.id, passage.title, where(passage), True)
        for passage in index.lookup(support)
    )


def _the_sentence(text: str, *wanted: str) -> str:
    """Return the one sentence that says most of the first of these, of the next where that is equal; else `text`."""
    rows = [" ".join(row.split()) for row in split_sentences(text)]
    sets = [content_words(one) for one in wanted]
    best = max(rows, key=lambda row: tuple(len(words & content_words(row)) for words in sets), default=text)
    return shorten(best, _LONGEST, placeholder=" ...")  # a table is one sentence


def citations(events: Sequence[Mapping[str, Any]], index: Index) -> list[dict[str, Any]]:
    """Return a row for each sentence of an answer and each passage that it cites; none for a short answer."""
    answer = next((e for e in events if e["event"] == "answer"), {})
    return [
        {"sentence": one["sentence"], "passage": id_, "place": where(passage), "supported": id_ in one["borne_out_by"]}
        for one in answer.get("citations", ())
        for id_, passage in zip(one["passages"], index.lookup(one["passages"]), strict=True)
    ]


def where(passage: Passage) -> str:
    """Return the file of a passage and its place there, `guide.pdf, p. 3`; its id where they are not known."""
    file = document_of(passage.id) if passage.place else ""
    return f"{file}, {passage.place}" if file else passage.id
