"""Types of entities by English rules on names and sentences; precision before recall, "" where no rule applies."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gnnrag.extract.base import EntityRecord, Triple
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import COUNTRY_OF, REGION_OF, cached, drop_qualifier, fold, lexicon
from gnnrag.types import Passage

_TYPE_OF_NOUN, _TYPE_OF_LAST, _TYPE_OF_FIRST = (
    {word: kind for kind, words in lexicon()[name].items() for word in words.split()}
    for name in ("nouns", "last_words", "first_words")
)
_CONTINENTS = frozenset(
    ("Africa", "Asia", "Europe", "Antarctica", "Oceania", "North America", "South America", "Latin America")
)
# Words for a country that are its name, not its people's.
_COUNTRY_NAMES = """
Austria-Hungary|People's Republic of China|Czechoslovakia|West Germany|East Germany|Persia|The Netherlands|Burma|UK
Soviet Union|Yugoslavia|Korea|England|Scotland|Wales|Great Britain|Northern Ireland|United States of America|US|USA|U.S.
"""
_OTHER_NAMES = frozenset(_COUNTRY_NAMES.strip().replace("\n", "|").split("|"))
_PLACES = frozenset({*COUNTRY_OF.values(), *REGION_OF, *_CONTINENTS, *_OTHER_NAMES})
_DEMONYMS = frozenset(COUNTRY_OF) - _PLACES - {"Hollywood", "Bollywood"}

_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DATE = re.compile(
    rf"(?:(?:early|late|mid|c\.|circa|around|about) ?)?(?:\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? \d{{3,4}})?"
    rf"|{_MONTH}(?: \d{{1,2}}(?:st|nd|rd|th)?)?,?(?: \d{{3,4}})?|[12]\d{{3}}s?|\d{{3,4}} (?:BC|AD|BCE|CE)"
    r"|[12]\d{3} ?[–—-]+ ?(?:\d{2,4}|present)|(?:the )?\d{1,2}(?:st|nd|rd|th) [Cc]entury)"
)
_UNIT = (
    r"(?:percent|per cent|million|billion|trillion|thousand|hundred|people|inhabitants|square|kilometres|kilometers|"
    r"km|km2|miles|mi|metres|meters|m|feet|ft|inches|acres|hectares|tons|tonnes|years|days|hours|minutes|seconds|"
    r"dollars|euros|pounds|times|episodes|seats|points|goals|students|members)"
)
_NUMBER = re.compile(rf"[$£€₹¥]?[-+]?\d[\d,.]*(?: ?%| ?{_UNIT}\b\.?| (?:sq|cu)\.? ?{_UNIT})*|US\$.*\d.*", re.IGNORECASE)
_QUALIFIER = re.compile(r"\(([^()]+)\)\s*$")
_PARENTHESIS = re.compile(r"\s*\([^()]*\)\s*")
_DAY = rf"(?:\d{{1,2}} {_MONTH}|{_MONTH} \d{{1,2}},?) \d{{3,4}}"
_LIFE = re.compile(rf"\([^()]*\b(?:born\b|née\b)|\(\s*(?:{_DAY}|[12]\d{{3}})\s*[–—-]+\s*{_DAY}|\(\s*[–—-]+\s*{_DAY}\)")
_COPULA = re.compile(r"\b(?:is|was|are|were)\b(?: (?:also|primarily|mainly|best known as|known as))?")
_ONE_OF = re.compile(r"^\s*(?:one|some|two|any) of (?:the|its|his|her)?\s*")
# Where the noun phrase after the copula ends: what follows describes it.
_NOUN_END = re.compile(
    r",|;|\.|:|\b(?:of|in|on|at|by|from|who|whom|whose|which|that|for|with|to|about|as|near|starring|directed|written|"
    r"produced|located|situated|based|released|held|born|known|featuring|created|set|between|during|when|where|under|"
    r"after|before|operated|owned|founded|published|recorded|composed|made|is|was|are|were|within|along|served)\b"
)
_IS = frozenset(("is", "is a", "is an", "is the", "was", "was a", "was an", "was the", "were", "are"))
_BEFORE_PERSON = re.compile(
    r"\b(?:directed|written|co-written|composed|performed|sung|painted|designed|hosted|discovered|starring|starred|stars|"
    r"son of|daughter of|father of|mother of|wife of|husband of|brother of|sister of|married|"
    r"(?:his|her) (?:father|mother|wife|husband|son|daughter|brother|sister),?)(?: by)? $"
)
_BEFORE_LOCATION = re.compile(
    r"\b(?:born|died|raised|located|situated|buried|lives|lived|resides|headquartered|city|town|village|municipality|"
    r"province|county|district|capital)(?: and (?:raised|died))? (?:near|in|at|of) (?:the )?$"
)


def opening(passage: Passage, text: PassageText) -> str:
    """Return a passage's first sentence as one line, without the title that may be glued to it."""
    title = passage.title.strip()
    rows = text.sentences[1:] if text.sentences[:1] == (title,) and len(text.sentences) > 1 else text.sentences
    return " ".join(rows[0].removeprefix(f"{title}\n\n").split()) if rows else ""


