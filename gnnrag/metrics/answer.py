"""Answer metrics: exact match, token F1 and sub-string match, normalised (HippoRAG 2), best of the accepted answers.

No accepted answer means that the corpus cannot answer: an empty prediction is then right, anything else is wrong.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, get_args

F1Variant = Literal["hipporag", "hotpot", "squad"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED_ANSWERS = frozenset(("yes", "no", "noanswer"))


def normalise_answer(text: str) -> str:
    """Return `text` lower-cased, without ASCII punctuation and articles, with single spaces.

    As in the published scripts, punctuation is deleted, not replaced, and Unicode quotes and dashes stay.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def is_abstention(prediction: str) -> bool:
    return not prediction.strip()


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the normalised prediction equals a normalised answer, else 0.0."""
    return _best(prediction, answers, lambda p, a: float(p == a))


def f1(prediction: str, answers: Sequence[str], variant: str = "hipporag") -> float:
    """Return the best token F1 over the answers; no answers means a question that cannot be answered.

    `variant`: `hipporag`: no overlap is 0, even if both sides are empty. `hotpot`: additionally 0 if one side is yes,
    no or noanswer and the other differs. `squad`: two empty sides are 1. Raises ValueError for any other.
    """
    if variant not in get_args(F1Variant):
        raise ValueError(f"f1_variant={variant!r}: allowed are {', '.join(get_args(F1Variant))}")
    return _best(prediction, answers, lambda p, a: _token_f1(p, a, variant))


def sub_em(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if a normalised answer is a sub-string of the normalised prediction ("no" is in "know"; "" in all)."""
    return _best(prediction, answers, lambda p, a: float(a in p))


def sub_em_tok(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the tokens of an answer occur in a row in the prediction ("no" is not in "know")."""
    return _best(prediction, answers, lambda p, a: float(f" {a} " in f" {p} " if a else a == p))


def gives_away(text: str, question: str, answers: Sequence[str]) -> bool:
    """Tell whether a text has the tokens of an answer that its question does not have: yes and no give nothing away."""
    open_ones = [a for a in answers if normalise_answer(a) not in _CLOSED_ANSWERS | {""}]
    return any(sub_em_tok(text, [a]) > sub_em_tok(question, [a]) for a in open_ones)


def _best(prediction: str, answers: Sequence[str], metric: Callable[[str, str], float]) -> float:
    if not answers:
        return float(is_abstention(prediction))
    normalised = normalise_answer(prediction)
    return max(metric(normalised, normalise_answer(answer)) for answer in answers)


def _token_f1(prediction: str, answer: str, variant: str) -> float:
    if variant == "squad" and not (prediction and answer):
        return float(prediction == answer)
    if variant == "hotpot" and prediction != answer and _CLOSED_ANSWERS & {prediction, answer}:
        return 0.0
    predicted, gold = prediction.split(), answer.split()
    common = sum((Counter(predicted) & Counter(gold)).values())
    return 2 * common / (len(predicted) + len(gold)) if common else 0.0
