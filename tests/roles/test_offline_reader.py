"""The offline reader on passages written for these tests."""

from __future__ import annotations

import pytest

from gnnrag.parts import set_up
from gnnrag.roles.base import Answer, ReaderTask
from gnnrag.roles.offline_reader.comparing import birth_date, death_date, place, release_date
from gnnrag.roles.offline_reader.question import expected_type, head_noun
from gnnrag.roles.offline_reader.reader import OfflineReader
from gnnrag.roles.offline_reader.relations import find
from gnnrag.roles.offline_reader.spans import clean, fold, name_spans, sentences, similarity
from gnnrag.text.normalise import country_mentions
from gnnrag.types import Passage, Question

PASSAGES = {
    p.id: p
    for p in (
        Passage("amber", "Amber Road", "Amber Road is a 1931 Danish silent film directed by Karl Holm."),
        Passage("birch", "Birch Lane (film)", "Birch Lane is a 1987 comedy film written and directed by Ines Duarte."),
        Passage(
            "holm", "Karl Holm", "Karl Holm( 4 May 1890 – 12 June 1951) was a Danish film director born in Odense."
        ),
        Passage(
            "duarte", "Ines Duarte", "Ines Duarte (born 9 July 1940 in Porto) is a Portuguese film director and editor."
        ),
        Passage(
            "elsa",
            "Elsa of Varn",
            "Elsa of Varn (1301 – 1350) was the daughter of Otto II, Count of Varn and his wife Matilda of Lund.",
        ),
        Passage(
            "otto", "Otto II, Count of Varn", "Otto II was the son of Henry I, Count of Varn, and Agnes of Brabant."
        ),
        Passage(
            "lake",
            "Lake Tarn",
            "Lake Tarn lies in Corvia. The lighthouse on Lake Tarn was designed by Oscar Bell in 1904.",
        ),
        Passage("hill", "Grey Hill", "Grey Hill is a mountain in Ontario. It is 512 metres high."),
        Passage("peak", "Cold Peak", "Cold Peak is a mountain in the Cariboo region of British Columbia, Canada."),
    )
}


def read(question: str, *ids: str, config: OfflineReader | None = None) -> Answer:
    task = ReaderTask(Question("q", question), tuple(PASSAGES[i] for i in ids))
    return set_up(config or set_up(OfflineReader())).read(task)


@pytest.mark.parametrize(
    "question, answer",
    [
        ("Which film was released first, Amber Road or Birch Lane (Film)?", "Amber Road"),
        ("Which film came out more recently, Amber Road or Birch Lane?", "Birch Lane"),
        ("Which film has the director who was born later, Amber Road or Birch Lane?", "Birch Lane"),
        ("Who is older, Karl Holm or Ines Duarte?", "Karl Holm"),
        ("Was Ines Duarte or Karl Holm born first?", "Karl Holm"),
        ("Are Karl Holm and Ines Duarte of the same nationality?", "no"),
        ("Do director of film Amber Road and director of film Birch Lane share the same nationality?", "no"),
        ("Are both mountains, Grey Hill and Cold Peak, located in the same country?", "yes"),
    ],
)
def test_comparisons_follow_the_bridge_and_compare(question: str, answer: str) -> None:
    got = read(question, "birch", "holm", "lake", "amber", "duarte", "hill", "peak")
    assert got.text == answer
    assert got.confidence > 0.5


@pytest.mark.parametrize(
    "question, answer, support",
    [
        ("Where was the director of film Birch Lane born?", "Porto", ("birch", "duarte")),
        ("When did the director of film Amber Road die?", "12 June 1951", ("amber", "holm")),
        ("What nationality is the director of film Amber Road?", "Danish", ("amber", "holm")),
        ("Who is Elsa Of Varn's paternal grandfather?", "Henry I, Count of Varn", ("elsa", "otto")),
        ("Who is the paternal grandmother of Elsa Of Varn?", "Agnes of Brabant", ("elsa", "otto")),
        ("Who is the mother of Elsa Of Varn?", "Matilda of Lund", ("elsa",)),
    ],
)
def test_chains_end_at_the_asked_attribute(question: str, answer: str, support: tuple[str, ...]) -> None:
    got = read(question, "lake", "otto", "elsa", "amber", "birch", "holm", "duarte")
    assert (got.text, got.support) == (answer, support)


