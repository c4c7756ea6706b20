"""Domain terms of a corpus by statistics, without a model: C-value (Frantzi, Ananiadou and Mima 2000). English."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gnnrag.text.normalise import FUNCTION_WORDS, WORD, cached, fold, singular, word_set

MAX_WORDS = 5  # of a term
LEAST_FREQUENCY = 2  # occurrences of a term; what stands there once may be chance

GENERAL_WORDS = word_set("general_words") | FUNCTION_WORDS  # words of any subject: no terms, and no part of one
_NOUNS_IN_LY = word_set("nouns_in_ly")
# Words that stand before or after a verb, before or after a noun, and before an adjective.
_BEFORE_VERB, _AFTER_VERB = word_set("before_verb"), word_set("after_verb")
_BEFORE_NOUN, _AFTER_NOUN = word_set("before_noun"), word_set("after_noun")
_BEFORE_QUALITY = word_set("before_quality")
_WORD = re.compile(WORD)
_JOINS = re.compile(r"\s*[-‐‑]?\s*")


class Terms:
    """Domain terms in their usual spelling."""

    def __init__(self, terms: Iterable[str]) -> None:
        self.terms = tuple(terms)
        self._of: dict[_Key, str] = {}
        self._longest: dict[str, int] = {}  # words of the longest term that begins with a word
        for term in self.terms:
            key = _key(term)
            if key and self._of.setdefault(key, term) is term:
                self._longest[key[0]] = max(self._longest.get(key[0], 0), len(key))

    def in_text(self, text: str) -> list[tuple[int, int, str]]:
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

    A candidate is a run of words of which none is general or mostly a verb, and the last is mostly a noun. One found
    mostly within longer ones is dropped (C-value).
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
    return _spelt(kept, keys)


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


def _spelt(sentences: Iterable[str], keys: Iterable[_Key]) -> Terms:
    """Return the terms as they are mostly spelt."""
    reader = Terms(" ".join(key) for key in sorted(keys))
    spellings: dict[_Key, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        for start, end, term in reader.in_text(sentence):
            spellings[_key(term)][" ".join(sentence[start:end].split())] += 1

    def usual(counts: Counter[str]) -> str:
        alike = Counter[str]()  # a first capital that a sentence may have made is none if it ever is small
        for spelling, count in counts.items():
            alike[spelling[:1].lower() + spelling[1:]] += count
        best = min(alike, key=lambda s: (-alike[s], sum(c.isupper() for c in s), s))
        return best if best in counts else best[:1].upper() + best[1:]

    return Terms(sorted(map(usual, spellings.values())))
