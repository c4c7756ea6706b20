"""Answers whose sentences name their passages: read from a reply, and checked against what the passages say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from gnnrag.roles.base import Answer, Citation, cited
from gnnrag.roles.parsing import NO_ANSWER, OUT_OF_RANGE, MalformedError, ReplyModel, is_no_answer, read_as
from gnnrag.text.sentences import split_sentences
from gnnrag.text.support import inverse_frequencies, said, support, windows, without_citations
from gnnrag.types import Passage

BORNE_OUT = 0.5  # share of a sentence's words, by idf, that one passage it names must have in three sentences in a row
Sentences = list[tuple[str, tuple[int, ...]]]


def _bare(text: str) -> str:
    return without_citations(" ".join(text.split())).strip()  # numbers in brackets alone say nothing


class CitedSentence(ReplyModel):
    text: Annotated[str, AfterValidator(_bare), Field(min_length=1)]
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


def cited_answer(sentences: Iterable[tuple[str, Sequence[int]]], passages: Sequence[Passage]) -> Answer:
    """Return the answer that sentences make; one that no passage it names bears out counts as `unsupported`."""
    weight = inverse_frequencies(passage.content for passage in passages)
    places = [windows(passage.content) for passage in passages]
    citations, parts = [], []
    for text, numbers in sentences:
        # Of several sentences in one each must be there.
        shares = [[support(said(each), places[n - 1], weight) for n in numbers] for each in split_sentences(text)]
        shares = [row for row in shares if row and not math.isnan(row[0])]  # nan: of words that say nothing
        is_held = bool(numbers) and all(max(row) >= BORNE_OUT for row in shares)
        named = tuple(passages[n - 1].id for n in numbers)
        by = tuple(id_ for i, id_ in enumerate(named) if any(row[i] >= BORNE_OUT for row in shares) or not shares)
        citations.append(Citation(text, named, by, is_held))
        parts.append(cited(text, numbers) if numbers else text)
    flags = tuple("unsupported" for each in citations if not each.supported)
    ids = tuple(dict.fromkeys(id_ for each in citations for id_ in each.passages))
    return Answer(" ".join(parts), ids, flags=flags, citations=tuple(citations))
