"""Whether two names are spellings of one: punctuation, word order after a comma, plural, acronym, initials."""

from __future__ import annotations

import re

from gnnrag.text.normalise import fold

_WORD = re.compile(r"[^\W_]+")
_SMALL = frozenset({"of", "the", "and", "for", "in", "de", "la", "du", "von", "van", "a", "an"})
_ACRONYM = re.compile(r"(?:[^\W\d_]\.?){2,8}")


def is_variant(one: str, other: str, is_person: bool = False) -> bool:
    """Tell whether two names are spelt differently but the same; symmetric.

    Numbers must agree. The plural does not apply to people, nor to single capitalised words, which may be names of
    people (Williams).

    Args:
        one: a name.
        other: another.
        is_person: both are known to be people: initials may stand for first names, and there are no plurals.
    """
    a, b = _words(one), _words(other)
    if not a or not b or _numbers(a) != _numbers(b):
        return False
    if a == b or "".join(a) == "".join(b) or _turned(one, other):
        return True
    if _is_acronym(one, b) or _is_acronym(other, a):
        return True
    if is_person:
        return _initials(a, b) or _initials(b, a)
    may_be_people = len(a) == 1 and one[:1].isupper() and not one.isupper()
    return not may_be_people and a[:-1] == b[:-1] and _singular(a[-1]) == _singular(b[-1])


def _words(name: str) -> list[str]:
    words = [fold(word) for word in _WORD.findall(name)]
    return words[1:] if len(words) > 1 and words[0] == "the" else words


def _numbers(words: list[str]) -> list[str]:
    return [word for word in words if any(c.isdigit() for c in word)]


def _turned(one: str, other: str) -> bool:
    """Tell whether one is `Lovelace, Ada` and the other `Ada Lovelace`."""
    for first, second in ((one, other), (other, one)):
        if first.count(",") == 1 and "," not in second:
            last, _, given = first.partition(",")
            if _words(f"{given} {last}") == _words(second):
                return True
    return False


def _is_acronym(short: str, words: list[str]) -> bool:
    """Tell whether a word in capitals is made of the first letters of words, small ones counted or not."""
    letters = fold(short.replace(".", ""))
    if not _ACRONYM.fullmatch(short.strip()) or not short.replace(".", "").isupper() or len(letters) < 2:
        return False
    return letters in ("".join(w[0] for w in words), "".join(w[0] for w in words if w not in _SMALL)) and len(words) > 1


def _initials(short: list[str], full: list[str]) -> bool:
    """Tell whether `short` is `full` with some of its first names cut to a letter."""
    if len(short) != len(full) or len(short) < 2 or short[-1] != full[-1]:
        return False
    return all(s == f or (len(s) == 1 and f.startswith(s)) for s, f in zip(short[:-1], full[:-1], strict=True))


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
