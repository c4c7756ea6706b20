"""Answers by comparison: which of two things is older, earlier or longer-lived, or whether the same holds for both.

Dates, lifespans and countries are read from the passages about the two things. Where the question asks about something
of theirs ("whose director was born first"), they are read from the passages that these name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rapidfuzz import fuzz

from gnnrag.text.normalise import cached, country_mentions, drop_qualifier, lexicon, region_mentions, words
from gnnrag.text.questions import MONTHS, is_yes_no
from gnnrag.text.sentences import BLANK_LINE, MAX_PASSAGE, beginning, split_sentences
from gnnrag.text.subjects import PATH
from gnnrag.text.support import content_stems
from gnnrag.types import Passage

_MONTH = "|".join(MONTHS)
DATE_RE = re.compile(
    rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<m>{_MONTH}),? (?P<y>\d{{3,4}})(?!\d)"
    rf"|(?P<m2>{_MONTH}) (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y2>\d{{3,4}})(?!\d)"
    rf"|(?P<m3>{_MONTH}),? (?P<y3>\d{{3,4}})(?!\d)"
    r"|(?<![\d,.$£€-])(?P<y4>[12]\d{3})(?![\d,]\d|\d|%| (?:people|metres|feet|m|km|inhabitants))"
)
_DEATHS = re.compile(r"\b(?:died|death|killed|assassinated|executed|murdered|drowned|d\.|†)")
_ROLE = re.compile(
    r"\b(direct|perform|sing|compos|auth|writ|screenwrit|produc|creat|found|fath|moth|husband|wife|spouse)"
    r"(?:or|er|ist)?s?\b"
)
_YOUNGER = re.compile(r"\b(?:later|latest|younger|youngest|recently|recent|newer|newest|last|longer|longest)\b")

DateKey = tuple[float, ...]  # (year, month, day), 0 where the text does not say; of a lifespan, (days,)


@cached(4096, 3000)
def clean(text: str) -> str:
    """Repair the spacing of tokenised corpora: `X( born 1950)`, `lay- abbot`, `19505 October 2015`.

    Blank lines, which separate items and rows, stay.
    """
    return "\n\n".join(filter(None, map(_cleaned, BLANK_LINE.split(text))))


def _cleaned(text: str) -> str:
    text = text.replace("<br >", " ").replace("\xa0", " ").replace("\n", " ").replace("``", '"').replace("''", '"')
    # A run of blanks is looked at from its start alone: the square of a long one would take seconds.
    text = re.sub(r"(?:(?<!\s)\s++)?\(\s*+[;,]*+\s*+", " (", text)
    text = re.sub(r"(?<!\s)\s++([),;:])", r"\1", text)
    text = re.sub(r"(\w)- (?=\w)(?!and\b|or\b|\d)", r"\1-", text)
    text = re.sub(rf"(\d{{4}}) ?(?=\d{{1,2}} (?:{_MONTH}) \d{{4}}|(?:{_MONTH}) \d{{1,2}}, \d{{4}})", r"\1 – ", text)
    text = re.sub(r" ?[–—] ?", " – ", text)
    text = re.sub(rf"(?<=\d|[a-z]) ?- ?(?=(?:\d{{1,2}} )?(?:{_MONTH}))", " – ", text)
    return re.sub(r"\s+", " ", text).strip()


@cached()
def fold(text: str) -> str:
    """Return folded words with single blanks: what names and titles are compared by."""
    return " ".join(words(text))


@dataclass(frozen=True)
class Reading:
    """The passages that are read, their cleaned texts, and their titles, folded and without a qualifier."""

    passages: tuple[Passage, ...]
    texts: tuple[str, ...]
    titles: tuple[str, ...]

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> Reading:
        """Read the beginning of each passage."""
        read = tuple(replace(p, title=beginning(p.title), text=beginning(p.text, MAX_PASSAGE)) for p in passages)
        return cls(
            read,
            tuple(clean(p.text) for p in read),
            tuple(fold(drop_qualifier(p.title.rpartition(PATH)[2])) for p in read),
        )

    def named(self, text: str) -> list[tuple[int, int, int]]:
        """Return (passage, first word, word after the last) of the titles in a folded text, in reading order.

        Of overlapping titles the longest counts.
        """
        asked, spans = text.split(), []
        for number, bare in enumerate(self.titles):
            full, size = fold(self.passages[number].title), len(bare.split())
            for title, count in ((full, len(full.split())), (bare, size)):
                at = next((i for i in range(len(asked)) if title and asked[i : i + count] == title.split()), None)
                if at is not None and len(title) > 2:
                    spans.append((number, at, at + count))
                    break
        kept: list[tuple[int, int, int]] = []
        for span in sorted(spans, key=lambda s: s[1] - s[2]):
            if all(span[2] <= other[1] or span[1] >= other[2] for other in kept):
                kept.append(span)
        return sorted(kept, key=lambda s: s[1])

    def about(self, name: str, but: int | None = None) -> int | None:
        """Return the passage, other than `but`, whose title is most like a name; None where none is like it."""
        ratios = {i: fuzz.token_sort_ratio(fold(name), title) for i, title in enumerate(self.titles) if i != but}
        full = {i: fuzz.token_sort_ratio(fold(name), fold(self.passages[i].title)) for i in ratios}
        best = max(ratios, key=lambda i: (max(ratios[i], full[i]), full[i]), default=None)
        return best if best is not None and max(ratios[best], full[best]) >= 75 else None

    def bridge(self, start: int, role: str, but: Sequence[int]) -> int | None:
        """Return the passage about what passage `start` names nearest to `role`, the stem of a word like `director`."""
        text = fold(self.texts[start])
        found = []
        for other, title in enumerate(self.titles):
            if other == start or other in but or len(title) < 3:
                continue
            at = f" {text} ".find(f" {title} ")
            if at >= 0:
                found.append((min((abs(at - m.start()) for m in re.finditer(role, text)), default=len(text)), other))
        return min(found)[1] if found else None


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer, the numbers of its passages, its confidence in [0, 1], and what was compared."""

    text: str
    passages: tuple[int, ...]
    confidence: float
    how: str  # `guess`: nothing was compared, it is the first of two, or yes


