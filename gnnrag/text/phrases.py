"""Find the noun phrases and names of a text by rules, or by a spaCy model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gnnrag.text.normalise import characters_of, lexicon

_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_UP = f"[{characters_of('Lu', 'Lt')}]"
_NOT_FIRST = "|".join(lexicon()["no_name_starts"].split())
_DATE = (
    rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})(?:,?\s+\d{{3,4}})?\b"
    rf"|\b(?:{_MONTH})(?:\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?!\d))?(?:,?\s+\d{{3,4}})\b"
    rf"|\b(?:{_MONTH})\s+\d{{1,2}}(?:st|nd|rd|th)?\b"
)
_ABBREVIATED = r"(?:St|Ste|Dr|Mr|Mrs|Ms|Jr|Sr|Mt|Ft|No|Inc|Ltd|Co|Corp|Bros|Lt|Gen|Col|Sgt|Capt|Rev|Prof|Gov|Sen|vs)\."
_WORD = rf"(?:{_ABBREVIATED}|(?:{_UP}\.)+(?:{_UP}(?!\w))?|(?:[a-z]{{1,3}}[-'’]?)?{_UP}\w*(?:['’.&/\-–]\w+)*)"
_LOOSE = "and|&|in|on|at|for|to|with|from|the|or|by|a"
_TIGHT = "of|de|la|le|les|von|van|der|den|del|della|di|da|do|dos|das|du|des|el|al|ibn|bin|bint|ben|y|e|zu|und|et|af|av"
_CONNECTOR = rf"(?:(?:{_TIGHT}|{_LOOSE})\s+){{1,3}}"
_NAME = (
    rf"(?:(?<![\w.,])\d{{1,4}}(?:st|nd|rd|th)?\s+)?(?<!\w)(?!(?:{_NOT_FIRST})\b){_WORD}"
    rf"(?:(?:\s?-\s?|\s+)(?:{_CONNECTOR})?(?!(?:{_MONTH})\s+\d){_WORD}|\s+\d[\w.]*\b)*"
)
_NUMBER = r"(?<![\w.])\d+(?:[.,]\d+)*(?:st|nd|rd|th|s)?(?:\s+century)?\b%?"
_PHRASE = re.compile(rf"(?P<date>{_DATE})|(?P<name>{_NAME})|(?P<number>{_NUMBER})")
_QUOTED = re.compile(r"\"([^\"]{2,80})\"|“([^”]{2,80})”|``(.{2,80}?)''")
_YEAR = re.compile(r"\b\d{3,4}\b")
_HAS_UPPER = re.compile(_UP)
# Not at the `the` of `of the`, which the split at `of` takes with it.
_SPLIT_LOOSE = re.compile(rf"(?<!\sof)\s+(?:(?:{_LOOSE})\s+)+|(?<=\w)['’]s\s+")
_OF_TAIL = re.compile(r"\s+of\s+(?:the\s+)?")
_POSSESSIVE_END = re.compile(r"['’]s?$")
_LEADING_NUMBER = re.compile(r"^(\d+)\w*\s+")


def rule_phrases(sentence: str) -> list[str]:
    """Return the phrases of one sentence in order of appearance, without repeats, in the text's own spelling.

    Names are runs of capitalised words, joined over connectors (`University of the West`), and some of their parts.
    """
    found: dict[str, None] = {}
    for piece in sentence.split("\n\n"):  # no name runs from a title into the sentence it is glued to
        for match in _PHRASE.finditer(piece):
            text = match.group()
            if match.lastgroup == "name":
                for name in _name_forms(text):
                    found[name] = None
            else:
                found[text] = None
                if match.lastgroup == "date" and (year := _YEAR.search(text)):
                    found[year.group()] = None
    if '"' in sentence or "“" in sentence or "``" in sentence:
        for quoted in _quoted(sentence):
            found[quoted] = None
    return list(found)


def _name_forms(run: str) -> Iterator[str]:
    whole = _POSSESSIVE_END.sub("", run)
    if len(whole) < 2:
        return
    yield whole
    if " " not in whole:
        return
    if number := _LEADING_NUMBER.match(whole):
        if _YEAR.fullmatch(number.group(1)):
            yield number.group(1)
        whole = whole[number.end() :]
        yield whole
    for part in _SPLIT_LOOSE.split(whole):
        if len(part) > 1:
            yield part
            *heads, tail = _OF_TAIL.split(part)
            if heads:
                yield tail
                # `Duke` alone says nothing, `Grand Duke` or `Boso Count` may be a name.
                yield from (head for head in heads if " " in head)


def _quoted(sentence: str) -> Iterator[str]:
    if sentence.count('"') % 2:  # unbalanced: what lies between two marks may be outside the quotation
        return
    for match in _QUOTED.finditer(sentence):
        text = next(group for group in match.groups() if group is not None).strip(" ,.;:")
        if text and _HAS_UPPER.search(text) and text.count(" ") < 10:
            yield text


PhraseRules = Literal["official", "clean"]

_NOUN_LIKE = frozenset({"PROPN", "NOUN", "NUM"})
_JOINS_CAPITAL = frozenset({"ADP", "CCONJ", "DET", "PART"})
_PHRASE_TAGS = frozenset({"PROPN", "NOUN", "NUM", "NX", "NP", "NNN"})
_JOINS_NOUNS = _PHRASE_TAGS - {"NNN"}
_WEAK_START = frozenset({"DET", "ADP", "CCONJ", "PART", "PRON", "AUX"})
_UPPER = re.compile(r"[A-Z]")
_HYPHEN = re.compile(r"\s*-\s*")
_POSSESSIVE = re.compile(r"\s+(?='[sS])")


@dataclass(frozen=True, slots=True)
class Token:
    """One tagged word: its text, its shape as spaCy writes it (`Xxxx`, `dd`, `'x`), its coarse part of speech."""

    text: str
    shape: str
    pos: str
    is_glued: bool = False  # written without a space after the token before it


@dataclass
class _Unit:
    tokens: list[Token]
    tag: str
    is_capital: bool


def noun_phrases(
    tokens: Sequence[Token], rules: PhraseRules = "clean", names: Collection[str] = frozenset()
) -> list[str]:
    """Return the noun phrases of one tagged sentence, without repeats; `clean` keeps the starts of `names` (entities).

    `official` reproduces the released code, tails (`Philadelphia in`) included; `clean` cuts weak tails and starts.
    """
    units = _join_nouns(_join_capitals(_glue(tokens)))
    found: dict[str, None] = {}
    for unit in units:
        if unit.tag in _PHRASE_TAGS:
            for part in _emit(unit.tokens, rules):
                text = _render(part)
                if rules == "clean" and text not in names:
                    text = _render(_strip_start(part))
                if rules == "official" or any(c.isalnum() for c in text):
                    found[text] = None
    return list(found)


def _glue(tokens: Sequence[Token]) -> list[_Unit]:
    """Pass A: a possessive or a hyphen joins the unit before it, and a hyphen the token after it too."""
    units: list[_Unit] = []
    after_hyphen = False
    for token in tokens:
        is_mark = token.shape in ("'x", "-") and token.pos in ("PUNCT", "PART")
        if is_mark or after_hyphen:
            # At the start of a sentence there is nothing to join: mark and follower vanish, as in the released code.
            if units:
                units[-1].tokens.append(Token(token.text, token.shape, token.pos, is_glued=True))
                units[-1].tag = "NP"
            after_hyphen = is_mark and token.shape == "-"
        else:
            units.append(_Unit([token], token.pos, "X" in token.shape))
    return units


def _join_capitals(units: Sequence[_Unit]) -> list[_Unit]:
    """Pass B: runs of capitalised units, continued over ADP, CCONJ, DET and PART."""
    runs: list[_Unit] = []
    for unit in units:
        if runs and runs[-1].is_capital and (unit.is_capital or unit.tag in _JOINS_CAPITAL):
            runs[-1].tokens.extend(unit.tokens)
            runs[-1].tag = "PROPN" if runs[-1].tag == "PROPN" else "NX"
        else:
            runs.append(_Unit(list(unit.tokens), unit.tag, unit.is_capital))
    return runs


def _join_nouns(units: Sequence[_Unit]) -> list[_Unit]:
    """Pass C: adjacent noun-like units."""
    runs: list[_Unit] = []
    for unit in units:
        if runs and unit.tag in _JOINS_NOUNS and runs[-1].tag in _PHRASE_TAGS:
            runs[-1].tokens.extend(unit.tokens)
            runs[-1].tag = "PROPN" if runs[-1].tag == "PROPN" else "NNN"
        else:
            runs.append(unit)
    return runs


def _emit(tokens: list[Token], rules: PhraseRules) -> Iterator[list[Token]]:
    if whole := _cut_tail(tokens, rules):
        yield whole
    if not any(t.pos in _NOUN_LIKE for t in tokens):
        return
    part: list[Token] = []
    for token in [*tokens, None]:
        if token is None or (token.pos == "CCONJ" and token.text[:1].islower()):
            if part and rules == "clean":
                part = _cut_tail(part, rules)
            if part:
                yield part
            part = []
        else:
            part.append(token)


def _cut_tail(tokens: list[Token], rules: PhraseRules) -> list[Token]:
    last = tokens[-1]
    if _UPPER.search(last.text) or last.pos in _NOUN_LIKE or last.pos == "PART":
        return tokens
    # The released code never looks at the first token, so that two always remain.
    first = 1 if rules == "official" else 0
    for end in range(len(tokens) - 1, first - 1, -1):
        token = tokens[end]
        if token.pos in _NOUN_LIKE or token.pos == "PART" or _UPPER.search(token.text):
            return tokens[: end + 1]
    return tokens[: first + 1] if rules == "official" else []


def _strip_start(tokens: list[Token]) -> list[Token]:
    start = 0
    while start < len(tokens) and tokens[start].pos in _WEAK_START:
        start += 1
    return tokens[start:] or tokens


def _render(tokens: Sequence[Token]) -> str:
    text = "".join(t.text if t.is_glued else f" {t.text}" for t in tokens).strip()
    return _POSSESSIVE.sub("", _HYPHEN.sub("-", text))
