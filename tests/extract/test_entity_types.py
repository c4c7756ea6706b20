from __future__ import annotations

import pytest

from gnnrag.extract import make_extractor
from gnnrag.extract.entity_types import described_type, mentioned_type, named_type, opening, type_names
from gnnrag.index_config import ExtractConfig
from gnnrag.text.analyse import analyse
from gnnrag.types import Passage

NAMED = {
    "date": ("24 May 1900", "May 24, 1900", "June 1950", "1950", "1990s", "20th century", "1983-1984", "480 BC"),
    "number": ("35,918,900", "241,038 square kilometres", "$1.4 billion", "12%"),
    "work": ("Alien (1979 film)",),
    "person": ("James Lomas (actor)", "Richard Wesley, 1st Baron Mornington"),
    "location": ("Italy", "United States", "Columbia, Missouri", "Essex County", "Lake Erie"),
    "nationality": ("Italian",),
    "organization": ("University of Oslo", "Merritt College"),
    "event": ("Battle of Halys",),
    "award": ("Polaris Music Prize",),
    "": ("Ada Lovelace", "county", "the last battle", "Hollywood", ""),
}


@pytest.mark.parametrize(("kind", "names"), list(NAMED.items()))
def test_names_that_tell_their_type(kind: str, names: tuple[str, ...]) -> None:
    assert {name: named_type(name) for name in names} == dict.fromkeys(names, kind)


@pytest.mark.parametrize(
    ("name", "sentence", "kind"),
    [
        ("Iron Man 2", "Iron Man 2 is a 2010 American superhero film based on the character Iron Man.", "work"),
        ("Ada", "Ada( born 10 December 1815) was an English mathematician and writer.", "person"),
        ("Henry I of France", "Henry I (4 May 1008 – 4 August 1060) was King of the Franks.", "person"),
        ("Jucurucu River", "The Jucurucu River is a river of Bahia and Minas Gerais states.", "location"),
        ("Ohio", "Ohio is a U.S. state in the Midwest.", "location"),
        ("Zed", "Zed is a thing that nobody has a word for.", ""),
        ("New Delhi", "Indira Gandhi International Airport, southwest of Delhi, is the main airport.", ""),
        ("", "It is a film.", ""),
    ],
)
def test_sentences_that_say_what_a_thing_is(name: str, sentence: str, kind: str) -> None:
    assert described_type(name, sentence) == kind


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("It was directed by X.", "person"),
        ("He is the son of X.", "person"),
        ("She was born in X.", "location"),
        ("It lies in the village of X.", "location"),
        ("He was born X.", ""),
        ("Nothing here.", ""),
    ],
)
def test_words_before_a_mention(sentence: str, kind: str) -> None:
    assert mentioned_type("X", sentence) == kind


def test_dates_stay_dates_and_statements_go_before_names() -> None:
    statements = [("Ada", "born in", "1815"), ("Ada", "born in", "London"), ("Bart", "is a", "film by Ada County")]
    names = ["Ada", "1815", "London", "Bart", "Essex County", "unknown"]
    found = {r.name: r.type for r in type_names(names, "Ada", "Ada was a poet.", statements)}
    assert found == {"Ada": "person", "1815": "date", "London": "location", "Bart": "work", "Essex County": "location"}


@pytest.mark.parametrize("mode", ["merge", "own"])
def test_offline_extraction_types_its_entities(mode: str) -> None:
    passage = Passage("p", "Night Harbour", "Night Harbour is a film directed by Vera Lindqvist. It was shot in 1931.")
    text = analyse([passage], title_mode=mode)
    assert opening(passage, text[0]) == "Night Harbour is a film directed by Vera Lindqvist."
    found = make_extractor(ExtractConfig()).extract([passage], text)[0]
    assert {d.name: d.type for d in found.details} == {
        "Night Harbour": "work",
        "Vera Lindqvist": "person",
        "1931": "date",
    }
    assert next(d.description for d in found.details if d.type == "work").startswith("Night Harbour is a film")


def test_precomputed_triples_are_typed_from_the_text_and_themselves(tmp_path) -> None:
    row = '{"id": "p", "entities": ["night harbour"], "triples": [["night harbour", "directed by", "Vera"]]}'
    path = tmp_path / "triples.jsonl"
    path.write_text(row, "utf-8")
    extractor = make_extractor(ExtractConfig("precomputed", str(path)))
    passage = Passage("p", "Night Harbour", "Night Harbour is a film.")
    other = Passage("p", "Night Harbour", "Night Harbour is a town.")
    texts = analyse([passage, other])
    found = extractor.extract([passage], texts[:1])[0]
    assert {d.name: d.type for d in found.details} == {"night harbour": "work", "Vera": "person"}
    assert not any(d.description for d in found.details)
    assert extractor.key(passage, texts[0]) != extractor.key(other, texts[1])
