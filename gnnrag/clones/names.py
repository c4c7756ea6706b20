"""New names for the words of a set: one-to-one within a clone, and no coined word twice in all clones together.

Common first names are exchanged among themselves. Every other word is coined of parts of the set's own names: a head
(`Tark`) that begins with the same letter, so that initials and acronyms stay true, and a tail (`ovsky`) that is typical
of the same kind of name. A head ends where the second group of vowels begins, so that a word can be cut in one way only
and different numbers spell different words: nothing has to be remembered of the clones before.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import unicodedata
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gnnrag.errors import GnnragError

Kind = Literal["first", "surname", "place", "country", "other"]
LETTERS = re.compile(r"[^\W\d_]+")  # a word is a run of letters

COUNTRY, PEOPLE = "ia", ("ian", "iot", "iard", "ienne", "iesque")  # endings of a country and of its adjectives
PLURAL = "s"
_ENDINGS = (COUNTRY, *PEOPLE, PLURAL)  # no coined word has one of itself

_CUT = re.compile(r"([^aeiou]*[aeiou]+[^aeiou]+)([aeiou][a-z]*)")
_MID = re.compile(r"[aeiou]+[^aeiou]+")
_SHORT_TAIL = re.compile(r"[aeiou]+[^aeiou]*(?:[aeiou]+[^aeiou]*)?")  # of one or two groups of vowels
_END = re.compile(r"[aeiou]+[^aeiou]*")
_HARD = re.compile(r"[^aeiou]{4}|(.)\1\1|[^aeiou]{3}$")
_FEW_HEADS, _LONG = 24, 6
_HEADS = [f"{vowel}{end}" for vowel in "aeiou" for end in ("l", "n", "r", "d", "m", "v", "k", "lt", "nd", "rs")]
_MIDS = tuple(f"{vowel}{consonant}" for vowel in "aeiou" for consonant in "bdglmnrstv")
_COMMON_MIDS = (
    "al",
    "an",
    "ar",
    "el",
    "en",
    "er",
    "il",
    "in",
    "ol",
    "om",
    "or",
    "ul",
    "un",
    "ad",
    "ev",
    "ig",
    "ob",
    "ut",
)
_TAILS: dict[Kind, tuple[str, ...]] = {
    "first": ("a", "e", "ette", "ine", "ora", "isa", "elo", "ik"),
    "surname": ("er", "ov", "ic", "ez", "en", "ay", "ovsky", "ero"),
    "place": ("ona", "ovo", "urg", "ond", "ing", "ora", "iton", "omb"),
    "other": ("o", "ar", "ex", "ol", "um", "ent", "al", "or"),
}
_MARKS = ("", "\u0301", "\u0300", "\u0302", "\u0308", "\u0304", "\u0306", "\u0303")
MAX_SPELLINGS = len(_MARKS) ** 2  # a coined word has two vowels or more


@dataclass(frozen=True, slots=True)
class Word:
    """A written form that is replaced.

    `key` is its folded form and `kind` what it is a part of. `pool` names the first names among which it is exchanged
    (empty: it is coined). What is spelt after another word (plurals, demonyms) has that word's stem in `stem` and its
    own ending in `ending`.
    """

    form: str
    key: str
    kind: Kind = "other"
    pool: str = ""
    stem: str = ""
    ending: str = ""


class Namer:
    """The new names of every clone.

    Args:
        words: what is replaced; the order of the names that are returned. One key in one way: with one kind and stem.
        taken: folded words of the set; no coined word is one of them.
        seed: decides all names.
    """

    def __init__(self, words: Sequence[Word], taken: Collection[str], seed: int) -> None:
        self.words, self.seed = words, seed
        self._pools: dict[str, list[str]] = defaultdict(list)
        for pool, key in sorted({(word.pool, word.key) for word in words if word.pool}):
            self._pools[pool].append(key)
        coined = [word for word in words if not word.pool]
        self._parts = _Parts.of({(word.key, word.kind) for word in coined})
        stems: dict[tuple[str, Kind], list[str]] = defaultdict(list)
        for stem, kind in sorted({(word.stem or word.key, word.kind) for word in coined}):
            stems[_initial(stem), kind].append(stem)
        self._stems = dict(stems)
        taken = frozenset(taken) | {t.removesuffix(e) for t in taken for e in _ENDINGS if t.endswith(e)}
        by_letter: dict[str, list[str]] = defaultdict(list)
        for word in taken:
            by_letter[word[:1]].append(word)
        self._codes = {
            bucket: _Code(self._parts.of_bucket(*bucket), by_letter[bucket[0]], f"{seed} {bucket}") for bucket in stems
        }
        self._spellings = _spellings(words)

    def names(self, clone: int) -> list[str]:
        """Return the name that each word has in a clone, in the order of `words`.

        Raises GnnragError where the set has too few names for so many clones.
        """
        exchanged: dict[str, str] = {}
        for pool, keys in self._pools.items():
            mixed = list(keys)
            random.Random(f"{self.seed} {clone} {pool}").shuffle(mixed)
            exchanged |= zip(keys, mixed, strict=True)
        coined: dict[str, str] = {}
        for bucket, stems in self._stems.items():
            speller = self._codes[bucket]
            coined |= {stem: speller.spell(clone * len(stems) + i) for i, stem in enumerate(stems)}
        return [
            _styled(exchanged[w.key] if w.pool else coined[w.stem or w.key] + w.ending, style, number)
            for w, (style, number) in zip(self.words, self._spellings, strict=True)
        ]

    def restore(self, text: str, names: Sequence[str]) -> str:
        """Return the original of a clone's text, given its names; GnnragError: they are not one-to-one."""
        back = {name: word.form for name, word in zip(names, self.words, strict=True)}
        if len(back) != len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise GnnragError(
                f"two words become {twice!r}, so that a clone cannot be told from its original; report it"
            )
        return LETTERS.sub(lambda match: back.get(match[0], match[0]), text)


