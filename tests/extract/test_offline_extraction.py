"""Triples by rules: the title is joined to what a sentence mentions and what it quotes."""

from __future__ import annotations

from gnnrag.config import ExtractConfig
from gnnrag.extract.base import Extraction, make_extractor
from gnnrag.extract.offline import OfflineExtractor, quoted_names
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


@each(
    "sentence, names",
    [
        ("“10 Things I Hate About You” carries the tag “high school”.", ["10 Things I Hate About You", "high school"]),
        ('Its tags are "bd-r" and "heart of darkness".', ["bd-r", "heart of darkness"]),
        ("“Monsters, Inc.” was directed by Ana.", ["Monsters, Inc."]),  # its own full stop: the sentence goes on
        ("Ana directed “Monsters, Inc.”.", ["Monsters, Inc."]),
        ("Ana directed “Night Harbour.”", ["Night Harbour"]),  # the sentence's, as in American usage
        ("Called “Night Harbour,” it came out late.", ["Night Harbour"]),
        ("“Night Harbour” and “Night Harbour”", ["Night Harbour"]),
        ("“r” is a tag of “50/50”.", ["r", "50/50"]),
        ("He said “we will all go down to the harbour tonight”.", []),  # speech
        ('An odd " mark "here" hides what is quoted.', []),
        ("The word “the” and “…” name nothing.", []),
        ('Between "Ana" and "Eva" stands no name.', ["Ana", "Eva"]),
        ("Nothing is quoted here.", []),
    ],
)
def test_quoted_names(sentence, names):
    assert quoted_names(sentence) == names


def test_the_offline_extractor_joins_them_with_the_topic():
    passage = Passage("p", "Night Harbour", "Night Harbour is a film. It carries the tag “fog” and is set in Oslo.")
    (found,) = OfflineExtractor(ExtractConfig()).extract([passage], analyse([passage], "blank:en"))
    said = "It carries the tag “fog” and is set in Oslo."
    assert [t for t in found.triples if t[1] == said] == [
        ("Night Harbour", said, "Oslo"),
        ("Night Harbour", said, "fog"),
    ]
    assert "fog" in found.entities
    found = Extraction(("a", "b"), (("a", "r", "b"),), statements=("a is r of b.",), names_are_ids=True)
    assert Extraction.from_json(found.to_json()) == found
