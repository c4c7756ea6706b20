"""Spans of passages that may answer: words, names, numbers, dates, and links between them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rapidfuzz import fuzz

from gnnrag.text.sentences import MAX_PASSAGE, beginning
from gnnrag.types import Passage

UPPER = "A-ZÀ-ÖØ-Þ" + "".join(chr(i) for i in range(0x100, 0x250) if chr(i).isupper()) + "ʻʿʾĐŠŽ"
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_MONTH = "|".join(MONTHS)
_MONTH_NUMBER = {m.lower(): i for i, m in enumerate(MONTHS, start=1)}
# A capitalised word, an Arabic name with a lower-case article, a number that opens a name (2 Chainz), initials.
_CAP = (
    rf"(?:(?:al|el|ad|an|ar|as|at|az)-[{UPPER}][\w'’ʻ\-]*|(?:d|l|Mc|O)['’][{UPPER}][\w'’\-]*|"
    rf"(?:[{UPPER}]|St|Jr|Sr|Dr|Mr|Mrs|Lt|Mt)\.|[{UPPER}][\w'’ʻ\-&]*)"
)
_JOIN = (
    r"(?:of|the|de|la|le|du|des|von|van|der|den|di|da|do|dos|del|della|bin|ibn|ben|bint|al|el|af|av|zu|zum|y|e|ap|&)"
)
_RANK = (
    r"(?:Countess|Count|Duke|Duchess|Earl|King|Queen|Princess|Prince|Margrave|Margravine|Landgrave|Lord|Lady|Baronet|"
    r"Baroness|Baron|Viscountess|Viscount|Marquess|Marquis|Elector|"
    r"Emperor|Empress|Archduke|Archduchess|Grand Duke|Heiress|"
    r"Dauphin|Infante|Infanta|Bishop|Abbess|Jr|Sr)"
)
NAME = (
    rf"(?:(?<!\d)\d++ )?{_CAP}(?:(?: {_JOIN}){{0,2}} {_CAP})*"
    rf"(?:, (?:\d+(?:st|nd|rd|th) )?{_RANK}\.?(?:(?: {_JOIN})* {_CAP})*)?"
)
NAME_RE = re.compile(NAME)
DATE_RE = re.compile(
    rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<m>{_MONTH}),? (?P<y>\d{{3,4}})(?!\d)"
    rf"|(?P<m2>{_MONTH}) (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y2>\d{{3,4}})(?!\d)"
    rf"|(?P<m3>{_MONTH}),? (?P<y3>\d{{3,4}})(?!\d)"
    r"|(?<![\d,.$£€-])(?P<y4>[12]\d{3})(?![\d,]\d|\d|%| (?:people|metres|feet|m|km|inhabitants))"
)
NUMBER_RE = re.compile(
    r"(?<![\w.,])(?:about |around |over |approximately |nearly )?[$£€]?\d(?:[\d,]*\d)?(?:\.\d+)?"
    r"(?:%| percent| million| billion| thousand)?"
    r"|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|once|twice)\b"
)
_PERIOD = r"(?:seconds?|minutes?|hours?|days?|weeks?|months?|years?|decades?|century|centuries)\b"
_EXTENT = (
    r"(?:miles?|feet|foot|inch(?:es)?|yards?|acres?|hectares?|(?:kilo|centi|milli)?met(?:er|re)s?|km|cm|mm|mg|kg|"
    r"pounds?|tons?)\b"
)
_RATE = rf" (?:an?|per|each) {_PERIOD}"
_UNIT_RE = re.compile(
    rf"(?: (?:to|or) (?:\d+|[a-z]+))?(?: (?:square|cubic|full))?[ -](?:{_PERIOD}|{_EXTENT}|times\b)(?:{_RATE})?|{_RATE}"
)
_ABBREVIATION = re.compile(
    r"(?:\b[A-Za-zÀ-Ž]|"
    r"\b(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|ca|vs|No|Lt|Gen|Col|Capt|Sgt|Hon|Rev|Prof|Inc|Co|Ltd|U\.S|aft|bef|Mt|Ste|approx|fl))\.$"
)
_STOPWORDS_WORDS = """
a an the of in on at to for by with from and or is are was were be been being do does did has have had which
who whom whose what when where why how that this these those it its he she his her their they as than both
same not also there s t first one into during after before
"""
STOPWORDS = frozenset(_STOPWORDS_WORDS.split())
_OPENERS_WORDS = """
In On At By For From As After Before During While When With Since Until Under Although However Also This That
These It Its He She His Her They Their There If Similarly Some Other Many Most Both
"""
_OPENERS = frozenset(_OPENERS_WORDS.split())
_HONORIFIC = re.compile(
    r"^(?:(?:Holy Roman )?(?:King|Queen|Emperors?|Empress|Tsar|Tsarina|Caliph|Sultan|Shah|President|Actor|Actress|"
    r"Governor|Senator|Dr|Mr|Mrs|Captain|Colonel|Count|Duke|Margrave|Grand Duke|Archduke|HM|HRH|The)\.? )+(?=[^\s]+)"
)


@lru_cache(maxsize=8192)
def clean(text: str) -> str:
    """Mend the spacing that tokenised corpora leave: `X( born 1950)`, `lay- abbot`, `19505 October 2015`."""
    text = text.replace("<br >", " ").replace("\xa0", " ").replace("\n", " ").replace("``", '"').replace("''", '"')
    # A run of blanks is looked at from its start alone: the square of a long one would take seconds.
    text = re.sub(r"(?:(?<!\s)\s++)?\(\s*+[;,]*+\s*+", " (", text)
    text = re.sub(r"(?<!\s)\s++([),;:])", r"\1", text)
    text = re.sub(r"(\w)- (?=\w)(?!and\b|or\b|\d)", r"\1-", text)
    text = re.sub(r"(\d{4})(?=\d{1,2} (?:" + _MONTH + r") \d{4})", r"\1 – ", text)
    text = re.sub(r"(\d{4})(?=(?:" + _MONTH + r") \d{1,2}, \d{4})", r"\1 – ", text)
    text = re.sub(r"(\d{4}) (?=(?:" + _MONTH + r") \d{1,2}, \d{4}\))", r"\1 – ", text)
    text = re.sub(r" ?[–—] ?", " – ", text)
    text = re.sub(r"(?<=\d|[a-z]) ?- ?(?=(?:\d{1,2} )?(?:" + _MONTH + "))", " – ", text)
    return re.sub(r"\s+", " ", text).strip()


@lru_cache(maxsize=65536)
def fold(text: str) -> str:
    """Return lower-case words without accents or punctuation: what names and titles are compared by."""
    text = unicodedata.normalize("NFKD", text.replace("ł", "l").replace("Ł", "L").replace("ø", "o").replace("Ø", "O"))
    text = "".join(c for c in text if not unicodedata.combining(c)).lower()
    text = re.sub(r"['’ʻʿʾ`]", "", text) if "'" not in text else re.sub(r"[’ʻʿʾ`]", "", text)
    return " ".join(re.findall(r"[^\W_]+", text))


def words(text: str) -> list[str]:
    """Return the content words of `text`, folded and lightly stemmed (plural and verb endings dropped)."""
    return [stem(w) for w in fold(text).split() if w not in STOPWORDS]


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Cut the commonest English endings; enough to match `directed` with `director`, `cities` with `city`."""
    for end, new in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("ors", ""), ("or", ""), ("er", ""), ("s", "")):
        if word.endswith(end) and len(word) - len(end) >= 4:
            return word[: -len(end)] + new
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


