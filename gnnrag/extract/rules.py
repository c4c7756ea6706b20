"""Extract triples without a model.

In titled passages, the title is joined to each phrase of the sentences. In passages without
titles of their own (parts of a document), terms and names that share sentences more often than by chance are joined.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from typing import Any

import numpy as np
from scipy.special import xlogy

from gnnrag.extract.base import EntityRecord, Extraction, Extractor, Triple
from gnnrag.index_config import ExtractConfig
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import fold, phrase_key
from gnnrag.text.questions import MONTHS
from gnnrag.text.terms import GENERAL_WORDS, find_terms
from gnnrag.types import Passage


class OfflineExtractor(Extractor):
    """Joins each passage's title to each phrase of its sentences; the sentence is the relation.

    Of a passage without a title, the first phrase is joined. With `config.terms=on`, terms and names are joined that
    stand in one sentence (`TermReader`), once `read_corpus` has seen all passages.
    """

    def __init__(self, config: ExtractConfig) -> None:
        self._by_terms = config.terms == "on"  # `auto` is decided where the passages are known
        self._reader: TermReader | None = None

    @property
    def identity(self) -> Any:
        return ["offline terms", 7] if self._by_terms else ["offline", 6]

    def read_corpus(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> None:
        if self._by_terms:
            self._reader = TermReader(passages, texts)

    def key(self, passage: Passage, text: PassageText) -> Any:
        terms = [self._reader.read(passage, text).to_json()] if self._reader else []
        return [passage.title, text.sentences, text.phrases, *terms]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        read = self._reader.read if self._reader else _extract
        return [read(p, text) for p, text in zip(passages, texts, strict=True)]


def _extract(passage: Passage, text: PassageText) -> Extraction:
    title = passage.title.strip()
    mentions = list(dict.fromkeys(phrase for phrases in text.phrases for phrase in phrases if phrase_key(phrase)))
    topic = title if phrase_key(title) else next(iter(mentions), "")
    triples: dict[Triple, None] = {}
    for sentence, phrases in zip(text.sentences, text.phrases, strict=True):
        relation = " ".join(sentence.removeprefix(f"{title}\n\n").split())  # glued by `analyse`
        for phrase in phrases:
            if phrase_key(phrase) not in ("", phrase_key(topic)):
                triples[topic, relation, phrase] = None
    first = _opening(title, text)
    details = (EntityRecord(topic, "", first),) if phrase_key(topic) and first not in ("", topic) else ()
    return Extraction(tuple(mentions), tuple(triples), details=details, is_sentences=True)


def _opening(title: str, text: PassageText) -> str:
    """Return a passage's first sentence as one line, without the title that is glued to it."""
    return " ".join(text.sentences[0].removeprefix(f"{title}\n\n").split()) if text.sentences else ""


# ----------------------------------------------------------------------------------------------- untitled passages
_SHARED = 2  # passages that one title may name
_NAMED = 0.5  # least share of passages with a title of their own in a corpus of titled passages
_SMALL = re.compile(r"[^\W\d_]+")
_DATE = re.compile(rf"[12]\d{{3}}s?|.*\b(?:{'|'.join(MONTHS)})\b.*")


def is_titled(passages: Sequence[Passage]) -> bool:
    """Tell whether at least half the passages have titles of their own, unlike the parts of a document."""
    shared = Counter(p.title.strip() for p in passages)
    own = [p for p in passages if p.title.strip() and not p.place and shared[p.title.strip()] <= _SHARED]
    return len(own) >= _NAMED * len(passages)


