"""The report of a run, checked on numbers worked out by hand."""

import math

import pytest

from gnnrag.errors import GnnragError
from gnnrag.metrics.report import length_group, per_question
from gnnrag.types import Prediction, Question
from tests.helpers.scoring import score

QUESTIONS = [
    Question("q1", "?", ("Paris",), "bridge", ("a", "b")),
    Question("q2", "?", ("Rome", "Roma"), "bridge", ("c",)),
    Question("q3", "?", (), "open"),
]


def predict(qid, answer="", ranking=(), context=(), error=None, **usage):
    return Prediction(qid, answer, tuple(ranking), tuple(context), 1, usage, 2.0, error)


PREDICTIONS = [
    predict("q3"),
    predict("q1", "paris", "axb", "ax", llm_calls=3, prompt_tokens=100, completion_tokens=10, cost=0.00003),
    predict("q2", "Roma Nova", "xyc", "xyc", llm_calls=1, prompt_tokens=20, retriever_calls=4),
]


def test_means_by_hand():
    columns = per_question(QUESTIONS, PREDICTIONS)
    assert columns["answer/em"].tolist() == [1, 0, 1], "in the order of questions"
    assert columns["retrieval/recall@1"].tolist() == pytest.approx([0.5, 0, math.nan], nan_ok=True)
    got = score(QUESTIONS, PREDICTIONS, ks=(1, 2, 5))
    assert got["questions"] == 3
    assert (got["failed"], got["no_gold"]) == (0, 1)
    assert got["retrieval/recall@1"] == round((0.5 + 0) / 2, 4)
    assert got["retrieval/recall@5"] == round((1 + 1) / 2, 4)
    assert got["retrieval/all@2"] == 0
    assert got["retrieval/all@5"] == 1
    assert got["retrieval/mrr"] == round((1 + 1 / 3) / 2, 4)
    assert got["retrieval/context_precision"] == round((1 / 2 + 1 / 3) / 2, 4)
    assert got["answer/em"] == 0.6667  # q3 cannot be answered, and the reader abstained
    assert got["answer/f1"] == round((1 + 2 / 3 + 1) / 3, 4)
    assert got["answer/sub_em"] == got["answer/sub_em_tok"] == 1
    assert got["answer/abstained"] == 0.3333
    assert got["cost/llm_calls"] == round(4 / 3, 4)
    assert (got["cost/prompt_tokens"], got["cost/completion_tokens"]) == (40, 3.3333)
    assert (got["cost/usd"], got["cost/retriever_calls"], got["cost/seconds_per_question"]) == (1e-05, 1.3333, 2)
    assert got["context/size"] == 1.6667


def test_by_length():
    lengths = [length_group("word " * n) for n in (1, 10, 11, 20, 21)]
    assert lengths == ["01-10 words", "01-10 words", "11-15 words", "16-20 words", "21+ words"] == sorted(lengths)
    got = score(QUESTIONS, PREDICTIONS, ks=(2, 5))["by_length"]
    assert list(got) == ["01-10 words"] and got["01-10 words"]["count"] == 3


def test_by_type_and_intervals():
    got = score(QUESTIONS, PREDICTIONS, ks=(2, 5))
    assert list(got["by_type"]) == ["bridge", "open"]
    assert got["by_type"]["bridge"]["count"] == 2
    assert got["by_type"]["bridge"]["retrieval/recall@5"] == 1
    assert got["by_type"]["open"]["answer/em"] == 1
    low, high = got["retrieval/recall@5_ci"]
    assert low <= got["retrieval/recall@5"] <= high
    assert {k for k in got if k.endswith("_ci")} == {
        f"{name}_ci"
        for name in (
            *("retrieval/recall@2", "retrieval/recall@5", "retrieval/all@5", "retrieval/mrr"),
            *("answer/em", "answer/f1", "answer/sub_em"),
        )
    }
    assert not any(k.endswith("_ci") for k in score(QUESTIONS, PREDICTIONS, resamples=0))


def test_a_failed_question_scores_zero_counts_and_keeps_its_cost():
    rows = [
        predict("q1", "Paris", "ab", "ab", error="LLMError: refused", llm_calls=2),
        predict("q2", "Rome", "c", "c"),
        predict("q3", "", error="BudgetError: no calls left"),  # empty because it failed, not because it abstained
    ]
    got = score(QUESTIONS, rows)
    assert got["failed"] == 2
    assert got["by_type"]["bridge"]["failed"] == 1
    assert got["answer/em"] == 0.3333 and got["retrieval/recall@5"] == 0.5  # q3 has no gold
    assert got["answer/abstained"] == 0
    assert got["cost/llm_calls"] == 0.6667


def test_questions_without_gold_are_left_out_of_retrieval_only():
    got = score(QUESTIONS, PREDICTIONS)
    assert got["retrieval/recall@5"] == 1
    assert got["answer/abstained"] == 0.3333
    assert got["by_type"]["open"]["retrieval/mrr"] is None
    only = score(QUESTIONS[2:], [predict("q3")])
    assert only["retrieval/recall@5"] is None
    assert "retrieval/recall@5_ci" not in only
    assert only["answer/em_ci"] == [1, 1]


@pytest.mark.parametrize(
    "questions, rows, settings, message",
    [
        ([], [], {}, "no questions to score"),
        (QUESTIONS, PREDICTIONS[:1], {}, "2 questions without a prediction.*'q1'"),
        (QUESTIONS, [*PREDICTIONS, predict("q1")], {}, "two predictions"),
        (QUESTIONS[:2], PREDICTIONS, {}, "'q3'"),
    ],
)
def test_incomplete_runs_and_bad_settings_are_refused(questions, rows, settings, message):
    with pytest.raises((GnnragError, ValueError), match=message):
        score(questions, rows, **settings)
