"""Metrics for questions whose reference answers are a sentence or more, and for those without gold passages.

None of them asks a model. A name ends in how the metric compares, `_lexical` (by words) or `_embedding`: no such figure
stands in a column with those of a judge. NaN says that a metric is not defined for a question. After the answer metrics
of GraphRAG-Bench (arXiv 2506.05690), which ask a judge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from gnnrag.config import LongAnswersConfig
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
TEXT_VERSION = 1  # of their definitions: figures of two versions do not compare
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
    passages: Mapping[str, Passage]
    encode: Callable[[Sequence[str]], np.ndarray] | None = None
    embedder: str = ""  # its name


@dataclass(frozen=True)
class _Text:
    text: str
    words: int
    stems: frozenset[str]
    statements: Sequence[Said]
    places: Sequence[Said]  # that may hold a statement

    @classmethod
    def read(cls, text: str) -> _Text:
        start = text[:_MAX_CHARACTERS]
        return cls(text, count_words(text), content_stems(text), statements(start), windows(start))


def compare_texts(
    pairs: Sequence[tuple[Question, Prediction]], material: Material, config: LongAnswersConfig
) -> dict[str, np.ndarray]:
    """Compare answers and rankings with the references of questions that are long or have no gold passages.

    Args:
        pairs: questions, each with its prediction; a failed one scores 0.
        material: the corpus; without `encode` there are no metrics by embedding.
        config: budget of tokens, length that answers are cut to.

    Returns:
        Metrics by name, (n,) each, best of several references; empty where no question is compared.

        - `rouge_l`, `cosine_embedding`: of the whole texts; `words`: of the answer.
        - `coverage_lexical`: mean support of the reference's statements in the answer.
        - `context_coverage_lexical@1000`: the share of the reference's content words, by weight, that the first 1,000
          tokens retrieved have.

        What the question says is left out of statements and words.
    """
    compared = [i for i, (question, _) in enumerate(pairs) if is_compared(question)]
    if not compared:
        return {}
    counter = TokenCounter(config.tokenizer)
    weight = inverse_frequencies(passage.content for passage in material.passages.values())
    places_of = lru_cache(maxsize=None)(lambda id_: windows(material.passages[id_].content))

    def first_places(ids: Iterable[str]) -> list[Said]:
        """Return what stands in the first `context_tokens` of passages, best first; the last one is cut."""
        places, budget = list[Said](), config.context_tokens
        for id_ in ids:
            if id_ not in material.passages:
                continue
            text = material.passages[id_].content
            size = counter.count(text)
            if size > budget:
                words = text.split()
                places += windows(" ".join(words[: counter.fit(words, budget, " ")]))
                break
            places += places_of(id_)
            budget -= size
        return places

    rows: dict[int, dict[str, float]] = {}
    texts: dict[int, tuple[_Text, list[_Text]]] = {}  # long answers with their references
    for i in compared:
        question, prediction = pairs[i]
        failed, asked = prediction.error is not None, content_stems(question.text)
        references = [_Text.read(reference) for reference in question.answers]
        retrieved = [] if failed else first_places(prediction.ranking)
        stems = frozenset[str]().union(*(place.stems for place in retrieved))
        answer = None
        if is_long(question):
            answer = _Text.read("" if failed else cut(without_citations(prediction.answer), config.answer_words))
            texts[i] = answer, references
        row: dict[str, float] = {}
        for reference in references:
            new = [statement.without(asked) for statement in reference.statements]  # what they say beyond the question
            values = {
                f"context_coverage_lexical@{config.context_tokens}": coverage(reference.stems - asked, stems, weight)
            }
            if answer:
                supports = [support(statement, answer.places, weight) for statement in new if statement.stems]
                values |= {"rouge_l": rouge_l(answer.text, reference.text), "coverage_lexical": _mean(supports)}
            row |= {name: float(np.fmax(row.get(name, math.nan), value)) for name, value in values.items()}
        if answer:
            row["words"] = float(answer.words)
        rows[i] = row
    if material.encode:
        for i, cosine in _similarities(texts, material.encode).items():
            rows[i]["cosine_embedding"] = cosine
    columns: dict[str, np.ndarray] = {}
    for i, row in rows.items():
        for name, value in row.items():
            columns.setdefault(f"{TEXT}{name}", np.full(len(pairs), math.nan))[i] = value
    return columns


def _similarities(
    texts: Mapping[int, tuple[_Text, Sequence[_Text]]], encode: Callable[[Sequence[str]], np.ndarray]
) -> dict[int, float]:
    """Return the best cosine of each long answer with its references; a blank text has a zero vector."""
    named = dict.fromkeys(t.text for answer, references in texts.values() for t in (answer, *references) if t.words)
    if not named:
        return {}
    vectors = encode(list(named))
    row_of = {text: row for text, row in zip(named, vectors, strict=True)}
    zero = np.zeros(vectors.shape[1])
    return {
        i: max(float(row_of.get(r.text, zero) @ row_of.get(answer.text, zero)) for r in references)
        for i, (answer, references) in texts.items()
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def cut(text: str, words: int | None) -> str:
    """Return the first `words` words of a text, its white space unchanged; None: all of it."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return text if words is None or len(ends) <= words else text[: ends[words - 1]]


def rouge_l(answer: str, reference: str) -> float:
    """Return the F-measure of ROUGE-L with stemming, 0 where one is blank."""
    return float(_scorer().score(reference, answer)["rougeL"].fmeasure)


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # takes seconds to import

    return RougeScorer(["rougeL"], use_stemmer=True)
