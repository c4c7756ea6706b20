"""What a judge is asked, how its replies are read, and the figures that they give.

`Scoring` (GraphSearch, arXiv 2509.22009, 4.1): six qualities, rated from 0 to 10, make A-Score and E-Score. The paper
prints no formula; its values fit plain means. Either is given when all three of its criteria have a value.

`Pairing` (DotRAG, evaluation): a winner in each dimension, in both orders. A run wins (1) if both orders name it, loses
(0) if both name the other, else shares (0.5). So swapping the two runs mirrors every win rate exactly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from gnnrag.judge.answers import JudgedRun, golden_evidence, plain_text, shortened
from gnnrag.metrics.statistics import bootstrap_interval, mcnemar, share_interval
from gnnrag.prompts.untrusted import inline, judged_element, together
from gnnrag.roles.parsing import ReplyModel, read_as, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError
from gnnrag.types import Passage, Question

ANSWER, EVIDENCE = "judge_answer", "judge_evidence"  # the prompts: what a response is rated beside
CRITERIA = {
    "correctness": ANSWER,
    "logical_coherence": ANSWER,
    "comprehensiveness": ANSWER,
    "relevance": EVIDENCE,
    "knowledgeability": EVIDENCE,
    "factuality": EVIDENCE,
}
MEANS = {"a_score": ANSWER, "e_score": EVIDENCE}
ORDERS = ("in_order", "swapped")  # the first run's answer is shown first, or last
NO_REFERENCE, UNANSWERED, IDENTICAL = "no_reference", "unanswered", "identical"  # why nothing is asked
MALFORMED, REJECTED, LLM_ERROR = "malformed", "rejected", "llm_error"  # why a value is missing
LEAST, MISSING = 20, 0.1  # fewer values, or a larger share of them missing, are no result

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
    return value.strip().upper() if isinstance(value, str) else value


_Winner = Annotated[Literal["A", "B"], BeforeValidator(_winner)]


class Verdict(ReplyModel):
    comprehensiveness: _Winner
    logicality: _Winner
    relevance: _Winner
    coherence: _Winner
    overall: _Winner


DIMENSIONS = tuple(Verdict.model_fields)


def parse_verdict(text: str) -> dict[str, str]:
    """Return the winner of each dimension, `A` or `B`; MalformedError where no object names one of every dimension."""
    return read_as(Verdict, text).model_dump()


@dataclass(frozen=True)
class Call:
    question: Question
    part: str  # the criterion, or the order of answers
    prompt: tuple[str, str]
    values: Mapping[str, str]  # fill the prompt
    skipped: str = ""  # why nothing is asked

    @property
    def key(self) -> tuple[str, str]:
        return self.question.id, self.part

    def problem(self, rows: Rows) -> str:
        return self.skipped or str(rows.get(self.key, {}).get("problem", ""))


Rows = Mapping[tuple[str, str], Mapping[str, Any]]  # the newest reply to each call, with `value` and `problem`


class Scoring:
    """Rates the answers of one run; `passages` is the corpus by id."""

    def __init__(
        self, run: JudgedRun, questions: Sequence[Question], passages: Mapping[str, Passage], max_words: int
    ) -> None:
        self.runs, self.questions = (run,), questions
        self.parse = parse_score
        self.calls: list[Call] = []
        for question in questions:
            answer = shortened(run.answers[question.id], max_words)
            gold = {ANSWER: "\n".join(dict.fromkeys(question.answers)), EVIDENCE: golden_evidence(question, passages)}
            for criterion, prompt in CRITERIA.items():
                reference = gold[prompt]
                values = {
                    "question": inline(question.text),
                    "reference": judged_element("reference", reference),
                    "response": judged_element("answer", answer),
                }
                skipped = NO_REFERENCE if not reference else UNANSWERED if not answer else ""
                self.calls.append(Call(question, criterion, (prompt, criterion), values, skipped))

    def table(self, rows: Rows) -> list[dict[str, Any]]:
        """Return a row for each question: its criteria, A- and E-Score; None: missing. No answer has zeros.

        Zeros count only beside values that were read: alone they would look like a judgement.
        """
        values = {call.key: rows.get(call.key, {}).get("value") for call in self.calls if not call.skipped}
        read = {part for (_, part), value in values.items() if value is not None}
        values |= {call.key: 0 for call in self.calls if call.skipped == UNANSWERED and call.part in read}
        table = []
        for question in self.questions:
            row: dict[str, Any] = {"question_id": question.id, "type": question.type}
            row |= {name: values.get((question.id, name)) for name in CRITERIA}
            for name, prompt in MEANS.items():
                parts = [row[criterion] for criterion, of in CRITERIA.items() if of == prompt]
                row[name] = None if None in parts else fmean(parts)
            table.append(row)
        return table

    def report(self, rows: Rows, table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        report: dict[str, Any] = {"criteria": {}}
        for criterion in CRITERIA:
            why = Counter(call.problem(rows) for call in self.calls if call.part == criterion)
            missing = {name: why[name] for name in (UNANSWERED, NO_REFERENCE, MALFORMED, REJECTED, LLM_ERROR)}
            report["criteria"][criterion] = _mean([row[criterion] for row in table]) | missing
        for name, prompt in MEANS.items():
            mean = _mean([row[name] for row in table])
            gold = {c.question.id for c in self.calls if c.prompt[0] == prompt and c.skipped != NO_REFERENCE}
            report |= {
                f"judge/{name}": mean["mean"],
                f"judge/{name}_ci": mean["interval"],
                f"judge/{name}_counted": mean["counted"],
                f"judge/{name}_asked": len(gold),
            }
        return report


class Pairing:
    """Compares the answers of two runs; the win rates of the first are reported. A missing answer loses."""

    def __init__(self, first: JudgedRun, second: JudgedRun, questions: Sequence[Question], max_words: int) -> None:
        self.runs, self.questions = (first, second), questions
        self.parse = parse_verdict
        self.calls: list[Call] = []
        self.without_judge: dict[str, float] = {}  # what the first run gets for questions that need none
        for question in questions:
            texts = [shortened(plain_text(run.answers[question.id]), max_words) for run in self.runs]
            skipped = UNANSWERED if not all(texts) else IDENTICAL if texts[0].split() == texts[1].split() else ""
            if skipped:
                self.without_judge[question.id] = 0.5 + (bool(texts[0]) - bool(texts[1])) / 2
            for order, shown in zip(ORDERS, (texts, texts[::-1]), strict=True):
                answers = [judged_element("answer", text, label) for label, text in zip("AB", shown, strict=True)]
                values = {"question": inline(question.text), "answers": together(answers, "\n\n")}
                self.calls.append(Call(question, order, ("judge_pairwise", ""), values, skipped))

    def table(self, rows: Rows) -> list[dict[str, Any]]:
        """Return a row for each question: what the first run gets in each dimension, None where missing.

        Where no reply could be read, no question has a value: those that need no judge would look like a judgement.
        """
        asked = [call for call in self.calls if not call.skipped]
        unread = bool(asked) and all(rows.get(call.key, {}).get("value") is None for call in asked)
        table = []
        for question in self.questions:
            row: dict[str, Any] = {"question_id": question.id, "type": question.type}
            for name in DIMENSIONS:
                winners = _winners(question.id, name, rows)
                value = None if winners is None else float(winners[0] == 0) if winners[0] == winners[1] else 0.5
                row[name] = None if unread else self.without_judge.get(question.id, value)
            table.append(row)
        return table

    def report(self, rows: Rows, table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        why: dict[str, str] = {}
        for call in self.calls:
            why[call.question.id] = why.get(call.question.id) or call.problem(rows)
        reasons = Counter(why.values())
        rates = {name: _win_rate([row[name] for row in table]) for name in DIMENSIONS}
        return {
            "judge/win_rate": rates["overall"]["win_rate"],
            "judge/win_rate_ci": rates["overall"]["interval"],
            "judge/win_rate_counted": rates["overall"]["counted"],
            "judge/win_rate_asked": len(table),
            "dimensions": rates,
            "counts": {name: reasons[name] for name in (UNANSWERED, IDENTICAL, MALFORMED, REJECTED, LLM_ERROR)},
            "position": {name: self._position(name, rows) for name in DIMENSIONS},
        }

    def _position(self, dimension: str, rows: Rows) -> dict[str, Any]:
        """Return how often the answer shown first wins (unbiased: 0.5), and how often both orders agree."""
        asked = dict.fromkeys(call.question.id for call in self.calls if not call.skipped)
        pairs = [pair for id_ in asked if (pair := _winners(id_, dimension, rows))]
        if not pairs:
            return {"judged": 0}
        shares = [((in_order == 0) + (swapped == 1)) / 2 for in_order, swapped in pairs]
        return {
            "judged": len(pairs),
            "first_wins": round(fmean(shares), 6),
            "interval": _rounded(share_interval(shares)),
            "consistency": round(fmean(a == b for a, b in pairs), 6),
        }


Task = Scoring | Pairing


def is_enough(counted: int, asked: int) -> bool:
    return counted >= LEAST and asked - counted <= MISSING * asked


def _winners(question_id: str, dimension: str, rows: Rows) -> tuple[int, int] | None:
    """Return which run (0, 1) each order names; None where a verdict is missing."""
    first, last = (rows.get((question_id, order), {}).get("value") for order in ORDERS)
    if not first or not last:
        return None
    return int(first[dimension] == "B"), int(last[dimension] == "A")


def _mean(values: Sequence[float | None]) -> dict[str, Any]:
    present = [value for value in values if value is not None]
    if not present:
        return {"mean": None, "interval": None, "counted": 0}
    interval = bootstrap_interval(present)
    return {"mean": round(interval.mean, 6), "interval": _rounded((interval.low, interval.high)), "counted": interval.n}


def _win_rate(values: Sequence[float | None]) -> dict[str, Any]:
    """Return a win rate, its interval, the exact p-value of a sign test, and which run is better.

    That is `first`, `second`, `tie` (interval or test leave it open), or `too_few` values.
    """
    present = [value for value in values if value is not None]
    if not present:
        return {"win_rate": None, "interval": None, "counted": 0, "asked": len(values)}
    low, high = share_interval(present)
    test = mcnemar([value == 1.0 for value in present], [value == 0.0 for value in present])
    better = "tie"
    if not is_enough(len(present), len(values)):
        better = "too_few"
    elif test.p_value < 0.05:
        better = "first" if low > 0.5 else "second" if high < 0.5 else "tie"
    return {
        "win_rate": round(fmean(present), 6),
        "interval": _rounded((low, high)),
        "p": round(test.p_value, 6),
        "counted": len(present),
        "asked": len(values),
        "won": test.only_a,
        "shared": len(present) - test.only_a - test.only_b,
        "lost": test.only_b,
        "better": better,
    }


def _rounded(interval: tuple[float, float]) -> list[float]:
    return [round(bound, 6) for bound in interval]