@lru_cache(maxsize=8192)
def sentences(text: str) -> tuple[str, ...]:
    """Split cleaned text into sentences; initials and common abbreviations do not end one."""
    parts: list[str] = []
    start = 0
    for match in re.finditer(rf"[.!?]['\")\]]* +(?=[\"'(\[]*[{UPPER}\d])", text):
        head = text[max(start, match.start() - 12) : match.start() + 1]
        if text[match.start()] == "." and _ABBREVIATION.search(head) and not head.endswith("U.S."):
            continue
        parts.append(text[start : match.end()].strip())
        start = match.end()
    parts.append(text[start:].strip())
    return tuple(p for p in parts if p)


def strip_honorific(name: str) -> str:
    """Drop titles that encyclopaedias leave out of names: `King Philip III` becomes `Philip III`."""
    return _HONORIFIC.sub("", name).rstrip(" ,") or name


def name_spans(text: str) -> list[tuple[int, int, str]]:
    """Return (start, end, name) of the capitalised names in `text`: no dates, no leading year, month or preposition."""
    spans = []
    for match in NAME_RE.finditer(text):
        start, name = match.start(), match.group()
        first, _, rest = name.partition(" ")
        while rest and (
            first in _OPENERS or (first.isdigit() and (len(first) > 2 or rest.split()[0].strip(".,") in MONTHS))
        ):
            start, name = start + len(first) + 1, rest
            first, _, rest = name.partition(" ")
        name = re.sub(rf" (?:{_MONTH})\b.*$", "", name).strip(" ,")
        if name.endswith(("'s", "’s")):
            name = name[:-2]
        if name and first.strip(".,") not in MONTHS and name not in _OPENERS:
            spans.append((start, start + len(name), name))
    return spans


def with_unit(text: str, start: int, end: int) -> str:
    """Return the number at `start` to `end` of a text with the unit behind it, of time, length, area or weight."""
    unit = _UNIT_RE.match(text, end)
    return text[start : unit.end() if unit else end]


