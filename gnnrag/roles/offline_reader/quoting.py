"""Sentence and long answers without a model: the statements of passages that fit a question best, each with its source.

A statement's fit is the cosine of its and the question's embedding, and how much of the question it says with its
passage's title, and its whole passage (idf-weighted). They are chosen by maximal marginal relevance (Carbonell and
Goldstein, SIGIR 1998). The best one leads; the others follow in the order in which they were read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnnrag.index.index import Index
from gnnrag.roles.base import Answer, Citation, ReaderTask, cited
from gnnrag.roles.offline_reader.statements import Statement, statements
from gnnrag.text.sentences import beginning, count_words, similarity
from gnnrag.text.support import Weight, content_stems, coverage, inverse_frequencies
from gnnrag.types import Passage

# On 1,031 questions of a medical guide. Weights fitted on one half (ROUGE-L and cosine of the first statement and the
# reference) gain as much on the other; a ridge regression and boosted trees on twelve signals do no better.
OVERLAP, PASSAGE, LENGTH, SHORTNESS, LEANING = 0.7, 0.3, 0.3, 0.1, 0.05
EASY, TERSE = 30, 8  # words: a statement pays for more than the one, and for fewer than the other
KEPT = 50_000  # vectors of statements
SAMPLED = 5_000  # passages that the frequencies of words are counted in
REDUNDANCY = 0.5  # what a statement loses for being like a chosen one
ALIKE = 0.7  # and from which share of common words on it is a repetition
WEAKEST = 0.7  # a further statement fits at least so well as this share of the best one's fit


@dataclass(frozen=True)
class Unit:
    """A statement, with the one before it where it leans on that, and how well it fits."""

    passage: int  # its number, from 0
    said: tuple[Statement, ...]
    stems: frozenset[str]

    @property
    def text(self) -> str:
        """Its words."""
        return " ".join(one.text for one in self.said)


class Quoter:
    """Chooses statements of passages.

    Args:
        index: gives the embedder and the frequencies of words; None: words alone, all of them alike.
        min_fit: an answer whose best statement fits less is withheld.
        max_passages: passages beyond this are not read.
    """

    def __init__(self, index: Index | None, min_fit: float, max_passages: int) -> None:
        self.index, self.min_fit, self.max_passages = index, min_fit, max_passages
        self._vectors: OrderedDict[str, np.ndarray] = OrderedDict()

    def answers(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        """Return statements with their citations for each task; no text where none fits."""
        units = [
            [unit for n, passage in enumerate(task.passages[: self.max_passages]) for unit in units_of(n, passage)]
            for task in tasks
        ]
        self._encode(list(dict.fromkeys(unit.text for each in units for unit in each)))
        found = [self._answer(task, each) for task, each in zip(tasks, units, strict=True)]
        while len(self._vectors) > KEPT:
            self._vectors.popitem(last=False)
        return found

    def _answer(self, task: ReaderTask, units: list[Unit]) -> Answer:
        if not units:
            return Answer("", thought="no statement")
        fits = self.fits(beginning(task.question.text), units, task.passages)
        best = float(fits.max())
        confidence = round(min(1.0, max(0.0, best / 2)), 4)
        if best < self.min_fit:
            return Answer("", confidence=confidence, thought="nothing fits")
        chosen = choose(units, fits, task.words) if task.style == "long" else [int(fits.argmax())]
        shown = in_order([units[i] for i in chosen])
        citations = tuple(Citation(one.text, (id_,), (id_,)) for n, one in shown for id_ in (task.passages[n].id,))
        text = " ".join(cited(one.text, (n + 1,)) for n, one in shown)
        support = tuple(dict.fromkeys(id_ for each in citations for id_ in each.passages))
        return Answer(text, support, confidence, "statements", citations=citations)

    def fits(self, question: str, units: Sequence[Unit], passages: Sequence[Passage]) -> np.ndarray:
        """Return how well each unit fits: (len(units),), from about 0 to 2."""
        asked = content_stems(question)
        titles = [content_stems(passage.title) for passage in passages]  # they name what a statement leaves unsaid
        wholes = [self._share(asked, content_stems(passage.content)) for passage in passages]
        lengths = np.array([count_words(unit.said[-1].text) for unit in units])
        scores = np.array(
            [OVERLAP * self._share(asked, u.stems | titles[u.passage]) + PASSAGE * wholes[u.passage] for u in units]
        )
        scores -= LENGTH * np.maximum(0, lengths - EASY) / EASY + SHORTNESS * np.maximum(0, TERSE - lengths) / TERSE
        scores -= LEANING * np.array([len(unit.said) > 1 for unit in units])
        if self.index is not None:
            self._encode([unit.text for unit in units])
            (wanted,) = self.index.embedder.encode([question], is_query=True)
            scores += np.stack([self._vectors[unit.text] for unit in units]) @ wanted
        return np.round(scores, 4)

    def _encode(self, texts: Sequence[str]) -> None:
        """Keep the vectors of texts: questions of one corpus come upon the same statements."""
        missing = [text for text in texts if text not in self._vectors]
        if missing and self.index is not None:
            self._vectors.update(zip(missing, self.index.embedder.encode(missing), strict=True))

    def _share(self, asked: frozenset[str], stems: frozenset[str]) -> float:
        return coverage(asked, stems, self._weight) if asked else 0.0

    @cached_property
    def _weight(self) -> Weight:
        passages = [] if self.index is None else self.index.passages
        return inverse_frequencies(passage.text for passage in passages[:: -(-len(passages) // SAMPLED) or 1])


def units_of(number: int, passage: Passage) -> list[Unit]:
    """Return the statements of a passage; one that leans comes with the one before it, and where there is none not."""
    found, before = [], None
    for one in statements(passage.text):
        said: tuple[Statement, ...] = (one,)
        if one.leans:
            follows = before is not None and before.position == one.position - 1 and not before.leans
            said = (before, one) if follows and before else ()
        if said:
            found.append(Unit(number, said, content_stems(" ".join(s.text for s in said))))
        before = one
    return found


def choose(units: Sequence[Unit], fits: np.ndarray, words: int) -> list[int]:
    """Return the units to quote, best first: `words` in all at most, but for the first."""
    best = float(fits.max())
    nearest, left = np.zeros(len(units)), list(range(len(units)))
    chosen: list[int] = []
    room = words
    while left:
        at = max(left, key=lambda i: (fits[i] - REDUNDANCY * best * nearest[i], -i))
        chosen.append(at)
        room -= count_words(units[at].text)
        for i in left:
            nearest[i] = max(nearest[i], similarity(units[i].stems, units[at].stems))
        left = [
            i for i in left
            if i != at and nearest[i] < ALIKE and fits[i] >= WEAKEST * best and count_words(units[i].text) <= room
        ]  # fmt: skip
    return chosen


def in_order(units: Sequence[Unit]) -> list[tuple[int, Statement]]:
    """Return (passage, statement), distinct: the best unit's, then those of its passage, then as they were read."""
    first, *rest = units
    rest = sorted(rest, key=lambda unit: (unit.passage != first.passage, unit.passage, unit.said[-1].position))
    return list({one.text: (unit.passage, one) for unit in (first, *rest) for one in unit.said}.values())
