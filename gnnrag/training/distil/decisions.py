"""The decisions of a recorded run: written into its traces by the roles, and read from its files with their gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gnnrag.common.files import open_regular
from gnnrag.common.untrusted import parse_json
from gnnrag.errors import GnnragError
from gnnrag.metrics.answer import exact_match, gives_away
from gnnrag.roles.base import Thoughts, ThoughtsTask, Verdict, VerifierTask
from gnnrag.run.pipeline import Pipeline
from gnnrag.run.rundir import read_predictions
from gnnrag.session import Session, normalised
from gnnrag.training.distil.filtering import KeepConfig
from gnnrag.training.rows import DEPTH, Gain, gain, gain_of, gold_ranks
from gnnrag.types import Query, Question, Ranking

RECORDED = ("thoughts", "verifier")


class Proposed(Protocol):
    """A query that could be sent next."""

    @property
    def text(self) -> str:
        """What is searched for."""
        ...

    @property
    def kind(self) -> str:
        """What made it."""
        ...


Builder = Callable[[ThoughtsTask], Sequence[Proposed]]


class Recorder(Mapping[str, Any]):
    """The roles of a pipeline, of which those in `RECORDED` add a `decision` event to the trace at each call.

    Hand `partial(Recorder, build=...)`, or the class itself, to `evaluate` as `wrap`.

    Args:
        pipeline: whose roles they are, and whose retriever ranks the candidates.
        build: makes, from the index, what turns a thoughts task into queries that could be sent; each is retrieved as
            the question's own queries are, but not booked, and the ranks of gold passages are recorded.
    """

    def __init__(self, pipeline: Pipeline, build: Callable[[Any], Builder] | None = None) -> None:
        self.pipeline = pipeline
        self.builder = build(pipeline.index) if build else None
        self._watched: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in RECORDED:
            return self.pipeline.roles[name]
        if name not in self._watched:
            kind = RecordedThoughts if name == "thoughts" else RecordedVerifier
            self._watched[name] = kind(self.pipeline.roles[name], self)
        return self._watched[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.pipeline.roles)

    def __len__(self) -> int:
        return len(self.pipeline.roles)

    async def candidates(self, task: ThoughtsTask, session: Session) -> list[dict[str, Any]]:
        """Return each candidate of a task with the ranks of the gold passages that it finds.

        Damage and wrong settings are raised; a query that fails for another reason is left out.
        """
        last = next((e for e in reversed(session.events) if e["event"] == "query"), None)
        if self.builder is None or last is None:
            return []
        wanted: dict[str, Proposed] = {}
        for proposed in self.builder(task):
            wanted.setdefault(normalised(proposed.text), proposed)
        wanted.pop("", None)
        asked = [
            Query(p.text, last["channel"], last["top_k"], p.kind, last["scope"], last["retriever"])
            for p in wanted.values()
        ]
        scratch = Session(session.question_id, session.budget, started=session.started)
        found = []
        for query, ranking in zip(asked, await self.pipeline.loop.search(asked, scratch), strict=True):
            if isinstance(ranking, GnnragError):
                raise ranking
            if isinstance(ranking, Ranking):
                ranks = gold_ranks(ranking.ids, task.question.gold)
                found.append({"text": query.text, "kind": query.kind, "ranks": ranks})
        return found


class _Recorded:
    """A role whose decisions are recorded; everything else that is asked of it is the role's own."""

    def __init__(self, role: Any, recorder: Recorder) -> None:
        self._role, self._recorder = role, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._role, name)


class RecordedThoughts(_Recorded):
    """See `Recorder`."""

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        """Ask the role, and record the task, the pool before, the reply and the candidates."""
        pool = _pool(task, session)
        candidates = await self._recorder.candidates(task, session)
        result: Thoughts = await self._role(task, session)
        session.record(
            "decision",
            role="thoughts",
            round=task.round,
            passages=[p.id for p in task.passages],
            scores=_rounded(task.scores),
            earlier=list(task.earlier),
            may_stop=task.may_stop,
            with_chain=task.with_chain,
            pool=pool,
            fast=result.fast,
            slow=result.slow,
            sufficient=result.sufficient,
            chain=result.chain,
            flags=list(result.flags),
            candidates=candidates,
        )
        return result


class RecordedVerifier(_Recorded):
    """See `Recorder`."""

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Ask the role, and record the task and the verdict."""
        result: Verdict = await self._role(task, session)
        session.record(
            "decision",
            role="verifier",
            chain=task.chain.text,
            support=list(task.chain.support),
            passages=[p.id for p in task.passages],
            scores=_rounded(task.scores),
            selected=list(result.selected),
            flags=list(result.flags),
        )
        return result


def _pool(task: ThoughtsTask, session: Session) -> list[str]:
    """Return the ids of the pool that a method has at this moment; what it shows, where it does not say."""
    merged = next((e for e in reversed(session.events) if e["event"] == "merge"), None)
    return list(merged["top"][:DEPTH]) if merged else [p.id for p in task.passages]


def _rounded(scores: Sequence[float]) -> list[float]:
    return [round(float(score), 6) for score in scores]


FAILED = {
    "thought_failed",
    "verifier_failed",
    "verifier_partial",
    "answer_leak",
}  # flags of a reply that taught nothing


@dataclass(frozen=True)
class Decision:
    """One decision of one question."""

    role: str  # `thoughts` or `verifier`
    question: Question  # that it was made for
    number: int  # 0-based, among the question's decisions of this role
    event: Mapping[str, Any]  # what `Recorder` wrote
    gains: dict[str, Gain] = field(default_factory=dict)  # of the queries that were sent, by the folded text

    def gain(self, kind: str) -> Gain | None:
        """Return what the fast or the slow query gained; None where it was not sent."""
        return self.gains.get(normalised(self.event[kind] or ""))

    @property
    def candidates(self) -> list[tuple[str, str, Gain]]:
        """Further queries: text, kind, gain."""
        pool = self.event["pool"]
        return [(c["text"], c["kind"], gain_of(c["ranks"], pool)) for c in self.event["candidates"]]


def read_decisions(run: Path, questions: Mapping[str, Question], failed: set[str]) -> Iterator[Decision]:
    """Yield the decisions of a finished run, question by question."""
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
            text = normalised(event["text"])
            if text in {normalised(thought.event[kind] or "") for kind in ("fast", "slow")}:
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
