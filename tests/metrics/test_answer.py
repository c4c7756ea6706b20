"""Table G3 of `specs/backbones_ppr_tree.md`, complete, and the rules around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.metrics.answer import exact_match, f1, list_scores, normalise_answer, sub_em, sub_em_tok

G3 = [  # prediction, gold, n(prediction), n(gold), EM, F1 hipporag, F1 hotpot, F1 squad
    ("The Beatles.", "beatles", "beatles", "beatles", 1, 1.0, 1, 1),
    ("U.S.A.", "USA", "usa", "usa", 1, 1.0, 1, 1),
    ("New-York", "New York", "newyork", "new york", 0, 0.0, 0, 0),
    ("4-4", "44", "44", "44", 1, 1.0, 1, 1),
    ("1,862", "1862", "1862", "1862", 1, 1.0, 1, 1),
    ("Beyoncé", "Beyonce", "beyoncé", "beyonce", 0, 0.0, 0, 0),
    ("“Hamlet”", "Hamlet", "“hamlet”", "hamlet", 0, 0.0, 0, 0),
    ("An", "the", "", "", 0, 0.0, 0, 0),
    ("", "Paris", "", "paris", 0, 0.0, 0, 0),
    ("no", "No, they are not", "no", "no they are not", 0, 0.4, 0, 0.4),
    (
        "North Avenue and First Avenue",
        "First Avenue and North Avenue",
        "north avenue and first avenue",
        "first avenue and north avenue",
        *(0, 1.0, 1, 1),
    ),
    ("Paris Paris Paris", "Paris", "paris paris paris", "paris", 0, 0.5, 0.5, 0.5),
    ("born in 12 June 1982", "June 1982", "born in 12 june 1982", "june 1982", 0, 0.571429, 0.571429, 0.571429),
    ("Vitamin A", "vitamin", "vitamin", "vitamin", 1, 1.0, 1, 1),
    (
        "John F. Kennedy",
        "John Fitzgerald Kennedy",
        "john f kennedy",
        "john fitzgerald kennedy",
        *(0, 0.666667, 0.666667, 0.666667),
    ),
    ("snake_case name", "snakecase name", "snakecase name", "snakecase name", 1, 1.0, 1, 1),
    ("Answer: Yes", "yes", "answer yes", "yes", 0, 0.666667, 0, 0.666667),
    ("A.N. Other", "an other", "other", "other", 1, 1.0, 1, 1),
]
ALIASES = ("United States", "US", "U.S.", "the United States of America")
WORDS = st.lists(st.sampled_from(["paris", "the", "no", "yes", "1982", "of", "Rome,"]), max_size=6).map(" ".join)


@pytest.mark.parametrize("row", G3)
def test_g3(row):
    prediction, gold, n_prediction, n_gold, em, hipporag, hotpot, squad = row
    assert normalise_answer(prediction) == n_prediction
    assert normalise_answer(gold) == n_gold
    assert exact_match(prediction, [gold]) == em
    assert f1(prediction, [gold]) == pytest.approx(hipporag, abs=1e-6)
    assert f1(prediction, [gold], "hotpot") == pytest.approx(hotpot, abs=1e-6)
    assert f1(prediction, [gold], "squad") == pytest.approx(squad, abs=1e-6)


@pytest.mark.parametrize("prediction, em, value", [("America", 0, 0.4), ("U S", 0, 0.0), ("the US", 1, 1.0)])
def test_g3_takes_the_best_alias(prediction, em, value):
    assert exact_match(prediction, ALIASES) == em
    assert f1(prediction, ALIASES) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("metric", [exact_match, f1, sub_em, sub_em_tok])
@pytest.mark.parametrize("prediction, value", [("", 1.0), (" \n", 1.0), ("unknown", 0.0), ("the", 0.0)])
def test_abstaining_is_right_only_if_nothing_can_be_answered(metric, prediction, value):
    assert metric(prediction, ()) == metric(prediction, ["", "\u3000"]) == value
    assert metric("", ["Paris"]) == 0.0


@pytest.mark.parametrize(
    "prediction, answer, as_string, as_tokens",
    [
        ("I do not know", "no", 1, 0),  # "know" holds "no"
        ("They know it", "no", 1, 0),
        ("It is the Eiffel Tower, Paris.", "Eiffel tower", 1, 1),
        ("Tower Eiffel", "Eiffel Tower", 0, 0),
    ],
)
def test_sub_string_match(prediction, answer, as_string, as_tokens):
    assert sub_em(prediction, [answer]) == as_string
    assert sub_em_tok(prediction, [answer]) == as_tokens


@pytest.mark.parametrize(
    "prediction, answer, right",
    [
        ("A", "A", 1),
        ("a.", "A", 1),
        ("(A)", "A", 1),
        ("B", "A", 0),
        ("", "A", 0),
        ("a concave lens", "A", 0),
        ("A, B", "A, B", 1),
        ("B", "A, B", 0),
        ("A", "A, B", 0),
        ("The The", "The The", 1),
        ("an", "The", 0),
        ("", "the", 0),
        ("+", "+", 1),
        ("-", "+", 0),
        ("!!", "?", 0),
        ("A+.", "A+", 1),
        ("A", "A+", 0),
        ("A-", "A+", 0),
        ("", "…", 0),
        ("the", "Paris", 0),
    ],
)
def test_an_answer_that_normalises_to_nothing_is_compared_whole(prediction, answer, right):
    assert {metric(prediction, [answer]) for metric in (exact_match, f1, sub_em, sub_em_tok)} == {right}


@given(WORDS, WORDS, st.sampled_from(["hipporag", "hotpot", "squad"]))
def test_f1_is_symmetric_bounded_and_one_for_equal_tokens(a, b, variant):
    value = f1(a, [b], variant)
    if a.strip() and b.strip():  # "the" equals an answer that is empty, and the empty prediction does not equal "the"
        assert value == f1(b, [a], variant)
    assert 0.0 <= value <= 1.0
    same_bag = sorted(normalise_answer(a).split()) == sorted(normalise_answer(b).split())
    if normalise_answer(a):
        assert (value == 1.0) == same_bag


@given(st.text(max_size=40), st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_metrics_are_ordered_and_normalising_twice_changes_nothing(prediction, answers):
    assert exact_match(prediction, answers) <= sub_em_tok(prediction, answers) <= sub_em(prediction, answers)
    assert normalise_answer(normalise_answer(prediction)) == normalise_answer(prediction)


@pytest.mark.parametrize(
    "prediction, answers, first, score",
    [
        ("Jaxon Bieber\nThe Jazmyn Bieber", ["Jazmyn Bieber", "Jaxon Bieber"], 1.0, 1.0),
        ("Ontario; Quebec", ["Quebec", "Ontario", "Manitoba", "Yukon"], 1.0, 2 / 3),  # precision 1, recall 1/2
        ("Paris; Rome; Oslo", ["Oslo"], 0.0, 0.5),
        ("Oslo and Rome", ["Oslo", "Rome"], 1.0, 1.0),  # two in an item: precision is 1, not 2
        ("", ["Oslo"], 0.0, 0.0),
        ("Paris", ["Oslo"], 0.0, 0.0),
    ],
)
def test_lists_of_answers_as_in_rog(prediction, answers, first, score):
    scores = list_scores(prediction, answers)
    assert scores == {"answer/hit@1": first, "answer/list_f1": pytest.approx(score)}
