"""Answer comparisons of two things by dates, places, numbers and yes-no."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnrag.roles.offline_reader import comparing as dates
from gnnrag.roles.offline_reader import comparing as places
from gnnrag.roles.offline_reader.question import Comparison
from gnnrag.roles.offline_reader.relations import Finding, Reading
from gnnrag.roles.offline_reader.spans import DATE_RE, MONTHS, UPPER, date_key, fold, name_spans, sentences, words
from gnnrag.text.normalise import COUNTRY_OF, REGION_OF, country_mentions, region_mentions

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
    dates = list(DATE_RE.finditer(text))
    if not dates:
        years = re.search(r"(?:c\. |circa |around |about |after |before |ca\. |AD |^|\()(\d{3,4})\b", text)
        return Date(years.group(1), (int(years.group(1)), 0, 0)) if years else None
    match = dates[-1] if last else dates[0]
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


_PLACE_PARTS = 2  # how many comma-separated parts a place keeps
_NOT_PLACES = frozenset((*MONTHS, "He", "She", "His", "Her", "Prince", "King", "AD", "BC"))
_PLACE_WORD = rf"(?:(?!(?:{'|'.join(MONTHS)})\b)[{UPPER}][\w'’ʻ.\-]*|d['’][{UPPER}]\w+)"
_PLACE = re.compile(
    rf"{_PLACE_WORD}(?:(?: (?:of|de|la|le|del|di|da|upon|on|am|an der|in|the|i|sur|do|dos)){{0,2}} {_PLACE_WORD})*"
    rf"(?:, {_PLACE_WORD}(?: {_PLACE_WORD})*)*"
)


def countries(text: str, place: bool = False) -> list[str]:
    """Return the subject's countries and demonyms, as written, best first; of a place by region too (`in Ontario`)."""
    scored: list[tuple[float, str]] = []
    for number, sentence in enumerate(sentences(text)[:8]):
        verb = re.search(r"\b(?:is|was|are|were)\b", sentence)
        start = verb.end() if verb else len(sentence)
        for offset, surface, _ in country_mentions(sentence):
            near = start <= offset < start + (200 if place else 60)
            born = bool(re.search(r"born [^.]{0,60}$", sentence[:offset])) and not place
            scored.append((1.0 / (1 + number) + 0.5 * near - 0.2 * born - offset / 2000, surface))
        if place and number < 3:
            regions = region_mentions(sentence)
            scored += [(0.55 / (1 + number) - offset / 2000, country) for offset, _, country in regions]
    return [surface for _, surface in sorted(scored, key=lambda f: -f[0])]


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
                place_name = place_after(rest)
                if place_name and rest.find(place_name) < 40:
                    return place_name
    return None


def _beside_date(text: str, birth: bool) -> str | None:
    """Read the place next to the date of a lifespan: `(Rome, 17 August 1909 – ...)`, `(28 June 1923, Rostov – ...)`."""
    span = lifespan_sides(" ".join(sentences(text)[:2]))
    if not span:
        return None
    side = re.sub(r"\b(?:died|b\.|d\.|in|at|c\.) |[\"]", " ", span[0] if birth else span[1])
    before, cut, after = DATE_RE.sub("|", side, count=1).partition("|")
    place_name = place_after(after) if cut else None
    if not place_name and not re.search(r"born|née|:|;", before):
        place_name = place_after(before)
    return place_name


def compare(form: Comparison, reading: Reading) -> Finding | None:
    """Answer a comparison; None where no attribute is compared (see `predicate`)."""
    if form.passages[0] is None or form.passages[1] is None:
        return _guess(form, [p for p in form.passages if p is not None])
    starts = (form.passages[0], form.passages[1])
    ends = list(starts)
    if form.bridge:
        hops = [reading.hop(start, form.bridge, starts) for start in starts]
        if any(target is None for target, _, _ in hops):
            return _proxy(form, reading, starts)
        ends = [target for target, _, _ in hops if target is not None]
    support = tuple(dict.fromkeys([*starts, *ends]))
    if form.attribute == "country":
        return _same_country(form, reading, ends, support)
    return None if form.attribute == "predicate" else _ordered(form, reading, ends, support)


def _guess(form: Comparison, used: Sequence[int]) -> Finding | None:
    """Say yes, or name the first choice: right half the time, and marked as a guess."""
    if form.attribute == "predicate":
        return None
    return Finding("yes" if form.yes_no else form.names[0], tuple(used), 0.15, "guess")


