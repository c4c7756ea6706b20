"""Triples of a corpus that no titles name: domain terms and names that its sentences join."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

from gnnrag.extract.associations import Pair, associate, damped, pairs_of
from gnnrag.extract.base import EntityRecord, Extraction, Triple
from gnnrag.extract.entity_types import named_type, type_names
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import fold
from gnnrag.text.terms import GENERAL_WORDS, find_terms
from gnnrag.types import Passage

_SHARED = 2  # passages that one title may name
_NAMED = 0.5  # share of passages with a title of their own from which on a corpus is one of titled passages
_SMALL = re.compile(r"[^\W\d_]+")
_DEFINES = re.compile(
    r"(?:\s*\([^()]*\),?)?\s+(?:(?:is|are|was|were)(?: (?:also|often|usually|sometimes))? "
    r"(?:an?|the|one|any|called|made|when|used|types?)|means|refers? to)\b"
)


def is_titled(passages: Sequence[Passage]) -> bool:
    """Tell whether at least half the passages have a title of their own, as articles do and parts of a document not."""
    shared = Counter(p.title.strip() for p in passages)
    own = [p for p in passages if p.title.strip() and not p.place and shared[p.title.strip()] <= _SHARED]
    return len(own) >= _NAMED * len(passages)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence, and what it names: distinct, in reading order; `first`: what it begins with, which it may define."""

    text: str
    names: tuple[str, ...]
    defined: str = ""


class TermReader:
    """Joins the terms and names of each sentence that belong together over the whole corpus.

    The sentence is the relation, the strength of the association its weight; a term is joined to the one that it ends
    with too. What a passage holds thus depends on the others: the passages given are all there are.
    """

    def __init__(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> None:
        both = list(zip(passages, texts, strict=True))
        plain = {(p.title, text): list(_sentences(p, text)) for p, text in both}
        self._terms = find_terms(sentence for _, text in both for sentence in plain[_.title, text])
        self._small = {w for row in plain.values() for s in row for w in _SMALL.findall(s) if w.islower()}
        self._read = {
            key: [self._named(s, phrases) for s, phrases in zip(row, (*key[1].phrases, ()), strict=False)]
            for key, row in plain.items()
        }
        self._kinds = {term.text: kind for term in self._terms.terms if (kind := self._kind(term.text))}
        rows = [s.names for p, text in both for s in self._read[p.title, text]]
        self._strength = damped(self._kind_strengths(rows) | associate(rows))

    def read(self, passage: Passage, text: PassageText) -> Extraction:
        """Return what one of the passages names and joins."""
        sentences = self._read[passage.title, text]
        strength: dict[Triple, float] = {}
        for sentence in sentences:
            relation = " ".join(sentence.text.split())
            for head, tail in self._joined(sentence.names):
                if value := self._strength.get((min(head, tail), max(head, tail))):
                    strength[head, relation, tail] = value
        ends = (name for head, _, tail in strength for name in (head, tail))
        names = tuple(dict.fromkeys([*(name for s in sentences for name in s.names), *ends]))
        types = {record.name: record.type for record in type_names(names, "", "", strength)}
        said = {s.defined: " ".join(s.text.split()) for s in reversed(sentences) if s.defined}
        details = [EntityRecord(n, types.get(n, ""), said.get(n, "")) for n in names if n in types or n in said]
        known = ((name, self._terms.get(name)) for name in names)
        return Extraction(
            names,
            tuple(strength),
            details=tuple(details),
            is_sentences=True,
            weights=tuple(strength.values()),
            aliases=tuple((name, alias) for name, term in known if term for alias in term.aliases),
        )

    def _kind_strengths(self, rows: Sequence[Sequence[str]]) -> dict[Pair, float]:
        """Return the association of each term with the one that it ends with, and which is thus always named with it.

        Of a kind of which there are many, as `cancer`, it says little.
        """
        named = Counter(name for row in rows for name in row)
        whole = named + Counter({kind: 0 for kind in self._kinds.values()})
        for term, kind in self._kinds.items():
            whole[kind] += named[term]
        total = len(rows) + 1
        return {
            (min(term, kind), max(term, kind)): max(0.01, round(log(total / whole[kind]) / log(total / named[term]), 2))
            for term, kind in self._kinds.items()
            if 0 < named[term] <= whole[kind] < total
        }

    def _joined(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield head and tail of what a sentence may join, the one that it names first before the other."""
        place = {name: at for at, name in enumerate(names)}
        for one, other in sorted(pairs_of(names), key=lambda pair: sorted(map(place.__getitem__, pair))):
            yield (one, other) if place[one] < place[other] else (other, one)
        for name in names:
            if (kind := self._kinds.get(name)) and kind not in place:
                yield name, kind

    def _named(self, sentence: str, phrases: Sequence[str]) -> _Sentence:
        terms = self._terms.in_text(sentence)
        found = [(start, end, term.text) for start, end, term in terms]
        for phrase in phrases:
            at = sentence.find(phrase)
            is_apart = at >= 0 and all(end <= at or at + len(phrase) <= start for start, end, _ in found)
            if is_apart and self._is_name(phrase):
                found.append((at, at + len(phrase), phrase))
        found.sort()
        defined = ""
        if (
            found
            and not re.sub(r"^(?:The|An?) ", "", sentence[: found[0][0]])
            and _DEFINES.match(sentence, found[0][1])
        ):
            defined = found[0][2]
        return _Sentence(sentence, tuple(dict.fromkeys(name for _, _, name in found)), defined)

    def _is_name(self, phrase: str) -> bool:
        """Tell whether a phrase is a date, or a name: not words that are capital where a heading or a list begins."""
        if named_type(phrase) == "date":
            return True
        words = phrase.split()
        if (
            "\n" in phrase
            or not words[0][:1].isalpha()
            or not {fold(words[0]), fold(words[-1])}.isdisjoint(GENERAL_WORDS)
        ):
            return False
        return any(word.lower() not in self._small for word in _SMALL.findall(phrase) if len(word) > 1)

    def _kind(self, term: str) -> str:
        """Return the longest term that a term ends with, or nothing."""
        words = term.split()
        rest = (self._terms.get(" ".join(words[i:])) for i in range(1, len(words)))
        return next((kind.text for kind in rest if kind and kind.text != term), "")


def _sentences(passage: Passage, text: PassageText) -> Iterator[str]:
    """Yield the sentences of a passage, the first without the title that may be glued to it."""
    title = passage.title.strip()
    for sentence in text.sentences:
        yield sentence.removeprefix(f"{title}\n\n") if title else sentence
