"""Which words of a set are parts of names, and its rows as templates that are filled with other names."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from gnnrag.clones.names import (
    COUNTRY,
    LETTERS,
    MAX_SPELLINGS,
    PEOPLE,
    PLURAL,
    Kind,
    Word,
    first_names,
    style_of,
)
from gnnrag.extract.entity_types import described_type, named_type, noun_type
from gnnrag.text.normalise import COUNTRY_OF, FUNCTION_WORDS, drop_qualifier, fold
from gnnrag.types import Passage

# The closed list of what keeps its name: countries and their people and languages, continents, calendar, creeds,
# abbreviations and Roman numerals.
_WORDS = """
january february march april may june july august september october november december jan feb mar apr jun jul aug sep
sept oct nov dec monday tuesday wednesday thursday friday saturday sunday christmas easter
africa african asia asian europe european antarctica oceania arctic antarctic atlantic pacific mediterranean latin
soviet christian christianity catholic protestant orthodox anglican lutheran methodist baptist jewish muslim islam
islamic hindu buddhist sikh bible quran god jesus christ
sir dame lord lady don mme mr mrs ms dr jr sr st ste inc ltd co corp llc plc vol no bros lt gen col sgt capt rev prof
gov sen mt ft vs esq ph ad bc ii iii iv vi vii viii ix xi xii xiii xiv xv xvi xvii xviii xix xx xxi
"""
_NAMES = [name for item in COUNTRY_OF.items() for name in item]
KEPT = frozenset(_WORDS.split()) | {fold(word) for name in _NAMES for word in LETTERS.findall(name)}
_TEACHING = ("ism", "isms", "ist", "ists")  # `Marxism`: of a name, but a notion
_ENDS_SENTENCE = re.compile(r"[.!?\n]")
_HE, _SHE = re.compile(r"\b(?:he|his|him)\b", re.I), re.compile(r"\b(?:she|her|actress|daughter)\b", re.I)
_JOINT = 4  # characters between two words of one name, at most
_RARE = 20  # a name is written with a capital so many times as often as without
_OPENING = 500  # characters in which a passage says what it is about
_TITLE = 200  # characters of a title or an answer, at most
_PERSONAL, _PLACE = "person", "location"
_OWN_NAMES = frozenset(("person", "work", "organization", "location", "event", "award", "product"))

_folded = lru_cache(1 << 16)(fold)


@dataclass(frozen=True, slots=True)
class Token:
    """A word in a text, which `begins` a sentence or not."""

    form: str
    key: str
    start: int
    end: int
    begins: bool
    glued: bool  # to a digit before it: `1st`

    @property
    def is_capital(self) -> bool:
        """Whether it is written with a capital first letter."""
        return self.form[0].isupper()


@lru_cache(64)  # what a passage is about is found first, and then its words
def tokenise(text: str) -> tuple[Token, ...]:
    """Return the words of a text."""
    found: list[Token] = []
    end, form = 0, ""
    for match in LETTERS.finditer(text):
        between = text[end : match.start()]
        # The full stop of an initial or of `St.` ends no sentence.
        is_short = len(form) == 1 or (_folded(form) in KEPT and len(form) < 4 and "\n" not in between)
        begins = not found or bool(_ENDS_SENTENCE.search(between) and not (is_short and between[:1] == "."))
        glued = match.start() > 0 and text[match.start() - 1].isdigit()
        form, end = match[0], match.end()
        found.append(Token(form, _folded(form), match.start(), end, begins, glued))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A title that has no word of its own: the word at `at` is replaced wherever the whole is meant."""

    keys: tuple[str, ...]
    capitals: tuple[bool, ...]
    at: int
    type: str

    @property
    def is_notion(self) -> bool:
        """Whether it is written small in a sentence: `Symphonic poem`; `Coffee`, which is of no type."""
        return not any(self.capitals[1:]) and (len(self.keys) > 1 or self.type not in _OWN_NAMES)


@dataclass
class Meant:
    """What a text is known to be about: phrases of its own, and words that stand for a person by themselves.

    In one that `asks`, names may be written small.
    """

    phrases: set[tuple[str, ...]] = field(default_factory=set)
    people: set[str] = field(default_factory=set)
    asks: bool = False


def asked_of(gold: Sequence[Meant]) -> Meant:
    """Return what a question is about, given its gold passages."""
    return Meant({phrase for m in gold for phrase in m.phrases}, {key for m in gold for key in m.people}, asks=True)


