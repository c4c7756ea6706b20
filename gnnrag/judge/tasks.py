"""What a judge is asked, how its replies are read, and the figures that they give.

`Scoring` (GraphSearch, arXiv 2509.22009, 4.1): six qualities, rated from 0 to 10, make A-Score and E-Score. The paper
prints no formula; its values fit plain means. Either is given when all three of its criteria have a value.

`Pairing` (DotRAG, evaluation): a winner in each dimension, in both orders. A run wins (1) if both orders name it, loses
(0) if both name the other, else shares (0.5). So swapping the two runs mirrors every win rate exactly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ValidationError

from gnnrag.judge.answers import JudgedRun, golden_answer, golden_evidence, plain_text, shortened
from gnnrag.metrics.statistics import (
    bootstrap_interval,
    mcnemar,
    paired_difference,
    self_agreement,
    share_interval,
)
from gnnrag.prompts.untrusted import inline, judged_element, together
from gnnrag.roles.parsing import json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError
from gnnrag.types import Passage, Question

if TYPE_CHECKING:
    from gnnrag.judge import JudgeConfig

ANSWER, EVIDENCE = "judge_answer", "judge_evidence"  # the prompts: what a response is rated beside
Criterion = Literal[
    "correctness", "logical_coherence", "comprehensiveness", "relevance", "knowledgeability", "factuality"
]
CRITERIA = {
    "correctness": ANSWER,
    "logical_coherence": ANSWER,
    "comprehensiveness": ANSWER,
    "relevance": EVIDENCE,
    "knowledgeability": EVIDENCE,
    "factuality": EVIDENCE,
}
MEANS = {"a_score": ANSWER, "e_score": EVIDENCE}
RIGHT = 8  # from this correctness on an answer counts as right, for McNemar's test of two runs
FIRST, SECOND, TIE = "A", "B", "tie"  # the answer that is shown first, the other one, neither
IN_ORDER, SWAPPED = ORDERS = ("in_order", "swapped")  # the first run's answer is shown first, or last
NO_REFERENCE, UNANSWERED, IDENTICAL = "no_reference", "unanswered", "identical"  # why nothing is asked
MALFORMED, LLM_ERROR = "malformed", "llm_error"  # why a value is missing

# -------------------------------------------------------------------------------------------------------------- replies
_SCORE = re.compile(r"(?:[a-z_ ]{1,30}[:=] *)?(\d{1,2})(?: ?(?:/|out of) ?10)?(?: points?)?\.?", re.IGNORECASE)


def parse_score(text: str) -> int:
    """Return the score of a reply: the whole number from 0 to 10 that fills a line, as in `8`, `8/10`, `Score: 8`.

    Raises MalformedError where there is none, lines give different ones, or it is above 10.
    """
    lines = strip_markup(strip_thinking(text)).splitlines()
    scores = {int(score[1]) for line in lines if (score := _SCORE.fullmatch(line.strip(" \t\"'()#>")))}
    if len(scores) != 1 or max(scores) > 10:
        raise MalformedError(f"{len(scores)} scores from 0 to 10: {', '.join(map(str, sorted(scores)))}")
    return scores.pop()


def _winner(value: Any) -> Any:
    value = value.get("winner") if isinstance(value, dict) else value
    return {"a": FIRST, "b": SECOND, "tie": TIE}.get(value.strip().lower()) if isinstance(value, str) else value


_Winner = Annotated[Literal["A", "B", "tie"], BeforeValidator(_winner)]


class Verdict(BaseModel):
    """The winner of each dimension."""

    comprehensiveness: _Winner
    logicality: _Winner
    relevance: _Winner
    coherence: _Winner
    overall: _Winner


DIMENSIONS = tuple(Verdict.model_fields)


def parse_verdict(text: str, ties: bool) -> dict[str, str]:
    """Return the winner of each dimension: `A`, `B`, or `tie` where ties are allowed.

    Raises MalformedError where no object names a winner of every dimension, or several name different ones.
    """
    verdicts: list[dict[str, str]] = []
    for data in json_objects(strip_markup(strip_thinking(text))):
        try:
            verdict = Verdict.model_validate(data).model_dump()
        except ValidationError:
            continue
        if verdict not in verdicts and (ties or TIE not in verdict.values()):
            verdicts.append(verdict)
    if len(verdicts) != 1:
        raise MalformedError(f"{len(verdicts)} verdicts with a winner of every dimension")
    return verdicts[0]


@dataclass(frozen=True)
class Call:
    """One thing that the judge is asked; `part` is the criterion or the order of answers, `values` fill the prompt."""

    question_id: str
    part: str
    prompt: tuple[str, str]
    values: Mapping[str, str]


@dataclass(frozen=True)
class Replies:
    """The newest reply to each (question, part, repeat)."""

    rows: Mapping[tuple[str, str, int], Mapping[str, Any]]

    def value(self, question_id: str, part: str, repeat: int = 0) -> Any:
        """Return what a reply said; None where it is missing."""
        return self.rows.get((question_id, part, repeat), {}).get("value")

    def problem(self, question_id: str, part: str) -> str:
        """Return why the first repeat is missing: `malformed` or `llm_error`; empty where it is not."""
        return str(self.rows.get((question_id, part, 0), {}).get("problem", ""))


# ---------------------------------------------------------------------------------------------------------------- tasks
class _Calls:
    """What is judged into one folder: a call for each question and part, unless the answer needs no judge."""

    runs: tuple[JudgedRun, ...]  # the folder lies in the last
    shown: tuple[Mapping[str, str], ...]  # for each run the text of each answer, as the judge sees it
    prompts: Mapping[str, tuple[str, str]]  # of each part (a criterion, or an order of the answers): name and option
    questions: Sequence[Question]
    skipped: Callable[[Question, str], str]  # why nothing is asked; empty where something is
    values: Callable[[Question, str], dict[str, str]]  # what fills the prompt

    def calls(self) -> list[Call]:
        return [
            Call(question.id, part, prompt, self.values(question, part))
            for question in self.questions
            for part, prompt in self.prompts.items()
            if not self.skipped(question, part)
        ]

    def asked(self, part: str) -> list[str]:
        return [question.id for question in self.questions if not self.skipped(question, part)]


class Scoring(_Calls):
    """Rates the answers of one run; `passages` is the corpus by id."""

    def __init__(
        self, config: JudgeConfig, run: JudgedRun, questions: Sequence[Question], passages: Mapping[str, Passage]
    ) -> None:
        self.config, self.questions, self.runs = config, questions, (run,)
        self.prompts = {name: (CRITERIA[name], name) for name in config.criteria}
        self.answers = {
            q.id: shortened(run.answers[q.id], config.max_words, run.short_answers[q.id]) for q in questions
        }
        self.shown = (self.answers,)
        self.references = {
            ANSWER: {q.id: golden_answer(q) for q in questions},
            EVIDENCE: {q.id: golden_evidence(q, passages, config.evidence) for q in questions},
        }

    def parse(self, text: str) -> int:
        return parse_score(text)

    def values(self, question: Question, part: str) -> dict[str, str]:
        return {
            "question": inline(question.text),
            "reference": judged_element("reference", self.references[CRITERIA[part]][question.id]),
            "response": judged_element("answer", self.answers[question.id]),
        }

    def skipped(self, question: Question, part: str) -> str:
        if not self.references[CRITERIA[part]][question.id]:
            return NO_REFERENCE
        return "" if self.answers[question.id] else UNANSWERED

    def table(self, replies: Replies) -> list[dict[str, Any]]:
        """Return a row for each question: its criteria, A- and E-Score. A question that is not answered has zeros.

        Zeros count only beside values that were read: alone they would look like a judgement.
        """
        unread = {c for c in self.prompts if (ids := self.asked(c)) and all(replies.value(i, c) is None for i in ids)}
        rows = []
        for question in self.questions:
            row: dict[str, Any] = {"question_id": question.id, "type": question.type}
            for criterion in self.prompts:
                is_zero = self.skipped(question, criterion) == UNANSWERED and criterion not in unread
                row[criterion] = 0 if is_zero else replies.value(question.id, criterion)
            for name in MEANS:
                values: list[Any] = [row.get(criterion) for criterion in _criteria_of(name)]
                row[name] = None if None in values else sum(values) / len(values)
            rows.append(row)
        return rows

    def report(self, replies: Replies, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return scores with intervals, criterion by criterion, by type, and the self-agreement."""
        report: dict[str, Any] = {}
        for name in MEANS:
            figure = _figure([row[name] for row in rows])
            has_gold = [q for q in self.questions if self.references[MEANS[name]][q.id]]
            report |= {
                f"judge/{name}": figure["mean"],
                f"judge/{name}_ci": figure["interval"],
                f"judge/{name}_counted": figure["counted"],
                f"judge/{name}_asked": len(has_gold),
            }
        report["criteria"] = {}
        for criterion in self.prompts:
            reasons = Counter(self.skipped(q, criterion) or replies.problem(q.id, criterion) for q in self.questions)
            missing = {name: reasons[name] for name in (UNANSWERED, NO_REFERENCE, MALFORMED, LLM_ERROR)}
            report["criteria"][criterion] = _figure([row[criterion] for row in rows]) | missing
        names = {**{name: f"judge/{name}" for name in MEANS}, **{criterion: criterion for criterion in self.prompts}}
        report["by_type"] = _by_type(rows, names)
        repeats = self.config.repeats
        if repeats > 1:
            report["self_agreement"] = {
                c: self_agreement([[replies.value(i, c, r) for r in range(repeats)] for i in self.asked(c)])
                for c in self.prompts
            }
        return report


