"""Metrics for questions whose reference answers are a sentence or more, and for those without gold passages.

None of them asks a model. A name ends in how the metric compares, `_lexical` (by words) or `_embedding`: no such figure
stands in a column with those of a judge. NaN says that a metric is not defined for a question. After the answer metrics
of GraphRAG-Bench (arXiv 2506.05690), which ask a judge.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np
from rapidfuzz.distance import LCSseq

from gnnrag.config import LongAnswersConfig
from gnnrag.metrics.answer import f1
from gnnrag.text.sentences import count_words
from gnnrag.text.support import (
    Said,
    content_stems,
    coverage,
    inverse_frequencies,
    statements,
    support,
    windows,
    without_citations,
)
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Passage, Prediction, Question

TEXT = "text/"  # begins the names of these metrics
VERSION = 1  # of their definitions: figures of two versions do not compare
_MAX_CHARACTERS = 3_000  # of an answer or reference in which statements are looked for, as in the benchmark
_LEAST_WORDS, _LONG_WORDS = 4, 12  # of a sentence that ends with a full stop; of any answer that is no short one


def is_sentence(answer: str) -> bool:
    """Tell whether an answer is a sentence or more: so long, or ends with a full stop and is not written as a name."""
    words = answer.split()
    if len(words) >= _LONG_WORDS:
        return True
    capitals = sum(word[:1].isupper() for word in words[1:])
    return len(words) >= _LEAST_WORDS and answer.rstrip().endswith(".") and 2 * capitals < len(words)


def is_long(question: Question) -> bool:
    """Tell whether every accepted answer of a question is a sentence or more: exact match would mean nothing."""
    return bool(question.answers) and all(map(is_sentence, question.answers))


def is_compared(question: Question) -> bool:
    """Tell whether texts are compared with a question's references: they are long, or no gold passages are known."""
    return is_long(question) or bool(question.answers and not question.gold)


@dataclass(frozen=True)
class Material:
    """What answers and rankings are compared with beside the references: the corpus, and an embedder by name."""

    passages: Mapping[str, Passage]
    encode: Callable[[Sequence[str]], np.ndarray] | None = None
    embedder: str = ""


