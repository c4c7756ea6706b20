from __future__ import annotations

from gnnrag.config import ExtractConfig
from gnnrag.extract.base import make_extractor
from gnnrag.text.analyse import analyse
from gnnrag.types import Passage
from tests.helpers.each import each

ADA = Passage("p", "Ada Lovelace", "Ada Lovelace was born in London. Her father was Lord Byron.")


def extract(passage: Passage, title_mode="merge"):
    return make_extractor(ExtractConfig()).extract([passage], analyse([passage], title_mode=title_mode))[0]


@each("title_mode", ["merge", "own"])
def test_the_title_is_joined_to_each_mention_by_its_sentence(title_mode):
    assert extract(ADA, title_mode).triples == (
        ("Ada Lovelace", "Ada Lovelace was born in London.", "London"),
        ("Ada Lovelace", "Her father was Lord Byron.", "Lord Byron"),
    )
    assert extract(ADA, title_mode).entities == ("Ada Lovelace", "London", "Lord Byron")


def test_a_qualified_title_is_joined_to_its_bare_name():
    found = extract(Passage("p", "Casablanca (film)", "A film by Michael Curtiz."))
    assert ("Casablanca (film)", "A film by Michael Curtiz.", "Casablanca") in found.triples


def test_without_a_title_the_first_phrase_is_the_topic():
    found = extract(Passage("p", "", "The city of Rome lies on the Tiber. It was ruled by Nero."))
    assert found.triples == (
        ("Rome", "The city of Rome lies on the Tiber.", "Tiber"),
        ("Rome", "It was ruled by Nero.", "Nero"),
    )
    for nothing in (Passage("p", "", "..."), Passage("p", "...", "..."), Passage("p", "Rome", "")):
        assert extract(nothing).triples == ()
