"""Answer metrics: exact match, token F1 and sub-string match, normalised (HippoRAG 2), best of the accepted answers.

No accepted answer means that the corpus cannot answer: an empty prediction is then right, anything else is wrong. Where
an answer's normal form is empty (`The`, `+`), the text before it is compared. Letters (`A`, `A, C`) are choices, and
compared as a set.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

F1Variant = Literal["hipporag", "hotpot", "squad"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SENTENCE_MARKS = {mark: gone for mark, gone in _PUNCTUATION.items() if chr(mark) not in "+-#*/%<>="}  # `A+` is no `A-`
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED_ANSWERS = frozenset(("yes", "no", "noanswer"))


def normalise_answer(text: str) -> str:
    """Return `text` lower-cased, without ASCII punctuation and articles, with single spaces.

    As in the published scripts, punctuation is deleted, not replaced, and Unicode quotes and dashes stay.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _forms(text: str) -> tuple[str, str, str, str]:
    """Return a text normalised, with its articles, with signs such as `+` too, and with all punctuation."""
    lowered = " ".join(text.lower().split())
    bare, signed = (" ".join(lowered.translate(marks).split()) for marks in (_PUNCTUATION, _SENTENCE_MARKS))
    return normalise_answer(text), bare, signed, lowered


# `A`, `(B)`, `A, C.`, `A and D`; no initials
_LETTERS = re.compile(
    r"[\s(\[]*[A-J][)\]:]?(?:(?:\s*[,;/&|+]\s*|\s+)(?:(?:and|or|AND|OR)\s+)?[(\[]?[A-J][)\]:]?)*[\s.)\]]*"
)
_LETTER = re.compile(
    r"(?<![\w'’])(?<![^\WA-J]/)[A-J](?![\w'’])(?!\s+(?!and\b|or\b)[a-z])"
)  # no `N/A`; `A` before a small word is an article
_SIGNED = re.compile(r"\b[A-Za-z](?:[+#]+(?!\w)|-$)")  # `C++` and `C#`: the published scripts take both for `C`
_AROUND = re.compile(r"(?<!\w)['\"*]+|['\"*]+(?!\w)")  # of a letter in a list of Python, or in bold


def letters_of(text: str) -> frozenset[str]:
    """Return the letters that a text consists of, as an answer to a question with choices; else none."""
    text = _AROUND.sub(" ", text)
    return frozenset(re.findall(r"\b[A-J]\b", text)) if _LETTERS.fullmatch(text) else frozenset()


def is_abstention(prediction: str) -> bool:
    return not prediction.strip()


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the normalised prediction equals a normalised answer, else 0.0."""
    return _best(prediction, answers, _equal, _equal)


def f1(prediction: str, answers: Sequence[str], variant: F1Variant = "hipporag") -> float:
    """Return the best token F1 over the answers; no answers means a question that cannot be answered.

    `variant`: `hipporag`: no overlap is 0. `hotpot`: additionally 0 if one side is yes, no or noanswer and the other
    differs. `squad`: two empty sides are 1.
    """
    return _best(prediction, answers, lambda p, a: _token_f1(p, a, variant), _letter_f1)


def sub_em(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if a normalised answer is a sub-string of the normalised prediction ("no" is in "know")."""
    return _best(prediction, answers, lambda p, a: float(a in p), _holds, is_part=True)


def sub_em_tok(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the tokens of an answer occur in a row in the prediction ("no" is not in "know")."""
    return _best(prediction, answers, lambda p, a: float(f" {a} " in f" {p} "), _holds, is_part=True)


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


Letters = frozenset[str]


def _equal(prediction: object, answer: object) -> float:
    return float(prediction == answer)


def _letter_f1(prediction: Letters, answer: Letters) -> float:
    return 2 * len(prediction & answer) / (len(prediction) + len(answer))


def _holds(prediction: Letters, answer: Letters) -> float:
    return float(answer <= prediction)


def _best(
    prediction: str,
    answers: Sequence[str],
    of_texts: Callable[[str, str], float],
    of_letters: Callable[[Letters, Letters], float],
    is_part: bool = False,
) -> float:
    """Return the best value over the answers that are not blank; one without a normal form is compared as a whole.

    `is_part`: the letters of choices may stand within the prediction.
    """
    answers = [answer for answer in answers if answer.strip()]
    if not answers:
        return float(is_abstention(prediction))
    said, given = _forms(prediction), letters_of(prediction.upper())
    if is_part and not given:
        given = frozenset(_LETTER.findall(prediction))
    values = []
    for answer in answers:
        forms, letters = _forms(answer), letters_of(answer)
        if letters and (given or is_part):
            values.append(of_letters(given, letters))
        elif forms[0] and "A" not in letters and not (_SIGNED.fullmatch(said[2]) and _SIGNED.fullmatch(forms[2])):
            values.append(of_texts(said[0], forms[0]))
        else:
            level = 2 if forms[2] else 3  # an A alone is an article
            values.append(_equal(said[level], forms[level]))
    return max(values)


def _token_f1(prediction: str, answer: str, variant: str) -> float:
    if variant == "squad" and not (prediction and answer):
        return float(prediction == answer)
    if variant == "hotpot" and prediction != answer and _CLOSED_ANSWERS & {prediction, answer}:
        return 0.0
    predicted, gold = prediction.split(), answer.split()
    common = sum((Counter(predicted) & Counter(gold)).values())
    return 2 * common / (len(predicted) + len(gold)) if common else 0.0
