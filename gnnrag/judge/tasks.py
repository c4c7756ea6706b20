"""What a judge is asked, and the figures of its replies: `Scoring` beside gold, `Pairing` side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from gnnrag.judge.answers import JudgedRun, golden_answer, golden_evidence, shortened
from gnnrag.judge.config import ANSWER, CRITERIA, EVIDENCE, CountConfig, JudgeConfig
from gnnrag.judge.folder import Call, Replies
from gnnrag.judge.replies import DIMENSIONS, FIRST, HIGHEST, SECOND, TIE, parse_score, parse_verdict
from gnnrag.metrics.statistics import (
    bootstrap_interval,
    cohen_kappa,
    mcnemar,
    paired_difference,
    self_agreement,
    share_interval,
    wilson_interval,
)
from gnnrag.prompts.untrusted import inline, judged_element, together
from gnnrag.types import Passage, Question

NO_REFERENCE, UNANSWERED = "no_reference", "unanswered"
MEANS = {"a_score": ANSWER, "e_score": EVIDENCE}
PREFIX = "judge/"


class Scoring:
    """Rates the answers of one run.

    Args:
        config: settings.
        run: what is judged.
        questions: those that are judged.
        passages: the corpus by id.
    """

    def __init__(
        self, config: JudgeConfig, run: JudgedRun, questions: Sequence[Question], passages: Mapping[str, Passage]
    ) -> None:
        self.config, self.runs, self.questions = config, (run,), questions
        self.judged = run
        self.prompts = {name: (CRITERIA[name], name) for name in config.ask.criteria}
        words = config.show.max_words
        self._answers = {q.id: shortened(run.answers[q.id], words, answer=run.finals[q.id]) for q in questions}
        self.shown = (self._answers,)
        self._references = {
            ANSWER: {q.id: golden_answer(q) for q in questions},
            EVIDENCE: {q.id: golden_evidence(q, passages, config.show.evidence) for q in questions},
        }

    def parse(self, text: str) -> int:
        """See `parse_score`."""
        return parse_score(text)

    def calls(self) -> list[Call]:
        """Return what is asked of each question: one call for each criterion that it has gold for."""
        return [
            Call(
                question.id,
                criterion,
                self.prompts[criterion],
                {
                    "question": inline(question.text),
                    "reference": judged_element("reference", self._references[CRITERIA[criterion]][question.id]),
                    "response": judged_element("answer", self._answers[question.id]),
                },
            )
            for question in self.questions
            for criterion in self.prompts
            if not self._why_not(question, criterion)
        ]

    def _why_not(self, question: Question, criterion: str) -> str:
        if not self._references[CRITERIA[criterion]][question.id]:
            return NO_REFERENCE
        return "" if self._answers[question.id] else UNANSWERED

    def _is_blind(self, criterion: str, replies: Replies) -> bool:
        """Tell whether a criterion was asked for and no reply could be read."""
        asked = [q.id for q in self.questions if not self._why_not(q, criterion)]
        return bool(asked) and all(replies.value(id_, criterion) is None for id_ in asked)

    def table(self, replies: Replies) -> list[dict[str, Any]]:
        """Return a row for each question: its criteria, A- and E-Score, None where missing.

        Zeros of unanswered questions stand beside values that were read, or not at all: alone they would look like a
        judgement where there was none.
        """
        rows = []
        blind = {c for c in self.prompts if self._is_blind(c, replies)}
        for question in self.questions:
            row: dict[str, Any] = {"question_id": question.id, "type": question.type}
            for criterion in self.prompts:
                why = self._why_not(question, criterion)
                is_zero = why == UNANSWERED and self.config.count.unanswered == "zero" and criterion not in blind
                row[criterion] = 0 if is_zero else replies.value(question.id, criterion)
            rows.append(row | {name: _mean_if_whole([row.get(c) for c in _parts(name)]) for name in MEANS})
        return rows

    def report(self, replies: Replies, repeats: int) -> dict[str, Any]:
        """Return the figures: scores with intervals, criterion by criterion, by type, and the self-agreement."""
        rows, seed = self.table(replies), self.config.count.seed
        criteria = {c: _figure(rows, c, seed) | self._counts(replies, c) for c in self.prompts}
        report: dict[str, Any] = {}
        for name in MEANS:
            found = _figure(rows, name, seed)
            mean, interval = found["mean"], found["interval"]
            report |= {
                f"{PREFIX}{name}": mean,
                f"{PREFIX}{name}_ci": interval,
                f"{PREFIX}{name}_01": None if mean is None else round(mean / HIGHEST, 6),
                f"{PREFIX}{name}_counted": found["counted"],
                f"{PREFIX}{name}_asked": sum(self._is_expected(question, name) for question in self.questions),
            }
        types = sorted({question.type for question in self.questions})
        report["criteria"] = criteria
        report["by_type"] = {name: _means([r for r in rows if r["type"] == name], self.prompts) for name in types}
        if repeats > 1:
            report["self_agreement"] = {c: self._agreement(replies, c, repeats) for c in self.prompts}
        return report

    def _is_expected(self, question: Question, name: str) -> bool:
        """Tell whether a question should have a mean: it has gold for it, and an answer if that is needed."""
        whys = {self._why_not(question, c) for c in _parts(name)}
        return NO_REFERENCE not in whys and (UNANSWERED not in whys or self.config.count.unanswered == "zero")

    def _counts(self, replies: Replies, criterion: str) -> dict[str, int]:
        """Count why values are missing, or were not asked for."""
        whys = Counter(
            self._why_not(question, criterion) or replies.problem(question.id, criterion) for question in self.questions
        )
        return {name: whys[name] for name in (UNANSWERED, NO_REFERENCE, "malformed", "llm_error")}

    def _agreement(self, replies: Replies, criterion: str, repeats: int) -> dict[str, Any]:
        asked = [q.id for q in self.questions if not self._why_not(q, criterion)]
        return self_agreement([[replies.value(id_, criterion, r) for r in range(repeats)] for id_ in asked])

    def folder(self, out: Path | None, name: str) -> Path:
        """Return where the judgement goes."""
        return (out / self.judged.name if out else self.judged.path / "judgements") / name


def compare_scores(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]], right: int, seed: int
) -> dict[str, Any]:
    """Compare two judged runs on the questions of which both have a value.

    Args:
        first: rows of the first run (`Scoring.table`).
        second: rows of the second run; positive differences mean that it is better.
        right: from this correctness on an answer is right, for McNemar's test.
        seed: of the bootstrap.

    Returns:
        Score to its mean difference, interval, p-value (paired bootstrap, with the smallest that it can give) and
        number of questions; and under `right` who alone was right how often.
    """
    theirs = {row["question_id"]: row for row in second}
    found: dict[str, Any] = {}
    for name in (*MEANS, *CRITERIA):
        pairs = [(row.get(name), theirs.get(row["question_id"], {}).get(name)) for row in first]
        a, b = np.array([p for p in pairs if None not in p], dtype=np.float64).reshape(-1, 2).T
        if not len(a):
            continue
        d = paired_difference(a, b, seed=seed)
        found[name] = {
            "difference": round(d.difference, 6),
            "interval": [round(d.low, 6), round(d.high, 6)],
            "p": round(d.p_value, 6),
            "p_floor": round(d.p_floor, 6),
            "counted": d.n,
        }
        if name == "correctness":
            test = mcnemar(a >= right, b >= right)
            found["right"] = {"from": right, "only_first": test.only_a, "only_second": test.only_b, "p": test.p_value}
    return found


def _parts(name: str) -> list[str]:
    return [criterion for criterion, prompt in CRITERIA.items() if prompt == MEANS[name]]


def _mean_if_whole(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _figure(rows: Sequence[Mapping[str, Any]], name: str, seed: int) -> dict[str, Any]:
    """Return mean and interval over the rows that have a value."""
    values = [row[name] for row in rows if row.get(name) is not None]
    if not values:
        return {"mean": None, "interval": None, "counted": 0}
    found = bootstrap_interval(values, seed=seed)
    return {"mean": round(found.mean, 6), "interval": [round(found.low, 6), round(found.high, 6)], "counted": found.n}


def _means(rows: Sequence[Mapping[str, Any]], criteria: Mapping[str, Any]) -> dict[str, Any]:
    """Return the size of a group and its means; None for one over no question."""
    known = {name: [row[name] for row in rows if row[name] is not None] for name in (*MEANS, *criteria)}
    means = {name: round(sum(v) / len(v), 6) if v else None for name, v in known.items()}
    return {"count": len(rows)} | {f"{PREFIX}{name}" if name in MEANS else name: v for name, v in means.items()}


# ------------------------------------------------------------
# The pairwise judge (DotRAG, evaluation): two answers side by side, shown in both orders, a winner in each dimension.
#
# A run wins a question in a dimension (1) if both orders name it, loses (0) if both name the other, and shares it (0.5)
# where they differ or name no winner. So swapping the two runs mirrors every win rate exactly.
IN_ORDER, SWAPPED = "in_order", "swapped"  # the first run's answer is shown first, or last
ORDERS = (IN_ORDER, SWAPPED)
IDENTICAL = "identical"
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
