"""Domain terms of a corpus by statistics, without a model: candidates by the company of words, C-value, abbreviations.

Terms within terms as in Frantzi, Ananiadou and Mima (2000), abbreviations as in Schwartz and Hearst (2003). English.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log, log2

from gnnrag.text.normalise import FUNCTION_WORDS, fold, singular, word_set

MAX_WORDS = 5  # of a term that no abbreviation stands for
LEAST_FREQUENCY = 2  # occurrences of a term that no abbreviation stands for; what stands there once may be chance
_LEAST_NOUN, _LEAST_ALONE = 0.5, 0.7  # least share of a noun's company, of the last word of a term, of its only word
_MOST_VERB = 0.5  # share of a verb's company from which on a word is none of a term
_PRIOR = 3.0  # occurrences that the ending of a word counts for


GENERAL_WORDS = word_set("general_words") | FUNCTION_WORDS  # words of any subject: no terms, and no part of one
_NOUNS_IN_LY = word_set("nouns_in_ly")
# The company of verbs, of nouns and of what describes them: the word before, the word after.
_BEFORE_VERB, _AFTER_VERB = word_set("before_verb"), word_set("after_verb")
_BEFORE_NOUN, _AFTER_NOUN = word_set("before_noun"), word_set("after_noun")
_BEFORE_QUALITY = word_set("before_quality")
_WORD = re.compile(r"[^\W_]+")
_CAPITAL, _SMALL = re.compile(r"\b[A-Z][a-z]+\b"), re.compile(r"\b[a-z]+\b")
_JOINS = re.compile(r"\s*[-‐‑]?\s*")


@dataclass(frozen=True, slots=True)
class Term:
    """A domain term: its usual spelling, how much of a term it is, how often it occurs, its other names."""

    text: str
    score: float
    frequency: int
    aliases: tuple[str, ...] = ()  # abbreviations


class Terms:
    """The terms of a corpus, best first."""

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
    is_plural: bool


def _read(text: str) -> list[_Word]:
    found: list[_Word] = []
    end = -1
    for match in _WORD.finditer(text):
        start, before = match.start(), end
        is_joined = before >= 0 and _JOINS.fullmatch(text, before, start) is not None
        end, word = match.end(), match.group()
        form = _form(word)
        found.append(_Word(start, end, form, is_joined, len(form) != len(word) and word[-1:] == "s"))
    return found


@lru_cache(maxsize=2**17)
def _form(word: str) -> str:
    """Return what the spellings of a word share: folded, in the singular; a short word of capitals keeps them."""
    bare = word[:-1] if len(word) > 2 and word[-1] == "s" else word
    if len(bare) > 1 and bare.isupper() and (len(bare) < 6 or any(c.isdigit() for c in bare)):
        return bare
    return singular(fold(word))


def _key(name: str) -> _Key:
    return tuple(word.form for word in _read(name))


def find_terms(sentences: Iterable[str]) -> Terms:
    """Return the domain terms of sentences; their order does not matter.

    A candidate is a run of words that are not general, of which the last is mostly in the company of a noun and none in
    that of a verb, or what an abbreviation in brackets stands for. How much of a term it is: log(1 + how often it
    stands alone) * log2(1 + words) * share of the noun; what nearly always stands in a longer one is none (C-value).
    """
    kept = list(sentences)
    plurals: Counter[str] = Counter()
    capital = Counter(word for sentence in kept for word in _CAPITAL.findall(sentence))
    small = Counter(word for sentence in kept for word in _SMALL.findall(sentence))
    common = {word for word, count in capital.items() if small[word.lower()] >= count}
    groups = [group for sentence in kept for group in _groups(sentence, common, plurals)]
    company = _Company(groups, plurals)
    runs = Counter(run for group in groups for run in company.runs(group))
    long_forms = _long_forms(kept)
    standing = _standing(runs, _candidates(runs, company))
    own = {key: count for key, count in standing.items() if count >= max(LEAST_FREQUENCY, len(key) - 1)}
    for short, long in long_forms.items():
        own.setdefault(long, 1)
        own.pop(short, None)
    doubtful = [key for key in own if len(key) == 1 and key[0].isupper() and fold(key[0]) in GENERAL_WORDS]
    for key in doubtful:  # `NOT`, unless an abbreviation is made of it
        del own[key]
    return _spelt(kept, own, long_forms, company)


def _groups(sentence: str, common: Collection[str], plurals: Counter[str]) -> Iterator[_Key]:
    """Yield the forms of words that nothing but blanks and hyphens stands between; count those in the plural.

    A capital of a `common` word, one that is mostly written small, begins another group after a small letter: there a
    heading or a line of a list begins that nothing else tells (`radiation therapy Clinical trials`).
    """
    group: list[str] = []
    before = ""
    for word in _read(sentence):
        spelt = sentence[word.start : word.end]
        is_start = not word.is_joined or (spelt in common and before.islower())
        before = spelt
        if is_start and group:
            yield tuple(group)
            group = []
        group.append(word.form)
        plurals[word.form] += word.is_plural
    if group:
        yield tuple(group)


class _Company:
    """Tells nouns from verbs and qualities by the words around them, over a whole corpus.

    Where little is seen of a word, the words of its ending speak for it.
    """

    def __init__(self, groups: Iterable[_Key], plurals: Counter[str]) -> None:
        self.noun, self.verb, self.quality = Counter[str](), Counter[str](), Counter[str]()
        self.listed = Counter[str]()  # what stands between commas, or is a line, says half as much
        for group in groups:
            for before, form, after in zip(("", *group), group, (*group[1:], ""), strict=False):
                if form not in GENERAL_WORDS and not form.isdigit():
                    self._count(before, form, after)
        for form, count in plurals.items():  # `these are neutrophils`: no quality has a plural
            turned = min(count, self.quality[form])
            self.quality[form] -= turned
            self.noun[form] += turned
        for form, count in self.listed.items():
            self.noun[form] += count // 2
        seen: dict[str, list[float]] = defaultdict(list)
        for form in sorted({*self.noun, *self.verb, *self.quality}):
            if (total := self._seen(form)) >= 2:
                seen[form[-3:]].append(self.noun[form] / total)
        shares = [share for found in seen.values() for share in found]
        self._mean = sum(shares) / len(shares) if shares else 0.5
        self._prior = {ending: (sum(found) + 2 * self._mean) / (len(found) + 2) for ending, found in seen.items()}

    def _count(self, before: str, form: str, after: str) -> None:
        is_end = not after or after in GENERAL_WORDS
        # `to` is a preposition before what goes on: `to nearby organs`
        is_verb = before in _BEFORE_VERB and (before != "to" or is_end)
        self.verb[form] += is_verb + (after in _AFTER_VERB)
        if is_end and after not in _AFTER_VERB:
            is_quality = before in _BEFORE_QUALITY
            self.quality[form] += is_quality
            is_named = before in _BEFORE_NOUN or (before != "" and before not in GENERAL_WORDS)
            self.noun[form] += (is_named and not is_quality and not is_verb) + (after in _AFTER_NOUN and not is_quality)
            self.listed[form] += before == ""

    def _seen(self, form: str) -> int:
        return self.noun[form] + self.verb[form] + self.quality[form]

    def noun_share(self, form: str) -> float:
        """Return how much of a noun a word is, 0 to 1; one of capitals is a name."""
        if form.isupper():
            return 1.0
        prior = self._prior.get(form[-3:], self._mean)
        return (self.noun[form] + _PRIOR * prior) / (self._seen(form) + _PRIOR)

    def is_verb(self, form: str) -> bool:
        """Tell whether a word is mostly a verb; `diagnosing` is one unless it is seen as a noun."""
        if form.endswith("ing") and self.noun[form] < 2:
            return True
        return self.verb[form] / (self._seen(form) + _PRIOR) >= _MOST_VERB

    def runs(self, group: _Key) -> Iterator[_Key]:
        """Yield the runs of words of a group that may be in a term."""
        run: list[str] = []
        for form in (*group, "the"):
            if self._is_apart(form):
                if run:
                    yield tuple(run)
                run = []
            else:
                run.append(form)

    def _is_apart(self, form: str) -> bool:
        if form in GENERAL_WORDS or form.isdigit() or (len(form) == 1 and not form.isupper()):
            return True
        is_adverb = len(form) > 4 and form.endswith("ly") and form not in _NOUNS_IN_LY
        return is_adverb or self.is_verb(form)


def _candidates(runs: Mapping[_Key, int], company: _Company) -> set[_Key]:
    """Return the parts of runs that may be terms and have a positive C-value: not only ever inside others."""
    counts: Counter[_Key] = Counter()
    is_fit: dict[_Key, bool] = {}
    for run, times in runs.items():
        for start in range(len(run)):
            for end in range(start + 1, min(start + MAX_WORDS, len(run)) + 1):
                part = run[start:end]
                if part not in is_fit:
                    is_fit[part] = _is_fit(part, company)
                if is_fit[part]:
                    counts[part] += times
    often = {key: count for key, count in counts.items() if count >= LEAST_FREQUENCY}
    within: Counter[_Key] = Counter()
    holders: Counter[_Key] = Counter()
    for key, count in often.items():
        ends = range(1, len(key) + 1)
        for part in {key[start:end] for end in ends for start in range(end) if end - start < len(key)} & often.keys():
            within[part] += count
            holders[part] += 1
    return {key for key, count in often.items() if count > within[key] / max(holders[key], 1)}


def _is_fit(key: _Key, company: _Company) -> bool:
    last = key[-1]
    least, fewest = (_LEAST_ALONE, 3) if len(key) == 1 else (_LEAST_NOUN, 2)
    is_short = len(last) < (2 if last.isupper() else fewest)
    is_seen = len(key) > 1 or last.isupper() or company.noun[last] > 1
    is_participle = len(last) > 5 and last.endswith("ed")
    return (
        is_seen
        and not is_participle
        and not is_short
        and len(set(key)) == len(key)
        and company.noun_share(last) >= least
    )


def _standing(runs: Mapping[_Key, int], candidates: set[_Key]) -> Counter[_Key]:
    """Count how often each candidate stands in runs outside a longer one."""
    found: Counter[_Key] = Counter()
    for run, times in runs.items():
        start = 0
        while start < len(run):
            ends = range(min(start + MAX_WORDS, len(run)), start, -1)
            end = next((end for end in ends if run[start:end] in candidates), 0)
            if end:
                found[run[start:end]] += times
            start = end or start + 1
    return found


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
        while at >= 0 and not (before[at].lower() == letters[number] and (number or _begins(before, at))):
            at -= 1
        if at < 0:
            return ""
    words = before[at:].split()
    is_whole = len(before) - at > len(short) and short not in words
    return before[at:] if is_whole and len(words) <= min(len(letters) + 5, 2 * len(letters)) else ""


def _begins(text: str, at: int) -> bool:
    return at == 0 or not text[at - 1].isalnum()


def _spelt(
    sentences: Iterable[str], own: Mapping[_Key, int], long_forms: Mapping[_Key, _Key], company: _Company
) -> Terms:
    """Return the terms as they are mostly spelt, with the occurrences of their abbreviations."""
    keys = Terms(Term(" ".join(key), 0.0, 0) for key in sorted(own))
    shorts = {short: keys.get(" ".join(long)) for short, long in long_forms.items()}
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    reader = Terms([*keys.terms, *(Term(" ".join(short), 0.0, 0) for short in sorted(long_forms))])
    for sentence in sentences:
        for start, end, term in reader.in_text(sentence):
            spellings[term.text][" ".join(sentence[start:end].split())] += 1
    aliases: dict[str, dict[str, int]] = defaultdict(dict)
    for short, stood_for in shorts.items():
        if stood_for and (found := spellings.get(" ".join(short))):
            aliases[stood_for.text][_usual(found)] = found.total()
    terms = []
    for term in keys.terms:
        key, others = _key(term.text), aliases.get(term.text, {})
        if spelt := spellings.get(term.text):
            count = spelt.total() + sum(others.values())
            score = log(1 + count) * log2(1 + len(key)) * company.noun_share(key[-1])
            terms.append(Term(_usual(spelt), round(score, 6), count, tuple(sorted(others))))
    return Terms(sorted(terms, key=lambda t: (-t.score, t.text)))


def _usual(spellings: Counter[str]) -> str:
    """Return the most frequent spelling; a first capital that a sentence may have made is none if it ever is small."""
    alike: Counter[str] = Counter()
    for spelling, count in spellings.items():
        alike[spelling[:1].lower() + spelling[1:]] += count
    best = min(alike, key=lambda s: (-alike[s], sum(c.isupper() for c in s), s))
    return best if best in spellings else best[:1].upper() + best[1:]
