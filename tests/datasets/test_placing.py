"""Evidence is found in the passages of its own document, as it is quoted or by its words."""

from pathlib import Path

import pytest

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.jsonl import Skips
from gnnrag.datasets.placing import GoldPlacer, cut, document_of
from gnnrag.errors import ConfigError, DataError
from tests.helpers.each import each

TEXT = (
    "The ferry left Oban at noon. Its captain, Ann Reid, had sailed for “thirty years”.\n\n"
    "A storm broke near Mull. The crew lost two sails before dusk. They reached Tobermory by night.\n\n"
    "In spring the owners sold the ferry. A museum in Leith bought it."
)


def placer(skips=None, missing="error", text=TEXT):
    passages = cut("log", "The ferry", text, Chunking(18)) + cut("other", "Other", "Nothing of note.", Chunking(18))
    return GoldPlacer(Path("q.json"), passages, missing, skips or Skips()), passages


def place(statement, document="log", **given):
    return placer(**given)[0].place("question 1", [(document, document or "lost", statement)])


def test_documents_are_cut_into_numbered_passages_that_lose_no_word():
    passages = placer()[1]
    assert [p.id for p in passages] == ["log#1", "log#2", "log#3", "other#1"]
    assert " ".join(" ".join(p.text for p in passages[:-1]).split()) == " ".join(TEXT.split())
    assert {document_of(p.id) for p in passages} == {"log", "other"}


@each(
    "statement, gold",
    [
        ("The crew lost two sails before dusk.", ("log#2",)),
        ("the crew  LOST two sails, before dusk", ("log#2",)),
        ('had sailed for "thirty years"', ("log#1",)),
        ("thirty years”. A storm broke near Mull", ("log#1", "log#2")),  # runs over a border
        ("Two of the sails had been lost by the crew at dusk", ()),  # 7 of 11 words
        ("Before dusk the crew lost two sails", ("log#2",)),  # all words, in another order
        ("The ferry", ("log#1",)),  # where it stands first
        ("erry left", ()),  # whole words only
        ("...", ()),
        ("Nothing of note.", ()),  # stands in another document
    ],
)
def test_a_statement_is_found_where_its_words_are(statement, gold):
    assert place(statement) == gold


def test_what_is_found_is_counted():
    skips = Skips()
    gold_of = placer(skips)[0]
    assert gold_of.place(
        "a", [("log", "log", "A museum in Leith bought it"), ("log", "log", "Leith bought a museum in it")]
    ) == ("log#3",)
    assert gold_of.place("b", [("log", "log", "Zebras sang")]) == ()
    assert gold_of.place("c", []) == ()
    gold_of.report()
    assert [note.split(" statements")[0].split(" questions")[0] for note in skips.notes] == ["1 of 3", "1 of 3", "1"]
    assert not skips.by_reason


def test_a_question_without_its_document_is_an_error_or_left_out():
    with pytest.raises(
        DataError, match=r"question 1: its evidence is from 'lost', not in the corpus.*missing_gold=drop"
    ):
        place("x", document=None)
    skips = Skips()
    assert place("x", document=None, skips=skips, missing="drop") is None
    assert place("Zebras sang", skips=skips, missing="drop") is None
    assert [len(names) for names in skips.by_reason.values()] == [1, 1]


def test_a_bad_setting_is_refused():
    with pytest.raises(ConfigError, match="missing_gold='ignore': allowed are error, drop"):
        place("x", missing="ignore")
