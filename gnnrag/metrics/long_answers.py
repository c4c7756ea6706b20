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
from functools import cache
from typing import Any

import numpy as np

from gnnrag.text.sentences import count_words
from gnnrag.text.support import content_stems, coverage, inverse_frequencies, without_citations
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Passage, Prediction, Question

TEXT = "text/"  # begins the names of these metrics
CONTEXT_TOKENS = 1_000  # of the retrieved passages, best first, that are scored: the same for all methods
COVERAGE = f"{TEXT}context_coverage_lexical@{CONTEXT_TOKENS}"
TEXT_VERSION = 2  # of their definitions: figures of two versions do not compare
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


def compare_texts(
    pairs: Sequence[tuple[Question, Prediction]], material: Material, answer_words: int | None = None
) -> dict[str, np.ndarray]:
    """Compare answers and rankings with the references of questions that are long or have no gold passages.

    Args:
        pairs: questions, each with its prediction; a failed one scores 0.
        material: the corpus; without `encode` there are no metrics by embedding.
        answer_words: that answers are cut to; None: whole answers.

    Returns:
        Metrics by name, (n,) each, best of several references; empty where no question is compared.

        - `rouge_l`, `cosine_embedding`: of the whole texts; `words`: of the answer.
        - `context_coverage_lexical@1000`: the share of the reference's content words, by weight, that the first 1,000
          tokens retrieved have. Words of the question are left out.
    """
    compared = [i for i, (question, _) in enumerate(pairs) if is_compared(question)]
    if not compared:
        return {}
    counter = TokenCounter()
    weight = inverse_frequencies(passage.content for passage in material.passages.values())
    stems_of = cache(lambda id_: content_stems(material.passages[id_].content))

    def first_stems(ids: Iterable[str]) -> set[str]:
        """Return the stems in the first `CONTEXT_TOKENS` of passages, best first; the last one is cut."""
        stems, budget = set[str](), CONTEXT_TOKENS
        for id_ in ids:
            if id_ not in material.passages:
                continue
            text = material.passages[id_].content
            size = counter.count(text)
            if size > budget:
                words = text.split()
                return stems | content_stems(" ".join(words[: counter.fit(words, budget, " ")]))
            stems |= stems_of(id_)
            budget -= size
        return stems

    rows: dict[int, dict[str, float]] = {}
    texts: dict[int, tuple[str, Sequence[str]]] = {}  # long answers with their references
    for i in compared:
        (question, prediction), failed = pairs[i], pairs[i][1].error is not None
        asked, stems = content_stems(question.text), set() if failed else first_stems(prediction.ranking)
        shares = [coverage(content_stems(reference) - asked, stems, weight) for reference in question.answers]
        rows[i] = {COVERAGE: float(np.fmax.reduce(shares))}
        if is_long(question):
            answer = "" if failed else cut(without_citations(prediction.answer), answer_words)
            texts[i] = answer, question.answers
            rows[i][f"{TEXT}rouge_l"] = max(rouge_l(answer, reference) for reference in question.answers)
            rows[i][f"{TEXT}words"] = float(count_words(answer))
    if material.encode:
        for i, cosine in _similarities(texts, material.encode).items():
            rows[i][f"{TEXT}cosine_embedding"] = cosine
    columns: dict[str, np.ndarray] = {}
    for i, row in rows.items():
        for name, value in row.items():
            columns.setdefault(name, np.full(len(pairs), math.nan))[i] = value
    return columns


def _similarities(
    texts: Mapping[int, tuple[str, Sequence[str]]], encode: Callable[[Sequence[str]], np.ndarray]
) -> dict[int, float]:
    """Return the best cosine of each long answer with its references; a blank text has a zero vector."""
    named = dict.fromkeys(t for answer, references in texts.values() for t in (answer, *references) if count_words(t))
    if not named:
        return {}
    vectors = encode(list(named))
    row_of = dict(zip(named, vectors, strict=True))
    zero = np.zeros(vectors.shape[1])
    return {
        i: max(float(row_of.get(r, zero) @ row_of.get(answer, zero)) for r in references)
        for i, (answer, references) in texts.items()
    }


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
