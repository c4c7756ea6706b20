"""Metrics by texts: which questions have them, and their values worked out by hand."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gnnrag.metrics import long_answers
from gnnrag.metrics.long_answers import COVERAGE, Material, compare_texts, cut, is_compared, is_long, is_sentence
from gnnrag.metrics.report import paired, per_question, summarise
from gnnrag.types import Passage, Prediction, Question

PASSAGES = {
    "a": Passage("a", "", "Surgery removes the tumour."),
    "b": Passage("b", "", "Radiation follows in most of the cases."),
    "c": Passage("c", "", "Drugs come last of all."),
}
SENTENCE = "Surgery and radiation are what usually is given to them."


def predict(id_: str, answer: str = "", ranking: str = "", error: str | None = None) -> Prediction:
    return Prediction(id_, answer, tuple(ranking), tuple(ranking[:1]), 1, {}, 1.0, error)


def scores(questions: list[Question], predictions: list[Prediction], encode: Any = None, **settings: Any) -> Any:
    material = Material(PASSAGES, encode, "by hand")
    return compare_texts(paired(questions, predictions), material, **settings)


def asked(id_: str, reference: str) -> Question:
    return Question(id_, "What?", (reference,), "how")


@pytest.mark.parametrize(
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


def test_coverage_by_what_was_retrieved_first(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = [
        Question("q1", "What about surgery?", (SENTENCE,), "how"),
        Question("q2", "Which?", ("Radiation",), "which", ("b",)),
        Question("q3", "Which?", ("Radiation",), "which"),
        Question("q4", "Is radiation given?", ("Radiation",), "which"),
    ]
    rows = [predict("q1", ranking="ab"), predict("q2", ranking="ab"), predict("q3", ranking="ac"), predict("q4")]
    found = scores(questions, rows)
    # Left of the reference of q1: radiation, usual, given; of these `usual` and `given` are in no passage.
    in_one, in_none = math.log(1 + 3 / 2), math.log(1 + 3)
    share = in_one / (in_one + 2 * in_none)
    assert found[COVERAGE][0] == pytest.approx(share)
    assert np.isnan(found[COVERAGE][1]), "recall of gold passages says it better"
    assert found[COVERAGE][2] == 0 and np.isnan(found[COVERAGE][3]), "the question says all of it"
    assert "text/rouge_l" in found and np.isnan(found["text/rouge_l"][1:]).all(), "for long ones only"
    monkeypatch.setattr(long_answers, "CONTEXT_TOKENS", 7)
    assert scores(questions, rows)[COVERAGE][0] == 0
    monkeypatch.setattr(long_answers, "CONTEXT_TOKENS", 10)
    assert scores(questions, rows)[COVERAGE][0] == pytest.approx(share), "of the last passage the first words count"
    failed = scores(questions[:1], [predict("q1", ranking="ab", error="LLMError: no")])
    assert failed[COVERAGE][0] == 0 and failed["text/rouge_l"][0] == 0


def test_a_report_has_them_by_type_and_no_exact_match() -> None:
    questions = [Question("q1", "What?", (SENTENCE,), "how"), Question("q2", "Which?", ("Radiation",), "which", ("b",))]
    rows = [predict("q1", "Surgery.", "ab"), predict("q2", "Radiation", "b")]
    found = scores(questions, rows)
    report = summarise(questions, per_question(questions, rows) | found)
    assert report["by_type"]["how"]["answer/em"] is None and report["answer/em"] == 1
    assert report["retrieval/recall@2"] == 1 and report["by_type"]["how"]["retrieval/recall@2"] is None
    assert report["by_type"]["which"][COVERAGE] is None and f"{COVERAGE}_ci" in report
    assert report["text/words"] == 1


def test_answers_are_cut_to_one_length() -> None:
    assert cut("one  two\nthree", 2) == "one  two" and cut("one two", 2) == cut("one two", None) == "one two"
    questions, answer = [asked("q", SENTENCE)], "Surgery and radiation are given, and drugs are given to them."
    whole, short = (scores(questions, [predict("q", answer)], answer_words=n) for n in (None, 3))
    assert (whole["text/words"][0], short["text/words"][0]) == (11, 3)
    assert short["text/rouge_l"][0] == pytest.approx(2 * 3 / (3 + 10)) and whole["text/rouge_l"][0] > 0.5


def test_similarity() -> None:
    vectors = {"east": (1.0, 0.0), "north": (0.0, 1.0), "between": (0.6, 0.8)}

    def encode(texts: Sequence[str]) -> np.ndarray:
        return np.array([vectors[text.split()[0]] for text in texts])

    questions = [asked(f"q{n}", f"{word} {SENTENCE}") for n, word in enumerate(("east", "north", "east"), start=1)]
    rows = [predict("q1", "east"), predict("q2", "between"), predict("q3", "")]
    found = scores(questions, rows, encode)
    assert found["text/cosine_embedding"].tolist() == pytest.approx([1, 0.8, 0], nan_ok=True)