class Pairing(_Calls):
    """Compares the answers of two runs; the win rates of the first are reported."""

    def __init__(self, config: JudgeConfig, first: JudgedRun, second: JudgedRun, questions: Sequence[Question]) -> None:
        self.config, self.questions, self.runs = config, questions, (first, second)
        self.prompts = dict.fromkeys(ORDERS, ("judge_pairwise", "ties" if config.ties else "decide"))
        self.shown = tuple(
            {
                q.id: shortened(plain_text(run.answers[q.id]), config.max_words, plain_text(run.short_answers[q.id]))
                for q in questions
            }
            for run in self.runs
        )

    def parse(self, text: str) -> dict[str, str]:
        return parse_verdict(text, self.config.ties)

    def values(self, question: Question, part: str) -> dict[str, str]:
        texts = [shown[question.id] for shown in self.shown][:: 1 if part == IN_ORDER else -1]
        answers = [judged_element("answer", text, label) for label, text in zip((FIRST, SECOND), texts, strict=True)]
        return {"question": inline(question.text), "answers": together(answers, "\n\n")}

    def skipped(self, question: Question, part: str = IN_ORDER) -> str:
        first, second = (shown[question.id].split() for shown in self.shown)
        if not first or not second:
            return UNANSWERED
        return IDENTICAL if first == second else ""

    def table(self, replies: Replies) -> list[dict[str, Any]]:
        """Return a row for each question: what the first run gets in each dimension, None where missing.

        Where no reply could be read, no question has a value: those that need no judge would look like a judgement.
        """
        ids = self.asked(IN_ORDER)
        unread = bool(ids) and all(replies.value(id_, order) is None for id_ in ids for order in ORDERS)
        return [
            {"question_id": question.id, "type": question.type}
            | {name: None if unread else self._value(question, name, replies) for name in DIMENSIONS}
            for question in self.questions
        ]

    def _value(self, question: Question, dimension: str, replies: Replies) -> float | None:
        if self.skipped(question):  # a missing answer loses, two of a kind share
            first, second = (bool(shown[question.id]) for shown in self.shown)
            return 0.5 + (first - second) / 2
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

    def report(self, replies: Replies, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return win rates, position bias, consistency, by type, and the self-agreement."""
        reasons: Counter[str] = Counter()
        for question in self.questions:
            problems = [replies.problem(question.id, order) for order in ORDERS]
            reasons[self.skipped(question) or problems[0] or problems[1]] += 1
        rates = {name: _win_rate([row[name] for row in rows], self.config) for name in DIMENSIONS}
        report: dict[str, Any] = {
            "judge/win_rate": rates["overall"]["win_rate"],
            "judge/win_rate_ci": rates["overall"]["interval"],
            "judge/win_rate_counted": rates["overall"]["counted"],
            "judge/win_rate_asked": len(rows),
            "dimensions": rates,
            "counts": {name: reasons[name] for name in (UNANSWERED, IDENTICAL, MALFORMED, LLM_ERROR)},
            "position": {name: self._position(name, replies) for name in DIMENSIONS},
            "by_type": _by_type(rows, {name: name for name in DIMENSIONS}),
        }
        repeats = self.config.repeats
        if repeats > 1:
            report["self_agreement"] = {}
            for name in DIMENSIONS:
                verdicts = [
                    [replies.value(id_, order, repeat) for repeat in range(repeats)]
                    for id_ in self.asked(IN_ORDER)
                    for order in ORDERS
                ]
                ratings = [[verdict[name] if verdict else None for verdict in row] for row in verdicts]
                report["self_agreement"][name] = self_agreement(ratings)
        return report

    def _position(self, dimension: str, replies: Replies) -> dict[str, Any]:
        """Return how often the answer shown first wins (ties half; unbiased: 0.5), and how often both orders agree."""
        pairs = [w for id_ in self.asked(IN_ORDER) if None not in (w := self._winners(id_, dimension, replies))]
        if not pairs:
            return {"judged": 0}
        wins = {0: (1.0, 0.0), 1: (0.0, 1.0), TIE: (0.5, 0.5)}  # of the answer shown first, in each order
        shares = [(wins[a][0] + wins[b][1]) / 2 for a, b in pairs]
        to_first, to_last = [(a, b) == (0, 1) for a, b in pairs], [(a, b) == (1, 0) for a, b in pairs]
        return {
            "judged": len(pairs),
            "first_wins": round(fmean(shares), 6),
            "interval": _rounded(share_interval(shares)),
            "always_first": sum(to_first),
            "always_last": sum(to_last),
            "p": round(mcnemar(to_first, to_last).p_value, 6),
            "consistency": round(sum(a == b for a, b in pairs) / len(pairs), 6),
        }


Task = Scoring | Pairing


def compare_scores(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare two judged runs (`Scoring.table`) on the questions of which both have a value.

    Returns, by score, mean difference (positive: the second is better), interval, p-value (paired bootstrap, with its
    floor) and number of questions; under `right` how often one alone had a correctness of `RIGHT` or more.
    """
    others = {row["question_id"]: row for row in second}
    compared: dict[str, Any] = {}
    for name in (*MEANS, *CRITERIA):
        pairs = [(row.get(name), others.get(row["question_id"], {}).get(name)) for row in first]
        a, b = np.array([p for p in pairs if None not in p], dtype=np.float64).reshape(-1, 2).T
        if not len(a):
            continue
        d = paired_difference(a, b)
        compared[name] = {
            "difference": round(d.difference, 6),
            "interval": _rounded((d.low, d.high)),
            "p": round(d.p_value, 6),
            "p_floor": round(d.p_floor, 6),
            "counted": d.n,
        }
        if name == "correctness":
            test = mcnemar(a >= RIGHT, b >= RIGHT)
            compared["right"] = {"only_first": test.only_a, "only_second": test.only_b, "p": test.p_value}
    return compared


def _criteria_of(name: str) -> list[str]:
    return [criterion for criterion, prompt in CRITERIA.items() if prompt == MEANS[name]]


def _figure(values: Iterable[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "interval": None, "counted": 0}
    interval = bootstrap_interval(known)
    return {
        "mean": round(interval.mean, 6),
        "interval": _rounded((interval.low, interval.high)),
        "counted": interval.n,
    }


def _win_rate(values: Sequence[float | None], config: JudgeConfig) -> dict[str, Any]:
    """Return a win rate, its interval, the exact p-value of a sign test, and which run is better.

    That is `first`, `second`, `tie` (interval or test leave it open), or `too_few` values.
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"win_rate": None, "interval": None, "counted": 0, "asked": len(values)}
    low, high = share_interval(known)
    test = mcnemar([value == 1.0 for value in known], [value == 0.0 for value in known])
    better = "tie"
    if not config.is_enough(len(known), len(values)):
        better = "too_few"
    elif test.p_value < 0.05:
        better = "first" if low > 0.5 else "second" if high < 0.5 else "tie"
    return {
        "win_rate": round(fmean(known), 6),
        "interval": _rounded((low, high)),
        "p": round(test.p_value, 6),
        "counted": len(known),
        "asked": len(values),
        "won": test.only_a,
        "shared": len(known) - test.only_a - test.only_b,
        "lost": test.only_b,
        "better": better,
    }


def _by_type(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the means of each type of question; `names` says under which key a column's mean goes."""
    means: dict[str, dict[str, Any]] = {}
    for type_ in sorted({row["type"] for row in rows}):
        members = [row for row in rows if row["type"] == type_]
        means[type_] = {"count": len(members)}
        for column, key in names.items():
            known = [row[column] for row in members if row[column] is not None]
            means[type_][key] = round(fmean(known), 6) if known else None
    return means


def _rounded(interval: tuple[float, float]) -> list[float]:
    return [round(bound, 6) for bound in interval]
