"""A-Score and E-Score (GraphSearch, arXiv 2509.22009, 4.1): six qualities of an answer, each rated from 0 to 10.

The paper prints no formula; its values fit plain means. A question has an A-Score (an E-Score) when all three of its
criteria have a value: a mean of two would compare different things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.judge.agreement import self_agreement
from gnnrag.judge.answers import JudgedRun, golden_answer, golden_evidence
from gnnrag.judge.config import ANSWER, CRITERIA, EVIDENCE, JudgeConfig
from gnnrag.judge.folder import Call, Replies
from gnnrag.judge.replies import HIGHEST, parse_score
from gnnrag.judge.shown import shortened
from gnnrag.metrics.bootstrap import bootstrap_interval, mcnemar, paired_difference
from gnnrag.prompts.untrusted import inline, judged_element
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
            rows.append(row | {name: _mean([row.get(c) for c in _parts(name)]) for name in MEANS})
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


def _mean(values: Sequence[int | None]) -> float | None:
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
