"""The decision of a row as a chat: the prompt of the prompted role, and the teacher's reply in the format it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gnnrag.roles.base import Chain, Thoughts, ThoughtsTask, VerifierTask
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.roles.verifier import verifier_chat
from gnnrag.tuned.rows import ShownPassage, ThoughtsRow, Turn, VerifierRow
from gnnrag.types import Question

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
