"""The decisions of a recorded run, with what they gained: read from its files alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnrag.common.files import open_regular
from gnnrag.common.untrusted import parse_json
from gnnrag.distil.config import KeepConfig
from gnnrag.metrics.answer import exact_match, gives_away
from gnnrag.run.rundir import read_predictions
from gnnrag.session import folded
from gnnrag.tuned.gain import Gain, gain, gain_of
from gnnrag.types import Question

FAILED = {
    "thought_failed",
    "verifier_failed",
    "verifier_partial",
    "answer_leak",
}  # flags of a reply that taught nothing


@dataclass(frozen=True)
class Decision:
    """One decision of one question.

    Attributes:
        role: `thoughts` or `verifier`.
        question: that it was made for.
        number: 0-based, among the question's decisions of this role.
        event: what `Recorder` wrote.
        gains: of the queries that were sent, by the folded text.
    """

    role: str
    question: Question
    number: int
    event: Mapping[str, Any]
    gains: dict[str, Gain] = field(default_factory=dict)

    def gain(self, kind: str) -> Gain | None:
        """Return what the fast or the slow query gained; None where it was not sent."""
        return self.gains.get(folded(self.event[kind] or ""))

    @property
    def candidates(self) -> list[tuple[str, str, Gain]]:
        """Further queries: text, kind, gain."""
        pool = self.event["pool"]
        return [(c["text"], c["kind"], gain_of(c["ranks"], pool)) for c in self.event["candidates"]]


def read_decisions(run: Path, questions: Mapping[str, Question], failed: set[str]) -> Iterator[Decision]:
    """Yield the decisions of a finished run, question by question.

    Args:
        run: the run directory.
        questions: by id.
        failed: ids of questions that are passed over.
    """
    with open_regular(run / "traces.jsonl") as lines:
        for row in map(parse_json, lines):
            if row["question_id"] not in failed:
                yield from decisions_of(questions[row["question_id"]], row["events"])


def decisions_of(question: Question, events: Sequence[Mapping[str, Any]]) -> list[Decision]:
    """Return the decisions in the trace of a question; a query belongs to the thoughts that it follows."""
    found: list[Decision] = []
    thought: Decision | None = None
    count: Counter[str] = Counter()
    for event in events:
        if event["event"] == "decision":
            found.append(Decision(event["role"], question, count[event["role"]], event))
            count[event["role"]] += 1
            thought = found[-1] if event["role"] == "thoughts" else thought
        elif event["event"] == "query" and thought is not None:
            text = folded(event["text"])
            if text in {folded(thought.event[kind] or "") for kind in ("fast", "slow")}:
                thought.gains[text] = gain(event["ranking"]["ids"], thought.event["pool"], question.gold)
    return found


def failures(run: Path) -> set[str]:
    """Return the ids of questions that ended with an error."""
    return {p.question_id for p in read_predictions(run) if p.error is not None}


def became_right(run: Path, without: Path | None, questions: Mapping[str, Question]) -> set[str]:
    """Return the questions that are answered exactly in a run, and wrongly in the run without the teacher."""
    if without is None:
        return set()

    def right(path: Path) -> dict[str, bool]:
        return {
            p.question_id: p.error is None and exact_match(p.answer, questions[p.question_id].answers) == 1.0
            for p in read_predictions(path)
            if p.question_id in questions
        }

    before = right(without)
    return {id_ for id_, good in right(run).items() if good and before.get(id_) is False}


def verdict_on(decision: Decision, keep: KeepConfig, right: set[str]) -> str:
    """Return why a decision is not kept as it is, or an empty text.

    `failed`: its reply was malformed or missing; `leaked`: a thought states the answer, which who asks does not know;
    `stop`: it says that nothing is missing; `unknown`: the question has no gold passages; `useless`: it did not help.
    """
    event = decision.event
    if keep.clean and FAILED & set(event["flags"]):
        return "failed"
    asked, question = [event[k] or "" for k in ("fast", "slow") if decision.role == "thoughts"], decision.question
    if keep.clean and any(gives_away(text, question.text, question.answers) for text in asked):
        return "leaked"
    if decision.role == "thoughts" and not (event["fast"] or event["slow"]):
        return "" if keep.stops and event["sufficient"] else "stop"
    if not keep.helped or decision.question.id in right:
        return ""
    if not decision.question.gold:
        return "unknown"
    return "" if _helped(decision, keep) else "useless"


def _helped(decision: Decision, keep: KeepConfig) -> bool:
    if decision.role == "thoughts":
        return any(g.helped for g in decision.gains.values())
    gold, selected = set(decision.question.gold), decision.event["selected"]
    if not selected:  # right where there was nothing to select
        return not gold & set(decision.event["passages"])
    hits = len(gold.intersection(selected))
    return hits > 0 and hits >= keep.precision * len(selected)
