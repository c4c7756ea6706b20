"""Noun phrases from part-of-speech tags: the rules of MGranRAG's indexer (AAAI 2026)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

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
    """Return the noun phrases of one tagged sentence, without repeats.

    Args:
        tokens: the tagged sentence.
        rules: `official` reproduces the released code, tails such as `Philadelphia in` included; `clean` cuts every
            weak tail and start.
        names: phrases that named-entity recognition found; `clean` keeps their starts.
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
    """Yield the phrase and, where it coordinates several, each of them."""
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
