"""Text to spans without a model: cleaning, sentences, names, dates, numbers. Pure functions over strings."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

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
    found = []
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
            found.append((start, start + len(name), name))
    return found


def date_key(match: re.Match[str]) -> tuple[int, int, int]:
    """Return (year, month, day) of a `DATE_RE` match; 0 where the text does not say."""
    g = match.groupdict()
    year = int(g["y"] or g["y2"] or g["y3"] or g["y4"])
    month = g["m"] or g["m2"] or g["m3"]
    return year, _MONTH_NUMBER[month.lower()] if month else 0, int(g["d"] or g["d2"] or 0)


def without_parentheses(title: str) -> str:
    """Drop a disambiguation: `Algiers (film)` becomes `Algiers`."""
    return re.sub(r"\s*\([^)]*\)", "", title).strip() or title