@dataclass(frozen=True)
class TextScores:
    """Metrics, (n,) each by name, and the floor that any answer reaches.

    The floor is the same metric with the references (for faithfulness: the passages) of another question.
    """

    columns: dict[str, np.ndarray] = field(default_factory=dict)
    floors: dict[str, np.ndarray] = field(default_factory=dict)
    embedder: str = ""

    def summary(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return what must be known beside the means: the embedder, floors, and how far above them the means are."""
        types = np.array([q.type for q in questions])
        by_type = {str(name): self._floors(types == name) for name in np.unique(types)}
        return {
            "version": VERSION,
            "questions": sum(map(is_compared, questions)),
            "long": sum(map(is_long, questions)),
            "embedder": self.embedder,
            "floors": self._floors(np.ones(len(questions), dtype=bool)),
            "by_type": {name: floors for name, floors in by_type.items() if floors},
        }

    def _floors(self, rows: np.ndarray) -> dict[str, dict[str, float]]:
        summary = {}
        for name, floors in self.floors.items():
            both = rows & ~np.isnan(floors) & ~np.isnan(self.columns[name])
            if both.any():
                value, floor = float(self.columns[name][both].mean()), float(floors[both].mean())
                above = (value - floor) / (1 - floor) if floor < 1 else 0.0
                summary[name] = {"floor": round(floor, 4), "above": round(above, 4)}
        return summary


@dataclass(frozen=True)
class _Text:
    """A reference or an answer, read once for all that is compared with it."""

    text: str
    words: int
    stems: frozenset[str]
    statements: Sequence[Said]
    places: Sequence[Said]

    @classmethod
    def read(cls, text: str) -> _Text:
        start = text[:_MAX_CHARACTERS]
        return cls(text, count_words(text), content_stems(text), statements(start), windows(start))


@dataclass(frozen=True)
class _Item:
    """A question with what is compared; passages are lists of places that may hold a statement."""

    type: str
    words: frozenset[str]  # content stems of the question
    references: Sequence[_Text]
    answer: _Text | None  # None: only the context is compared
    retrieved: Sequence[Sequence[Said]]  # the first `context_tokens` of the ranking
    read: Sequence[Sequence[Said]]  # the passages that the reader saw


def compare_texts(
    pairs: Sequence[tuple[Question, Prediction]], material: Material, config: LongAnswersConfig, seed: int = 0
) -> TextScores:
    """Compare answers and rankings with the references of questions that are long or have no gold passages.

    Args:
        pairs: questions, each with its prediction; a failed one scores 0.
        material: the corpus; without `encode` there are no metrics by embedding.
        config: budget of tokens, threshold of support, length that answers are cut to.
        seed: of the questions that lend their references for the floor.

    Returns:
        Metrics by name, best of several references; empty where no question is compared.

        - `rouge_l`, `token_f1`, `cosine_embedding`: of the whole texts.
        - `coverage_lexical`: mean support of the reference's statements in the answer; `coverage_hard_lexical`: the
          share at or above the threshold.
        - `faithfulness_lexical`: the share of the answer's statements that one passage read supports; not defined for
          a blank answer.
        - `context_coverage_lexical@1000`: the share of the reference's content words, by weight, that the first 1,000
          tokens retrieved have; `context_recall_lexical@1000`: mean support of its statements there.

        What the question says is left out of statements and words, but for faithfulness.
    """
    reader = _Reader(material, config)
    items = {i: reader.item(q, p) for i, (q, p) in enumerate(pairs) if is_compared(q)}
    if not items:
        return TextScores()
    partner = _partners(items, np.random.default_rng(seed))
    rows = {i: reader.row(item, item) for i, item in items.items()}
    floors = {i: reader.row(items[i], items[j]) for i, j in partner.items()}
    for i, item in items.items():
        if item.answer is not None:
            longest = max(reference.words for reference in item.references)
            rows[i] |= {"words": float(item.answer.words), "reference_words": float(longest)}
    if material.encode:
        for i, (cosine, floor) in _similarities(items, partner, material.encode).items():
            rows[i]["cosine_embedding"] = cosine
            floors.setdefault(i, {})["cosine_embedding"] = floor
    return TextScores(_columns(rows, len(pairs)), _columns(floors, len(pairs)), material.embedder)


class _Reader:
    """Reads texts into statements and compares them by words."""

    def __init__(self, material: Material, config: LongAnswersConfig) -> None:
        self.passages, self.config = material.passages, config
        self.counter = TokenCounter(config.tokenizer)
        self.weight = inverse_frequencies(passage.content for passage in material.passages.values())
        self.places = lru_cache(maxsize=None)(lambda id_: windows(material.passages[id_].content))

    def item(self, question: Question, prediction: Prediction) -> _Item:
        failed = prediction.error is not None
        answer = "" if failed else cut(without_citations(prediction.answer), self.config.answer_words)
        return _Item(
            question.type,
            content_stems(question.text),
            [_Text.read(reference) for reference in question.answers],
            _Text.read(answer) if is_long(question) else None,
            [] if failed else self._first(prediction.ranking),
            [] if failed else [self.places(id_) for id_ in prediction.context if id_ in self.passages],
        )

    def _first(self, ids: Iterable[str]) -> list[Sequence[Said]]:
        """Return what stands in the first `context_tokens` of passages, best first; the last one is cut."""
        places, budget = list[Sequence[Said]](), self.config.context_tokens
        for id_ in ids:
            if id_ not in self.passages:
                continue
            text = self.passages[id_].content
            size = self.counter.count(text)
            if size > budget:
                words = text.split()
                places.append(windows(" ".join(words[: self.counter.fit(words, budget, " ")])))
                break
            places.append(self.places(id_))
            budget -= size
        return places

    def row(self, item: _Item, other: _Item) -> dict[str, float]:
        """Compare an item with the references, and the passages read, of another one (or of itself)."""
        retrieved = [place for passage in item.retrieved for place in passage]
        stems = frozenset[str]().union(*(place.stems for place in retrieved))
        answer, ending = item.answer, f"@{self.config.context_tokens}"
        row: dict[str, float] = {}
        for reference in other.references:
            values = {
                f"context_coverage_lexical{ending}": coverage(reference.stems - item.words, stems, self.weight),
                f"context_recall_lexical{ending}": _mean(self._supports(reference, item.words, retrieved)),
            }
            if answer:
                supports = self._supports(reference, item.words, answer.places)
                values |= {
                    "rouge_l": rouge_l(answer.text, reference.text),
                    "token_f1": f1(answer.text, [reference.text]),
                    "coverage_lexical": _mean(supports),
                    "coverage_hard_lexical": self._hard(supports),
                }
            row |= {name: float(np.fmax(row.get(name, math.nan), value)) for name, value in values.items()}
        if answer:
            shares = [
                max((support(statement, places, self.weight) for places in other.read), default=0.0)
                for statement in answer.statements
            ]
            row["faithfulness_lexical"] = self._hard(shares)
        return row

    def _supports(self, text: _Text, question: frozenset[str], places: Sequence[Said]) -> list[float]:
        """Return the support of each statement that says more than the question."""
        rest = [statement.without(question) for statement in text.statements]
        return [support(statement, places, self.weight) for statement in rest if statement.stems]

    def _hard(self, supports: Sequence[float]) -> float:
        return _mean([float(value >= self.config.least_support) for value in supports])


def _partners(items: Mapping[int, _Item], rng: np.random.Generator) -> dict[int, int]:
    """Return for each question another of its type, each lent once; a question alone of its type has none."""
    groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for i, item in items.items():
        groups[item.type, item.answer is not None].append(i)
    partners: dict[int, int] = {}
    for members in groups.values():
        order = rng.permutation(members).tolist()
        if len(order) > 1:
            partners |= dict(zip(order, [*order[1:], order[0]], strict=True))
    return partners


def _similarities(
    items: Mapping[int, _Item], partner: Mapping[int, int], encode: Callable[[Sequence[str]], np.ndarray]
) -> dict[int, tuple[float, float]]:
    """Return the best cosine of each long answer with its references, and with those of its partner (NaN: no partner).

    A blank text has a zero vector.
    """
    texts_of = {i: (item.answer, *item.references) for i, item in items.items() if item.answer is not None}
    texts = list(dict.fromkeys(text.text for of in texts_of.values() for text in of if text.words))
    if not texts:
        return {}
    rows = encode(texts)
    vectors = defaultdict(lambda: np.zeros(rows.shape[1]), zip(texts, rows, strict=True))

    def cosine(i: int, j: int) -> float:
        return max(float(vectors[reference.text] @ vectors[texts_of[i][0].text]) for reference in texts_of[j][1:])

    return {i: (cosine(i, i), cosine(i, partner[i]) if i in partner else math.nan) for i in texts_of}


def _columns(rows: Mapping[int, Mapping[str, float]], size: int) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for i, row in rows.items():
        for name, value in row.items():
            columns.setdefault(f"{TEXT}{name}", np.full(size, math.nan))[i] = value
    return columns


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def cut(text: str, words: int | None) -> str:
    """Return the first words of a text, with the blanks between them."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return text if words is None or len(ends) <= words else text[: ends[words - 1]]


def rouge_l(answer: str, reference: str) -> float:
    """Return ROUGE-L with stemming: the F-measure of the longest common subsequence of tokens, 0 where one is blank."""
    a, b = _tokens(answer), _tokens(reference)
    common = LCSseq.similarity(a, b)
    return 2 * common / (len(a) + len(b)) if common else 0.0


@lru_cache(maxsize=65536)
def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_tokenizer().tokenize(text))


@cache
def _tokenizer() -> Any:
    from rouge_score.tokenizers import DefaultTokenizer  # takes seconds to import

    return DefaultTokenizer(use_stemmer=True)
