"""Call counts and stop rules of the iterative baselines (specs/bdtr.md 18)."""

from __future__ import annotations

import pytest

from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.baselines import GCoT, IRCoT, IterRetGen, ToG, shortened_query
from gnnrag.parts import set_up
from gnnrag.roles.base import Step
from gnnrag.roles.reasoner import PromptedReasoner
from tests.helpers.parts import Scripted, ToyIndex, ToyRetriever, answer_one

TABLE = {
    "Q": {"a": 0.9, "b": 0.8, "z": 0.0},
    "s1": {"c": 1.0, "a": 0.1, "z": 0.0},
    "s2": {"d": 1.0, "z": 0.0},
    "s3": {"e": 1.0, "z": 0.0},
    "Q s1": {"c": 1.0, "z": 0.0},
    "Q s2": {"d": 1.0, "z": 0.0},
    "Q s3": {"e": 1.0, "z": 0.0},
}
STEPS = [Step(f"s{i}", f"s{i}", answer=f"A{i}") for i in (1, 2, 3)]


def run(cls, *steps, reader=None, retriever=None, **settings):
    roles = {"reasoner": Scripted("reasoner", *(steps or STEPS))}
    method = set_up(cls(**settings), index=ToyIndex(), roles=roles)
    asked = retriever or ToyRetriever(TABLE)
    prediction, session = answer_one(method, asked, *([reader] if reader else []))
    return prediction, session, roles["reasoner"].tasks, asked


@pytest.mark.parametrize("cls", [IRCoT, GCoT, ToG, IterRetGen])
@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_r_rounds_are_r_steps_and_r_plus_one_retrievals(cls, rounds):
    prediction, session, tasks, asked = run(cls, rounds=rounds)
    assert session.counts["retriever_calls"] == rounds + 1 == len(asked.asked)
    assert len(tasks) == rounds and prediction.error is None
    expected = ["Q"] + [f"Q s{i}" if cls is IterRetGen else f"s{i}" for i in range(1, rounds + 1)]
    assert asked.asked == expected


@pytest.mark.parametrize("cls", [IRCoT, GCoT, ToG])
def test_a_last_step_ends_the_loop_before_it_is_searched_for(cls):
    _, _, tasks, asked = run(cls, Step("So the answer is: yes", "x", True, "yes"), rounds=3)
    assert asked.asked == ["Q"] and len(tasks) == 1


def test_iter_retgen_has_no_stop_rule():
    _, _, _, asked = run(IterRetGen, Step("s1", None, True), Step("s2"), rounds=2)
    assert asked.asked == ["Q", "Q s1", "Q s2"]


@pytest.mark.parametrize("step", [Step(), Step("said", None), Step("said", "  ")])
def test_a_step_without_a_query_ends_the_loop(step):
    _, _, _, asked = run(IRCoT, step, rounds=3)
    assert asked.asked == ["Q"]


def test_steps_see_the_pool_and_the_earlier_steps():
    _, _, tasks, _ = run(IRCoT, rounds=2, shown=2)
    assert [t.steps for t in tasks] == [(), ("s1",)]
    assert [tuple(p.id for p in t.passages) for t in tasks] == [("a", "b"), ("a", "c")]


def test_native_answers():
    last = Step("So the answer is: Rome", None, True, "Rome")
    assert run(IRCoT, STEPS[0], last, rounds=3, answer="native")[0].answer == "Rome"
    assert run(IRCoT, STEPS[0], last, rounds=3)[0].answer != "Rome"
    steps = Step("s1"), Step("s2"), Step("s3", answer="end")
    prediction, _, tasks, _ = run(IterRetGen, *steps, rounds=2, answer="native")
    assert prediction.answer == "end" and len(tasks) == 3, "the last retrieval feeds a last generation"
    prediction, _, tasks, _ = run(IterRetGen, *STEPS, rounds=2, answer="native")
    assert prediction.answer == "A3" and len(tasks) == 3, "even where earlier generations gave answers"


def test_iter_retgen_asks_with_as_much_of_the_generation_as_the_setting_says():
    asked = run(IterRetGen, Step("word " * 200), rounds=1)[3].asked
    assert asked == ["Q", "Q" + " word" * 150], "the limit of the other methods' queries would cut it at a third"


def test_a_repeated_query_is_counted():
    _, session, _, _ = run(IRCoT, STEPS[0], STEPS[0], rounds=2)
    assert session.by_role["reasoner"]["repeated_query"] == 1 and session.counts["duplicate_query"] == 1


def test_failures_end_the_loop_not_the_question():
    roles = {"reasoner": set_up(PromptedReasoner(), backend=ScriptedBackend.of((".", "")))}
    prediction, session = answer_one(set_up(IRCoT(), index=ToyIndex(), roles=roles), ToyRetriever(TABLE))
    assert prediction.error is None and prediction.ranking and session.by_role["reasoner"]["loop_error"] == 1


def test_long_queries_are_cut_at_a_sentence():
    text = "One short sentence. " * 30
    assert shortened_query(text).endswith("sentence.") and len(shortened_query(text)) <= 300
    assert len(shortened_query("word " * 200)) <= 300 and shortened_query("short") == "short"
