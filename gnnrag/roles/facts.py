"""Attributes of what a passage is about: dates, countries and places, read with patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.roles.countries import country_mentions, is_country_word, region_mentions
from gnnrag.roles.spans import DATE_RE, MONTHS, UPPER, date_key, sentences

_PLACE_PARTS = 2  # how many comma-separated parts a place keeps
_PLACE_WORD = rf"(?:(?!(?:{'|'.join(MONTHS)})\\b)[{UPPER}][\w'’ʻ.\-]*|d['’][{UPPER}]\w+)"
_PLACE = re.compile(
    rf"{_PLACE_WORD}(?:(?: (?:of|de|la|le|del|di|da|upon|on|am|an der|in|the|i|sur|do|dos)){{0,2}} {_PLACE_WORD})*"
    rf"(?:, {_PLACE_WORD}(?: {_PLACE_WORD})*)*"
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A value as the text has it, with a sort key for dates."""

    text: str
    key: tuple[int, int, int] = (0, 0, 0)
    score: float = 1.0


def _first_date(text: str, last: bool = False) -> Fact | None:
    found = list(DATE_RE.finditer(text))
    if not found:
        years = re.search(r"(?:c\. |circa |around |about |ca\. |AD |^|\()(\d{3,4})\b", text)
        return Fact(years.group(1), (int(years.group(1)), 0, 0), 0.6) if years else None
    match = found[-1] if last else found[0]
    return Fact(match.group(), date_key(match))


def _lifespan(text: str) -> tuple[str, str] | None:
    """Return what stands on both sides of the dash in the first parenthesis that holds a lifespan."""
    for match in re.finditer(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text[:700]):
        inner = match.group(1)
        left, dash, right = inner.partition("–")
        if dash and re.search(r"\d{3,4}", right):
            return left, right
        if re.match(r"(?:born|b\.)", inner):
            return inner, ""
    return None


def birth_date(text: str) -> Fact | None:
    """Return the birth date of the person a passage is about."""
    head = " ".join(sentences(text)[:2])
    span = _lifespan(head)
    if span and not re.match(r"\W*(?:r\.|reigned|died|d\.)", span[0]):
        fact = _first_date(span[0])
        if fact:
            return fact
    match = re.search(r"\b(?:[Bb]orn|b\.)\b(?: [^.;()]{0,80}?)??(?=[ ,(]+(?:on |in |c\. )?(?:" + _date_start() + "))", text)
    if match:
        return _first_date(text[match.end() : match.end() + 40])
    match = re.search(r"\b[Bb]orn\b", text)
    return _first_date(text[match.end() : match.end() + 120]) if match else None


def death_date(text: str) -> Fact | None:
    """Return the death date of the person a passage is about."""
    head = " ".join(sentences(text)[:2])
    span = _lifespan(head)
    if span and span[1]:
        fact = _first_date(span[1], last=True)
        if fact:
            return fact
    for match in re.finditer(r"\b(?:died|death|killed|assassinated|executed|murdered|drowned|d\.|†)", text):
        rest = sentences(text[match.end() :])
        fact = _first_date(rest[0][:140]) if rest else None
        if fact:
            return fact
    return None


def _date_start() -> str:
    return r"\d{1,2} (?:" + "|".join(MONTHS) + r")|(?:" + "|".join(MONTHS) + r") \d|\d{4}"


def release_date(text: str, title: str = "") -> Fact | None:
    """Return when a work came out, or when an organisation was founded: the earliest cue, else the first year."""
    in_title = re.search(r"\((\d{4})\b", title)
    if in_title:
        return Fact(in_title.group(1), (int(in_title.group(1)), 0, 0))
    match = re.search(rf"\b(?:is|was|were|are) (?:an?|the) (?:[\w\-,.'\" ]{{0,80}}?)\b([12]\d{{3}})\b", text[:300])
    if match:
        return Fact(match.group(1), (int(match.group(1)), 0, 0))
    cue = re.search(
        r"\b(?:[Rr]eleased|premiered|published|founded|established|formed|opened|launched|began|created|debuted|inception|"
        r"[Ff]ounded|[Ee]stablished|built|started|incorporated|inaugurated)\b",
        text,
    )
    fact = _first_date(text[cue.end() : cue.end() + 150]) if cue else None
    return fact or _first_date(text)


def lifespan_days(text: str) -> float | None:
    """Return how long the person lived, in days (roughly)."""
    born, died = birth_date(text), death_date(text)
    if not born or not died or born.key == died.key:
        return None
    return sum(w * (d - b) for w, b, d in zip((365.25, 30.4, 1.0), born.key, died.key, strict=True))


