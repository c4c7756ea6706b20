"""The pairwise judge (DotRAG, evaluation): two answers side by side, shown in both orders, a winner in each dimension.

A run wins a question in a dimension (1) if both orders name it, loses (0) if both name the other, and shares it (0.5)
where they differ or name no winner. So swapping the two runs mirrors every win rate exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from gnnrag.judge.agreement import self_agreement
from gnnrag.judge.answers import JudgedRun
from gnnrag.judge.config import CountConfig, JudgeConfig
from gnnrag.judge.folder import Call, Replies
from gnnrag.judge.replies import DIMENSIONS, FIRST, SECOND, TIE, parse_verdict
from gnnrag.judge.shown import shortened
from gnnrag.metrics.agreement import cohen_kappa, share_interval, wilson_interval
from gnnrag.metrics.bootstrap import mcnemar
from gnnrag.prompts.untrusted import inline, judged_element, together
from gnnrag.types import Question

IN_ORDER, SWAPPED = "in_order", "swapped"  # the first run's answer is shown first, or last
ORDERS = (IN_ORDER, SWAPPED)
UNANSWERED, IDENTICAL = "unanswered", "identical"
_SIGNIFICANT = 0.05


class Pairing:
    """Compares the answers of two runs.

    Args:
        config: settings.
        first: its win rates are reported.
        second: what it is held against.
        questions: those that are judged.
    """

    def __init__(self, config: JudgeConfig, first: JudgedRun, second: JudgedRun, questions: Sequence[Question]) -> None:
        self.config, self.runs, self.questions = config, (first, second), questions
        option = "ties" if config.ask.ties else "decide"
        self.prompts = {order: ("judge_pairwise", option) for order in ORDERS}
        words = config.show.max_words
        self.shown = tuple(
            {q.id: shortened(r.answers[q.id], words, plain=True, answer=r.finals[q.id]) for q in questions}
            for r in self.runs
        )
        self._answers = {q.id: [texts[q.id] for texts in self.shown] for q in questions}

    def parse(self, text: str) -> dict[str, str]:
        """See `parse_verdict`."""
        return parse_verdict(text, self.config.ask.ties)

    def calls(self) -> list[Call]:
        """Return what is asked of each question: a call for each order."""
        return [
            Call(question.id, order, self.prompts[order], self._values(question, order))
            for question in self.questions
            for order in ORDERS
            if not self._why_not(question)
        ]

    def _values(self, question: Question, order: str) -> dict[str, str]:
        shown = self._answers[question.id][:: 1 if order == IN_ORDER else -1]
        answers = [judged_element("answer", text, label) for label, text in zip((FIRST, SECOND), shown, strict=True)]
        return {"question": inline(question.text), "answers": together(answers, "\n\n")}

    def _why_not(self, question: Question) -> str:
        first, second = self._answers[question.id]
        if not first or not second:
            return UNANSWERED
        is_same = " ".join(first.split()) == " ".join(second.split())
        return IDENTICAL if is_same and self.config.count.identical == "tie" else ""

    def _value(self, question: Question, dimension: str, replies: Replies) -> float | None:
        """Return what the first run gets for a question; None where it is left out or a verdict is missing."""
        why = self._why_not(question)
        if why == IDENTICAL:
            return 0.5
        if why == UNANSWERED:
            first, second = map(bool, self._answers[question.id])
            return None if self.config.count.unanswered == "exclude" else 0.5 + (first - second) / 2
        winners = self._winners(question.id, dimension, replies)
        if None in winners:
            return None
        return float(winners[0] == 0) if winners[0] == winners[1] != TIE else 0.5

    def _winners(self, question_id: str, dimension: str, replies: Replies) -> list[Any]:
        """Return which run (0, 1, or `tie`) each order names; None for a missing verdict."""
        found: list[Any] = []
        for order in ORDERS:
            verdict = replies.value(question_id, order)
            label = verdict[dimension] if verdict else None
            is_first = (label == FIRST) == (order == IN_ORDER)
            found.append(label if label in (None, TIE) else 0 if is_first else 1)
        return found

    def table(self, replies: Replies) -> list[dict[str, Any]]:
        """Return a row for each question: what the first run gets in each dimension, None where missing.

        Where replies were asked for and none could be read, no question has a value: those that need no judge would
        look like a judgement.
        """
        calls = self.calls()
        is_blind = bool(calls) and all(replies.value(call.question_id, call.part) is None for call in calls)
        return [
            {"question_id": question.id, "type": question.type}
            | {name: None if is_blind else self._value(question, name, replies) for name in DIMENSIONS}
            for question in self.questions
        ]

    def report(self, replies: Replies, repeats: int) -> dict[str, Any]:
        """Return the figures: win rates, position bias, consistency, by type, and the self-agreement."""
        rows, count = self.table(replies), self.config.count
        whys = Counter(self._why_not(q) or self._problem(q.id, replies) for q in self.questions)
        types = sorted({question.type for question in self.questions})
        asked = len(rows) - (whys[UNANSWERED] if count.unanswered == "exclude" else 0)
        rates = {name: _rate([row[name] for row in rows], asked, count) for name in DIMENSIONS}
        report: dict[str, Any] = {
            "judge/win_rate": rates["overall"]["win_rate"],
            "judge/win_rate_ci": rates["overall"]["interval"],
            "judge/win_rate_counted": rates["overall"]["counted"],
            "judge/win_rate_asked": asked,
            "dimensions": rates,
            "counts": {name: whys[name] for name in (UNANSWERED, IDENTICAL, "malformed", "llm_error")},
            "position": {name: self._position(name, replies) for name in DIMENSIONS},
            "by_type": {
                name: {"count": len(mine)} | {d: _mean([row[d] for row in mine]) for d in DIMENSIONS}
                for name in types
                if (mine := [row for row in rows if row["type"] == name])
            },
        }
        if repeats > 1:
            report["self_agreement"] = {name: self._agreement(name, replies, repeats) for name in DIMENSIONS}
        return report

    def _problem(self, question_id: str, replies: Replies) -> str:
        problems = [replies.problem(question_id, order) for order in ORDERS]
        return next((p for p in problems if p), "")

    def _position(self, dimension: str, replies: Replies) -> dict[str, Any]:
        """Return how often the answer shown first wins, and how often both orders agree, where both have a verdict.

        Both orders were asked, so without a bias the first one wins half: a run that is better wins once first and once
        last. A tie counts as half a win.
        """
        asked = [q.id for q in self.questions if not self._why_not(q)]
        pairs = [w for w in (self._winners(id_, dimension, replies) for id_ in asked) if None not in w]
        if not pairs:
            return {"judged": 0}
        wins = {0: (1.0, 0.0), 1: (0.0, 1.0), TIE: (0.5, 0.5)}  # of the answer shown first, in each order
        shares = [(wins[a][0] + wins[b][1]) / 2 for a, b in pairs]
        first_low, first_high = share_interval(shares)
        to_first, to_last = [(a, b) == (0, 1) for a, b in pairs], [(a, b) == (1, 0) for a, b in pairs]
        agree = sum(a == b for a, b in pairs)
        low, high = wilson_interval(agree, len(pairs))
        return {
            "judged": len(pairs),
            "first_wins": round(fmean(shares), 6),
            "interval": [round(first_low, 6), round(first_high, 6)],
            "always_first": sum(to_first),
            "always_last": sum(to_last),
            "p": round(mcnemar(to_first, to_last).p_value, 6),
            "consistency": round(agree / len(pairs), 6),
            "consistency_ci": [round(low, 6), round(high, 6)],
            "kappa": round(cohen_kappa(*zip(*pairs, strict=True)), 6),
        }

    def _agreement(self, dimension: str, replies: Replies, repeats: int) -> dict[str, Any]:
        ratings = []
        for question in self.questions:
            for order in ORDERS if not self._why_not(question) else ():
                said = [replies.value(question.id, order, repeat) for repeat in range(repeats)]
                ratings.append([verdict[dimension] if verdict else None for verdict in said])
        return self_agreement(ratings)

    def folder(self, out: Path | None, name: str) -> Path:
        """Return where the judgement goes: to the second run, as several may be held against one first."""
        second = self.runs[1]
        return (out / second.name if out else second.path / "judgements") / name


def _rate(values: Sequence[float | None], asked: int, count: CountConfig) -> dict[str, Any]:
    """Return a win rate, its interval, the exact p-value of a sign test, and what they say.

    Args:
        values: what the first run gets for each question; None for those without a value.
        asked: how many should have one.
        count: what is enough to say which run is better: `first`, `second`, `tie` where interval or test leave it open,
            or `too_few`.
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"win_rate": None, "interval": None, "counted": 0, "asked": asked}
    low, high = share_interval(known)
    won, lost = [value == 1.0 for value in known], [value == 0.0 for value in known]
    test = mcnemar(won, lost)
    better = "first" if low > 0.5 else "second" if high < 0.5 else "tie"
    better = better if test.p_value < _SIGNIFICANT else "tie"
    return {
        "win_rate": round(fmean(known), 6),
        "interval": [round(low, 6), round(high, 6)],
        "p": round(test.p_value, 6),
        "counted": len(known),
        "asked": asked,
        "won": test.only_a,
        "shared": len(known) - test.only_a - test.only_b,
        "lost": test.only_b,
        "better": better if count.is_enough(len(known), asked) else "too_few",
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 6) if known else None
