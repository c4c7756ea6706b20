"""Comparisons of dates, countries and words, on passages written for these tests."""

from __future__ import annotations

import pytest

from gnnrag.roles.comparing import (
    Finding,
    Reading,
    birth_date,
    clean,
    compare,
    countries,
    death_date,
    lifespan_days,
)
from gnnrag.types import Passage

PASSAGES = {
    p.id: p
    for p in (
        Passage("amber", "Amber Road", "Amber Road is a 1931 Danish silent film directed by Karl Holm."),
        Passage("birch", "Birch Lane (film)", "Birch Lane is a 1987 comedy film written and directed by Ines Duarte."),
        Passage("holm", "Karl Holm", "Karl Holm( 4 May 1890 – 12 June 1951) was a Danish film director."),
        Passage("duarte", "Ines Duarte", "Ines Duarte (born 9 July 1940 in Porto) is a Portuguese film director."),
        Passage("lake", "Lake Tarn", "Lake Tarn lies in Corvia. Oscar Bell designed its lighthouse in 1904."),
        Passage("hill", "Grey Hill", "Grey Hill is a mountain in Ontario. It is 512 metres high."),
        Passage("peak", "Cold Peak", "Cold Peak is a mountain in the Cariboo region of British Columbia, Canada."),
        Passage("rose", "Rose Vale", "Rose Vale (1 May 1900 – 3 May 1990) was a Danish painter."),
    )
}


def find(question: str, *ids: str) -> Finding | None:
    return compare(question, Reading.of([PASSAGES[i] for i in ids or PASSAGES]))


@pytest.mark.parametrize(
    "question, answer, support",
    [
        ("Which film was released first, Amber Road or Birch Lane (Film)?", "Amber Road", {"amber", "birch"}),
        ("Which film came out more recently, Amber Road or Birch Lane?", "Birch Lane", {"amber", "birch"}),
        (
            "Which film has the director who was born later, Amber Road or Birch Lane?",
            "Birch Lane",
            {"amber", "birch", "holm", "duarte"},
        ),
        ("Who is older, Karl Holm or Ines Duarte?", "Karl Holm", {"holm", "duarte"}),
        ("Who is younger, Karl Holm or Ines Duarte?", "Ines Duarte", {"holm", "duarte"}),
        ("Was Ines Duarte or Karl Holm born first?", "Karl Holm", {"holm", "duarte"}),
        ("Who lived longer, Karl Holm or Rose Vale?", "Rose Vale", {"holm", "rose"}),
        ("Are Karl Holm and Ines Duarte of the same nationality?", "no", {"holm", "duarte"}),
        ("Are Karl Holm and Rose Vale of the same nationality?", "yes", {"holm", "rose"}),
        (
            "Do director of film Amber Road and director of film Birch Lane share the same nationality?",
            "no",
            {"amber", "birch", "holm", "duarte"},
        ),
    ],
)
def test_what_both_passages_state_is_compared(question: str, answer: str, support: set[str]) -> None:
    found = find(question)
    assert found is not None and found.text == answer and found.confidence >= 0.7 and found.how != "guess"
    assert {list(PASSAGES)[i] for i in found.passages} == support


def test_words_of_a_predicate_are_weaker_evidence_and_none_is_a_guess() -> None:
    found = find("Are Grey Hill and Cold Peak both mountains?")
    assert found is not None and found.text == "yes" and found.confidence == 0.3
    found = find("Are Grey Hill and Lake Tarn both mountains?")
    assert found is not None and found.text == "no"
    found = find("Who is older, Karl Holm or Ines Duarte?", "holm", "lake")
    assert found is not None and found.how == "guess" and found.text == "Karl Holm"


@pytest.mark.parametrize(
    "question",
    ["Where was the director of film Birch Lane born?", "Who designed the lighthouse on Lake Tarn?", "When is Lent?"],
)
def test_other_questions_are_not_compared(question: str) -> None:
    assert find(question) is None


def test_titles_named_in_a_text_are_found_and_the_longer_one_hides_the_shorter() -> None:
    reading = Reading.of([Passage("a", "Tarn", ""), Passage("b", "Lake Tarn", ""), Passage("c", "Holm (island)", "")])
    assert reading.named("is lake tarn near holm") == [(1, 1, 3), (2, 4, 5)]
    assert reading.about("The Lake Tarn") == 1 and reading.about("Birmingham") is None


def test_dates_of_people_and_works() -> None:
    text = "Ann Lee (1530 – 4 March 1599) was a poet."
    assert birth_date(text) == (1530, 0, 0) and death_date(text) == (1599, 3, 4)
    assert lifespan_days(text) == pytest.approx((69 * 365.25 + 3 * 30.4 + 4,))
    assert birth_date("Lu Chan was born in Hong Kong on May 3, 1960.") == (1960, 5, 3)
    assert death_date("He fell ill. He died in Rome on 5 April 1701.") == (1701, 4, 5)
    assert birth_date("Dusk is a film set in Borneo in 1963.") is None and death_date("Dusk is a film.") is None


def test_countries_are_those_of_the_subject_first() -> None:
    assert countries("Raffa Matar, born in Spain, is an Italian director. She lives in France.")[0] == "Italy"
    assert countries("Grey Hill is a mountain in Ontario.") == []


def test_tokenised_text_is_mended() -> None:
    assert clean("Teutberga( died 11 November 875) was") == "Teutberga (died 11 November 875) was"
    assert clean("the lay- abbot") == "the lay-abbot"
    assert clean("(21 March 192011 January 2010)") == "(21 March 1920 – 11 January 2010)"
