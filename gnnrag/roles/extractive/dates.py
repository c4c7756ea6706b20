"""When: birth, death and release dates of what a passage is about, read with patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.roles.extractive.spans import DATE_RE, MONTHS, date_key, sentences

_MONTH = "|".join(MONTHS)
_DATE_START = rf"\d{{1,2}} (?:{_MONTH})|(?:{_MONTH}) \d|\d{{4}}"
_DEATHS = re.compile(r"\b(?:died|death|killed|assassinated|executed|murdered|drowned|d\.|†)")
_RELEASES = re.compile(
    r"\b(?:[Rr]eleased|premiered|published|founded|established|formed|opened|launched|began|created|debuted|inception|"
    r"[Ff]ounded|[Ee]stablished|built|started|incorporated|inaugurated)\b"
)


@dataclass(frozen=True, slots=True)
class Date:
    """A date as the text has it, and (year, month, day) to sort by; 0 where the text does not say."""

    text: str
    key: tuple[int, int, int] = (0, 0, 0)


def _first_date(text: str, last: bool = False) -> Date | None:
    found = list(DATE_RE.finditer(text))
    if not found:
        years = re.search(r"(?:c\. |circa |around |about |after |before |ca\. |AD |^|\()(\d{3,4})\b", text)
        return Date(years.group(1), (int(years.group(1)), 0, 0)) if years else None
    match = found[-1] if last else found[0]
    return Date(match.group(), date_key(match))


def lifespan_sides(text: str) -> tuple[str, str] | None:
    """Return what stands on both sides of the dash in the first parenthesis that holds a lifespan."""
    for match in re.finditer(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text[:700]):
        inner = match.group(1)
        left, dash, right = inner.partition("–")
        if dash and re.search(r"\d{3,4}", right):
            return left, right
        if re.match(r"(?:born|b\.)", inner):
            return inner, ""
    return None


def birth_date(text: str) -> Date | None:
    """Return the birth date of the person a passage is about."""
    head = " ".join(sentences(text)[:2])
    span = lifespan_sides(head)
    if span and not re.match(r"\W*(?:r\.|reigned|died|d\.)", span[0]):
        fact = _first_date(span[0])
        if fact:
            return fact
    match = re.search(
        r"\b(?:[Bb]orn|b\.)\b(?: [^.;()]{0,80}?)??(?=[ ,(]+(?:on |in |c\. )?(?:" + _DATE_START + "))", text
    )
    if match:
        return _first_date(text[match.end() : match.end() + 40])
    match = re.search(r"\b[Bb]orn\b", text)
    return _first_date(text[match.end() : match.end() + 120]) if match else None


def death_date(text: str) -> Date | None:
    """Return the death date of the person a passage is about."""
    head = " ".join(sentences(text)[:2])
    span = lifespan_sides(head)
    if span and span[1]:
        fact = _first_date(span[1], last=True)
        if fact:
            return fact
    for match in _DEATHS.finditer(text):
        rest = sentences(text[match.end() :])
        fact = _first_date(rest[0][:140]) if rest else None
        if fact:
            return fact
    return None


def release_date(text: str, title: str = "") -> Date | None:
    """Return when a work came out, or when an organisation was founded: the earliest cue, else the first year."""
    in_title = re.search(r"\((\d{4})\b", title)
    if in_title:
        return Date(in_title.group(1), (int(in_title.group(1)), 0, 0))
    opening = re.search(r"\b(?:is|was|were|are) (?:an?|the) ", text[:220])
    match = DATE_RE.search(text, opening.end(), opening.end() + 100) if opening else None
    if opening and match and "." not in text[opening.end() : match.start()].replace(" U.S.", ""):
        return Date(match.group(), date_key(match))
    cue = _RELEASES.search(text)
    fact = _first_date(text[cue.end() : cue.end() + 150]) if cue else None
    return fact or _first_date(text)


def lifespan_days(text: str) -> float | None:
    """Return how long the person lived, in days (roughly)."""
    born, died = birth_date(text), death_date(text)
    if not born or not died or born.key == died.key:
        return None
    return sum(w * (d - b) for w, b, d in zip((365.25, 30.4, 1.0), born.key, died.key, strict=True))