def _initial(key: str) -> str:
    """Return the first letter of the new name: the same, or one of `a` to `z` for a word of another script."""
    first = key[:1]
    return first if "a" <= first <= "z" else "abcdefghijklmnoprstuvwz"[sum(key.encode()) % 23]


@dataclass(frozen=True)
class _Parts:
    """What names are made of: heads by letter, tails by kind (a tail belongs to one kind), middle syllables.

    `longer` are tails of two groups of vowels that are none of `tails`, and `ends` those of one group.
    """

    heads: Mapping[str, list[str]]
    tails: Mapping[Kind, list[str]]
    longer: Mapping[Kind, list[str]]
    ends: Mapping[Kind, list[str]]
    mids: list[str]

    @classmethod
    def of(cls, keys: Iterable[tuple[str, Kind]]) -> _Parts:
        """Cut names up; rare tails and heads are left out where there are enough others."""
        heads: dict[str, Counter[str]] = defaultdict(Counter)
        tails: dict[str, Counter[Kind]] = defaultdict(Counter)
        mids = Counter[str](_COMMON_MIDS)
        for key, kind in sorted(keys):
            cut = _CUT.fullmatch(key) if key.isascii() and not _HARD.search(key) and len(key) > 3 else None
            if cut is None:
                continue
            if len(cut[1]) < _LONG:
                heads[cut[1][0]][cut[1]] += 1
            if len(cut[2]) < _LONG and _SHORT_TAIL.fullmatch(cut[2]) and not cut[2].endswith(_ENDINGS):
                tails[cut[2]]["other" if kind == "country" else kind] += 1
            if mid := _MID.match(cut[2]):
                mids[mid[0]] += 1 if len(mid[0]) < 4 else 0
        by_kind: dict[Kind, list[str]] = {kind: [] for kind in _TAILS}
        owners = {tail: kind for kind, own in _TAILS.items() for tail in own if tail not in tails}
        size = Counter(kind for counts in tails.values() for kind in counts.elements())
        for tail, counts in tails.items():
            if counts.total() > 1:
                owners[tail] = max(sorted(counts), key=lambda kind: counts[kind] / size[kind])
        for tail in sorted(owners):
            by_kind[owners[tail]].append(tail)
        ends = {
            kind: [tail for tail in own if len(tail) < _LONG - 1 and _END.fullmatch(tail)]
            for kind, own in by_kind.items()
        }
        longer = {kind: sorted({m + e for m in _MIDS for e in own} - owners.keys()) for kind, own in ends.items()}
        by_letter = {letter: _enough(counts) for letter, counts in heads.items()}
        return cls(by_letter, by_kind, longer, ends, sorted(m for m, n in mids.items() if n > 1 or m in _COMMON_MIDS))

    def of_bucket(self, letter: str, kind: Kind) -> list[list[list[str]]]:
        """Return the parts of the words of a kind with this first letter, the shorter words first."""
        heads, mids = self.heads.get(letter, []), list(_MIDS)
        if len(heads) < _FEW_HEADS:
            heads = sorted({*heads, *_made_heads(letter)})
        if kind == "country":  # a stem, to which an ending is added
            return [[heads, self.mids], [heads, mids, mids]]
        return [[heads, self.tails[kind]], [heads, self.longer[kind]], [heads, mids, mids, self.ends[kind]]]