def countries(text: str, place: bool = False) -> list[Fact]:
    """Return countries that describe the subject, best first: the head of the first sentence, then the rest.

    Args:
        text: the passage.
        place: whether the subject is a place, whose country follows its region (`in Ontario, Canada`).
    """
    found: list[Fact] = []
    for number, sentence in enumerate(sentences(text)[:8]):
        verb = re.search(r"\b(?:is|was|are|were)\b", sentence)
        for offset, surface, _ in country_mentions(sentence):
            near = bool(verb) and verb.end() <= offset < verb.end() + (200 if place else 60)
            born = bool(re.search(r"born [^.]{0,60}$", sentence[:offset])) and not place
            score = 1.0 / (1 + number) + (0.5 if near else 0.0) - (0.2 if born else 0.0) - offset / 2000
            found.append(Fact(surface, score=score))
        if place and number < 3:
            found += [
                Fact(country, score=0.55 / (1 + number) - offset / 2000)
                for offset, _, country in region_mentions(sentence)
            ]
    return sorted(found, key=lambda f: -f.score)


def _trim_place(text: str) -> str:
    parts = [p.strip() for p in text.strip(" ,.;").split(",")]
    kept = [parts[0]]
    for part in parts[1:_PLACE_PARTS]:
        if not part or not part[0].isupper() or any(m in part for m in MONTHS) or part == kept[0]:
            break
        kept.append(part)
    return ", ".join(kept)


def place_after(text: str) -> str | None:
    """Return the first place name in `text`, with what follows it after commas."""
    for match in _PLACE.finditer(text):
        place = _trim_place(match.group())
        if place.split()[0] not in MONTHS and place.split()[0] not in ("He", "She", "His", "Her", "Prince", "King", "AD"):
            return place
    return None


_MONTH_WORD = "|".join(MONTHS)
_NOT_HERE = rf"(?!\d|the (?:year|same|age|early|late)|age|{_MONTH_WORD})"
_BORN_CUES = (
    rf"\b[Bb]orn\b[^.;]{{0,90}}?\b(?:in|at|near)\b {_NOT_HERE}",
    r"\b(?:[Nn]ative of|native place is|[Rr]aised in|hometown,? (?:of )?|comes from|was from|is from|originally from) (?!\d)",
)
_DIED_CUES = (
    rf"\b(?:died|killed|murdered|assassinated|executed|passed away|drowned)\b[^.;]{{0,90}}?\b(?:in|at|near)\b {_NOT_HERE}",
    rf"\b(?:death|suicide|died)\b[^.;]{{0,40}}?\b(?:in|at|near)\b {_NOT_HERE}",
    rf"\b(?:lived in|moved to|retired to|home in|estate (?:in|at)|settled in|exile (?:in|to)|buried (?:in|at)) {_NOT_HERE}",
)


def place(text: str, birth: bool) -> str | None:
    """Return where the person a passage is about was born (`birth`) or died."""
    where = None if birth else re.search(r"(?:in|at|to) ([^.;]{3,60}?),? where (?:he|she|they) (?:\w+ )?(?:died|was killed)", text)
    cues = _BORN_CUES if birth else _DIED_CUES
    return (
        _after_cue(cues[:1], text)
        or (place_after(where.group(1)) if where else None)
        or _beside_date(text, birth)
        or _after_cue(cues[1:], text)
    )


def _after_cue(cues: tuple[str, ...], text: str) -> str | None:
    for cue in cues:
        for sentence in sentences(text):
            for match in re.finditer(cue, sentence):
                rest = sentence[match.end() : match.end() + 90]
                found = place_after(rest)
                if found and rest.find(found) < 40:
                    return found
    return None


def _beside_date(text: str, birth: bool) -> str | None:
    """Read the place next to the date of a lifespan: `(Rome, 17 August 1909 – ...)`, `(28 June 1923, Rostov – ...)`."""
    span = _lifespan(" ".join(sentences(text)[:2]))
    if not span:
        return None
    side = re.sub(r"\b(?:died|b\.|d\.|in|at|c\.) |[\"]", " ", span[0] if birth else span[1])
    before, cut, after = DATE_RE.sub("|", side, count=1).partition("|")
    found = place_after(after) if cut else None
    if not found and not re.search(r"born|née|:|;", before):
        found = place_after(before)
    return found


def nationality_text(text: str) -> str | None:
    """Return the country or demonym that the first sentences give the subject, as written."""
    found = [f for f in countries(text) if is_country_word(f.text)]
    return found[0].text if found else None