def _proxy(form: Comparison, reading: Reading, starts: tuple[int, int]) -> Finding | None:
    """Compare the works where their makers are not here: an earlier work tends to have the earlier maker."""
    finding = None
    if form.attribute == "country":
        finding = _same_country(form, reading, list(starts), starts)
    elif form.attribute in ("birth_date", "death_date"):
        finding = _ordered(replace(form, attribute="release"), reading, list(starts), starts)
    if finding is None or finding.how == "guess":
        return _guess(form, starts)
    return replace(finding, confidence=0.3, how=f"proxy: {finding.how}")


def _ordered(form: Comparison, reading: Reading, ends: list[int], support: tuple[int, ...]) -> Finding | None:
    values = [_value(form.attribute, reading.texts[end], reading.passages[end].title) for end in ends]
    if any(v is None for v in values):
        return _one_sided(form, values, support)
    first = values[0] > values[1] if form.largest else values[0] <= values[1]  # type: ignore[operator]
    return Finding(form.names[0 if first else 1], support, 0.9, f"{form.attribute}: {values[0]} / {values[1]}")


def _value(attribute: str, text: str, title: str) -> tuple[float, ...] | None:
    if attribute == "lifespan":
        days = dates.lifespan_days(text)
        return None if days is None else (days,)
    reader = {"birth_date": dates.birth_date, "death_date": dates.death_date}.get(attribute)
    date = reader(text) if reader else dates.release_date(text, title)
    return None if date is None else date.key


def _one_sided(form: Comparison, values: Sequence[object], support: tuple[int, ...]) -> Finding | None:
    """Nobody has died later than one who lives: with a single death date, that one died first."""
    known = [i for i, v in enumerate(values) if v is not None]
    if form.attribute == "death_date" and len(known) == 1:
        at = 1 - known[0] if form.largest else known[0]
        return Finding(form.names[at], support, 0.4, "one death date")
    return _guess(form, support)


def _country_set(reading: Reading, at: int, place: bool) -> list[str]:
    in_text = places.countries(reading.texts[at], place)
    title = places.countries(reading.passages[at].title, place) if place else []
    ranked = in_text + title
    return list(dict.fromkeys(COUNTRY_OF.get(word) or REGION_OF.get(word, word) for word in ranked))


def _same_country(form: Comparison, reading: Reading, ends: list[int], support: tuple[int, ...]) -> Finding | None:
    left, right = (_country_set(reading, end, form.place) for end in ends)
    if not left or not right:
        return _guess(form, support)
    same = left[0] == right[0] or left[0] in right[:2] or right[0] in left[:2]
    return Finding("yes" if same else "no", support, 0.85 if same else 0.75, f"{left[:2]} / {right[:2]}")


def predicate(question: str, form: Comparison, reading: Reading) -> Finding | None:
    """Decide `Are X and Y both P?` and `Which is P, X or Y?` by how much of P's words each passage has."""
    known = [p for p in form.passages if p is not None]
    if len(known) < 2:
        return Finding("yes", tuple(known), 0.12, "guess") if form.yes_no else None
    support = tuple(known)
    named = f" {fold(' '.join(form.names))} "
    same = re.search(
        r"\bsame ((?:\w+ )?(?:state|province|city|county|region|district|band|genre|team|league))", question
    )
    if form.yes_no and same:
        return _same_name(same.group(1).split()[-1], named, reading, support)
    wanted = [w for w in dict.fromkeys(words(question)) if w not in words(named)]
    asked = {country for _, surface, country in country_mentions(question) if fold(surface) not in named}
    shares = []
    for at in known:
        have = set(words(reading.passages[at].content))
        stated = (
            {country for _, _, country in country_mentions(sentences(reading.texts[at])[0])}
            if reading.texts[at]
            else set()
        )
        share = sum(w in have for w in wanted) / max(1, len(wanted))
        shares.append(0.0 if form.yes_no and asked - stated else share)
    if form.yes_no:
        return Finding("yes" if min(shares) >= 0.5 else "no", support, 0.5, f"predicate {shares}")
    return Finding(form.names[0 if shares[0] >= shares[1] else 1], support, 0.4, f"predicate {shares}")


def _same_name(noun: str, named: str, reading: Reading, support: tuple[int, ...]) -> Finding:
    """Tell whether two passages share a name that goes with `noun`: a region, or the word beside the noun."""
    names_of = []
    for at in support:
        text = reading.texts[at]
        near = {
            n
            for _, _, n in name_spans(text)
            if re.search(rf"{re.escape(n)},? {noun}|{noun} of {re.escape(n)}", text, re.I)
        }
        near |= {n for _, _, n in name_spans(text) if n.lower().endswith(noun)}
        near |= (
            {surface for _, surface, _ in region_mentions(text)} if noun in ("state", "province", "region") else set()
        )
        names_of.append({fold(n) for n in near if f" {fold(n)} " not in named})
    return Finding("yes" if names_of[0] & names_of[1] else "no", support, 0.5, f"same {noun}")
