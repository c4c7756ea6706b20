"""Longer answers without a model: whole sentences of passages are chosen and quoted, with citations.

The fit of a statement is a weighted sum: the cosine of its embedding and the question's, the share of the question's
words (by idf) in statement and title, and their share in the whole passage. Statements are chosen by maximal marginal
relevance (Carbonell and Goldstein, SIGIR 1998). The best one comes first, or the sentence of an answer too unsure to be
stated; the others follow in the order of the passages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import expit

from gnnrag.index.embedder import FEW
from gnnrag.index.index import Index
from gnnrag.roles.base import QUOTED, Answer, Citation, ReaderTask, with_marks
from gnnrag.roles.tables import is_row, parse_row
from gnnrag.text.normalise import FUNCTION_WORDS, lexicon, word_set, words
from gnnrag.text.questions import asks_for_reasons, is_yes_no
from gnnrag.text.sentences import BLANK_LINE, ENDING, MAX_PASSAGE, beginning, count_words, similarity, split_sentences
from gnnrag.text.support import Weight, content_stems, coverage, inverse_frequencies, without_citations
from gnnrag.types import Passage

LEAST_WORDS, MOST_WORDS = 3, 60
ENGLISH = 0.15  # least share of function words among the words of an English passage
SHORT_LINE = 8  # words of an item or a row, at most
LABELLED = 15  # words of a line with a label, at most
_OPENINGS = word_set("openings")
_GLUED = re.compile(r"(?<=[a-z\d)%])\s+(?=([A-Z][a-z'’]*)\s(?:[a-z(]|[A-Z]{2,}))")
_VERB = re.compile(
    rf"\b(?:{'|'.join(lexicon()['verbs'].split())}|[a-z]+n['’]t|it['’]s|\w{{2,}}(?:ed|es)|[a-z]{{3,}}s)\b",
    re.IGNORECASE,
)
_LEANING = re.compile(
    r"(?:[\"'“(]*)(?:he|she|it|they|his|her|its|their|this|these|that|those|such|both|either|another|others?|also|but|"
    r"and|or|so|then|however|therefore|thus|instead|otherwise|for (?:this|that|these)|in (?:this|that|these|such)|"
    r"as a result|at this|at these|after (?:this|that)|during (?:this|these))\b",
    re.IGNORECASE,
)
_ANNOUNCING = re.compile(
    r"(?:\bas follows|\bthe following(?: [\w-]+){0,3})[.:]?$|:$|"
    r"\b(?:listed|shown|given|named|described) below\b|\bthe following (?:are|is)\b",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(?:[-*+•–▪◦●]|\(?\d{1,3}[.)])\s+(?=\S)", re.MULTILINE)
_START = re.compile(r"[\"'“‘(*«「]|(?![a-zß-öø-ÿ])[^\W_]")
_QUESTION = re.compile(r"[?？؟፧՞][\"'”’)\]*]*$")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence as it may be quoted alone, an item of a list or a row of a table."""

    text: str
    position: int  # among the sentences of its passage, those left out counted
    leans: bool  # needs the sentence before it, whose subject it calls `it` or `this`


@lru_cache(maxsize=4096)
def statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of a passage's text, in order."""
    stated, position = [], 0
    text = without_citations(beginning(text, MAX_PASSAGE))  # a `[2]` in a passage is not one of our citations
    said = words(text)
    is_english = sum(word in FUNCTION_WORDS for word in said) >= ENGLISH * len(said)
    for block in _lists(BLANK_LINE.split(text)):
        is_list = "\n" in block or bool(_BULLET.search(block))
        if _is_labelled(block) or ((is_list or _is_line(block)) and count_words(block) >= LEAST_WORDS):
            stated.append(Statement(block, position, leans=False))
            position += 1
            continue
        for sentence in split_sentences(block):
            parts = _unglued(" ".join(sentence.split()))
            for n, part in enumerate(parts, start=1):  # all but the last lack their full stop
                is_statement = _is_statement(part, ends=n < len(parts) and count_words(part) >= TERSE)
                leans = bool(_LEANING.match(part))
                if is_statement and (leans or _VERB.search(part) or not is_english):
                    stated.append(Statement(part, position, leans))
                elif stated and _announces(stated[-1], position, part):
                    stated[-1] = replace(stated[-1], text=f"{stated[-1].text} {part}", position=position)
                position += 1
    return tuple(stated)


def _lists(blocks: Iterable[str]) -> Iterator[str]:
    """Yield blocks, each as one line; consecutive items are one block, with the line above that ends in a colon."""
    found = ""
    for block in (" ".join(each.split()) for each in blocks):
        has_bullet = bool(_BULLET.match(block) and (found.endswith(":") or _BULLET.search(found)))
        is_item = has_bullet or all(map(_is_line, (block, *found.split("\n"))))
        if found and not (is_item and count_words(found) + count_words(block) <= MOST_WORDS):
            yield found
            found = block
        else:
            found = f"{found}\n{block}".strip()
    yield found