def _enough(counts: Counter[str]) -> list[str]:
    common = [part for part, count in counts.items() if count > 1]
    return sorted(common if len(common) >= _FEW_HEADS else counts)


def _made_heads(letter: str) -> list[str]:
    if letter in "aeiou":
        return [letter + head[1:] for head in _HEADS]
    return [("qu" if letter == "q" else letter) + head for head in _HEADS]


class _Code:
    """Spells the numbers from 0 on as different words that are not taken: first the shorter, then the longer ones."""

    def __init__(self, lengths: list[list[list[str]]], taken: Collection[str], seed: str) -> None:
        self._stages = []
        for number, parts in enumerate(lengths):
            size = math.prod(map(len, parts))
            places = [{part: i for i, part in enumerate(own)} for own in parts]
            barred = sorted({n for word in taken if (n := _number(word, places)) is not None})
            draw = int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:16], "big")
            step = int(size * 0.618) + draw % (size // 9 + 1) + 1  # neither neighbours nor words of one head in a row
            while math.gcd(step, size) > 1:
                step += 1
            self._stages.append((parts, size, barred, frozenset(barred), step, draw % size))

    def spell(self, number: int) -> str:
        """Return the word of a number; GnnragError: there are not so many."""
        for parts, size, barred, barred_set, step, start in self._stages:
            if number >= size - len(barred):
                number -= size - len(barred)
                continue
            at = _skipping(number, barred)
            while True:  # a permutation of all numbers, walked until it meets one that is not barred
                at = (at * step + start) % size
                if at not in barred_set:
                    break
            word = ""
            for own in reversed(parts):
                at, place = divmod(at, len(own))
                word = own[place] + word
            return word
        raise GnnragError("the set has too few names of their own for so many clones; ask for fewer (clones=N)")


def _skipping(number: int, barred: Sequence[int]) -> int:
    """Return the member of that number among those that are not barred; `barred` ascends."""
    at, seen = number, -1
    while (below := bisect_right(barred, at)) != seen:
        at, seen = number + below, below
    return at


def _number(word: str, places: Sequence[Mapping[str, int]]) -> int | None:
    """Return the number of a word that consists of such parts, else None; it can be cut in one way at most."""
    first, *rest = places
    if not rest:
        return first.get(word)
    for end in range(1, len(word)):
        if (place := first.get(word[:end])) is not None and (inner := _number(word[end:], rest)) is not None:
            return place * math.prod(map(len, rest)) + inner
    return None


Style = Literal["lower", "upper", "capital"]


def style_of(form: str) -> Style:
    """Return how a word is written."""
    if form.islower():
        return "lower"
    return "upper" if len(form) > 1 and form.isupper() else "capital"


def _spellings(words: Sequence[Word]) -> list[tuple[Style, int]]:
    """Return style and number of each form among those of its word in one style (`Jose`, `José`)."""
    seen: Counter[tuple[str, str, Style]] = Counter()
    found = []
    for word in words:
        style = style_of(word.form)
        found.append((style, seen[word.key, word.pool, style]))
        seen[word.key, word.pool, style] += 1
    return found


def _styled(word: str, style: Style, number: int) -> str:
    """Write a word in a style; forms that differ in accents alone (`number`) differ in accents again."""
    text = word if number == 0 else _accented(word, number)
    if style == "lower":
        return text
    return text.upper() if style == "upper" else text[:1].upper() + text[1:]


def _accented(word: str, number: int) -> str:
    letters = list(word)
    for at in [i for i, letter in enumerate(letters) if letter in "aeiou"]:
        number, mark = divmod(number, len(_MARKS))
        if mark:
            letters[at] = unicodedata.normalize("NFC", letters[at] + _MARKS[mark])
    return "".join(letters)


def first_names(keys: Mapping[str, str], at_least: int = 3) -> dict[str, str]:
    """Return the pool of each first name, given whether it is a man's or a woman's: those with the same first letter.

    Names of which there are fewer than `at_least` alike have no pool.
    """
    pools = {key: f"{gender} {key[0]}" for key, gender in keys.items()}
    size = Counter(pools.values())
    return {key: pool for key, pool in pools.items() if size[pool] >= at_least}
