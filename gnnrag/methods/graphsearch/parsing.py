"""Replies of GraphSearch's modules as data: decompositions, verdicts, lists of queries, answer lines, citations."""

from __future__ import annotations

import re
import string

from gnnrag.methods.graphsearch.tasks import Judgement
from gnnrag.roles.parsing import clean_line, literal_value, python_literal, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError
from gnnrag.text.subqueries import Triple, bracketed, read_triples

_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s+(.+)$")
_ARTICLES = {"a", "an", "the"}
_ANSWER = re.compile(r"^\W*(?:short |final )?answer\W*:\s*(.*)$", re.IGNORECASE)
_CITED = re.compile(r"\[(\d{1,9}(?:\s*,\s*\d{1,9})*)\]")
_WORD: dict[str, Judgement] = {
    "yes": "accept",
    "accept": "accept",
    "accepted": "accept",
    "no": "reject",
    "reject": "reject",
    "rejected": "reject",
}

# Whole words only: neither `yes-and-no` nor `no-one` holds a verdict.
_VERDICT = re.compile(rf"(?<!\w)(?<!\w['’-])({'|'.join(_WORD)})(?!\w|['’-]\w)")


def parse_triples(text: str) -> list[Triple]:
    """Return the triples of a reply, or of its outermost brackets; MalformedError where there is no list of them."""
    text = bracketed(strip_markup(strip_thinking(text)))
    for value in (literal_value(text), literal_value(_outermost(text))):
        triples, _ = read_triples(value)
        if triples:
            return triples
    raise MalformedError("no list of (head, relation, tail)")


def parse_free(text: str) -> str:
    """Return a reply without its thinking. Raises MalformedError where nothing is left."""
    text = strip_thinking(text)
    if not text:
        raise MalformedError("empty reply")
    return text


def parse_verdict(text: str, how: str = "last") -> Judgement:
    """Return the verdict of an analysis.

    `last`: the last word that is yes, no, accept or reject, standing alone; none gives `unknown`. `anywhere`, as
    released: any `yes` accepts once punctuation and articles are deleted, everything else rejects.
    """
    if how == "anywhere":
        tokens = text.lower().translate(str.maketrans("", "", string.punctuation)).split()
        return "accept" if "yes" in [t for t in tokens if t not in _ARTICLES] else "reject"
    found = _VERDICT.findall(strip_markup(text).lower())
    return _WORD[found[-1]] if found else "unknown"


def parse_queries(text: str) -> tuple[str, ...]:
    """Return queries: a JSON or Python list, outermost brackets, numbered or bulleted lines; else MalformedError."""
    text = strip_markup(strip_thinking(text))
    for part in (text, _outermost(text)):
        found = literal_value(part)
        if isinstance(found, list | tuple):
            queries = [" ".join(item.split()) for item in found if isinstance(item, str)]
            if queries or not found:
                return tuple(dict.fromkeys(q for q in queries if q))
    lines = [clean_line(match[1]) for line in text.splitlines() if (match := _ITEM.match(line))]
    if not lines:
        raise MalformedError("no list of queries")
    return tuple(dict.fromkeys(line for line in lines if line))


def parse_expansion(text: str, parsing: str = "repaired", fallback: str = "drop") -> tuple[tuple[str, ...], bool]:
    """Return the queries of an expansion, and whether the whole reply had to do for one (`fallback="raw"`).

    `parsing` is `repaired` (`parse_queries`) or `released`: a Python list of texts, or what stands in the first
    brackets as one. Raises MalformedError where there is no list and no such fallback.
    """
    is_released, whole = parsing == "released", text.strip()
    try:
        if not is_released:
            return parse_queries(text), False
    except MalformedError:
        whole = " ".join(strip_thinking(text).split())
    start = max(text.find("["), 0)
    for part in (text, text[start : text.find("]", start) + 1]) if is_released else ():
        found = python_literal(part)
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return tuple(found), False
    if fallback != "raw" or not (whole or is_released):
        raise MalformedError("no list of queries")
    return (whole,), True


def parse_answer_line(text: str) -> str:
    """Return the last `Answer: ...`, or the line below it; else the last line; MalformedError where that is empty."""
    lines = [line.strip() for line in strip_markup(parse_free(text)).splitlines() if line.strip()]
    if not lines:
        raise MalformedError("nothing but markup")
    below = [*lines[1:], ""]
    labelled = [
        match[1].strip() or after for line, after in zip(lines, below, strict=True) if (match := _ANSWER.match(line))
    ]
    answer = labelled[-1] if labelled else lines[-1]
    if not answer:
        raise MalformedError("nothing after 'Answer:'")
    return answer


def cited_numbers(text: str) -> list[int]:
    """Return the numbers in square brackets of a text, in order, without repeats."""
    return list(dict.fromkeys(int(number) for group in _CITED.findall(text) for number in group.split(",")))


def _outermost(text: str) -> str:
    start, end = text.find("["), text.rfind("]")
    return text[start : end + 1] if 0 <= start < end else ""
