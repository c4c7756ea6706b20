"""Answer metrics: exact match, token F1 and sub-string match, normalised (HippoRAG 2), best of the accepted answers.

No accepted answer means that the corpus cannot answer: an empty prediction is then right, anything else is wrong. Where
an answer's normal form is empty (`The`, `+`) or lacks the letter of a choice (`A, C`), whole texts are compared.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

F1Variant = Literal["hipporag", "hotpot", "squad"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MARKS = str.maketrans("", "", string.punctuation.replace("+", "").replace("-", ""))  # `A+` is no `A-`
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LETTERS = re.compile(r"(?=.*\ba\b)\w(?: \w)*")  # of choices, the A among them
_CLOSED_ANSWERS = frozenset(("yes", "no", "noanswer"))


def normalise_answer(text: str) -> str:
    """Return `text` lower-cased, without ASCII punctuation and articles, with single spaces.

    As in the published scripts, punctuation is deleted, not replaced, and Unicode quotes and dashes stay.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _whole(text: str) -> str:
    """Return a text with its articles, and with its punctuation where it has nothing else."""
    lowered = " ".join(text.lower().split())
    return " ".join(lowered.translate(_MARKS).split()) or lowered


def is_abstention(prediction: str) -> bool:
    return not prediction.strip()


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the normalised prediction equals a normalised answer, else 0.0."""
    return _best(prediction, answers, lambda p, a: float(p == a))


def f1(prediction: str, answers: Sequence[str], variant: F1Variant = "hipporag") -> float:
    """Return the best token F1 over the answers; no answers means a question that cannot be answered.

    `variant`: `hipporag`: no overlap is 0. `hotpot`: additionally 0 if one side is yes, no or noanswer and the other
    differs. `squad`: two empty sides are 1.
    """
    return _best(prediction, answers, lambda p, a: _token_f1(p, a, variant))


def sub_em(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if a normalised answer is a sub-string of the normalised prediction ("no" is in "know")."""
    return _best(prediction, answers, lambda p, a: float(a in p))


def sub_em_tok(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the tokens of an answer occur in a row in the prediction ("no" is not in "know")."""
    return _best(prediction, answers, lambda p, a: float(f" {a} " in f" {p} "))


def list_scores(prediction: str, answers: Sequence[str]) -> dict[str, float]:
    """Return RoG's Hit@1 and F1 of a list of answers, an item a line or between semicolons; its Hit is `sub_em`.

    A gold answer counts where `sub_em` finds it anywhere in the list. Precision is their number by that of the items;
    as released it may exceed 1, where one item holds several answers, here not.
    """
    items = [item for item in re.split(r"[\n;]", prediction) if item.strip()]
    held = sum(sub_em(" ".join(items), [answer]) for answer in answers)
    precision, recall = min(held / max(len(items), 1), 1.0), held / max(len(answers), 1)
    score = 2 * precision * recall / (precision + recall) if held else 0.0
    return {"answer/hit@1": sub_em(items[0], answers) if items else 0.0, "answer/list_f1": score}


def gives_away(text: str, question: str, answers: Sequence[str]) -> bool:
    """Tell whether a text has the tokens of an answer that its question does not have: yes and no give nothing away."""
    open_ones = [a for a in answers if normalise_answer(a) not in _CLOSED_ANSWERS | {""}]
    return any(sub_em_tok(text, [a]) > sub_em_tok(question, [a]) for a in open_ones)


def _best(prediction: str, answers: Sequence[str], compare: Callable[[str, str], float]) -> float:
    """Return the best value over the answers that are not blank.

    An answer whose normal form is empty, or lacks a choice (`A, B`), is right only as a whole.
    """
    answers = [answer for answer in answers if answer.strip()]
    if not answers:
        return float(is_abstention(prediction))
    values = []
    for answer in answers:
        normal, whole = normalise_answer(answer), _whole(answer)
        if normal and not _LETTERS.fullmatch(whole):
            values.append(compare(normalise_answer(prediction), normal))
        else:
            values.append(float(_whole(prediction) == whole))
    return max(values)


def _token_f1(prediction: str, answer: str, variant: str) -> float:
    if variant == "squad" and not (prediction and answer):
        return float(prediction == answer)
    if variant == "hotpot" and prediction != answer and _CLOSED_ANSWERS & {prediction, answer}:
        return 0.0
    predicted, gold = prediction.split(), answer.split()
    common = sum((Counter(predicted) & Counter(gold)).values())
    return 2 * common / (len(predicted) + len(gold)) if common else 0.0