class Lexicon:
    """The words of a set that are parts of names.

    Args:
        passages: the corpus.
        texts: all other texts: questions, answers.
    """

    def __init__(self, passages: Sequence[Passage], texts: Iterable[str]) -> None:
        self._small, self._large = Counter[str](), Counter[str]()
        self._forms: dict[str, Counter[str]] = defaultdict(Counter)
        self._kinds: dict[str, Counter[Kind]] = defaultdict(Counter)
        self._gender: dict[str, Counter[str]] = defaultdict(Counter)
        titles = [(tokenise(drop_qualifier(p.title)), _type_of(p), p.text) for p in passages]
        for passage in passages:
            self._count(tokenise(passage.text))
            self._see(tokenise(passage.title))
        for text in texts:
            self._see(tokenise(text))
        for tokens, kind, text in titles:
            self._type(tokens, kind, text)
        self._sure = {key for key in self._large if self._is_sure(key)}
        plurals = {key for key in self._forms if key.removesuffix(PLURAL) in self._sure and len(key) > 4}
        self._sure |= {key for key in plurals if not self._small[key] and not is_kept(key)}  # `the Braggs`
        self._renamed = dict(self._countries(tokens for tokens, _, _ in titles))
        self.pools = first_names({key: gender for key in sorted(self._gender) if (gender := self._first(key))})
        self.phrases: dict[str, list[Phrase]] = defaultdict(list)
        for phrase in dict.fromkeys(self._phrase(tokens, kind) for tokens, kind, _ in titles):
            if phrase is not None:
                self.phrases[phrase.keys[0]].append(phrase)
        for same in self.phrases.values():
            same.sort(key=lambda phrase: -len(phrase.keys))
        self.words: list[Word] = []
        self._places: dict[tuple[str, bool], int] = {}

    @property
    def taken(self) -> frozenset[str]:
        """All folded words of the set."""
        return frozenset(self._forms)

    def _see(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            self._forms[token.key][token.form] += 1

    def _count(self, tokens: Sequence[Token]) -> None:
        self._see(tokens)
        before = None
        for token in tokens:
            if not token.is_capital:
                self._small[token.key] += 1
            elif not token.begins:
                self._large[token.key] += 1
                if before is not None and before.key in ("in", "at", "near"):
                    self._kinds[token.key]["place"] += 1
                elif before is not None and before.is_capital and len(before.key) == 1:  # after an initial
                    self._kinds[token.key]["surname"] += 1
            before = token

    def _type(self, tokens: Sequence[Token], kind: str, text: str) -> None:
        """Learn from a title and its type of what kind its words are."""
        for i, token in enumerate(tokens):
            if token.is_capital:
                self._large[token.key] += 1
                own: Kind = "place" if kind == _PLACE else "other"
                if kind == _PERSONAL and len(tokens) > 1:
                    own = "surname" if i else "first"
                self._kinds[token.key][own] += 3
        if kind == _PERSONAL and len(tokens) > 1:
            he, she = len(_HE.findall(text)), len(_SHE.findall(text))
            self._gender[tokens[0].key]["she" if she > he else "he"] += 1

    def _is_sure(self, key: str) -> bool:
        """Tell whether a word is a part of a name wherever it stands, whatever its case."""
        if len(key) < 2 or key in FUNCTION_WORDS or is_kept(key) or key.endswith(_TEACHING) or not _is_latin(key):
            return False
        if self._small[key] * _RARE > self._large[key] or noun_type([key]):
            return False
        if not any(form.upper() != form for form in self._forms[key]):  # in capitals alone: NASA
            return False
        return not any(self._small[form] > 1 for form in _inflected(key))

    def _first(self, key: str) -> str:
        """Return whose name a first name is if it can be exchanged for others, else nothing."""
        forms, gender = self._forms[key], self._gender[key]
        is_plain = key.isascii() and len({style_of(form) for form in forms}) == len(forms)
        is_first = key in self._sure and self._kind(key) == "first"
        return gender.most_common(1)[0][0] if is_plain and is_first and gender.total() > 1 else ""

    def _kind(self, key: str) -> Kind:
        kinds = self._kinds[key]
        return max(sorted(kinds), key=lambda kind: kinds[kind]) if kinds else "other"

    def _countries(self, titles: Iterable[Sequence[Token]]) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield stem and ending of each word of the countries that are titles themselves."""
        for key in sorted({tokens[-1].key for tokens in titles if " ".join(t.form for t in tokens) in COUNTRY_OF}):
            names = [name for name in COUNTRY_OF if fold(name).split()[-1] == key and COUNTRY_OF[name] == name]
            if not names or self._small[key]:  # Republic, Kingdom
                continue
            yield key, (key, COUNTRY)
            own = {fold(n) for n, country in COUNTRY_OF.items() if country in names and " " not in n and n != country}
            for people, ending in zip(sorted(w for w in own if w[:2] == key[:2] and w != key), PEOPLE, strict=False):
                yield people, (key, ending)
                yield people + PLURAL, (key, ending + PLURAL)

    def _is_coined(self, key: str) -> bool:
        return key in self._renamed or (key in self._sure and key not in self.pools)

    def _phrase(self, tokens: Sequence[Token], kind: str) -> Phrase | None:
        """Return the phrase for a title in which no word is coined anyway; None where one is, or where none can be."""
        own = _core(tokens)
        if any(self._is_coined(token.key) for token in own if not token.glued):
            return None
        free = [i for i, token in enumerate(own) if not token.glued]
        options = [i for i in free if len(own[i].key) > 1] or free
        if not options:
            return None
        at = min(options, key=lambda i: self._cost(own, i, kind))
        return Phrase(tuple(t.key for t in own), tuple(t.is_capital for t in own), at, kind)

    def _cost(self, tokens: Sequence[Token], at: int, kind: str) -> tuple[Any, ...]:
        """Rank the words of a title by how odd it is to replace them, least first."""
        key, form = tokens[at].key, tokens[at].form
        is_odd = key in FUNCTION_WORDS or _ROMAN.fullmatch(form) is not None
        is_general = bool(noun_type([key])) or form.isupper()
        if kind == _PERSONAL:
            is_behind = any(token.key in ("of", "the", "de") for token in tokens[:at])
            return is_odd, is_kept(key) and at == 0, is_general, is_behind, -at
        count = self._forms[key].total()
        return is_odd, is_kept(key), is_general, at == 0 and not form.isupper(), count, -at

    # --------------------------------------------------------------------------------------------- texts as templates
    def slots(self, text: str, meant: Meant) -> Iterator[tuple[Token, int]]:
        """Yield the words of a text that are replaced, with the place of each in `words`.

        Adds to `meant.people` the words that stand for the people of whom the text tells.
        """
        tokens = tokenise(text)
        whole = tuple(token.key for token in _core(tokenise(drop_qualifier(text)))) if len(text) < _TITLE else ()
        forced = set[int]()
        for i in range(len(tokens)):
            for phrase in self.phrases.get(tokens[i].key, ()):
                if tuple(token.key for token in tokens[i : i + len(phrase.keys)]) == phrase.keys and (
                    phrase.keys == whole or self._is_meant(phrase, text, tokens, i, meant)
                ):
                    forced.add(i + phrase.at)
                    if phrase.type == _PERSONAL:
                        meant.people.add(phrase.keys[phrase.at])
                    break
        for i, token in enumerate(tokens):
            is_meant = token.key in meant.people and token.is_capital
            if i in forced or (not token.glued and (is_meant or token.key in self._sure or token.key in self._renamed)):
                place = self._place(token, is_forced=i in forced or is_meant)
                if place is not None:
                    yield token, place

    def _is_meant(self, phrase: Phrase, text: str, tokens: Sequence[Token], i: int, meant: Meant) -> bool:
        """Tell whether the words of a phrase, which stand at `i`, are used as the title that it is."""
        found = tokens[i : i + len(phrase.keys)]
        between = [text[one.end : other.start] for one, other in pairwise(found)]
        if found[phrase.at].glued or any(len(gap) > _JOINT or "\n" in gap for gap in between):
            return False
        is_own = phrase.keys in meant.phrases
        is_written = all(token.is_capital for token, capital in zip(found, phrase.capitals, strict=True) if capital)
        if len(found) > 1:
            return is_written or (is_own and (phrase.is_notion or meant.asks))
        word = found[0]
        if len(word.key) == 1 and not text[word.end : word.end + 1].isdigit():  # `G20` is no initial
            return False
        if phrase.is_notion and is_own and word.key not in FUNCTION_WORDS:
            return True
        if i == 0 and is_own:
            return True
        beside = [*tokens[max(0, i - 1) : i], *tokens[i + 1 : i + 2]]
        beside = [t for t in beside if t.start - word.end < 2 and word.start - t.end < 2]
        is_alone = not any(t.is_capital or len(t.key) == 1 for t in beside)
        is_first = word.begins and not (is_own and word.key not in FUNCTION_WORDS)
        return is_written and is_alone and not is_first

    def _place(self, token: Token, is_forced: bool) -> int | None:
        """Return the place of a form among `words`, where it is put when it is new; None: it has too many forms."""
        where = (token.form, is_forced)
        if where not in self._places:
            spellings = self._forms[token.key]
            if len(spellings) > MAX_SPELLINGS and token.form not in dict(spellings.most_common(MAX_SPELLINGS)):
                return None
            self._places[where] = len(self.words)
            self.words.append(self._word(token, is_forced))
        return self._places[where]

    def _word(self, token: Token, is_forced: bool) -> Word:
        key = token.key
        if key in self._renamed:
            stem, ending = self._renamed[key]
            return Word(token.form, key, "country", stem=stem, ending=ending)
        if key in self.pools and not is_forced:
            return Word(token.form, key, "first", self.pools[key])
        base = key.removesuffix(PLURAL)
        if key not in self.pools and base != key and len(base) > 3 and self._is_coined(base):
            return Word(token.form, key, self._kind(base), stem=base, ending=PLURAL)
        return Word(token.form, key, self._kind(key))

    def meant_by(self, passage: Passage) -> Meant:
        """Return what a passage is about by its title and by whom it tells of."""
        meant = Meant({tuple(token.key for token in _core(tokenise(drop_qualifier(passage.title))))})
        for text in (passage.title, passage.text):
            for _ in self.slots(text, meant):
                pass
        return meant


_ROMAN = re.compile(r"[IVXLC]+")


def is_kept(key: str) -> bool:
    """Tell whether a folded word is on the closed list of those that keep their name, or a plural of one."""
    return key in KEPT or key.removesuffix(PLURAL) in KEPT


def _is_latin(key: str) -> bool:
    return key.isascii() or all(c < "\u0250" or "\u1e00" <= c <= "\u1eff" for c in key)


def _inflected(key: str) -> Iterator[str]:
    """Yield other forms of an English word; where one of them is written small, the word is no name."""
    yield from (key + ending for ending in ("s", "es", "ed", "ing", "ly", "er"))
    if len(key) > 4:
        for ending, others in _ENDINGS:
            if key.endswith(ending):
                yield from (key.removesuffix(ending) + other for other in others)


_ENDINGS = (
    ("s", ("",)), ("es", ("",)), ("ed", ("", "e")), ("ing", ("", "e", "ed")), ("y", ("ies", "ied")), ("er", ("", "e")),
    ("ly", ("",)), ("al", ("", "e")), ("ies", ("y",)), ("e", ("ing", "ed")), ("or", ("e", "ion")), ("ion", ("e", "or")),
)  # fmt: skip


def _core(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the words of a title without articles before it and numerals' endings after it (`of the 1970s`)."""
    first, end = 0, len(tokens)
    while first < end - 1 and tokens[first].key in ("the", "a", "an"):
        first += 1
    while end > first + 1 and tokens[end - 1].glued:
        end -= 1
    return tokens[first:end]


def _type_of(passage: Passage) -> str:
    opening = " ".join(passage.text[:_OPENING].split())
    return described_type(passage.title, opening) or named_type(passage.title)


Template = tuple[str | int, ...]  # text between names, and places of names; 0 is the clone's own name


class Writer:
    """Rows as templates: what a row is filled with is JSON, as names are letters.

    Args:
        lexicon: what is replaced.
        ids: the passages' ids, which are told from text by being equal to one.
    """

    def __init__(self, lexicon: Lexicon, ids: Iterable[str]) -> None:
        self._lexicon, self._ids = lexicon, frozenset(ids)

    def row(self, row: Mapping[str, Any], meant: Meant) -> Template:
        """Return the template of a row: `id` and passage ids get the clone's name, texts other names."""
        pieces: list[str | int] = []
        for piece in self._pieces(row, meant):
            if pieces and isinstance(piece, str) and isinstance(pieces[-1], str):
                pieces[-1] += piece
            else:
                pieces.append(piece)
        return (*pieces, "\n")

    def _pieces(self, value: Any, meant: Meant, key: str = "") -> Iterator[str | int]:
        if isinstance(value, Mapping):
            for number, (name, inner) in enumerate(value.items()):
                yield f"{', ' if number else '{'}{json.dumps(name, ensure_ascii=False)}: "
                yield from self._pieces(inner, meant, name)
            yield "}" if value else "{}"
        elif isinstance(value, list | tuple):
            for number, inner in enumerate(value):
                yield ", " if number else "["
                yield from self._pieces(inner, meant, key if key == "gold" else "")
            yield "]" if value else "[]"
        elif isinstance(value, str) and (key in ("id", "gold") or value in self._ids):
            yield from ('"', 0, _escaped(f"/{value}"), '"')
        elif isinstance(value, str) and key != "type":
            yield from ('"', *self.text(value, meant, _escaped), '"')
        else:
            yield json.dumps(value, ensure_ascii=False)

    def text(self, text: str, meant: Meant, escape: Any = str) -> Iterator[str | int]:
        """Yield the pieces of one text."""
        end = 0
        for token, place in self._lexicon.slots(text, meant):
            yield escape(text[end : token.start])
            yield place + 1
            end = token.end
        yield escape(text[end:])


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def filled(template: Template, names: Sequence[str]) -> str:
    """Return a template's text, given the clone's own name followed by those of its words."""
    return "".join([piece if isinstance(piece, str) else names[piece] for piece in template])
