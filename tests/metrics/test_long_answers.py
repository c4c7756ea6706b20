"""Metrics by texts: which questions have them, and their values worked out by hand."""

import math

import numpy as np
import pytest

from gnnrag.config import LongAnswersConfig, MetricsConfig
from gnnrag.metrics.long_answers import Material, first_tokens, is_compared, is_long, is_sentence
from gnnrag.metrics.report import per_question, summarise
from gnnrag.text.tokens import TokenCounter
from gnnrag.types import Passage, Prediction, Question
from tests.helpers.each import each

PASSAGES = [
    Passage("a", "", "Surgery removes the tumour."),
    Passage("b", "", "Radiation follows in most of the cases."),
    Passage("c", "", "Drugs come last of all."),
]
SENTENCE = "Surgery and radiation are what usually is given to them."


def predict(id_: str, answer: str = "", ranking: str = "", error: str | None = None) -> Prediction:
    return Prediction(id_, answer, tuple(ranking), tuple(ranking[:1]), 1, {}, 1.0, error)


@each(
    "answer, is_one",
    [
        ("Human papillomavirus (HPV) is most commonly associated.", True),
        ("Low-grade gliomas include Grade 1 and Grade 2.", True),
        ("word " * 12, True),
        ("word " * 11, False),
        ("A Yank In The R.A.F.", False),
        ("Waylon J. Smithers Jr.", False),
        ("Where Does It Hurt?", False),
        ("Yes, it is.", False),
        ("Washington, D.C.", False),
        ("", False),
    ],
)
def test_a_sentence_is_told_from_a_name(answer, is_one):
    assert is_sentence(answer) is is_one


def test_one_short_answer_that_is_accepted_makes_a_question_short() -> None:
    assert is_long(Question("q", "?", (SENTENCE,))) and not is_long(Question("q", "?", (SENTENCE, "Surgery")))
    assert not is_long(Question("q", "?"))
    assert is_compared(Question("q", "?", ("Surgery",))) and not is_compared(Question("q", "?", ("Surgery",), gold="a"))
    assert is_compared(Question("q", "?", (SENTENCE,), gold=("a",))) and not is_compared(Question("q", "?"))


def test_a_budget_of_tokens_cuts_at_a_word() -> None:
    counter = TokenCounter()
    assert first_tokens(["four tokens here", "and more of them"], 6, counter) == ["four tokens here", "and more"]
    assert first_tokens(["four tokens here", "x"], 4, counter) == ["four tokens here"]


def test_coverage_by_what_was_retrieved_first() -> None:
    questions = [
        Question("q1", "What about surgery?", (SENTENCE,), "how"),
        Question("q2", "Which?", ("Radiation",), "which", ("b",)),
        Question("q3", "Which?", ("Radiation",), "which"),
        Question("q4", "Is radiation given?", ("Radiation",), "which"),
    ]
    rows = [predict("q1", ranking="ab"), predict("q2", ranking="ab"), predict("q3", ranking="ac"), predict("q4")]
    name = "text/context_coverage_lexical@1000"
    columns = per_question(questions, rows, material=Material.of(PASSAGES))
    # Left of the reference of q1: radiation, usual, given; of these `usual` and `given` are in no passage.
    in_one, in_none = math.log(1 + 3 / 2), math.log(1 + 3)
    assert columns[name][0] == pytest.approx(in_one / (in_one + 2 * in_none))
    assert np.isnan(columns[name][1]), "recall of gold passages says it better"
    assert columns[name][2] == 0 and np.isnan(columns[name][3]), "the question says all of it"
    least = MetricsConfig(long=LongAnswersConfig(context_tokens=7))
    assert per_question(questions, rows, least, None, Material.of(PASSAGES))["text/context_coverage_lexical@7"][0] == 0
    report = summarise(questions, columns)
    assert report["by_type"]["how"]["answer/em"] is None and report["answer/em"] == 0
    assert report["retrieval/recall@2"] == 1 and report["by_type"]["how"]["retrieval/recall@2"] is None
    assert report["by_type"]["which"][name] == 0 and f"{name}_ci" in report
    failed = per_question(
        questions[:1], [predict("q1", ranking="ab", error="LLMError: no")], None, None, Material.of(PASSAGES)
    )
    assert failed[name][0] == 0


def test_short_answers_with_gold_have_no_such_metric() -> None:
    questions = [Question("q", "Which?", ("Radiation",), "which", ("b",))]
    columns = per_question(questions, [predict("q", "Radiation", "b")], material=Material.of(PASSAGES))
    assert not [name for name in columns if name.startswith("text/")]
    assert columns["answer/em"][0] == 1