def _is_line(block: str) -> bool:
    """Tell whether a block is short and no sentence: an item without its bullet, or a row of an unread table."""
    return 0 < count_words(block) <= SHORT_LINE and not ENDING.search(block) and ":" not in block


def _is_labelled(block: str) -> bool:
    """Tell whether a block is a row of a table, or a short line such as `Partner: the University of Oslo`."""
    cells = parse_row(block)
    return len(cells) > 1 or (any(cells) and count_words(block) <= LABELLED and not ENDING.search(block))


def _unglued(sentence: str) -> list[str]:
    """Cut a sentence before words that can only open one: headings and lists often lack the full stop before them."""
    cuts = [m.start() for m in _GLUED.finditer(sentence) if m.group(1) in _OPENINGS]
    return [sentence[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(sentence)], strict=True)]


def _announces(one: Statement, position: int, text: str) -> bool:
    """Tell whether a statement says that a list follows, and `text`, which is no statement, stands right behind it."""
    is_next = one.position == position - 1 and count_words(one.text) + count_words(text) <= MOST_WORDS
    return is_next and bool(_ANNOUNCING.search(one.text)) and not _QUESTION.search(text)


def _is_statement(text: str, ends: bool) -> bool:
    parts = text.split()
    return (
        LEAST_WORDS <= count_words(text) <= MOST_WORDS
        and (ends or bool(ENDING.search(text)))
        and not _QUESTION.search(text)
        and bool(_START.match(text))
        and (bool(_LEANING.match(text)) or sum(w[:1].isupper() for w in parts) <= 0.6 * len(parts))
    )


# --------------------------------------------------------------------------------------------------------- the reader
# On 1,031 questions of a medical guide. Weights fitted on one half (ROUGE-L and cosine of the first statement and the
# reference) gain as much on the other; a ridge regression and boosted trees on twelve signals do no better.
OVERLAP, PASSAGE, LENGTH, SHORTNESS, LEANING = 0.7, 0.3, 0.3, 0.1, 0.05
EASY, TERSE = 30, 8  # words; longer and shorter statements lose in fit
SAMPLED = 5_000  # most passages in which the frequencies of words are counted
REDUNDANCY = 0.5  # weight of a statement's likeness to those chosen already
ALIKE = 0.7  # share of common words from which on a statement is a repetition
WEAKEST = 0.7  # least fit of a further statement, as a share of the best one's
WEAKEST_LONG = 0.5  # the same in a long answer, where statements below WEAKEST come after all others
FEW_WORDS = 80  # most words quoted where no style is asked for


@dataclass(frozen=True)
class Unit:
    """A statement, with the one before it where it leans on that, and how well it fits."""

    passage: int  # its number, from 0
    said: tuple[Statement, ...]
    stems: frozenset[str]

    @property
    def text(self) -> str:
        return " ".join(one.text for one in self.said)


def sureness_of(fit: float) -> float:
    """Return how likely it is that sentences which fit so well hold the answer.

    Fitted to 546 questions of SQuAD and NQ that calibrate the reader; half of them have no answer in the passages.
    """
    return round(float(expit(5 * fit - 6.1)), 4)


