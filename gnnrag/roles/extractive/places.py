"""Where: countries and places of what a passage is about, read with patterns."""

from __future__ import annotations

import re

from gnnrag.roles.extractive.dates import lifespan_sides
from gnnrag.roles.extractive.spans import DATE_RE, MONTHS, UPPER, sentences
from gnnrag.text.countries import country_mentions, region_mentions

_PLACE_PARTS = 2  # how many comma-separated parts a place keeps
_NOT_PLACES = frozenset((*MONTHS, "He", "She", "His", "Her", "Prince", "King", "AD", "BC"))
_PLACE_WORD = rf"(?:(?!(?:{'|'.join(MONTHS)})\b)[{UPPER}][\w'’ʻ.\-]*|d['’][{UPPER}]\w+)"
_PLACE = re.compile(
    rf"{_PLACE_WORD}(?:(?: (?:of|de|la|le|del|di|da|upon|on|am|an der|in|the|i|sur|do|dos)){{0,2}} {_PLACE_WORD})*"
    rf"(?:, {_PLACE_WORD}(?: {_PLACE_WORD})*)*"
)


def countries(text: str, place: bool = False) -> list[str]:
    """Return countries and demonyms that describe the subject, as written, best first.

    Args:
        text: the passage.
        place: whether the subject is a place, whose country may be given by a region (`in Ontario`).
    """
    found: list[tuple[float, str]] = []
    for number, sentence in enumerate(sentences(text)[:8]):
        verb = re.search(r"\b(?:is|was|are|were)\b", sentence)
        start = verb.end() if verb else len(sentence)
        for offset, surface, _ in country_mentions(sentence):
            near = start <= offset < start + (200 if place else 60)
            born = bool(re.search(r"born [^.]{0,60}$", sentence[:offset])) and not place
            found.append((1.0 / (1 + number) + 0.5 * near - 0.2 * born - offset / 2000, surface))
        if place and number < 3:
            regions = region_mentions(sentence)
            found += [(0.55 / (1 + number) - offset / 2000, country) for offset, _, country in regions]
    return [surface for _, surface in sorted(found, key=lambda f: -f[0])]


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
        if place.split()[0] not in _NOT_PLACES:
            return place
    return None


_MONTH_WORD = "|".join(MONTHS)
_NOT_HERE = rf"(?!\d|the (?:year|same|age|early|late)|age|{_MONTH_WORD})"
_BORN_CUES = (
    rf"\b[Bb]orn\b[^.;]{{0,90}}?\b(?:in|at|near)\b {_NOT_HERE}",
    r"\b(?:[Nn]ative of|native place is|[Rr]aised in|hometown,? (?:of )?|comes from|was from|is from|originally from)"
    r" (?!\d)",
)
_DIED_CUES = (
    r"\b(?:died|killed|murdered|assassinated|executed|passed away|drowned)\b[^.;]{0,90}?\b(?:in|at|near)\b "
    rf"{_NOT_HERE}",
    rf"\b(?:death|suicide|died)\b[^.;]{{0,40}}?\b(?:in|at|near)\b {_NOT_HERE}",
    r"\b(?:lived in|moved to|retired to|home in|estate (?:in|at)|settled in|exile (?:in|to)|buried (?:in|at)) "
    rf"{_NOT_HERE}",
)


def place(text: str, birth: bool) -> str | None:
    """Return where the person a passage is about was born (`birth`) or died."""
    where = (
        None
        if birth
        else re.search(r"(?:in|at|to) ([^.;]{3,60}?),? where (?:he|she|they) (?:\w+ )?(?:died|was killed)", text)
    )
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
    span = lifespan_sides(" ".join(sentences(text)[:2]))
    if not span:
        return None
    side = re.sub(r"\b(?:died|b\.|d\.|in|at|c\.) |[\"]", " ", span[0] if birth else span[1])
    before, cut, after = DATE_RE.sub("|", side, count=1).partition("|")
    found = place_after(after) if cut else None
    if not found and not re.search(r"born|née|:|;", before):
        found = place_after(before)
    return found
