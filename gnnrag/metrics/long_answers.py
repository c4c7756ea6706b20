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
from dataclasses import dataclass, field, replace
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
# Rank correlation with 50 hand labels below 0.3 (docs/evaluation.md): in metrics.json, but in no table.
UNCONFIRMED = (f"{TEXT}factual_precision_lexical", f"{TEXT}factual_f1_lexical")
MAX_CHARACTERS = 3_000  # of an answer or reference in which statements are looked for, as in the benchmark
LEAST_WORDS, LONG_WORDS = 4, 12  # of a sentence that ends with a full stop; of any answer that is no short one


def is_sentence(answer: str) -> bool:
    """Tell whether an answer is a sentence or more: so long, or ends with a full stop and is not written as a name."""
    words = answer.split()
    if len(words) >= LONG_WORDS:
        return True
    capital = sum(word[:1].isupper() for word in words[1:])
    return len(words) >= LEAST_WORDS and answer.rstrip().endswith(".") and 2 * capital < len(words)


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
    """Metrics, (n,) each by name, and the same where the references (of faithfulness: passages) are another question's.

    That is the floor that any answer reaches. `random` holds context metrics for passages drawn by chance.
    """

    columns: dict[str, np.ndarray] = field(default_factory=dict)
    floors: dict[str, np.ndarray] = field(default_factory=dict)
    random: dict[str, np.ndarray] = field(default_factory=dict)
    embedder: str = ""

    def summary(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Return what must be known beside the means: the embedder, floors, and how far above them the means are."""
        types = np.array([q.type for q in questions])
        groups = {str(name): types == name for name in np.unique(types)}
        everything = np.ones(len(questions), dtype=bool)
        return {
            "version": VERSION,
            "questions": sum(map(is_compared, questions)),
            "long": sum(map(is_long, questions)),
            "embedder": self.embedder,
            "floors": self._floors(everything),
            "by_type": {name: floors for name, rows in groups.items() if (floors := self._floors(rows))},
            "random_passages": {name: mean(values) for name, values in self.random.items()},
        }

    def _floors(self, rows: np.ndarray) -> dict[str, dict[str, float]]:
        found = {}
        for name, floors in self.floors.items():
            both = rows & ~np.isnan(floors) & ~np.isnan(self.columns[name])
            if both.any():
                value, floor = float(self.columns[name][both].mean()), float(floors[both].mean())
                above = (value - floor) / (1 - floor) if floor < 1 else 0.0
                found[name] = {"floor": round(floor, 4), "above": round(above, 4)}
        return found


def mean(values: np.ndarray) -> float | None:
    """Return the rounded mean over the questions for which a metric is defined; None where there are none."""
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 4) if len(known) else None


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
        short = text[:MAX_CHARACTERS]
        return cls(text, count_words(text), content_stems(text), statements(short), windows(short))


@dataclass(frozen=True)
class _Asked:
    """A question with what is compared: references, the answer, what was retrieved first, and what the reader saw."""

    references: Sequence[_Text]
    words: frozenset[str]
    answer: _Text | None
    found: Sequence[Sequence[Said]]
    read: Sequence[Sequence[Said]]


def compare_texts(
    pairs: Sequence[tuple[Question, Prediction]], material: Material, config: LongAnswersConfig, seed: int = 0
) -> TextScores:
    """Compare answers and rankings with the references of questions that are long or have no gold passages.

    Args:
        pairs: questions, each with its prediction; a failed one scores 0.
        material: the corpus; without `encode` there are no metrics by embedding.
        config: budget of tokens, threshold of support, length that answers are cut to.
        seed: of the questions that lend their references for the floor, and of the random passages.

    Returns:
        Metrics by name, best of several references. `rouge_l`, `token_f1`: of the whole texts. `cosine_embedding`, and
        rescaled: (cos - m) / (1 - m), m the mean of the type's mismatched pairs. `coverage_lexical`: mean support of
        the reference's statements in the answer, `coverage_hard_lexical` the share at or above the threshold.
        `factual_precision_lexical`: the share of the answer's statements so supported by the reference, and F1 of the
        two. `faithfulness_lexical`: the share of the answer's statements that one passage read supports; not defined
        for a blank answer. `context_coverage_lexical@1000`: the share of the reference's content words, by weight,
        that the first 1,000 tokens retrieved have; `context_recall_lexical@1000`: mean support of its statements
        there. What the question says is left out of statements and words, but for faithfulness. Empty where no
        question is compared.
    """
    if not any(is_compared(question) for question, _ in pairs):
        return TextScores()
    return _Comparison(pairs, material, config, seed).scores()


class _Comparison:
    def __init__(
        self, pairs: Sequence[tuple[Question, Prediction]], material: Material, config: LongAnswersConfig, seed: int
    ) -> None:
        self.pairs, self.material, self.config = pairs, material, config
        self.rng = np.random.default_rng(seed)
        self.counter = TokenCounter(config.tokenizer)
        self.weight = inverse_frequencies(passage.content for passage in material.passages.values())
        self.places = lru_cache(maxsize=None)(lambda id_: windows(material.passages[id_].content))
        self.asked = {i: self._asked(q, p) for i, (q, p) in enumerate(pairs) if is_compared(q)}
        self.other = self._partners()

    def scores(self) -> TextScores:
        """Return all metrics, with their floors."""
        rows = {i: self._row(one, one.references, one.read) for i, one in self.asked.items()}
        floors = {
            i: self._row(self.asked[i], self.asked[j].references, self.asked[j].read) for i, j in self.other.items()
        }
        ids = sorted(self.material.passages)
        chance = {}
        for i, one in self.asked.items():
            drawn = [ids[j] for j in self.rng.permutation(len(ids))[: self.config.context_tokens]]
            chance[i] = self._context_row(replace(one, found=self._first(drawn)), one.references)
        for i, one in self.asked.items():
            if one.answer is not None:
                longest = max(reference.words for reference in one.references)
                rows[i] |= {"words": float(one.answer.words), "reference_words": float(longest)}
        columns, lower = self._columns(rows), self._columns(floors)
        if self.material.encode:
            self._embed(columns, lower)
        return TextScores(columns, lower, self._columns(chance), self.material.embedder)

    def _asked(self, question: Question, prediction: Prediction) -> _Asked:
        has_failed = prediction.error is not None
        answer = cut(without_citations(prediction.answer), self.config.answer_words) if not has_failed else ""
        known = [id_ for id_ in prediction.context if id_ in self.material.passages]
        return _Asked(
            [_Text.read(reference) for reference in question.answers],
            content_stems(question.text),
            _Text.read(answer) if is_long(question) else None,
            self._first([] if has_failed else prediction.ranking),
            [] if has_failed else [self.places(id_) for id_ in known],
        )

    def _first(self, ids: Iterable[str]) -> list[Sequence[Said]]:
        """Return what stands in the first tokens of passages, best first, each passage on its own."""
        places, budget = list[Sequence[Said]](), self.config.context_tokens
        for id_ in ids:
            if id_ not in self.material.passages:
                continue
            text = self.material.passages[id_].content
            size = self.counter.count(text)
            if size > budget:
                words = text.split()
                places.append(windows(" ".join(words[: self.counter.fit(words, budget, " ")])))
                break
            places.append(self.places(id_))
            budget -= size
        return places

    def _partners(self) -> dict[int, int]:
        """Return for each question compared another of its type, each lent once; of a type alone there is none."""
        groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for i, one in self.asked.items():
            groups[self.pairs[i][0].type, one.answer is not None].append(i)
        partners: dict[int, int] = {}
        for members in groups.values():
            order = self.rng.permutation(members).tolist()
            if len(order) > 1:
                partners |= dict(zip(order, [*order[1:], order[0]], strict=True))
        return partners

    def _row(self, one: _Asked, references: Sequence[_Text], read: Sequence[Sequence[Said]]) -> dict[str, float]:
        row = self._context_row(one, references)
        if (answer := one.answer) is None:
            return row
        row |= best(self._answer_row(one, answer, reference) for reference in references)
        shares = [max((self._support(s, places) for places in read), default=0.0) for s in answer.statements]
        row["faithfulness_lexical"] = self._hard(shares)
        return row

    def _context_row(self, one: _Asked, references: Sequence[_Text]) -> dict[str, float]:
        found = frozenset[str]().union(*(place.stems for places in one.found for place in places))
        ending = f"@{self.config.context_tokens}"
        places = [place for passage in one.found for place in passage]
        return best(
            {
                f"context_coverage_lexical{ending}": coverage(reference.stems - one.words, found, self.weight),
                f"context_recall_lexical{ending}": average(self._supports(reference, one.words, places)),
            }
            for reference in references
        )

    def _answer_row(self, one: _Asked, answer: _Text, reference: _Text) -> dict[str, float]:
        supports = self._supports(reference, one.words, answer.places)
        recall = self._hard(supports)
        precision = self._hard(self._supports(answer, one.words, reference.places))
        found = precision if answer.statements else 0.0
        return {
            "rouge_l": rouge_l(answer.text, reference.text),
            "token_f1": f1(answer.text, [reference.text]),
            "coverage_lexical": average(supports),
            "coverage_hard_lexical": recall,
            "factual_precision_lexical": found,
            "factual_f1_lexical": 2 * found * recall / (found + recall) if found + recall else 0.0,
        }

    def _supports(self, of: _Text, question: frozenset[str], places: Sequence[Said]) -> list[float]:
        """Return the support of each statement that says more than the question."""
        left = [statement.without(question) for statement in of.statements]
        return [self._support(statement, places) for statement in left if statement.stems]

    def _support(self, statement: Said, places: Sequence[Said]) -> float:
        return support(statement, places, self.weight)

    def _hard(self, supports: Sequence[float]) -> float:
        return average([float(value >= self.config.least_support) for value in supports])

    def _columns(self, rows: Mapping[int, Mapping[str, float]]) -> dict[str, np.ndarray]:
        columns: dict[str, np.ndarray] = {}
        for i, row in rows.items():
            for name, value in row.items():
                columns.setdefault(f"{TEXT}{name}", np.full(len(self.pairs), math.nan))[i] = value
        return columns

    def _embed(self, columns: dict[str, np.ndarray], floors: dict[str, np.ndarray]) -> None:
        """Add the similarity of the whole texts, all of them embedded in one batch."""
        long = {i: one for i, one in self.asked.items() if one.answer is not None}
        if not long or self.material.encode is None:
            return
        texts = dict.fromkeys(t.text for one in long.values() for t in (one.answer, *one.references) if t and t.words)
        rows_of = self.material.encode(list(texts))
        vectors = defaultdict(lambda: np.zeros(rows_of.shape[1]), zip(texts, rows_of, strict=True))
        groups: dict[str, list[int]] = defaultdict(list)
        for i in long:
            groups[self.pairs[i][0].type].append(i)
        for members in groups.values():
            rows = {i: vectors[answer.text] for i in members if (answer := long[i].answer)}
            references = {i: np.stack([vectors[r.text] for r in long[i].references]) for i in members}
            level = mismatched([rows[i] for i in members], [references[i] for i in members])
            for i in members:
                for into, j in ((columns, i), (floors, self.other.get(i))):
                    if j is not None:
                        cosine = float((references[j] @ rows[i]).max())
                        self._put(into, i, "cosine_embedding", cosine)
                        # Where all answers and references of a type are the same, nothing is left to tell.
                        rescaled = (cosine - level) / (1 - level) if level < 1 - 1e-6 else math.nan
                        self._put(into, i, "cosine_rescaled_embedding", rescaled)

    def _put(self, into: dict[str, np.ndarray], i: int, name: str, value: float) -> None:
        into.setdefault(f"{TEXT}{name}", np.full(len(self.pairs), math.nan))[i] = value


def mismatched(rows: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> float:
    """Return the mean cosine of answers and other questions' references; NaN where there is one question only."""
    own = sum(float((of @ row).sum()) for row, of in zip(rows, references, strict=True))
    every = float(np.sum(rows, axis=0) @ np.concatenate(references).sum(axis=0))
    pairs = (len(rows) - 1) * sum(map(len, references))
    return (every - own) / pairs if pairs else math.nan


def best(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the best of each metric over references; NaN where it is defined for none."""
    found: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            found[name] = value if math.isnan(found.get(name, math.nan)) else max(found[name], value)
    return found


def average(values: Sequence[float]) -> float:
    """Return the mean; NaN where there are no values."""
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
    from rouge_score.tokenizers import DefaultTokenizer  # seconds of import time, for long answers alone

    return DefaultTokenizer(use_stemmer=True)