def type_names(names: Iterable[str], title: str, first: str, statements: Iterable[Triple]) -> list[EntityRecord]:
    """Return records of the names whose type is known: from `statements` or `first` (see `opening`), then the name."""
    stated: dict[str, str] = {}
    if kind := described_type(title, first):
        stated[title] = kind
    for head, relation, tail in statements:
        if relation.lower() in _IS and (kind := noun_type(_NOUN_END.split(tail)[0].split())):
            stated.setdefault(head, kind)
        text = relation if tail in relation else f"{relation} {tail}"
        if tail not in stated and (kind := mentioned_type(tail, text)):
            stated[tail] = kind
    records = []
    for name in names:
        own = named_type(name)
        kind = own if own in ("date", "number") else stated.get(name, own)  # `born in 1950`
        if kind:
            records.append(EntityRecord(name, kind))
    return records


@cached(16384)
def named_type(name: str) -> str:
    """Return the type that a name tells by itself (a date, a number, `Essex County`, `Alien (film)`), or nothing."""
    bare = drop_qualifier(name)
    if _DATE.fullmatch(bare):
        return "date"
    if _NUMBER.fullmatch(bare):
        return "number"
    if (qualifier := _QUALIFIER.search(name)) and (kind := noun_type(qualifier[1].split())):
        return kind
    if bare in _PLACES:
        return "location"
    if bare in _DEMONYMS:
        return "nationality"
    head, _, tail = bare.rpartition(", ")
    if head and (tail in _PLACES or noun_type(tail.split()[:2]) == "person"):
        return "location" if tail in _PLACES else "person"  # `Columbia, Missouri`, `Richard Wesley, 1st Baron ...`
    parts = bare.replace(",", " ").split()
    if len(parts) < 2 or not (parts[0][:1].isupper() and parts[-1][:1].isupper()):
        return ""
    return _TYPE_OF_FIRST.get(fold(parts[0])) or _TYPE_OF_LAST.get(fold(parts[-1]).strip("."), "")


def described_type(name: str, sentence: str) -> str:
    """Return the type that a sentence about a thing tells (`X is a 1982 film ...`); "" if it has another subject."""
    plain = _PARENTHESIS.sub(" ", re.sub(r"\(\s*", "(", sentence))
    for copula in list(_COPULA.finditer(plain))[:2]:
        if not _is_about(name, plain[: copula.start()]):
            break
        rest = _ONE_OF.sub("", plain[copula.end() :])
        end = _NOUN_END.search(rest)
        while end and end[0] == "." and re.search(r"\b[A-Z]$", rest[: end.start()]):  # an initial: `U.S. state`
            end = _NOUN_END.search(rest, end.end())
        if kind := noun_type((rest[: end.start()] if end else rest).split()):
            return kind
    is_life = _LIFE.search(sentence) and _is_about(name, sentence.partition("(")[0])
    return "person" if is_life else ""


def mentioned_type(name: str, sentence: str) -> str:
    """Return the type that the words before a mention tell (`directed by X`, `born in X`), or nothing."""
    at = sentence.find(name)
    if at < 0 or not name[:1].isupper():
        return ""
    before = sentence[max(0, at - 40) : at]
    if _BEFORE_PERSON.search(before):
        return "person"
    return "location" if _BEFORE_LOCATION.search(before) else ""


def _is_about(name: str, subject: str) -> bool:
    """Tell whether the words before the verb begin with a name's first word or hold its last before any comma."""
    own, head = fold(drop_qualifier(name)).split(), fold(subject.partition(",")[0]).split()
    if not own or len(head) > len(own) + 6:
        return False
    own, head = [w.strip("\"'.,“”") for w in own], [w.strip("\"'.,“”") for w in head]
    return bool(head) and (own[0] in head[:3] or own[-1] in head)


def noun_type(phrase: list[str]) -> str:
    """Return the type of a noun phrase: that of its last word that has one (`action drama film`)."""
    for word in reversed(phrase):
        word = fold(word.strip("\"'.,;:()“”"))
        singulars = (word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word))
        for form in (word, *singulars, word.rpartition("-")[2]):
            if form in _TYPE_OF_NOUN:
                return _TYPE_OF_NOUN[form]
        if len(word) > 6 and word.endswith(("ologist", "ician", "ographer")):
            return "person"
    return ""