class TermReader:
    """Joins the terms and names of each sentence that belong together over the whole corpus.

    The sentence is the relation, the strength of the association its weight. What a passage holds thus depends on the
    others: the passages given are all there are.
    """

    def __init__(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> None:
        both = list(zip(passages, texts, strict=True))
        plain = {
            (p.title, text): [sentence.removeprefix(f"{p.title.strip()}\n\n") for sentence in text.sentences]
            for p, text in both
        }
        self._terms = find_terms(sentence for p, text in both for sentence in plain[p.title, text])
        self._small = {w for row in plain.values() for s in row for w in _SMALL.findall(s) if w.islower()}
        self._read = {
            key: [(s, self._named(s, phrases)) for s, phrases in zip(row, (*key[1].phrases, ()), strict=False)]
            for key, row in plain.items()
        }
        self._strength = associate([names for p, text in both for _, names in self._read[p.title, text]])

    def read(self, passage: Passage, text: PassageText) -> Extraction:
        """Return the entities and triples of one of the passages."""
        sentences = self._read[passage.title, text]
        weights: dict[Triple, float] = {}
        for sentence, named in sentences:
            relation = " ".join(sentence.split())
            place = {name: at for at, name in enumerate(named)}
            for pair in sorted(pairs_of(named), key=lambda pair: sorted(map(place.__getitem__, pair))):
                if weight := self._strength.get(pair):
                    head, tail = sorted(pair, key=place.__getitem__)  # the one that the sentence names first
                    weights[head, relation, tail] = weight
        names = tuple(dict.fromkeys(name for _, named in sentences for name in named))
        return Extraction(
            names,
            tuple(weights),
            is_sentences=True,
            weights=tuple(weights.values()),
        )

    def _named(self, sentence: str, phrases: Sequence[str]) -> tuple[str, ...]:
        """Return the terms and names in a sentence: distinct, in reading order."""
        spans = self._terms.in_text(sentence)
        for phrase in phrases:
            at = sentence.find(phrase)
            is_apart = at >= 0 and all(end <= at or at + len(phrase) <= start for start, end, _ in spans)
            if is_apart and self._is_name(phrase):
                spans.append((at, at + len(phrase), phrase))
        return tuple(dict.fromkeys(name for _, _, name in sorted(spans)))

    def _is_name(self, phrase: str) -> bool:
        """Tell whether a phrase is a date, or a name: not words that are capital where a heading or a list begins."""
        if _DATE.fullmatch(phrase):
            return True
        words = phrase.split()
        ends = {fold(words[0]), fold(words[-1])}
        if "\n" in phrase or not words[0][:1].isalpha() or not ends.isdisjoint(GENERAL_WORDS):
            return False
        return any(word.lower() not in self._small for word in _SMALL.findall(phrase) if len(word) > 1)


# ---------------------------------------------------------------------------------------------------- associations
WINDOW = 8  # things named further apart in a sentence, as in a long list, are not joined
LEAST_LIKELIHOOD = 6.63  # of an association: the 1% point of chi-squared with one degree of freedom
FEW = 100  # sentences that tell too little of chance: there everything that is named together is joined

Pair = tuple[str, str]  # in alphabetical order


def associate(rows: Iterable[Sequence[str]]) -> dict[Pair, float]:
    """Return the strength of each association, above 0 to 1, of the things that rows (sentences) name, in any order.

    Strength is normalised pointwise mutual information (Bouma 2009), to two places. Pairs that chance could explain
    (log-likelihood ratio, Dunning 1993), and those that stand together less often than by chance, are left out, unless
    there are fewer than `FEW` rows.
    """
    named: Counter[str] = Counter()
    together: Counter[Pair] = Counter()
    total = 0
    for row in rows:
        total += 1
        named.update(set(row))
        together.update(pairs_of(row))
    strength = {}
    for pair, both in together.items():
        one, other = named[pair[0]], named[pair[1]]
        chance = one * other / total
        if total < FEW or (both > chance and likelihood(both, one, other, total) >= LEAST_LIKELIHOOD):
            strength[pair] = max(0.01, round(log(both / chance) / max(-log(both / total), 1e-9), 2))
    return strength


def likelihood(both: int, one: int, other: int, total: int) -> float:
    """Return Dunning's log-likelihood ratio of a two by two table: counts of both, of one, of the other, of all."""
    cells = np.array([[both, one - both], [other - both, total - one - other + both]], dtype=np.float64)
    expected = cells.sum(axis=1, keepdims=True) * cells.sum(axis=0, keepdims=True) / total
    return float(2 * xlogy(cells, cells / expected).sum())


def pairs_of(row: Sequence[str]) -> set[Pair]:
    """Return the pairs of different things that a sentence names at most `WINDOW` apart."""
    return {
        (min(one, other), max(one, other))
        for at, one in enumerate(row)
        for other in row[at + 1 : at + 1 + WINDOW]
        if one != other
    }
