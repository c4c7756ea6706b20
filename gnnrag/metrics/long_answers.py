"""Metrics for questions whose reference answers are a sentence or more, and for those without gold passages.

None of them asks a model. A name ends in how the metric compares, `_lexical` (by words) or `_embedding`: no such figure
stands in a column with those of a judge. NaN says that a metric is not defined for a question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.config import LongAnswersConfig
from gnnrag.text.support import Weight, content_stems, coverage, inverse_frequencies
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Passage, Prediction, Question

TEXT = "text/"  # begins the names of `text_metrics`
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
    """What answers and rankings are compared with beside the references: the corpus."""

    passages: Mapping[str, Passage]

    @classmethod
    def of(cls, passages: Iterable[Passage]) -> Material:
        """Return the material of a corpus."""
        return cls({passage.id: passage for passage in passages})

    def weight(self) -> Weight:
        """Return the weight of a stem in the corpus."""
        return inverse_frequencies(passage.content for passage in self.passages.values())


def first_tokens(texts: Iterable[str], budget: int, counter: TokenCounter) -> list[str]:
    """Return texts until their tokens reach a budget, the last one cut at a word."""
    kept: list[str] = []
    for text in texts:
        size = counter.count(text)
        if size > budget:
            words = text.split()
            kept.append(" ".join(words[: counter.fit(words, budget, " ")]))
            break
        kept.append(text)
        budget -= size
    return [text for text in kept if text]


def text_metrics(
    pairs: Sequence[tuple[Question, Prediction]], material: Material, config: LongAnswersConfig
) -> dict[str, np.ndarray]:
    """Return the metrics, (n,) each by name, of questions and their predictions; none where no question has any.

    `text/context_coverage_lexical@1000`: the share of the reference answers' content words that the first 1,000 tokens
    retrieved have; of stems, without those of the question, weighted by inverse document frequency; the best reference
    counts.
    """
    budget, counter = config.context_tokens, TokenCounter(config.tokenizer)
    asked = [number for number, (question, _) in enumerate(pairs) if is_compared(question)]
    if not asked:
        return {}
    weight = material.weight()
    values = np.full(len(pairs), math.nan)
    for number in asked:
        question, prediction = pairs[number]
        read = (material.passages[id_].content for id_ in prediction.ranking if id_ in material.passages)
        texts = first_tokens(read, budget, counter) if prediction.error is None else []
        found = frozenset[str]().union(*map(content_stems, texts))
        of_question = content_stems(question.text)
        shares = [coverage(content_stems(answer) - of_question, found, weight) for answer in question.answers]
        values[number] = max((share for share in shares if not math.isnan(share)), default=math.nan)
    return {f"{TEXT}context_coverage_lexical@{budget}": values}
