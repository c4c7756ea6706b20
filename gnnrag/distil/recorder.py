"""Writes what the recorded roles decide into the trace of each question, beside the queries that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gnnrag.errors import GnnragError
from gnnrag.roles.base import Thoughts, ThoughtsTask, Verdict, VerifierTask
from gnnrag.run.pipeline import Pipeline
from gnnrag.session import Session, folded
from gnnrag.tuned.gain import DEPTH, gold_ranks
from gnnrag.types import Query, Ranking

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
            wanted.setdefault(folded(proposed.text), proposed)
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
