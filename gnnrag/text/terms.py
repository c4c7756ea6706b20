"""Domain terms of a corpus by statistics, without a model: C-value and abbreviations.

C-value after Frantzi, Ananiadou and Mima (2000), abbreviations after Schwartz and Hearst (2003). English.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gnnrag.text.normalise import FUNCTION_WORDS, WORD, cached, fold, singular, word_set

MAX_WORDS = 5  # of a term that no abbreviation stands for
LEAST_FREQUENCY = 2  # occurrences of a term that no abbreviation stands for; what stands there once may be chance

GENERAL_WORDS = word_set("general_words") | FUNCTION_WORDS  # words of any subject: no terms, and no part of one
_NOUNS_IN_LY = word_set("nouns_in_ly")
# Words that stand before or after a verb, before or after a noun, and before an adjective.
_BEFORE_VERB, _AFTER_VERB = word_set("before_verb"), word_set("after_verb")
_BEFORE_NOUN, _AFTER_NOUN = word_set("before_noun"), word_set("after_noun")
_BEFORE_QUALITY = word_set("before_quality")
_WORD = re.compile(WORD)
_JOINS = re.compile(r"\s*[-‐‑]?\s*")


@dataclass(frozen=True, slots=True)
class Term:
    """A domain term: its usual spelling, and its abbreviations."""

    text: str
    aliases: tuple[str, ...] = ()


class Terms:
    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = tuple(terms)
        self._of: dict[_Key, Term] = {}
        self._longest: dict[str, int] = {}  # words of the longest term that begins with a word
        for term in self.terms:
            for name in (term.text, *term.aliases):
                key = _key(name)
                if key and self._of.setdefault(key, term) is term:
                    self._longest[key[0]] = max(self._longest.get(key[0], 0), len(key))

    def get(self, name: str) -> Term | None:
        """Return the term that a text names in whole, in any number and under any alias; None where it names none."""
        return self._of.get(_key(name))

    def in_text(self, text: str) -> list[tuple[int, int, Term]]:
        """Return (start, end, term) of the longest terms that stand in a text, in order; they never overlap."""
        read, spans, i = _read(text), [], 0
        while i < len(read):
            stop, most = i + 1, i + self._longest.get(read[i].form, 0)
            while stop < min(most, len(read)) and read[stop].is_joined:
                stop += 1
            for end in range(min(stop, most), i, -1):
                if term := self._of.get(tuple(word.form for word in read[i:end])):
                    spans.append((read[i].start, read[end - 1].end, term))
                    i = end
                    break
            else:
                i += 1
        return spans


_Key = tuple[str, ...]  # the forms of a name's words


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    end: int
    form: str
    is_joined: bool  # to the word before, by blanks or a hyphen


def _read(text: str) -> list[_Word]:
    words: list[_Word] = []
    for match in _WORD.finditer(text):
        is_joined = bool(words) and _JOINS.fullmatch(text, words[-1].end, match.start()) is not None
        words.append(_Word(match.start(), match.end(), _form(match.group()), is_joined))
    return words


@cached(2**15, 60)
def _form(word: str) -> str:
    """Return what the spellings of a word share: folded, in the singular; a short word of capitals keeps them."""
    bare = word[:-1] if len(word) > 2 and word[-1] == "s" else word
    if len(bare) > 1 and bare.isupper() and (len(bare) < 6 or any(c.isdigit() for c in bare)):
        return bare
    return singular(fold(word))


def _key(name: str) -> _Key:
    return tuple(word.form for word in _read(name))


def find_terms(sentences: Iterable[str]) -> Terms:
    """Return the domain terms of sentences, sorted; the order of the sentences does not matter.

    A candidate is a run of words of which none is general or mostly a verb, and the last is mostly a noun; or what an
    abbreviation in brackets stands for. A candidate found mostly within longer ones is dropped (C-value).
    """
    kept = list(sentences)
    groups = [group for sentence in kept for group in _groups(sentence)]
    noun, other = _company(groups)
    runs = Counter(run for group in groups for run in _runs(group, noun, other))

    def is_fit(key: _Key) -> bool:
        last = key[-1]
        if last.isupper():
            return len(last) > 1 and fold(last) not in GENERAL_WORDS
        is_seen = noun[last] > max(other[last], len(key) == 1)
        return is_seen and len(last) > 2 and len(set(key)) == len(key) and not (len(last) > 5 and last.endswith("ed"))

    counts: Counter[_Key] = Counter()
    for run, times in runs.items():
        for start in range(len(run)):
            for end in range(start + 1, min(start + MAX_WORDS, len(run)) + 1):
                counts[run[start:end]] += times
    often = {key: n for key, n in counts.items() if n >= max(LEAST_FREQUENCY, len(key) - 1) and is_fit(key)}
    longer: dict[_Key, list[int]] = defaultdict(list)  # frequencies of the candidates that hold a shorter one
    for key, count in often.items():
        for part in {key[i:j] for i in range(len(key)) for j in range(i + 1, len(key) + 1)} - {key}:
            longer[part].append(count)
    keys = {key for key, n in often.items() if n > sum(longer[key]) / max(len(longer[key]), 1)}
    long_forms = _long_forms(kept)
    return _spelt(kept, (keys - long_forms.keys()) | set(long_forms.values()), long_forms)


def _groups(sentence: str) -> list[_Key]:
    """Return the forms of words that nothing but blanks and hyphens stands between."""
    groups: list[list[str]] = []
    for word in _read(sentence):
        if not word.is_joined:
            groups.append([])
        groups[-1].append(word.form)
    return [tuple(group) for group in groups]


def _company(groups: Iterable[_Key]) -> tuple[Counter[str], Counter[str]]:
    """Count how often each word is used as a noun, and how often as a verb or adjective, by the words around it."""
    noun, other = Counter[str](), Counter[str]()
    for group in groups:
        for before, form, after in zip(("", *group), group, (*group[1:], ""), strict=False):
            if form in GENERAL_WORDS or form.isdigit():
                continue
            is_end = not after or after in GENERAL_WORDS
            # `to` is a preposition before what goes on: `to nearby organs`
            is_verb = before in _BEFORE_VERB and (before != "to" or is_end)
            is_quality = is_end and before in _BEFORE_QUALITY
            other[form] += is_verb + (after in _AFTER_VERB) + is_quality
            is_named = before in _BEFORE_NOUN or before not in GENERAL_WORDS
            noun[form] += (
                is_end and not (is_verb or is_quality or after in _AFTER_VERB) and (is_named or after in _AFTER_NOUN)
            )
    return noun, other


def _runs(group: _Key, noun: Mapping[str, int], other: Mapping[str, int]) -> list[_Key]:
    """Return the runs of words of a group that may be in a term."""
    runs: list[list[str]] = [[]]
    for form in group:
        is_general = form in GENERAL_WORDS or form.isdigit() or (len(form) == 1 and not form.isupper())
        is_adverb = len(form) > 4 and form.endswith("ly") and form not in _NOUNS_IN_LY
        is_verb = other[form] > noun[form] or (form.endswith("ing") and noun[form] < 2)
        if is_general or is_adverb or is_verb:
            runs.append([])
        else:
            runs[-1].append(form)
    return [tuple(run) for run in runs if run]


_BRACKETED = re.compile(r"\(\s*([^()]{2,60}?)\s*[),;]")
_SHORT = re.compile(r"(?=.*[^\W\d_])[^\W_][\w.\-/]{1,9}")


def _long_forms(sentences: Iterable[str]) -> dict[_Key, _Key]:
    """Return what abbreviations stand for: of several long forms the most frequent, of those the first by name."""
    counts: dict[_Key, Counter[_Key]] = defaultdict(Counter)
    for sentence in sentences:
        for match in _BRACKETED.finditer(sentence) if "(" in sentence else ():
            inside, before = match[1], sentence[: match.start()].rstrip()
            if _SHORT.fullmatch(inside):
                long = _long_form(inside, before)
                short = inside
            else:  # `BCC (basal cell carcinoma)`
                short = before.rpartition(" ")[2]
                long = _long_form(short, inside) if _SHORT.fullmatch(short) else ""
                long = long if len(long) == len(inside) else ""
            if long and _key(short) != _key(long):
                counts[_key(short)][_key(long)] += 1
    return {short: min(found, key=lambda key: (-found[key], key)) for short, found in counts.items()}


def _long_form(short: str, before: str) -> str:
    """Return the end of a text that an abbreviation stands for, or nothing: its letters stand there in this order.

    The first letter begins a word; the words are at most the letters and 5, or twice as many; one capital is needed.
    """
    short = short[:-1] if short.endswith("s") and short[:-1].isupper() else short
    if not any(c.isupper() for c in short):
        return ""
    letters = [c for c in short.lower() if c.isalnum()]
    at = len(before)
    for number in range(len(letters) - 1, -1, -1):
        at -= 1
        while at >= 0 and not (before[at].lower() == letters[number] and (number or not before[:at][-1:].isalnum())):
            at -= 1
        if at < 0:
            return ""
    words = before[at:].split()
    is_whole = len(before) - at > len(short) and short not in words
    return before[at:] if is_whole and len(words) <= min(len(letters) + 5, 2 * len(letters)) else ""


def _spelt(sentences: Iterable[str], keys: Iterable[_Key], long_forms: Mapping[_Key, _Key]) -> Terms:
    """Return the terms, and the abbreviations of them, as they are mostly spelt."""
    reader = Terms(Term(" ".join(key)) for key in sorted({*keys, *long_forms}))
    spellings: dict[_Key, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        for start, end, term in reader.in_text(sentence):
            spellings[_key(term.text)][" ".join(sentence[start:end].split())] += 1

    def usual(key: _Key) -> str:
        alike = Counter[str]()  # a first capital that a sentence may have made is none if it ever is small
        for spelling, count in spellings[key].items():
            alike[spelling[:1].lower() + spelling[1:]] += count
        best = min(alike, key=lambda s: (-alike[s], sum(c.isupper() for c in s), s))
        return best if best in spellings[key] else best[:1].upper() + best[1:]

    aliases: dict[_Key, list[str]] = defaultdict(list)
    for short, long in long_forms.items():
        if spellings[short]:
            aliases[long].append(usual(short))
    terms = (Term(usual(key), tuple(sorted(aliases[key]))) for key in keys if spellings[key])
    return Terms(sorted(terms, key=lambda term: term.text))
