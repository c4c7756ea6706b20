"""Search agents in the loop: turns, searches, look-ups and what happens when they go astray."""

from __future__ import annotations

import pytest

from gnnrag.methods.baselines import R1Searcher, ReAct, SearchR1
from gnnrag.parts import set_up
from gnnrag.roles.base import NextMove
from tests.helpers.parts import Scripted, ToyIndex, ToyRetriever, answer_one

TABLE = {"s1": {"a": 0.9, "b": 0.5, "z": 0.0}, "s2": {"c": 1.0, "a": 0.2, "z": 0.0}}
SEARCH = [NextMove("search", f"s{i}", f"<search>s{i}</search>") for i in (1, 2, 3)]
FINISH = NextMove("finish", "Oslo")


def run(cls, *moves, **settings):
    roles = {"agent": Scripted("agent", *moves)}
    asked = ToyRetriever(TABLE)
    prediction, session = answer_one(set_up(cls(**settings), index=ToyIndex(), roles=roles), asked)
    return prediction, session, roles["agent"].tasks, asked.asked


@pytest.mark.parametrize("cls", [ReAct, SearchR1, R1Searcher])
def test_searches_until_it_finishes_and_never_asks_the_question_itself(cls):
    prediction, _, tasks, asked = run(cls, SEARCH[0], SEARCH[1], FINISH)
    assert asked == ["s1", "s2"] and len(tasks) == 3 and prediction.answer == "Oslo"
    assert list(prediction.ranking) == ["a", "c", "b", "z"]
    assert [p.id for p in tasks[1].turns[0].passages] == ["a", "b", "z"]


def test_searches_run_out_and_a_last_move_is_asked_for():
    prediction, _, tasks, asked = run(SearchR1, SEARCH[0], SEARCH[1], SEARCH[2], max_searches=2)
    assert asked == ["s1", "s2"] and [t.may_search for t in tasks] == [True, True, False]
    assert prediction.error is None and prediction.answer, "the reader stands in"


def test_invalid_moves_are_told_and_cost_a_turn():
    _, session, tasks, asked = run(ReAct, NextMove("invalid", "", "hm"), SEARCH[0], NextMove("search", " "), FINISH)
    assert asked == ["s1"] and session.by_role["agent"]["invalid_move"] == 2
    assert [t.note for t in tasks[-1].turns] == ["invalid", "", "invalid"]
    _, _, tasks, _ = run(ReAct, NextMove("invalid"))
    assert len(tasks) == 7


def test_lookup_steps_through_the_sentences_of_the_last_search():
    look = NextMove("lookup", "TEXT OF")
    _, _, tasks, _ = run(ReAct, SEARCH[0], look, look, look, look, FINISH)
    notes = [t.note for t in tasks[-1].turns[1:]]
    assert notes == [
        "(Result 1 / 3) text of a",
        "(Result 2 / 3) text of b",
        "(Result 3 / 3) text of z",
        "no more results",
    ]
    _, _, tasks, _ = run(ReAct, look, FINISH)
    assert tasks[-1].turns[0].note == "nothing to look up in"


def test_an_agent_without_an_answer():
    prediction, session, _, _ = run(SearchR1, NextMove("finish"))
    assert prediction.answer == "nothing" and session.by_role["agent"]["no_answer"] == 1