# -------------------------------------------------------------------------------------------------- dates and countries
def _date_of(match: re.Match[str]) -> DateKey:
    g = match.groupdict()
    month = g["m"] or g["m2"] or g["m3"]
    year = int(g["y"] or g["y2"] or g["y3"] or g["y4"])
    return year, MONTHS.index(month) + 1 if month else 0, int(g["d"] or g["d2"] or 0)


def _first_date(text: str, last: bool = False) -> DateKey | None:
    dates = list(DATE_RE.finditer(text))
    return _date_of(dates[-1 if last else 0]) if dates else None


def _lifespan(text: str) -> tuple[str, str] | None:
    """Return what stands on both sides of the dash in the first parenthesis that holds a lifespan."""
    for match in re.finditer(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", " ".join(split_sentences(text)[:2])[:700]):
        left, dash, right = match.group(1).partition("–")
        if dash and re.search(r"\d{3,4}", right):
            return left, right
        if re.match(r"(?:born|b\.)", match.group(1)):
            return match.group(1), ""
    return None


def birth_date(text: str) -> DateKey | None:
    """Return when the person a passage is about was born."""
    span = _lifespan(text)
    if span and not re.match(r"\W*(?:r\.|reigned|died|d\.)", span[0]) and (date := _first_date(span[0])):
        return date
    born = re.search(r"\b(?:[Bb]orn\b|b\.)", text)
    return _first_date(text[born.end() : born.end() + 120]) if born else None


def death_date(text: str) -> DateKey | None:
    """Return when the person a passage is about died."""
    span = _lifespan(text)
    if span and span[1] and (date := _first_date(span[1], last=True)):
        return date
    dates = (_first_date(split_sentences(text[m.end() :] + ".")[0][:140]) for m in _DEATHS.finditer(text))
    return next((date for date in dates if date), None)


def lifespan_days(text: str) -> DateKey | None:
    """Return how long the person a passage is about lived, in days, roughly."""
    born, died = birth_date(text), death_date(text)
    if not born or not died or born == died:
        return None
    return (sum(w * (d - b) for w, b, d in zip((365.25, 30.4, 1.0), born, died, strict=True)),)


def countries(text: str) -> list[str]:
    """Return the countries that a passage names, in order; those after the verb of its first sentences come first."""
    found: list[tuple[bool, str]] = []
    for sentence in split_sentences(text)[:8]:
        verb = re.search(r"\b(?:is|was|are|were)\b", sentence)
        for at, _, country in country_mentions(sentence):
            found.append((not (verb and verb.end() <= at < verb.end() + 60), country))
    return list(dict.fromkeys(country for _, country in sorted(found, key=lambda row: row[0])))


# ------------------------------------------------------------------------------------------------------- the comparison
Attribute = Literal["birth", "death", "release", "lifespan", "country", "predicate"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two things, as the question names them, their passages, and the attribute of them or of their `role`."""

    names: tuple[str, str]
    passages: tuple[int | None, int | None]
    attribute: Attribute
    is_largest: bool = False
    role: str = ""  # stem of `director` or the like
    yes_no: bool = False


def parse_comparison(question: str, reading: Reading) -> Comparison | None:
    """Read a comparison of two named things; None where the question is not one."""
    yes_no, folded = is_yes_no(question), fold(question)
    named = reading.named(folded)
    if yes_no and len(named) >= 2:
        tokens = folded.split()
        pair = [(" ".join(tokens[start:end]), passage) for passage, start, end in named[:2]]
        names, passages = (pair[0][0], pair[1][0]), (pair[0][1], pair[1][1])
    elif (choices := _choices(question, yes_no)) is None:
        return None
    else:
        names = choices
        first = reading.about(names[0])
        passages = (first, reading.about(names[1], first))  # type: ignore[assignment]
    clause = folded
    for name in names:
        clause = clause.replace(fold(name), " ")
    attribute = _attribute(clause, yes_no)
    role = None if attribute == "predicate" else _ROLE.search(clause)
    is_younger = bool(_YOUNGER.search(clause))
    return Comparison(names, passages, attribute, is_younger, role.group(1) if role else "", yes_no)


def _choices(question: str, yes_no: bool) -> tuple[str, str] | None:
    """Return the two things that a question asks to choose between, as it names them."""
    text = question.strip().rstrip("?").strip()
    if yes_no:
        both = re.match(
            r"^\w+ (?:both )?(?:the )?(?:\w+s?,? )?(?P<a>.+?) (?:and|have the same \w+ as) (?P<b>.+?)"
            r"(?:,? (?:both|from|located|share|have|of the same|in the)\b.*)?$",
            text,
        )
        return (both["a"].strip(" ,"), both["b"].strip(" ,")) if both else None
    forms = (
        r"^(?:Was|Is|Were|Are|Did|Does) (?P<a>.+?) or (?P<b>.+?) "
        r"(?:born|older|younger|die|died|released|established|founded|formed|published|first|come)\b.*$",
        r"\b(?:between|out of)\b (?P<a>[A-Z].+?) (?:and|or) (?P<b>[A-Z][^,]+?)(?:,.*)?$",
        r"^[^,]*(?:, [^,]*?(?:,)?)*?, (?P<a>[^,].*?),? or (?P<b>.*)$",
        r"^(?:Which|Who|What)\b.*? (?P<a>(?:The )?[A-Z][^,]*) or (?P<b>(?:the )?[A-Z].*)$",
    )
    match = next((found for form in forms if (found := re.search(form, text))), None)
    return (match["a"].strip(" ,"), match["b"].strip(" ,")) if match else None


def _attribute(clause: str, yes_no: bool) -> Attribute:
    if yes_no:
        same = r"same (?:country|nationality|citizenship|origin)|share.*(?:country|nationality)"
        return "country" if re.search(same, clause) else "predicate"
    return next((name for name, cue in lexicon()["compared_by"].items() if re.search(cue, clause)), "predicate")


def compare(question: str, reading: Reading) -> Finding | None:
    """Answer a question that compares two named things; None where it does not."""
    form = parse_comparison(question, reading)
    if form is None:
        return None
    starts = [passage for passage in form.passages if passage is not None]
    ends: list[int] = list(starts)
    if form.role:
        ends = [at for start in starts if (at := reading.bridge(start, form.role, starts)) is not None]
    support = tuple(dict.fromkeys([*starts, *ends]))
    finding = None
    if len(starts) == 2 and form.attribute == "predicate":
        finding = _predicate(question, form, reading, starts)
    elif len(ends) == 2:
        finding = _same_country(form, reading, ends) if form.attribute == "country" else _ordered(form, reading, ends)
    if finding is None:
        return Finding("yes" if form.yes_no else form.names[0], support, 0.1, "guess")
    return replace(finding, passages=support)


def _ordered(form: Comparison, reading: Reading, ends: Sequence[int]) -> Finding | None:
    read = {"birth": birth_date, "death": death_date, "lifespan": lifespan_days}.get(form.attribute, _first_date)
    values = [read(reading.texts[end]) for end in ends]
    if not all(values):
        return None
    left, right = (value or () for value in values)
    first = left > right if form.is_largest else left <= right
    sureness = 0.9 if left != right else 0.2
    return Finding(form.names[0 if first else 1], (), sureness, f"{form.attribute}: {left} / {right}")


def _same_country(form: Comparison, reading: Reading, ends: Sequence[int]) -> Finding | None:
    left, right = (countries(reading.texts[end]) for end in ends)
    if not left or not right:
        return None
    same = left[0] == right[0] or left[0] in right[:2] or right[0] in left[:2]
    return Finding("yes" if same else "no", (), 0.85 if same else 0.75, f"country: {left[:2]} / {right[:2]}")


def _predicate(question: str, form: Comparison, reading: Reading, ends: Sequence[int]) -> Finding:
    """Decide `Are X and Y both P?` and `Which is P, X or Y?` by how much of P's words each passage has."""
    named = fold(" ".join(form.names))
    if form.yes_no and re.search(r"\bsame (?:\w+ )?(?:state|province|region)\b", question):
        left, right = ({name for _, name, _ in region_mentions(reading.texts[at])} for at in ends)
        return Finding("yes" if left & right else "no", (), 0.3, f"region: {sorted(left)} / {sorted(right)}")
    wanted = content_stems(question) - content_stems(named)
    asked = {country for _, surface, country in country_mentions(question) if fold(surface) not in named}
    shares = []
    for at in ends:
        first = (split_sentences(reading.texts[at]) or [""])[0]
        stated = {country for _, _, country in country_mentions(first)}
        share = len(wanted & content_stems(reading.passages[at].content)) / max(1, len(wanted))
        shares.append(0.0 if form.yes_no and asked - stated else share)
    how = f"words: {shares[0]:.2f} / {shares[1]:.2f}"
    if form.yes_no:
        return Finding("yes" if min(shares) >= 0.5 else "no", (), 0.3, how)
    return Finding(form.names[0 if shares[0] >= shares[1] else 1], (), 0.3, how)
