"""Decisions to training rows: passages with their texts, scores and cosines, near misses, gains, and the chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from gnnrag.index.index import Index
from gnnrag.roles.base import Chain, Thoughts, ThoughtsTask, VerifierTask
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.roles.verifier import verifier_chat
from gnnrag.training.distil.decisions import Decision
from gnnrag.training.distil.filtering import TracesConfig
from gnnrag.training.rows import Candidate, ShownPassage, ThoughtsRow, Turn, VerifierRow
from gnnrag.types import Query, Question

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
            cosine = None
            if cosines is not None:
                cosine = round(float(cosines[self.index.position[passage.id]]), 6)
            score = scores[number] if scores else None
            rows.append(ShownPassage(id=passage.id, title=passage.title, text=passage.text, score=score, cosine=cosine))
        return tuple(rows)

    def _question_cosines(self, question: Question) -> np.ndarray | None:
        """(num_passages,) cosines of the question; None where the index has no vectors."""
        if self.index.store.key("embeddings") is None:
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