class Quoter:
    """Chooses statements of passages.

    Args:
        index: gives the embedder and the frequencies of words; None: words alone, all of them alike.
        max_passages: passages beyond this are not read.
    """

    def __init__(self, index: Index | None, max_passages: int) -> None:
        self.index, self.max_passages = index, max_passages

    def answers(
        self, tasks: Sequence[ReaderTask], floors: Sequence[float], likely: Sequence[Citation | None]
    ) -> list[Answer]:
        """Return statements with their citations for each task; no text where none fits as well as its floor.

        `likely`: the sentence of an answer that is too unsure to be stated; it is quoted first where there is no style.
        """
        units = [
            [unit for n, passage in enumerate(task.passages[: self.max_passages]) for unit in units_of(n, passage)]
            for task in tasks
        ]
        return [self._answer(*each) for each in zip(tasks, units, floors, likely, strict=True)]

    def _answer(self, task: ReaderTask, units: list[Unit], floor: float, likely: Citation | None) -> Answer:
        if not units:
            return Answer("", thought="no statement")
        count = len(units)
        first = None if likely is None or task.style else _place(units, task.passages, likely)
        question = beginning(task.question.text)
        fits = self.fits(question, units, task.passages)
        best = float(fits[:count].max())
        confidence = sureness_of(best)
        if best < floor:
            return Answer("", confidence=confidence, thought="nothing fits")
        first = int(fits.argmax()) if first is None else first
        if task.style == "long":
            chosen = choose(units, fits, task.words, WEAKEST_LONG, [first])
            weak = [i for i in chosen if fits[i] < WEAKEST * best]
        else:
            chosen, weak = [first] if task.style else self._few(question, units, fits, first), []
        groups = [i for i in chosen if i not in weak], weak
        shown = list(dict.fromkeys(one for group in groups for one in in_order([units[i] for i in group])))
        citations = tuple(Citation(one.text, (id_,), (id_,)) for n, one in shown for id_ in (task.passages[n].id,))
        text = with_marks((one.text, (n + 1,)) for n, one in shown)
        support = tuple(dict.fromkeys(id_ for each in citations for id_ in each.passages))
        return Answer(text, support, confidence, QUOTED, citations=citations)

    def _few(self, question: str, units: Sequence[Unit], fits: np.ndarray, first: int) -> list[int]:
        """Return units in FEW_WORDS words: the first, what leans on it, and what fits.

        Reasons, and what settles a yes or no, are looked for beside the first, before they are elsewhere. Rows of a
        table have nothing to do with the row beside them.
        """
        chosen = [first, *_leaning_on(units, first)]
        if asks_for_reasons(question) or is_yes_no(question):
            beside = [unit.passage == units[first].passage and not is_row(unit.said[-1].text) for unit in units]
            if beside[first]:
                chosen = choose(units, np.where(beside, fits + fits.max(), 0.0), FEW_WORDS, WEAKEST, chosen)
        return choose(units, fits, FEW_WORDS, WEAKEST, chosen)

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
            (wanted,) = self.index.embedder.encode([question], is_query=True)
            texts = [unit.text for unit in units]
            parts = [self.index.embedder.encode(texts[i : i + FEW]) for i in range(0, len(texts), FEW)]
            scores += np.concatenate(parts) @ wanted
        return np.round(scores, 4)

    def _share(self, asked: frozenset[str], stems: frozenset[str]) -> float:
        return coverage(asked, stems, self._weight) if asked else 0.0

    @cached_property
    def _weight(self) -> Weight:
        passages = [] if self.index is None else self.index.passages
        return inverse_frequencies(passage.text for passage in passages[:: -(-len(passages) // SAMPLED) or 1])


def units_of(number: int, passage: Passage) -> list[Unit]:
    """Return the statements of a passage. One that leans comes with the one before it; without that it is left out."""
    units, before = [], None
    for one in statements(passage.text):
        said: tuple[Statement, ...] = (one,)
        if one.leans:
            follows = before is not None and before.position == one.position - 1 and not before.leans
            said = (before, one) if follows and before else ()
        if said:
            units.append(Unit(number, said, content_stems(" ".join(s.text for s in said))))
        before = one
    return units


def _place(units: list[Unit], passages: Sequence[Passage], likely: Citation) -> int | None:
    """Return the number of the unit that quotes a sentence, added where none does; None: it cannot stand alone."""
    number = [passage.id for passage in passages].index(likely.passages[0])
    sentence = " ".join(without_citations(likely.sentence).split())
    for i, unit in enumerate(units):
        if unit.passage == number and sentence in unit.text:
            return i
    if count_words(sentence) > MOST_WORDS or _LEANING.match(sentence):
        return None
    units.append(Unit(number, (Statement(sentence, 0, leans=False),), content_stems(sentence)))
    return len(units) - 1


def _leaning_on(units: Sequence[Unit], first: int) -> list[int]:
    """Return the unit that leans on the last statement of another (`Its other members are ...`), in FEW_WORDS words."""
    last = units[first].said[-1]
    leaning = [i for i, unit in enumerate(units) if unit.passage == units[first].passage and unit.said[0] is last]
    return [i for i in leaning if i != first and count_words(units[i].text) <= FEW_WORDS]


def choose(units: Sequence[Unit], fits: np.ndarray, words: int, weakest: float, chosen: Sequence[int]) -> list[int]:
    """Return the units to quote, those in `chosen` first: at most `words` words in all, whatever the length of these.

    `weakest`: least fit of a further unit, as a share of the best one's.
    """
    best, chosen, nearest = float(fits.max()), [*chosen], np.zeros(len(units))
    new: Sequence[int] = chosen
    while True:
        said = {one for i in chosen for one in units[i].said}
        room = words - sum(count_words(one.text) for one in said)
        likeness = [max(similarity(unit.stems, units[i].stems) for i in new) for unit in units]
        nearest = np.maximum(nearest, likeness)
        left = [
            i for i, unit in enumerate(units)
            if i not in chosen and nearest[i] < ALIKE and fits[i] >= weakest * best and count_words(unit.text) <= room
        ]  # fmt: skip
        if not left:
            return chosen
        new = [max(left, key=lambda i: (fits[i] - REDUNDANCY * best * nearest[i], -i))]
        chosen += new


def in_order(units: Sequence[Unit]) -> list[tuple[int, Statement]]:
    """Return distinct (passage, statement): the best unit's, then others of its passage, then the other passages'."""
    rest = sorted(units[1:], key=lambda unit: (unit.passage != units[0].passage, unit.passage, unit.said[-1].position))
    return list({one.text: (unit.passage, one) for unit in (*units[:1], *rest) for one in unit.said}.values())
