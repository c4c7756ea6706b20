"""Answers of a sentence or more: how long a question wants its answer, what is quoted, and what citations are worth."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gnnrag.index.embedder import HashEmbedder
from gnnrag.roles.base import Answer, Citation, ReaderTask, with_marks
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.quoting import Quoter, statements
from gnnrag.roles.reader import Evidence, PromptedReader, cited_answer, parse_cited
from gnnrag.text.questions import answer_style
from gnnrag.types import Passage, Question
from tests.helpers.roles import Asked, ask

GUIDE = (
    Passage("guide.txt#1", "Peat > Cutting", "Peat is cut by hand with a spade called a slane. It dries for six "
            "weeks on the bank. How is peat dried?"),
    Passage("guide.txt#2", "Peat > Uses", "Dried peat is burned as fuel in stoves and kilns. Gardeners mix peat into "
            "soil to hold water. Dried peat is burned as fuel in stoves and kilns."),
    Passage("guide.txt#3", "Harbour", "The harbour was dredged in 1904. Ferries leave the harbour twice a day."),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ how long an answer is
@pytest.mark.parametrize(
    "question, style",
    [
        ("Who wrote Hamlet?", "short"),
        ("Are Karl Holm and Ines Duarte both film directors?", "short"),
        ("What currency is used in the country where Odense lies?", "short"),
        ("Why did John Holm's wife die?", "short"),
        ("Which plant is larger, the fern or the moss?", "short"),
        ("Why is peat dried before it is burned?", "sentence"),
        ("What are the uses of peat?", "sentence"),
        ("When should a hedge be cut?", "sentence"),
        ("Who is at risk of gout, and how is it treated?", "sentence"),
        ("Explain how peat is cut and dried.", "long"),
        ("You are a gardener. Write a note on peat for beginners.", "long"),
    ],
)
def test_the_kind_of_a_question_says_how_long_its_answer_is(question: str, style: str) -> None:
    assert answer_style(question) == style


# ----------------------------------------------------------------------------------------------------------- quoted
def read(question: str, style: Any, passages: Any = GUIDE, words: Any = 120, fit: Any = 0.5, one: Any = None) -> Answer:
    quoter = Quoter(SimpleNamespace(embedder=HashEmbedder(), passages=GUIDE), 10)  # type: ignore[arg-type]
    (answer,) = quoter.answers([ReaderTask(Question("q", question), passages, "", style, words)], [fit], [one])
    return answer


def test_one_statement_with_its_citation() -> None:
    answer = read("What is dried peat used for?", "sentence")
    assert answer.text == "Dried peat is burned as fuel in stoves and kilns [2]."
    assert answer.support == ("guide.txt#2",)
    assert answer.citations == (
        Citation("Dried peat is burned as fuel in stoves and kilns.", ("guide.txt#2",), ("guide.txt#2",)),
    )


def test_a_long_answer_is_of_several_passages_without_repetition_and_within_its_words() -> None:
    answer = read("Explain how peat dries for weeks on the bank, and is burned as fuel.", "long", fit=0.1)
    said = [each.sentence for each in answer.citations]
    assert len(said) == len(set(said)) > 2
    assert {"guide.txt#1", "guide.txt#2"} <= set(answer.support)
    at = said.index("It dries for six weeks on the bank.")
    assert said[at - 1] == "Peat is cut by hand with a spade called a slane."  # what it leans on stands before it
    short = read("Explain how peat dries for weeks on the bank, and is burned as fuel.", "long", words=12, fit=0.1)
    assert 0 < len(short.text.split()) < len(answer.text.split())


def test_what_fits_half_as_well_as_the_best_ends_a_long_answer_and_is_left_out_of_others() -> None:
    best, weak = "Dried peat is burned as fuel in stoves and kilns.", "Gardeners mix peat into soil to hold water."
    for style, said in (("long", [best, weak]), (None, [best]), ("sentence", [best])):
        answer = read("Explain what peat is used for in stoves.", style)
        assert [each.sentence for each in answer.citations] == said


def test_the_sentence_of_an_unsure_answer_is_quoted_first_then_what_leans_on_the_best() -> None:
    unsure = [Citation(text, ("guide.txt#3",), ()) for text in ("The harbour was dredged in 1904.", "Ferries leave")]
    for one in unsure:  # the second is a part of a statement
        answer = read("When was the harbour of the peat ferries dredged?", None, one=one)
        assert answer.citations[0].sentence.startswith(one.sentence) and len(answer.citations) > 1
    answer = read("Which spade called a slane cuts peat by hand?", None)
    assert answer.text == "Peat is cut by hand with a spade called a slane. It dries for six weeks on the bank [1]."


def test_a_list_is_quoted_with_the_sentence_that_announces_it_and_a_sentence_before_a_heading_without_its_stop() -> (
    None
):
    text = (
        "Signs of a dry hedge are listed below. Brown tips Thin rows Bare wood These are seen in June on the south side"
    )
    assert [one.text for one in statements(f"{text}.")] == [
        "Signs of a dry hedge are listed below. Brown tips Thin rows Bare wood",
        "These are seen in June on the south side.",
    ]
    assert statements("A hedge is cut in May by two people with long shears These are oiled once a year.")[0].text == (
        "A hedge is cut in May by two people with long shears"
    )
    lines = "Partner: the peat museum\n\nIts other friends are Ada Moe, Ida Berg, Tom Lund and Karl Holm."
    assert [one.text for one in statements(lines)] == lines.split("\n\n")


def test_where_nothing_fits_nothing_is_said() -> None:
    answer = read("What does the treaty of Oslo say about whales?", "sentence", fit=1.5)
    assert answer.text == "" and answer.thought == "nothing fits" and answer.citations == ()
    assert read("How is peat dried?", "long", ()).text == ""


# --------------------------------------------------------------------------------------------------------- prompted
def reply(*sentences: tuple[str, list[int]]) -> str:
    return json.dumps({"sentences": [{"text": text, "passages": numbers} for text, numbers in sentences]})


def prompted(*replies: str, style: Any = "long", **settings: Any) -> Asked:
    task = ReaderTask(Question("q", "How is peat used?"), GUIDE, "", style, 60)
    return ask(PromptedReader(**settings), task, *replies)


def test_sentences_cite_and_are_checked_against_what_they_cite() -> None:
    said = ("Dried peat is burned as fuel in stoves.", "Peat is burned in Denmark by 40 ships.")
    asked = prompted(reply((said[0], [2]), (said[1], [2, 1])))
    answer = asked.result
    assert answer.text == f"{said[0][:-1]} [2]. {said[1][:-1]} [2, 1]."
    assert [(c.passages, c.supported) for c in answer.citations] == [
        (("guide.txt#2",), True), (("guide.txt#2", "guide.txt#1"), False)
    ]  # fmt: skip
    assert answer.flags == ("unsupported",) and "at most 60 words" in asked.shown()
    assert "one or two sentences" in prompted(reply((said[0], [2])), style="sentence").shown()


def test_citations_of_passages_that_do_not_exist_are_dropped_and_counted() -> None:
    wrong = reply(("Dried peat is burned as fuel in stoves.", [2, 9]))
    asked = prompted(wrong)
    assert asked.result.support == ("guide.txt#2",) and asked.result.flags == ("out_of_range",)
    assert asked.counts["parse_failure"] == asked.counts["calls"] == 2
    mended = prompted(wrong, reply(("Dried peat is burned as fuel in stoves.", [2])))
    assert mended.result.flags == () and mended.counts["out_of_range"] == 1


@pytest.mark.parametrize(
    "text", ['{"sentences": 3}', '{"sentences": [{"text": "", "passages": []}]}', '{"sentences": ["a"]}',
               '{"sentences": [{"text": "A b.", "passages": ["1"]}]}',
               '{"sentences": [{"text": "Peat burns well.", "passages": [1]}, {"text": "[2]", "passages": [2]}]}',
               '{"sentences": [{"text": "A b.", "passages": [true]}]}',
               '{"sentences": [{"text": "How is peat used?", "passages": [1]}]}'],
)  # fmt: skip
def test_replies_are_read_strictly(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_cited(text, 3, "How is peat used?")


def test_a_passage_that_denies_a_sentence_or_lacks_its_number_does_not_bear_it_out() -> None:
    passages = (replace(GUIDE[0], text="Peat is not burned in towns. The bank is 12 metres high."),)
    held = {
        text: cited_answer([(text, (1,))], Evidence(passages)).citations[0].supported
        for text in ("Peat is not burned in towns.", "Peat is burned in towns.", "The bank is 12 metres high.",
                     "The bank is 13 metres high.")
    }  # fmt: skip
    assert list(held.values()) == [True, False, True, False]
    assert not cited_answer([("Peat is not burned in towns.", ())], Evidence(passages)).citations[0].supported


def test_sentences_of_one_source_in_a_row_share_a_mark() -> None:
    said = [("Peat is cut.", [2]), ("It dries.", [2]), ("It burns.", [1, 2]), ("So they say.", []), ("a: x; b: y", [3])]
    assert with_marks(said) == "Peat is cut. It dries [2]. It burns [1, 2]. So they say. a: x; b: y [3]"
    assert with_marks([("- turf", [1]), ("- coal", [1]), ("Is it dry?", [1])]) == "- turf\n- coal\nIs it dry [1]?"


def test_rows_and_items_are_statements_of_their_own() -> None:
    text = "The quay lets these boats:\n\n- a red punt for two\n\nboat: punt; fee: 9. Per day\n\nboat: yawl; fee: 20"
    quay = (Passage("quay.md#1", "Quay", text),)
    answer = read("What is the fee of the punt boat?", "sentence", quay, fit=0.0)
    assert answer.text == "boat: punt; fee: 9. Per day [1]"
    assert "- a red punt for two" in read("Which red punt for two?", "long", quay, fit=0.0).text


@pytest.mark.parametrize(
    "text, word",
    [("ድልድዩ በ1904 ተሠራ። ጀልባዎች በቀን ሁለት ጊዜ ይሄዳሉ።", "ጀልባዎች"), ("桥于1904年建成。渡船每天开两次。", "渡船"),
     ("Կամուրջը հին է։ Նավերը մեկնում են օրը երկու անգամ։", "Նավերը"), ("ស្ពាននេះចាស់។ ទូកចេញដំណើរពីរដង។", "ទូក"),
     ("पुल १९०४ में बना था। नावें दिन में दो बार जाती हैं।", "नावें"), ("ဒီတံတား ဟောင်းတယ်။ လှေတွေ ထွက်တယ်။", "လှေတွေ"),
     ("Die Fähre liegt am Kai. Im Winter ruht der Verkehr.", "Verkehr"),
     ("ხიდი ძველია. გემები დღეში ორჯერ გადის.", "გემები"), ("الجسر قديم. تغادر العبارات مرتين في اليوم.", "العبارات")],
)  # fmt: skip
def test_sentences_of_any_script_are_quoted(text: str, word: str) -> None:
    assert word in read(f"{word}?", "sentence", (Passage("x", "", text),), fit=0.0).text
