from __future__ import annotations

from gnnrag.methods.single import Single, SingleConfig
from tests.helpers.parts import ToyIndex, ToyRetriever, answer_one, broken, scripted_roles

WIDE = {"Q": {f"d{i:02}": float(9 - i) for i in range(9)}}


def test_one_retrieval_and_the_reader() -> None:
    roles, retriever = scripted_roles(), ToyRetriever(WIDE)
    prediction, session = answer_one(Single(ToyIndex(), roles), retriever, roles["reader"])
    assert prediction.ranking == tuple(WIDE["Q"]) and prediction.context == tuple(WIDE["Q"])[:5]
    assert (prediction.usage["retriever_calls"], prediction.usage["llm_calls"], prediction.rounds) == (1, 1, 0)
    assert prediction.answer == "yes" and prediction.error is None
    assert not roles["thoughts"].tasks
    assert [e["event"] for e in session.events] == ["query", "evidence", "answer"]


def test_settings() -> None:
    method = Single(ToyIndex(), {}, SingleConfig(top_k=4, reader_top_k=2))
    prediction, _ = answer_one(method, ToyRetriever(WIDE))
    assert prediction.ranking == ("d00", "d01", "d02", "d03") and prediction.answer == "d00 d01"


def test_a_failing_retriever() -> None:
    prediction, _ = answer_one(Single(ToyIndex(), {}), ToyRetriever({"Q": broken()}))
    assert prediction.error == "the server is down" and prediction.ranking == () and prediction.answer == ""


def test_a_failing_reader_keeps_the_evidence() -> None:
    roles = scripted_roles(reader=[broken()])
    prediction, _ = answer_one(Single(ToyIndex(), roles), ToyRetriever(WIDE), roles["reader"])
    assert prediction.error == "the server is down" and prediction.answer == "" and len(prediction.ranking) == 9