def date_key(match: re.Match[str]) -> tuple[int, int, int]:
    """Return (year, month, day) of a `DATE_RE` match; 0 where the text does not say."""
    g = match.groupdict()
    year = int(g["y"] or g["y2"] or g["y3"] or g["y4"])
    month = g["m"] or g["m2"] or g["m3"]
    return year, _MONTH_NUMBER[month.lower()] if month else 0, int(g["d"] or g["d2"] or 0)


def without_parentheses(title: str) -> str:
    """Drop a disambiguation: `Algiers (film)` becomes `Algiers`."""
    return re.sub(r"\s*\([^)]*\)", "", title).strip() or title


_SMALL_WORDS = """
of the de la le van von der a and in
"""
_SMALL = frozenset(_SMALL_WORDS.split())
_ROMAN = re.compile(r"^(?:[ivx]+)$")


@dataclass(frozen=True, slots=True)
class Mention:
    """A title found in a question: words `start` to `end` of the folded question are passage number `passage`."""

    passage: int
    start: int
    end: int


class Linker:
    """Resolves names within the handful of passages that a reader sees, best first; `texts` are their cleaned texts."""

    def __init__(self, passages: Sequence[Passage], texts: Sequence[str]) -> None:
        self.titles = [fold(p.title) for p in passages]
        self.bare = [fold(without_parentheses(p.title)) for p in passages]
        self.leads = [self._lead(t) for t in texts]

    @staticmethod
    def _lead(text: str) -> str:
        first = sentences(text)[0] if text else ""
        match = NAME_RE.match(first.lstrip('"')) if first else None
        return fold(match.group()) if match else ""

    def mentions(self, question: str) -> list[Mention]:
        """Return the titles that `question` names, longest first, without overlaps, then in reading order."""
        words = fold(question).split()
        spans: list[tuple[int, int, Mention]] = []
        for i, (title, bare, lead) in enumerate(zip(self.titles, self.bare, self.leads, strict=True)):
            for form, bonus in ((title, 1), (bare, 0), (lead, 0)):
                at = _find(form.split(), words) if len(form) > 2 else None
                if at is not None:
                    spans.append((len(form) + bonus, -i, Mention(i, at, at + len(form.split()))))
        chosen: list[Mention] = []
        for _, _, mention in sorted(spans, key=lambda s: s[:2], reverse=True):
            if all(mention.passage != c.passage and (mention.end <= c.start or mention.start >= c.end) for c in chosen):
                chosen.append(mention)
        return sorted(chosen, key=lambda m: m.start)

    def resolve(self, name: str, exclude: Collection[int] = (), floor: float = 0.62) -> int | None:
        """Return the number of the passage about `name`, or None where none fits well enough."""
        folded, bare = fold(name), fold(without_parentheses(name))
        best, best_score = None, floor
        for i in range(len(self.titles)):
            if i in exclude:
                continue
            score = max(
                similarity(folded, self.titles[i]),
                0.99 * similarity(bare, self.bare[i]),
                0.9 * similarity(bare, self.leads[i]),
            )
            if score > best_score:
                best, best_score = i, score
        return best


def _find(part: list[str], whole: list[str]) -> int | None:
    for i in range(len(whole) - len(part) + 1):
        if whole[i : i + len(part)] == part:
            return i
    return None


def similarity(a: str, b: str) -> float:
    """Return how likely two folded names name one thing, in [0, 1]; numerals (Henry IV, Henry V) must agree."""
    if not a or not b:
        return 0.0
    if a == b:
        return 1.0
    left = {w for w in a.split() if w not in _SMALL}
    right = {w for w in b.split() if w not in _SMALL}
    numerals = {w for w in left if _ROMAN.match(w)}, {w for w in right if _ROMAN.match(w)}
    if not left or not right or (numerals[0] and numerals[1] and numerals[0] != numerals[1]):
        return 0.0
    fuzzy = fuzz.ratio(a, b) / 100
    common = len(left & right)
    shorter, longer = sorted((len(left), len(right)))
    contained = 0.6 * common / shorter + 0.4 * common / longer
    if shorter == 1 and longer > 2:
        contained *= 0.8
    return max(contained * 0.98, fuzzy if fuzzy >= 0.8 else 0.0)


def readable(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """Return passages with as much of each as is read."""
    return tuple(replace(p, title=beginning(p.title), text=beginning(p.text, MAX_PASSAGE)) for p in passages)


def build_linker(passages: Sequence[Passage]) -> tuple[Linker, list[str]]:
    """Return a linker and the cleaned texts it reads."""
    texts = [clean(p.text) for p in passages]
    return Linker(passages, texts), texts
