"""Answers whose sentences name their passages: read from a reply, and checked against what the passages say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gnnrag.roles.base import Answer, Citation, cited
from gnnrag.roles.parsing import NO_ANSWER, OUT_OF_RANGE, MalformedError, is_no_answer, json_objects, strip_thinking
from gnnrag.text.sentences import split_sentences
from gnnrag.text.support import inverse_frequencies, said, support, windows, without_citations
from gnnrag.types import Passage

BORNE_OUT = 0.5  # share of a sentence's words, by idf, that one passage it names must have in three sentences in a row
Sentences = list[tuple[str, tuple[int, ...]]]


def parse_cited(text: str, count: int, question: str = "", is_strict: bool = True) -> Sentences:
    """Return the sentences of a reply with the numbers of their passages, 1 to `count`; none: it abstains.

    Numbers beyond are refused, or left out unless `is_strict`. Raises MalformedError where there is no such object, a
    sentence has no text, or nothing in the reply answers.
    """
    for found in json_objects(strip_thinking(text)):
        rows = found.get("sentences")
        if isinstance(rows, list):
            break
    else:
        raise MalformedError("no object with a list of sentences")
    sentences = [_sentence(row) for row in rows]
    if sentences and all(is_no_answer(each, question) for each, _ in sentences):
        raise MalformedError("no sentence answers", NO_ANSWER)
    beyond = sorted({n for _, numbers in sentences for n in numbers if not 1 <= n <= count})
    if beyond and is_strict:
        raise MalformedError(f"no passage {beyond[0]}", OUT_OF_RANGE)
    return [(each, tuple(n for n in numbers if 1 <= n <= count)) for each, numbers in sentences]


def _sentence(row: object) -> tuple[str, tuple[int, ...]]:
    text, numbers = (row.get("text"), row.get("passages")) if isinstance(row, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(numbers, list):
        raise MalformedError("a sentence without its text or its list of passages")
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise MalformedError("a passage that is no number")
    if not (bare := without_citations(" ".join(text.split())).strip()):  # numbers in brackets alone say nothing
        raise MalformedError("a sentence without its text")
    return bare, tuple(dict.fromkeys(numbers))


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
