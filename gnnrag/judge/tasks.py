"""What a judge is asked, and the figures of its replies: answers scored beside gold, and pairs of answers side by side.

`Scoring` (GraphSearch, arXiv 2509.22009, 4.1): six qualities, rated from 0 to 10, make A-Score and E-Score. The paper
prints no formula; its values fit plain means. Either is given when all three of its criteria have a value.

`Pairing` (DotRAG, evaluation): a winner in each dimension, in both orders. A run wins (1) if both orders name it, loses
(0) if both name the other, else shares (0.5). So swapping the two runs mirrors every win rate exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from gnnrag.judge.answers import (
    ANSWER,
    CRITERIA,
    EVIDENCE,
    CountConfig,
    JudgeConfig,
    JudgedRun,
    golden_answer,
    golden_evidence,
    shortened,
)
from gnnrag.judge.folder import (
    DIMENSIONS,
    FIRST,
    HIGHEST,
    LLM_ERROR,
    MALFORMED,
    SECOND,
    TIE,
    Call,
    Replies,
    parse_score,
    parse_verdict,
)
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

NO_REFERENCE, UNANSWERED, IDENTICAL = "no_reference", "unanswered", "identical"  # why a question needs no judge
MEANS = {"a_score": ANSWER, "e_score": EVIDENCE}
IN_ORDER, SWAPPED = "in_order", "swapped"  # the first run's answer is shown first, or last
ORDERS = (IN_ORDER, SWAPPED)
_SIGNIFICANT = 0.05


class _Task:
    """What is judged into one folder: a call for each question and part (a criterion, or an order of the answers)."""

    config: JudgeConfig
    runs: tuple[JudgedRun, ...]  # the folder lies in the last
    questions: Sequence[Question]
    prompts: Mapping[str, tuple[str, str]]  # of each part: name and option
    shown: tuple[Mapping[str, str], ...]  # for each run the text of each answer, as the judge sees it

    def _needs_no_judge(self, question: Question, part: str) -> str:
        """Return why nothing is asked; empty where something is."""
        raise NotImplementedError

    def _values(self, question: Question, part: str) -> dict[str, str]:
        raise NotImplementedError

    def calls(self) -> list[Call]:
        return [
            Call(question.id, part, prompt, self._values(question, part))
            for question in self.questions
            for part, prompt in self.prompts.items()
            if not self._needs_no_judge(question, part)
        ]

    def folder(self, out: Path | None, name: str) -> Path:
        """Return where the judgement goes: of pairs to the second run, as several may be held against one first."""
        judged = self.runs[-1]
        return (out / judged.name if out else judged.path / "judgements") / name

    def _asked(self, part: str) -> list[str]:
        return [question.id for question in self.questions if not self._needs_no_judge(question, part)]

    def _types(self, rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        return {name: [row for row in rows if row["type"] == name] for name in sorted({q.type for q in self.questions})}


class Scoring(_Task):
    """Rates the answers of one run; `passages` is the corpus by id."""

    def __init__(
        self, config: JudgeConfig, run: JudgedRun, questions: Sequence[Question], passages: Mapping[str, Passage]
    ) -> None:
        self.config, self.runs, self.questions = config, (run,), questions
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

    def _values(self, question: Question, part: str) -> dict[str, str]:
        return {
            "question": inline(question.text),
            "reference": judged_element("reference", self._references[CRITERIA[part]][question.id]),
            "response": judged_element("answer", self._answers[question.id]),
        }

    def _needs_no_judge(self, question: Question, part: str) -> str:
        if not self._references[CRITERIA[part]][question.id]:
            return NO_REFERENCE
        return "" if self._answers[question.id] else UNANSWERED

    def table(self, replies: Replies) -> list[dict[str, Any]]:
        """Return a row for each question: its criteria, A- and E-Score, None where missing.

        Zeros of unanswered questions count only beside values that were read: alone they would look like a judgement.
        """
        blind = {c for c in self.prompts if (ids := self._asked(c)) and all(replies.value(i, c) is None for i in ids)}
        counts_zero = self.config.count.unanswered == "zero"
        rows = []
        for question in self.questions:
            row: dict[str, Any] = {"question_id": question.id, "type": question.type}
            for criterion in self.prompts:
                is_unanswered = self._needs_no_judge(question, criterion) == UNANSWERED
                is_zero = is_unanswered and counts_zero and criterion not in blind
                row[criterion] = 0 if is_zero else replies.value(question.id, criterion)
            for name in MEANS:
                values = [row.get(criterion) for criterion in _criteria_of(name)]
                row[name] = _mean(values, None) if None not in values else None
            rows.append(row)
        return rows

    def report(self, replies: Replies, repeats: int) -> dict[str, Any]:
        """Return the figures: scores with intervals, criterion by criterion, by type, and the self-agreement."""
        rows, seed = self.table(replies), self.config.count.seed
        report: dict[str, Any] = {}
        for name in MEANS:
            figure = _figure(rows, name, seed)
            mean = figure["mean"]
            report |= {
                f"judge/{name}": mean,
                f"judge/{name}_ci": figure["interval"],
                f"judge/{name}_01": None if mean is None else round(mean / HIGHEST, 6),
                f"judge/{name}_counted": figure["counted"],
                f"judge/{name}_asked": sum(self._is_expected(question, name) for question in self.questions),
            }
        report["criteria"] = {c: _figure(rows, c, seed) | self._missing(replies, c) for c in self.prompts}
        report["by_type"] = {
            type_: {"count": len(mine)}
            | {f"judge/{name}": _mean(row[name] for row in mine) for name in MEANS}
            | {criterion: _mean(row[criterion] for row in mine) for criterion in self.prompts}
            for type_, mine in self._types(rows).items()
        }
        if repeats > 1:
            report["self_agreement"] = {
                c: self_agreement([[replies.value(i, c, r) for r in range(repeats)] for i in self._asked(c)])
                for c in self.prompts
            }
        return report

    def _is_expected(self, question: Question, name: str) -> bool:
        """Tell whether a question should have a mean: it has gold for it, and an answer if that is needed."""
        reasons = {self._needs_no_judge(question, criterion) for criterion in _criteria_of(name)}
        return NO_REFERENCE not in reasons and (UNANSWERED not in reasons or self.config.count.unanswered == "zero")

    def _missing(self, replies: Replies, criterion: str) -> dict[str, int]:
        reasons = Counter(
            self._needs_no_judge(question, criterion) or replies.problem(question.id, criterion)
            for question in self.questions
        )
        return {name: reasons[name] for name in (UNANSWERED, NO_REFERENCE, MALFORMED, LLM_ERROR)}


class Pairing(_Task):
    """Compares the answers of two runs; the win rates of the first are reported."""

    def __init__(self, config: JudgeConfig, first: JudgedRun, second: JudgedRun, questions: Sequence[Question]) -> None:
        self.config, self.runs, self.questions = config, (first, second), questions
        self.prompts = dict.fromkeys(ORDERS, ("judge_pairwise", "ties" if config.ask.ties else "decide"))
        words = config.show.max_words
        self.shown = tuple(
            {q.id: shortened(r.answers[q.id], words, plain=True, answer=r.finals[q.id]) for q in questions}
            for r in self.runs
        )
        self._answers = {q.id: [texts[q.id] for texts in self.shown] for q in questions}

    def parse(self, text: str) -> dict[str, str]:
        """See `parse_verdict`."""
        return parse_verdict(text, self.config.ask.ties)

    def _values(self, question: Question, part: str) -> dict[str, str]:
        shown = self._answers[question.id][:: 1 if part == IN_ORDER else -1]
        answers = [judged_element("answer", text, label) for label, text in zip((FIRST, SECOND), shown, strict=True)]
        return {"question": inline(question.text), "answers": together(answers, "\n\n")}

    def _needs_no_judge(self, question: Question, part: str = IN_ORDER) -> str:
        first, second = self._answers[question.id]
        if not first or not second:
            return UNANSWERED
        is_same = " ".join(first.split()) == " ".join(second.split())
        return IDENTICAL if is_same and self.config.count.identical == "tie" else ""

    def table(self, replies: Replies) -> list[dict[str, Any]]:
        """Return a row for each question: what the first run gets in each dimension, None where missing.

        Where no reply could be read, no question has a value: those that need no judge would look like a judgement.
        """
        asked = self._asked(IN_ORDER)
        is_blind = bool(asked) and all(replies.value(id_, order) is None for id_ in asked for order in ORDERS)
        return [
            {"question_id": question.id, "type": question.type}
            | {name: None if is_blind else self._value(question, name, replies) for name in DIMENSIONS}
            for question in self.questions
        ]

    def _value(self, question: Question, dimension: str, replies: Replies) -> float | None:
        """Return what the first run gets for a question; None where it is left out or a verdict is missing."""
        reason = self._needs_no_judge(question)
        if reason == IDENTICAL:
            return 0.5
        if reason == UNANSWERED:
            first, second = map(bool, self._answers[question.id])
            return None if self.config.count.unanswered == "exclude" else 0.5 + (first - second) / 2
        winners = self._winners(question.id, dimension, replies)
        if None in winners:
            return None
        return float(winners[0] == 0) if winners[0] == winners[1] != TIE else 0.5

    def _winners(self, question_id: str, dimension: str, replies: Replies) -> list[Any]:
        """Return which run (0, 1, or `tie`) each order names; None for a missing verdict."""
        winners: list[Any] = []
        for order in ORDERS:
            verdict = replies.value(question_id, order)
            label = verdict[dimension] if verdict else None
            is_first = (label == FIRST) == (order == IN_ORDER)
            winners.append(label if label in (None, TIE) else 0 if is_first else 1)
        return winners

    def report(self, replies: Replies, repeats: int) -> dict[str, Any]:
        """Return the figures: win rates, position bias, consistency, by type, and the self-agreement."""
        rows, count = self.table(replies), self.config.count
        reasons = Counter(self._needs_no_judge(q) or self._problem(q.id, replies) for q in self.questions)
        asked = len(rows) - (reasons[UNANSWERED] if count.unanswered == "exclude" else 0)
        rates = {name: _win_rate([row[name] for row in rows], asked, count) for name in DIMENSIONS}
        report: dict[str, Any] = {
            "judge/win_rate": rates["overall"]["win_rate"],
            "judge/win_rate_ci": rates["overall"]["interval"],
            "judge/win_rate_counted": rates["overall"]["counted"],
            "judge/win_rate_asked": asked,
            "dimensions": rates,
            "counts": {name: reasons[name] for name in (UNANSWERED, IDENTICAL, MALFORMED, LLM_ERROR)},
            "position": {name: self._position(name, replies) for name in DIMENSIONS},
            "by_type": {
                type_: {"count": len(mine)} | {name: _mean(row[name] for row in mine) for name in DIMENSIONS}
                for type_, mine in self._types(rows).items()
            },
        }
        if repeats > 1:
            report["self_agreement"] = {name: self._agreement(name, replies, repeats) for name in DIMENSIONS}
        return report

    def _problem(self, question_id: str, replies: Replies) -> str:
        return next((p for order in ORDERS if (p := replies.problem(question_id, order))), "")

    def _position(self, dimension: str, replies: Replies) -> dict[str, Any]:
        """Return how often the answer shown first wins (ties half; unbiased: 0.5), and how often both orders agree."""
        pairs = [w for id_ in self._asked(IN_ORDER) if None not in (w := self._winners(id_, dimension, replies))]
        if not pairs:
            return {"judged": 0}
        wins = {0: (1.0, 0.0), 1: (0.0, 1.0), TIE: (0.5, 0.5)}  # of the answer shown first, in each order
        shares = [(wins[a][0] + wins[b][1]) / 2 for a, b in pairs]
        to_first, to_last = [(a, b) == (0, 1) for a, b in pairs], [(a, b) == (1, 0) for a, b in pairs]
        agree = sum(a == b for a, b in pairs)
        return {
            "judged": len(pairs),
            "first_wins": round(fmean(shares), 6),
            "interval": _rounded(share_interval(shares)),
            "always_first": sum(to_first),
            "always_last": sum(to_last),
            "p": round(mcnemar(to_first, to_last).p_value, 6),
            "consistency": round(agree / len(pairs), 6),
            "consistency_ci": _rounded(wilson_interval(agree, len(pairs))),
            "kappa": round(cohen_kappa(*zip(*pairs, strict=True)), 6),
        }

    def _agreement(self, dimension: str, replies: Replies, repeats: int) -> dict[str, Any]:
        ratings = []
        for id_ in self._asked(IN_ORDER):
            for order in ORDERS:
                verdicts = [replies.value(id_, order, repeat) for repeat in range(repeats)]
                ratings.append([verdict[dimension] if verdict else None for verdict in verdicts])
        return self_agreement(ratings)


def compare_scores(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]], right: int, seed: int
) -> dict[str, Any]:
    """Compare two judged runs (`Scoring.table`) on the questions of which both have a value.

    Returns, by score, mean difference (positive: the second is better), interval, p-value (paired bootstrap, with its
    floor) and number of questions; under `right` how often one alone had that correctness.
    """
    theirs = {row["question_id"]: row for row in second}
    compared: dict[str, Any] = {}
    for name in (*MEANS, *CRITERIA):
        pairs = [(row.get(name), theirs.get(row["question_id"], {}).get(name)) for row in first]
        a, b = np.array([p for p in pairs if None not in p], dtype=np.float64).reshape(-1, 2).T
        if not len(a):
            continue
        d = paired_difference(a, b, seed=seed)
        compared[name] = {
            "difference": round(d.difference, 6),
            "interval": _rounded((d.low, d.high)),
            "p": round(d.p_value, 6),
            "p_floor": round(d.p_floor, 6),
            "counted": d.n,
        }
        if name == "correctness":
            test = mcnemar(a >= right, b >= right)
            compared["right"] = {
                "from": right, "only_first": test.only_a, "only_second": test.only_b, "p": test.p_value,
            }  # fmt: skip
    return compared


def _criteria_of(name: str) -> list[str]:
    return [criterion for criterion, prompt in CRITERIA.items() if prompt == MEANS[name]]


def _figure(rows: Sequence[Mapping[str, Any]], name: str, seed: int) -> dict[str, Any]:
    values = [row[name] for row in rows if row.get(name) is not None]
    if not values:
        return {"mean": None, "interval": None, "counted": 0}
    interval = bootstrap_interval(values, seed=seed)
    return {
        "mean": round(interval.mean, 6),
        "interval": _rounded((interval.low, interval.high)),
        "counted": interval.n,
    }


def _win_rate(values: Sequence[float | None], asked: int, count: CountConfig) -> dict[str, Any]:
    """Return a win rate, its interval, the exact p-value of a sign test, and which run is better.

    That is `first`, `second`, `tie` (interval or test leave it open), or `too_few` of the `asked` values.
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"win_rate": None, "interval": None, "counted": 0, "asked": asked}
    low, high = share_interval(known)
    test = mcnemar([value == 1.0 for value in known], [value == 0.0 for value in known])
    better = "first" if low > 0.5 else "second" if high < 0.5 else "tie"
    better = better if test.p_value < _SIGNIFICANT else "tie"
    return {
        "win_rate": round(fmean(known), 6),
        "interval": _rounded((low, high)),
        "p": round(test.p_value, 6),
        "counted": len(known),
        "asked": asked,
        "won": test.only_a,
        "shared": len(known) - test.only_a - test.only_b,
        "lost": test.only_b,
        "better": better if count.is_enough(len(known), asked) else "too_few",
    }


def _mean(values: Iterable[float | None], digits: int | None = 6) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    return mean if digits is None else round(mean, digits)


def _rounded(interval: tuple[float, float]) -> list[float]:
    return [round(bound, 6) for bound in interval]
