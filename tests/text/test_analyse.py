"""Passages to sentences and phrases."""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError

import pytest

from gnnrag.errors import ConfigError
from gnnrag.text.analyse import RULES, PassageText, analyse, resolve_language
from gnnrag.types import Passage

FILM = Passage("f", "Amber Road (film)", "Amber Road is a 1931 film directed by Karl Holm. Founded later, it won.")
HOLM = Passage("h", "Karl Holm", "Holm was born in Odense. Nonetheless he left.")


def test_title_is_glued_to_the_first_sentence_and_is_a_phrase_with_and_without_qualifier():
    text = analyse([FILM])[0]
    assert text.sentences[0] == "Amber Road (film)\n\nAmber Road is a 1931 film directed by Karl Holm."
    assert text.phrases[0] == ("Amber Road (film)", "Amber Road", "1931", "Karl Holm")


def test_title_as_a_sentence_of_its_own():
    text = analyse([FILM], title_mode="own")[0]
    assert text.sentences[0] == "Amber Road (film)"
    assert text.phrases[0] == ("Amber Road (film)", "Amber Road")
    assert "Karl Holm" in text.phrases[1]


def test_word_that_is_capital_only_by_position_is_no_phrase():
    text = analyse([FILM, HOLM])
    assert text[0].phrases[1] == ()  # Founded
    assert text[1].phrases[0] == ("Karl Holm", "Holm", "Odense")
    assert text[1].phrases[1] == ()  # Nonetheless


def test_each_passage_is_analysed_by_itself():
    together = analyse([FILM, HOLM, FILM])
    assert together == [*analyse([FILM]), *analyse([HOLM]), *analyse([FILM])]


def test_passages_without_title_or_text():
    bare, titled, empty = analyse([Passage("a", "", "Bob left."), Passage("b", "Lone Title", ""), Passage("c", "", "")])
    assert bare.sentences == ("Bob left.",)
    assert titled == PassageText(("Lone Title",), (("Lone Title",),))
    assert empty == PassageText((), ())


def test_result_is_frozen_and_settings_are_checked():
    with pytest.raises(FrozenInstanceError):
        analyse([FILM])[0].sentences = ()
    with pytest.raises(ConfigError, match="title_mode"):
        analyse([FILM], title_mode="glue")
    with pytest.raises(ConfigError, match="language"):
        resolve_language("")


def test_missing_model_falls_back_to_rules_with_a_warning(caplog):
    assert resolve_language("rules") == resolve_language(RULES) == RULES
    assert resolve_language("xx_no_such_model") == RULES
    assert "xx_no_such_model" in caplog.text


def test_installed_model_tags_phrases(monkeypatch):
    """A pipeline made here stands in for a downloaded model: entities from a ruler, tags from a table."""
    import spacy
    from spacy.language import Language

    tags = {"Karl": "PROPN", "Holm": "PROPN", "film": "NOUN", "Amber": "PROPN", "Road": "PROPN", "1931": "NUM"}

    @Language.component("table_tagger")
    def table_tagger(doc):
        for token in doc:
            token.pos_ = tags.get(token.text, "X")
        return doc

    nlp = spacy.blank("en")
    nlp.add_pipe("table_tagger")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Karl Holm"}])
    monkeypatch.setattr(spacy, "load", lambda name, exclude=(): nlp)
    monkeypatch.setattr("spacy.util.is_package", lambda name: name == "made_here")
    text = analyse([FILM], language="made_here")[0]
    assert {"Karl Holm", "1931 film", "Amber Road (film)", "Amber Road"} <= set(text.phrases[0])


def test_speed_and_size_on_real_passages(two_wiki_passages):
    start = time.process_time()
    texts = analyse(two_wiki_passages)
    assert time.process_time() - start < 8.0
    sentences = {s for t in texts for s in t.sentences}
    assert 0.95 < len(sentences) / 21476 < 1.05  # specs/mgranrag.md 2.5
