"""Multi-hop retrieval with one query a round."""

from __future__ import annotations

from typing import Any

import pytest

from gnnrag.methods.baselines import MultiHop
from gnnrag.parts import set_up
from gnnrag.roles.base import Thoughts
from gnnrag.session import Session
from gnnrag.types import Prediction
from tests.helpers.parts import ToyIndex, ToyRetriever, answer_one, scripted_roles

TABLE = {
    "Q": {"a": 0.9, "b": 0.8, "z": 0.0},
    "f1": {"c": 1.0, "z": 0.0},
    "f2": {"d": 1.0, "z": 0.0},
    "f3": {"e": 1.0, "z": 0.0},
    "f4": {"f": 1.0, "z": 0.0},
}
STEPS = [Thoughts(f"f{i}", f"s{i}") for i in (1, 2, 3, 4)]


def run(thoughts: Any = STEPS, **settings: Any) -> tuple[Prediction, Session, list[str], dict[str, Any]]:
    roles: dict[str, Any] = scripted_roles(thoughts)
    retriever = ToyRetriever(TABLE)
    method = set_up(MultiHop(**settings), index=ToyIndex(), roles=roles)
    prediction, session = answer_one(method, retriever, roles["reader"])
    return prediction, session, retriever.asked, roles


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_call_counts(rounds: int) -> None:
    prediction, _, asked, _ = run(max_rounds=rounds)
    assert asked == ["Q", "f1", "f2", "f3"][: rounds + 1] and prediction.rounds == rounds
    assert (prediction.usage["retriever_calls"], prediction.usage["llm_calls"]) == (rounds + 1, rounds + 1)


def test_it_stops_when_nothing_is_missing() -> None:
    prediction, session, asked, roles = run([STEPS[0], Thoughts(sufficient=True)])
    assert asked == ["Q", "f1"] and prediction.rounds == 1 and prediction.usage["llm_calls"] == 3
    assert {"event": "stop", "sufficient": True, "query": None} in session.events
    assert all(task.may_stop for task in roles["thoughts"].tasks)
    assert set(prediction.ranking) == set("abcz")


@pytest.mark.parametrize("thoughts", [Thoughts(), Thoughts("Q"), Thoughts(flags=("thought_failed",))])
def test_it_stops_when_nothing_new_comes_to_mind(thoughts: Thoughts) -> None:
    prediction, _, asked, _ = run([thoughts])
    assert asked == ["Q"] and prediction.error is None and prediction.rounds == 0
    assert run([Thoughts(None, "f2")], max_rounds=1)[2] == ["Q", "f2"], "the slow thought stands in"


def test_context_and_reader() -> None:
    prediction, _, _, roles = run(max_rounds=2, context_passages=2, reader_top_k=3)
    assert [[p.id for p in t.passages] for t in roles["thoughts"].tasks] == [["a", "b"], ["a", "c"]]
    assert prediction.context == ("a", "c", "d") and prediction.ranking == ("a", "c", "d", "b", "z")
    assert roles["thoughts"].tasks[1].earlier == ("f1",)
