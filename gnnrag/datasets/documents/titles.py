"""What a passage without a heading is about: the subject of its first sentence, or its key term, from its file alone.

Where one paragraph makes many passages, the term that sets it apart from the rest of the file stands before:
"Thyroid cancer > Radioactive iodine".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

from gnnrag.text.normalise import FUNCTION_WORDS, fold
from gnnrag.text.sentences import split_sentences
from gnnrag.text.subjects import subject_of
from gnnrag.text.terms import Terms, find_terms

MOST = 10_000_000  # characters that terms are looked for in; of a longer file, passages at equal distances
OPENING = 60  # characters of a paragraph in which it may name its topic
LONG = 4  # passages from which on a paragraph has a topic of its own
_SURE, _WORDS = 0.7, 6  # confidence, and words at most, of a subject that titles a passage
_GLUED = re.compile(r"\s*(?:[-*•]|\(?\d{1,3}[.)])?\s*")


@dataclass(frozen=True, slots=True)
class Untitled:
    """A passage that needs a title, and a number that those of one paragraph share."""

    text: str
    stretch: int


def own_titles(passages: Sequence[Untitled], texts: Iterable[str]) -> list[str]:
    """Return what each passage is about, empty where nothing can be said; `texts` are all passages of the file."""
    if not passages:
        return []
    return _Titles(passages, list(texts)).all()


class _Titles:
    """The terms of a file, and how they are spread over its passages."""

    def __init__(self, passages: Sequence[Untitled], texts: Sequence[str]) -> None:
        self._passages = passages
        step = 1 + sum(map(len, texts)) // MOST
        self._terms: Terms = find_terms(sentence for text in texts[::step] for sentence in split_sentences(text))
        self._bags = [Counter(term.text for _, _, term in self._terms.in_text(p.text)) for p in passages]
        self._spread = Counter(name for bag in self._bags for name in bag)
        self._used: set[str] = set()

    def all(self) -> list[str]:
        """Return a title for each passage; those of one file differ as far as their terms do."""
        topics = self._topics()
        return [self._title(i, topics.get(passage.stretch, "")) for i, passage in enumerate(self._passages)]

    def _topics(self) -> dict[int, str]:
        """Return the term that most sets each long paragraph apart: in most of its passages, and in few others."""
        members: dict[int, list[int]] = defaultdict(list)
        for i, passage in enumerate(self._passages):
            members[passage.stretch].append(i)
        long = {stretch: own for stretch, own in members.items() if len(own) >= LONG}
        if len(long) < 2:
            return {}
        found = {stretch: self._topic(own) for stretch, own in long.items()}
        return {stretch: topic for stretch, topic in found.items() if topic}

    def _topic(self, own: Sequence[int]) -> str:
        within = Counter(name for i in own for name in self._bags[i])
        opening = self._terms.in_text(self._passages[own[0]].text[:OPENING])
        named = opening[0][2].text if opening else ""  # texts begin with what they are about
        weights = {}
        for name, count in sorted(within.items()):
            share, outside = count / len(own), (self._spread[name] - count + 3) / (len(self._passages) - len(own) + 3)
            if share > outside:
                length = 1 + min(len(name.split()), 3)
                weights[name] = share * log(share / outside) * length * (1.3 if name == named else 1.0)
        return _capital(max(weights, key=lambda name: weights[name], default=""))

    def _title(self, i: int, topic: str) -> str:
        text, bag = self._passages[i].text, self._bags[i]
        subject = self._subject(text)
        ranked = sorted(bag, key=lambda name: (-self._salience(name, bag), name))
        names = [name for name in (subject, *ranked) if name and name.casefold() != topic.casefold()]
        names = list(dict.fromkeys(_capital(name) for name in names)) or [_capital(subject)] * bool(subject)
        for detail in names[:5]:
            title = " > ".join(part for part in (topic, detail) if part)
            if title.casefold() not in self._used:
                break
        else:
            title = " > ".join(part for part in (topic, ", ".join(names[:2])) if part)
        self._used.add(title.casefold())
        return title

    def _salience(self, name: str, bag: Counter[str]) -> float:
        """Return how much a passage is about a term: often here, seldom elsewhere, and a long term says more."""
        rarity = log(1 + len(self._bags) / (self._spread[name] + 5))
        return (1 + log(bag[name])) * rarity * (1 + min(len(name.split()), 3))

    def _subject(self, text: str) -> str:
        """Return the subject of the first sentence where it is a name, or ends in a term, which then stands for it."""
        found = subject_of(text[_found_end(text) :])
        if found is None or found.confidence < _SURE or len(found.name.split()) > _WORDS:
            return ""
        if fold(found.name).split()[-1] in FUNCTION_WORDS:  # `Note that you`
            return ""
        terms = self._terms.in_text(found.name)
        if terms:
            _, end, term = terms[-1]
            return term.text if end == len(found.name) else ""
        is_name = " " in found.name or len(self._passages) == 1 or text.count(found.name) > 1
        return found.name if is_name and found.name[:1].isupper() and len(found.name) > 2 else ""


def _found_end(text: str) -> int:
    """Return where a text starts behind the bullet or number before it."""
    match = _GLUED.match(text)
    return match.end() if match else 0


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
