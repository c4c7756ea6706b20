"""Bring names to one form: for matching, for entity nodes, and their spelling variants; the names of countries."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sized
from functools import cache, lru_cache, wraps
from importlib.resources import files
from itertools import groupby, pairwise
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]

S = TypeVar("S", bound=Sized)
T = TypeVar("T")


def cached(size: int = 8192, longest: int = 300) -> Callable[[Callable[[S], T]], Callable[[S], T]]:
    """Cache a function of a text, but not for long texts: clients can send any number of them."""

    def decorated(function: Callable[[S], T]) -> Callable[[S], T]:
        kept = lru_cache(size)(function)

        @wraps(function)
        def call(text: S) -> T:
            return kept(text) if len(text) <= longest else function(text)  # type: ignore[arg-type]

        return call

    return decorated


@cache
def lexicon() -> dict[str, Any]:
    """Return the word lists of the rules for English text, by name."""
    text = (files("gnnrag.text") / "lexicon.yaml").read_text("utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def word_set(name: str) -> frozenset[str]:
    return frozenset(lexicon()[name].split())


def _country_by_name(name: str) -> dict[str, str]:
    return {word: country for country, names in lexicon()[name].items() for word in (country, *names)}


COUNTRY_OF = _country_by_name("countries")
REGION_OF = {name: country for name, country in _country_by_name("regions").items() if name not in COUNTRY_OF}
FUNCTION_WORDS = word_set("function_words")  # they name nothing and relate nothing


def _compile(table: dict[str, str]) -> re.Pattern[str]:
    alternatives = "|".join(re.escape(w) for w in sorted(table, key=len, reverse=True))
    return re.compile(rf"(?<![\w])(?:{alternatives})(?![\w])")


_COUNTRY_RE = _compile(COUNTRY_OF)
_REGION_RE = _compile(REGION_OF)


@cached()
def country_mentions(text: str) -> tuple[tuple[int, str, str], ...]:
    """Return (offset, surface form, country) of each country or demonym in `text`, in order."""
    return tuple((m.start(), m.group(), COUNTRY_OF[m.group()]) for m in _COUNTRY_RE.finditer(text))


@cached()
def region_mentions(text: str) -> tuple[tuple[int, str, str], ...]:
    """Like `country_mentions`, for states, provinces and capitals."""
    return tuple((m.start(), m.group(), REGION_OF[m.group()]) for m in _REGION_RE.finditer(text))


# Letters that Unicode does not decompose into a base letter and a mark, but that people type as one.
_PLAIN = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
# What nobody sees or types in a word: soft hyphens, joiners, marks of direction; tatweel only stretches one.
_UNSEEN = "\u00ad\u2060\ufeff\u200e\u200f\u202a-\u202e\u2066-\u2069"
_STRETCH = re.compile(f"[{_UNSEEN}\u0640]+")
_POSSESSIVE = re.compile(r"\s?['’`]s\b")
_APOSTROPHE = re.compile(r"(?<=\w)['’`](?=\w)")
_ARTICLE = re.compile(r"^(?:the|an?) (?=.)")


def characters_of(*categories: str) -> str:
    """Return the characters of Unicode categories (`Lu`, `M`) as ranges for a character class, which `re` lacks."""
    codes = [code for code in range(0x20000) if unicodedata.category(chr(code)).startswith(categories)]
    runs = (list(run) for _, run in groupby(enumerate(codes), lambda item: item[1] - item[0]))
    return "".join(f"{chr(run[0][1])}-{chr(run[-1][1])}" for run in runs)


# What stands on or beside a letter, for a character class: accents, vowel signs, joiners.
MARKS = f"\u200c\u200d{_UNSEEN}{characters_of('M')}"
# The words of the whole library: letters and digits with their marks.
WORD = rf"[^\W_]+(?:[{MARKS}]+[^\W_]*)*"
# Scripts without blanks between words: Thai, Lao, Burmese, Khmer, Tai, Balinese, Javanese, kana, Chinese characters.
NO_BLANKS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1980-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9df"
    "\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(WORD)
_RUN = re.compile(rf"[{NO_BLANKS}][{NO_BLANKS}{MARKS}]*")
_WIDTHS = re.compile("[\uff01-\uffdc]+")  # wide Latin, narrow kana and Hangul
_CHARACTER = re.compile(rf"[{NO_BLANKS}][{MARKS}]*")
# On letters of Latin, Greek and Cyrillic alone marks are accents, which people leave out; elsewhere they tell words
# apart.
_ACCENTED = re.compile(rf"(^|.)([{MARKS}]+)", re.DOTALL)
_ACCENTS_ON = re.compile(
    r"[a-z\u00aa-\u02b8\u0370-\u03ff\u0400-\u052f\u1c80-\u1c8f\u1d00-\u1dbf\u1e00-\u1fff\u2c60-\u2c7f"
    r"\ua640-\ua69f\ua720-\ua7ff\uab30-\uab6f]"
)


def find_words(text: str) -> list[str]:
    """Return the words of a text as they stand there: letters and digits with their marks."""
    return _WORD.findall(text)


def lower_words(text: str) -> str:
    """Return the words of a text in lower case, a blank between them."""
    return " ".join(find_words(text.casefold()))


def fold(text: str) -> str:
    """Return `text` in lower case and without accents; letters of every script stay, with the marks that tell words."""
    if text.isascii():
        return text.lower()
    # Twice: decomposition can uncover capitals (`𝕊`), and folding can compose anew.
    marked = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", _STRETCH.sub("", text)).casefold())
    return unicodedata.normalize("NFC", _ACCENTED.sub(_without_accents, marked)).translate(_PLAIN)


def _without_accents(match: re.Match[str]) -> str:
    is_part = match[1].isalpha() and not _ACCENTS_ON.match(match[1])
    return match[0] if is_part else match[1]


def with_blanks(text: str) -> str:
    """Return a text in which scripts without blanks between words are pairs of characters, each of which overlaps.

    So BM25 and bags of words find what is in them: `東京都` becomes `東京 京都`. What nobody sees is left out, and wide
    and narrow characters become the usual ones.
    """
    if text.isascii():
        return text
    text = _WIDTHS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), _STRETCH.sub("", text))
    return _RUN.sub(lambda match: f" {' '.join(_pairs(match[0]))} ", text)


def _pairs(run: str) -> list[str]:
    characters = _CHARACTER.findall(run)
    return [a + b for a, b in pairwise(characters)] or characters


def phrase_key(phrase: str) -> str:
    """Return the form under which phrases are linked: folded words joined by one space; empty for punctuation only.

    A possessive ending, apostrophes, punctuation and a leading article are dropped: `The Beatles'` is `beatles`.
    """
    return _ARTICLE.sub("", " ".join(words(phrase)))


def words(text: str) -> list[str]:
    """Split into folded words the way `phrase_key` does."""
    plain = fold(text)
    if "'" in plain or "’" in plain or "`" in plain:
        plain = _APOSTROPHE.sub("", _POSSESSIVE.sub("", plain))
    return find_words(plain)


def terms(text: str) -> list[str]:
    """Return the same words for bags; those of scripts without blanks as pairs of characters."""
    return words(with_blanks(text))


def drop_qualifier(title: str) -> str:
    """Return a title without its parenthetical qualifier: `Casablanca (film)` becomes `Casablanca`."""
    bare = title.strip()
    start = bare.rfind("(")
    is_qualified = bare.endswith(")") and start >= 0 and ")" not in bare[start:-1]
    return bare[:start].strip() or bare if is_qualified else bare


_NOT_ASCII_WORD = re.compile(r"[^A-Za-z0-9 ]")


def norm_phrase(phrase: str, norm: str = "hipporag") -> str:
    """Return the form under which entities are one node.

    `hipporag` is the released rule: ASCII only, so that every name in another script becomes the same empty string.
    `unicode` keeps the letters and digits of every script, and single spaces.
    """
    if norm == "hipporag":
        return _NOT_ASCII_WORD.sub(" ", phrase.lower()).strip()
    # Marks are joined to their letters before what is no letter goes, and again after folding took some apart.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _STRETCH.sub("", phrase)).casefold())
    return " ".join(find_words(folded))


def singular(word: str) -> str:
    """Return the singular of a folded English noun by rule: `biopsies` is `biopsy`."""
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
