"""Triples by rules: the title is joined to what a sentence mentions."""

from __future__ import annotations

from gnnrag.extract import make_extractor
from gnnrag.index_config import ExtractConfig
from gnnrag.text.analyse import analyse
from gnnrag.types import Passage

ADA = Passage("p", "Ada Lovelace", "Ada Lovelace was born in London. Her father was Lord Byron.")


def extract(passage: Passage):
    return make_extractor(ExtractConfig()).extract([passage], analyse([passage]))[0]


def test_the_title_is_joined_to_each_mention_by_its_sentence():
    assert extract(ADA).triples == (
        ("Ada Lovelace", "Ada Lovelace was born in London.", "London"),
        ("Ada Lovelace", "Her father was Lord Byron.", "Lord Byron"),
    )
    assert extract(ADA).entities == ("Ada Lovelace", "London", "Lord Byron")


def test_without_a_title_the_first_phrase_is_the_topic():
    found = extract(Passage("p", "", "The city of Rome lies on the Tiber. It was ruled by Nero."))
    assert found.triples == (
        ("Rome", "The city of Rome lies on the Tiber.", "Tiber"),
        ("Rome", "It was ruled by Nero.", "Nero"),
    )
    for nothing in (Passage("p", "", "..."), Passage("p", "...", "..."), Passage("p", "Rome", "")):
        assert extract(nothing).triples == ()
