"""Questions with answers as lessons: which passages are shown, which candidates are right, where the answer stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.fit.reader_config import ShownConfig
from gnnrag.metrics.answer import normalise_answer
from gnnrag.roles.offline_reader.items import ItemMaker
from gnnrag.roles.offline_reader.spans import clean
from gnnrag.tuned.span_windows import SpanItem, places_of
from gnnrag.types import Passage, Question


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What a step learns from one question.

    Attributes:
        item: what the network reads.
        right: (answers,) bool: which answers are right.
        spans: (n, 3) int64: window, first and last token of each place where the answer stands in its evidence.
        ranked: whether the choice among the candidates is learned, too.
    """

    item: SpanItem
    right: np.ndarray
    spans: np.ndarray
    ranked: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that trains: of a benchmark, or a part of one.

    Attributes:
        text: what is asked.
        answers: accepted.
        gold: passages of the evidence.
        final: the passages that hold the answer, as far as that is known; else all of `gold`.
        retrieved: passages that a retriever finds, best first.
        whole: whether it is a whole question of a benchmark.
    """

    text: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]
    final: tuple[str, ...]
    retrieved: tuple[str, ...] = ()
    whole: bool = True


def whole_of(question: Question, retrieved: Sequence[str]) -> Asked:
    """Return a question of a benchmark."""
    last = question.decomposition[-1].gold if question.decomposition else None
    return Asked(question.text, question.answers, question.gold, (last,) if last else question.gold, tuple(retrieved))


def parts_of(question: Question, retrieved: Sequence[str], titles: Mapping[str, str]) -> list[Asked]:
    """Return the single hops of a question: its sub-questions with `#1` filled in, and its evidence triples.

    A triple asks `subject >> relation`, and its passage is the gold one whose title is most like the subject.
    """
    found = []
    for hop in question.decomposition:
        text = hop.question
        for number in range(len(question.decomposition), 0, -1):
            text = text.replace(f"#{number}", question.decomposition[number - 1].answer)
        gold = (hop.gold,) if hop.gold else question.gold
        found.append(Asked(text, (hop.answer,), gold, gold, tuple(retrieved), False))
    for subject, relation, value in question.evidence:
        own = {*normalise_answer(subject).split()}
        near = [i for i in question.gold if own and own & {*normalise_answer(titles.get(i, "")).split()}]
        near.sort(key=lambda i: -len(own & {*normalise_answer(titles[i]).split()}))
        gold = tuple(near[:1]) or question.gold
        found.append(Asked(f"{subject} >> {relation}", (value,), gold, gold, tuple(retrieved), False))
    return found


def draw_shown(asked: Asked, config: ShownConfig, rng: np.random.Generator) -> tuple[str, ...]:
    """Draw the passages that a question is read with, best first."""
    gold = list(dict.fromkeys(asked.gold))
    if asked.whole and rng.random() < config.gold_only:
        return tuple(gold)
    most = int(rng.integers(config.least, config.most + 1))
    kept = [i for i in asked.retrieved if i in gold or rng.random() >= config.drop]
    if not asked.whole:  # a hop is read among the passages of its question, its own always
        kept = [i for i in kept if i not in gold][: most - 1]
        kept.insert(int(rng.integers(0, len(kept) + 1)), gold[0]) if gold else None
        return tuple(kept)
    shown = kept[:most]
    missing = [i for i in gold if i not in shown]
    if missing and (rng.random() < config.complete or not set(asked.final) & set(shown)):
        shown = shown[: max(0, most - len(missing))]
        for id_ in missing:
            shown.insert(int(rng.integers(0, len(shown) + 1)), id_)
    return tuple(shown)


def lesson_of(asked: Asked, passages: Sequence[Passage], maker: ItemMaker) -> Lesson:
    """Return what is learned from a question read with some passages.

    An answer is right if it equals an accepted one once both are normalised as the metrics do. Where it stands is
    looked for in the evidence alone: elsewhere the same words say something else.
    """
    item = maker.make(asked.text, passages)
    wanted = {normalise_answer(a) for a in asked.answers}
    right = np.array([normalise_answer(a) in wanted for a in item.answers], dtype=bool)
    final = {i for i, p in enumerate(passages) if p.id in asked.final}
    spans = [row for i in sorted(final) for row in _stands(i, clean(passages[i].text), asked.answers)]
    places = places_of(item.windows, spans)
    own = item.places[right[item.groups]] if len(item.groups) else places[:0]
    own = own[[w >= 0 and item.windows[w].passage in final for w in own[:, 0]]] if len(own) else own
    both = np.unique(np.concatenate([places[places[:, 0] >= 0], own]), axis=0)
    return Lesson(item, right, both, asked.whole)


def _stands(passage: int, text: str, answers: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return (passage, start, end) of each place where an answer stands word by word."""
    found = []
    for answer in answers:
        plain = re.sub(r"^(?:the|an?) ", "", clean(answer), flags=re.IGNORECASE)
        if len(plain) > 1:
            pattern = rf"(?<!\w){re.escape(plain)}(?!\w)"
            found += [(passage, m.start(), m.end()) for m in re.finditer(pattern, text, re.IGNORECASE)]
    return found
