from __future__ import annotations

from gnnrag.methods.single import ClosedBook
from tests.helpers.parts import ToyIndex, ToyRetriever, answer_one, scripted_roles


def test_the_reader_sees_the_question_alone() -> None:
    roles, retriever = scripted_roles(), ToyRetriever({})
    prediction, session = answer_one(ClosedBook(ToyIndex(), roles), retriever, roles["reader"])
    assert retriever.asked == [] and prediction.usage["retriever_calls"] == 0 and prediction.usage["llm_calls"] == 1
    assert prediction.answer == "yes" and prediction.ranking == prediction.context == () and prediction.rounds == 0
    (task,) = roles["reader"].tasks
    assert task.passages == () and task.notes == ""
    assert [e["event"] for e in session.events] == ["evidence", "answer"]
