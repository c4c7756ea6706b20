"""The decisions of a recorded run, written into its traces by the roles, and the training rows made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnrag.common.files import open_regular
from gnnrag.common.untrusted import parse_json
from gnnrag.errors import GnnragError
from gnnrag.index.index import Index
from gnnrag.metrics.answer import exact_match, gives_away
from gnnrag.roles.base import Chain, Thoughts, ThoughtsTask, Verdict, VerifierTask
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.roles.verifier import verifier_chat
from gnnrag.run.pipeline import Pipeline
from gnnrag.run.rundir import read_predictions
from gnnrag.session import Session, normalised
from gnnrag.training.rows import (
    DEPTH,
    Candidate,
    Gain,
    KeepConfig,
    ShownPassage,
    ThoughtsRow,
    TracesConfig,
    Turn,
    VerifierRow,
    gain,
    gain_of,
    gold_ranks,
)
from gnnrag.types import Query, Question, Ranking

RECORDED = ("thoughts", "verifier")


@dataclass(frozen=True)
class Proposed:
    """A query that could be sent next, and what made it."""

    text: str
    kind: str


Builder = Callable[[ThoughtsTask], Sequence[Proposed]]


class BridgeQueries:
    """Queries by rules: what the question names and what leads on from there and from the passages shown.

    Each with the part of the question that names nothing, and the title alone. Preferences (DPO) need such others.
    """

    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, limit: int = 30) -> None:
        self.index, self.limit, self.finder = index, limit, BridgeFinder(index)

    def __call__(self, task: ThoughtsTask) -> list[Proposed]:
        question = self.finder.read(task.question.text)
        shown = [self.index.position[p.id] for p in task.passages]
        sources = list(dict.fromkeys([*(a.passage for a in question.anchors), *shown]))
        bridges = [b for b in self.finder.bridges(question, sources) if b.passage not in shown]
        names = [(a.name, "anchor") for a in question.anchors] + [(b.name, "bridge") for b in bridges]
        queries = [Proposed(question.open_part, "open part")]
        for name, kind in names:
            queries += [Proposed(f"{name} {question.open_part}", kind), Proposed(name, kind)]
        return queries[: self.limit]


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


# Flags of a reply that taught nothing.
FAILED = {"thought_failed", "verifier_failed", "verifier_partial", "answer_leak"}


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


# ------------------------------------------------------------------------------------------------------ training rows
RowT = TypeVar("RowT", VerifierRow, ThoughtsRow)


def with_chat(row: RowT, most: int) -> RowT:
    """Return a row with its `messages`; thoughts without a reply have none.

    Args:
        row: a decision.
        most: passages that the chat of a verifier row shows at most: the positives and the hardest negatives among the
            first `source.seen`, in the order shown; their ids are noted in `source.chat`.
    """
    question = Question(row.question_id, row.question)
    if isinstance(row, VerifierRow):
        shown = _in_chat(row, most)
        task = VerifierTask(question, Chain(row.chain), tuple(p.passage for p in shown))
        source = {**row.source, "chat": [p.id for p in shown]}
        return row.model_copy(update={"messages": _turns(verifier_chat(task, row.selected)), "source": source})
    return row.model_copy(update={"messages": _thoughts_turns(row, question)})


def _in_chat(row: VerifierRow, most: int) -> list[ShownPassage]:
    seen = row.passages[: row.source.get("seen", len(row.passages))]
    positive = {*row.gold, *row.selected}
    hardest = [p.id for p in seen if p.id not in positive][: max(0, most - sum(p.id in positive for p in seen))]
    return [p for p in seen if p.id in positive or p.id in hardest][:most]


def _thoughts_turns(row: ThoughtsRow, question: Question) -> tuple[Turn, ...]:
    """Render the prompt with the optional sentences that the source names; the chain, if asked for, stands there."""
    if not (row.fast or row.slow or row.sufficient):
        return ()
    chain = row.source.get("chain")
    task = ThoughtsTask(
        question,
        tuple(p.passage for p in row.passages),
        earlier=row.earlier,
        with_chain=chain is not None,
        may_stop=bool(row.source.get("may_stop")),
    )
    return _turns(thoughts_chat(task, Thoughts(row.fast, row.slow, row.sufficient, chain)))


def _turns(messages: Sequence[object]) -> tuple[Turn, ...]:
    return tuple(Turn.model_validate(m, from_attributes=True) for m in messages)


BATCH = 64  # questions whose near misses are looked for at once


@dataclass
class RowMaker:
    """Makes the rows of a run."""

    index: Index  # of the run
    name: str  # of the data set
    run: str  # digest of the run's settings and inputs, in front of the ids of rows
    teachers: Mapping[str, str]  # who did each role
    source: Mapping[str, Any]  # what all rows say of where they come from
    parts: Mapping[str, str]  # question id to part
    config: TracesConfig  # settings
    mined: Mapping[str, Sequence[str]] = field(default_factory=dict)  # question id to near misses of other retrievers
    _cosines: tuple[str, np.ndarray | None] = ("", None)

    def verifier(self, decision: Decision) -> VerifierRow:
        """Return the row of a verifier's decision: what it saw in pool order, then near misses without a score."""
        event, question = decision.event, decision.question
        gold, selected = set(question.gold), set(event["selected"])
        seen, scores = self._chosen(event, gold | selected)
        mined = [id_ for id_ in self.mined.get(question.id, ()) if id_ not in event["passages"]]
        gone = {"left_out": count} if (count := len(event["passages"]) - len(seen)) else {}
        row = VerifierRow(
            **self._common(decision, "verifier", seen=len(seen), mined=len(mined), **gone),
            passages=(*self._shown(question, seen, scores), *self._shown(question, mined, ())),
            chain=event["chain"],
            support=tuple(event["support"]),
            selected=tuple(id_ for id_ in seen if id_ in selected),
            gold=tuple(id_ for id_ in seen if id_ in gold),
        )
        return with_chat(row, self.config.chat_passages)

    def thoughts(self, decision: Decision, helped: bool) -> ThoughtsRow:
        """Return the row of a thoughts decision; of one that did not help, only its candidates are kept."""
        event, question = decision.event, decision.question
        kinds = [kind for kind in ("fast", "slow") if event[kind]] if helped else []
        gains = {kind: found.value for kind in kinds if (found := decision.gain(kind)) is not None}
        row = ThoughtsRow(
            **self._common(decision, "thoughts", round=event["round"], **_asked(event)),
            passages=self._shown(question, event["passages"], event["scores"]),
            round=event["round"],
            earlier=tuple(event["earlier"]),
            **{kind: event[kind] for kind in kinds},
            gains={kind: round(value, 6) for kind, value in gains.items()},
            sufficient=helped and not kinds,
            pool=tuple(event["pool"]),
            gold=question.gold,
            candidates=tuple(
                Candidate(text=text, kind=kind, gain=round(found.value, 6), new=found.new)
                for text, kind, found in decision.candidates
            ),
        )
        return with_chat(row, self.config.chat_passages)

    def _common(self, decision: Decision, role: str, **more: Any) -> dict[str, Any]:
        question = decision.question
        return {
            "id": f"{self.run}:{question.id}:{role}:{decision.number}",
            "set": self.name,
            "question_id": question.id,
            "question": question.text,
            "part": self.parts[question.id],
            "teacher": self.teachers[role],
            "source": {**self.source, "type": question.type, **more},
        }

    def _chosen(self, event: Mapping[str, Any], positive: set[str]) -> tuple[list[str], list[float]]:
        """Return ids and scores of the passages of a verifier row: all positives, and the first `negatives` others."""
        pairs = list(zip(event["passages"], event["scores"] or [None] * len(event["passages"]), strict=True))
        if (most := self.config.negatives) is not None:
            others = [id_ for id_, _ in pairs if id_ not in positive][:most]
            pairs = [pair for pair in pairs if pair[0] in positive or pair[0] in others]
        return [id_ for id_, _ in pairs], [score for _, score in pairs]

    def _shown(self, question: Question, ids: Sequence[str], scores: Sequence[float]) -> tuple[ShownPassage, ...]:
        cosines = self._question_cosines(question)
        rows = []
        for number, passage in enumerate(self.index.lookup(ids)):
            cosine = None if cosines is None else round(float(cosines[self.index.position[passage.id]]), 6)
            score = scores[number] if scores else None
            rows.append(ShownPassage(id=passage.id, title=passage.title, text=passage.text, score=score, cosine=cosine))
        return tuple(rows)

    def _question_cosines(self, question: Question) -> np.ndarray | None:
        """(num_passages,) cosines of the question; None where the index has no vectors."""
        if not self.index.has("embeddings"):
            return None
        if self._cosines[0] != question.id:
            self._cosines = (question.id, self.index.dense_scores([question.text])[0])
        return self._cosines[1]


def near_misses(retrievers: Sequence[Any], questions: Sequence[Question], top: int) -> dict[str, list[str]]:
    """Return for each question what retrievers rank first and is not gold: passages that resemble an answer.

    Args:
        retrievers: asked with the question's text.
        questions: with their gold passages; one without any gives nothing, because its misses are unknown.
        top: hits of each retriever that are looked at.
    """
    known = [q for q in questions if q.gold] if top else []
    found: dict[str, list[str]] = {q.id: [] for q in known}
    for retriever in retrievers:
        for start in range(0, len(known), BATCH):
            batch = known[start : start + BATCH]
            rankings = retriever.retrieve([Query(q.text, top_k=top) for q in batch])
            for question, ranking in zip(batch, rankings, strict=True):
                mine = found[question.id]
                mine += [id_ for id_ in ranking.ids if id_ not in question.gold and id_ not in mine]
    return found


def _asked(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what further was asked for and written: may it stop, and the chain."""
    stop = {"may_stop": True} if event["may_stop"] else {}
    return stop | ({"chain": event["chain"] or ""} if event["with_chain"] else {})