def test_open_questions_find_a_span_of_the_expected_type() -> None:
    assert read("Who designed the lighthouse on the lake in Corvia?", "hill", "lake").text == "Oscar Bell"
    assert read("In what year was the lighthouse on Lake Tarn designed?", "hill", "lake").text == "1904"


@pytest.mark.parametrize(
    "question, expected",
    {
        "Are A and B both rivers?": "yes_no",
        "When was the bridge in the city where Ada Bloom was born built?": "date",
        "In the country where A lies, what percentage of people fish?": "number",
        "What county shares a border with the county of A?": "place",
        "Who wrote the book?": "person",
        "The league includes a team that was formed in what year?": "year",
        "What language is spoken in A?": "language",
        "Which country is A from?": "country",
        "What genre is the author of A associated with?": "phrase",
    }.items(),
)
def test_expected_type(question: str, expected: str) -> None:
    assert expected_type(question) == expected


def test_head_noun() -> None:
    assert head_noun("What county shares a border with A?") == "county"
    assert head_noun("How many grocery stores are in A?") == "stores"


def test_spans_of_tokenised_text() -> None:
    assert clean("Teutberga( died 11 November 875) was") == "Teutberga (died 11 November 875) was"
    assert clean("the lay- abbot") == "the lay-abbot"
    assert clean("(21 March 192011 January 2010)") == "(21 March 1920 – 11 January 2010)"
    assert sentences("J. B. Cole met Dr. Ray. He left.") == ("J. B. Cole met Dr. Ray.", "He left.")
    text = "In 1920 Anna de Vries met Thomas Howard, 2nd Earl of Effingham on 3 May 1921."
    names = [name for _, _, name in name_spans(text)]
    assert names == ["Anna de Vries", "Thomas Howard, 2nd Earl of Effingham"], "no dates, no openers"


def test_dates_of_people_and_works() -> None:
    text = "Ann Lee (c. 1530 – 4 March 1599) was a poet."
    born, died = birth_date(text), death_date(text)
    assert born is not None and born.key == (1530, 0, 0)
    assert died is not None and died.key == (1599, 3, 4)
    released = release_date("Dusk is an American silent film released on 2 June 1919 by Fox.")
    assert released is not None and released.key == (1919, 6, 2)
    assert birth_date("Dusk is a film.") is None


def test_places_parents_countries_and_namesakes() -> None:
    text = "Raffa Matar (Rome, 17 August 1909 – Milan, 17 May 1966) was an Italian director."
    assert (place(text, birth=True), place(text, birth=False)) == ("Rome", "Milan")
    assert place("Lu Chan was born in 1960 in Hong Kong.", birth=True) == "Hong Kong"
    text = "George V was the son of Queen Salote Tupou and her consort Prince Viliami Tungi."
    assert find("mother", text, "George V")[0].text == "Salote Tupou"
    assert find("father", text, "George V")[0].text == "Prince Viliami Tungi"
    assert similarity(fold("Henry IV of France"), fold("Henry V of France")) == 0.0
    assert similarity(fold("Vučić"), fold("Vucic")) == 1.0
    assert [c for _, _, c in country_mentions("a Scottish-born New Zealand actor")] == ["United Kingdom", "New Zealand"]


@pytest.mark.parametrize(
    "question, answer",
    [
        ("How long does the course last?", "two to four weeks"),
        ("How often do members of the club meet?", "3 times a month"),
        ("How far is the harbour?", "about 20 miles"),
        ("How many boats are in the harbour?", "12"),
    ],
)
def test_measures_come_with_their_units(question: str, answer: str) -> None:
    text = "The course lasts two to four weeks. Members of the club meet 3 times a month. "
    text += "The way to the harbour is about 20 miles. There are 12 boats in the harbour."
    assert set_up(OfflineReader()).read(ReaderTask(Question("q", question), (Passage("a", "", text),))).text == answer
