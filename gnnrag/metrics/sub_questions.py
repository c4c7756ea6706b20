"""How well the queries of a run match the gold sub-questions: a decomposition evaluated by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gnnrag.metrics.answer import f1
from gnnrag.types import Question


def gold_sub_questions(question: Question) -> tuple[str, ...]:
    """Return the sub-questions of a decomposition, `#k` replaced by the k-th answer; none without one."""
    answers = [hop.answer for hop in question.decomposition]

    def answer(reference: re.Match[str]) -> str:
        place = int(reference[1])
        return answers[place - 1] if 1 <= place <= len(answers) else reference[0]

    return tuple(re.sub(r"#(\d+)", answer, hop.question).replace(" >> ", " ") for hop in question.decomposition)


def match(asked: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """Compare queries with the gold sub-questions of their question; `gold` has at least one.

    Returns `precision`, the mean over the queries of the token F1 with the nearest sub-question (0 without queries);
    `recall`, the mean over the sub-questions of that with the nearest query; `f1`, the harmonic mean of the two;
    `asked`, `gold`: how many there are; `same_number`: 1 if they are as many.
    """
    precision = sum(f1(query, gold) for query in asked) / len(asked) if asked else 0.0
    recall = sum(f1(sub_question, asked) for sub_question in gold) / len(gold) if asked else 0.0
    total = precision + recall
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / total if total else 0.0,
        "asked": float(len(asked)),
        "gold": float(len(gold)),
        "same_number": float(len(asked) == len(gold)),
    }
