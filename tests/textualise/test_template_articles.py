"""Articles by templates: coverage, variety, and the way back by the offline extractor."""

import re
from collections import Counter
from pathlib import Path

import pytest

from gnnrag.datasets.kb import RELATIONS, entity_types, parts_of
from gnnrag.datasets.kb import read_triples
from gnnrag.extract.base import Extraction
from gnnrag.textualise import read_back, round_trip
from gnnrag.textualise.prompted import SampleConfig, chosen_entities
from gnnrag.textualise.templates import (
    SENTENCES,
    all_templates,
    appended_sentences,
    bracketed_sentence,
    check_marked,
    marked_sentence,
    needs_quotes,
    read_marked,
    relations_said,
    template_article,
    template_description,
    templates_of,
)
from gnnrag.types import Passage
from tests.helpers.each import each
from tests.helpers.shared_data import SHARED_DATA

KB = [
    ("Night Harbour", "directed_by", "Vera Lind"),
    ("Night Harbour", "written_by", "Vera Lind"),
    ("Night Harbour", "starred_actors", "Otto Brandt Jr."),
    ("Night Harbour", "starred_actors", "olga the Great"),
    ("Night Harbour", "release_year", "1971"),
    ("Night Harbour", "in_language", "Low German"),
    ("Night Harbour", "has_genre", "Film-Noir"),
    ("Night Harbour", "has_tags", "harbour"),
    ("Night Harbour", "has_tags", "vera lind"),
    ("Night Harbour", "has_imdb_rating", "well known"),
    ("Night Harbour", "has_imdb_votes", "famous"),
    ("Wait... What?", "directed_by", "Vera Lind"),
    ("Wait... What?", "has_tags", "r"),
    ("Monsters, Inc.", "directed_by", "Otto Brandt Jr."),
    ("12", "release_year", "1971"),
    ("12", "starred_actors", "12"),
    ("12", "flooded_by", "a {brace}"),
    ("1971", "directed_by", "Vera Lind"),
    ("A [b] <c> \\ d", "has_tags", "x|y]"),
]


def articles(triples, only=None, seed=0):
    parts = list(parts_of(triples, only))
    marked = [template_article(part, seed) for part in parts]
    passages = [Passage(p.id, p.name, read_marked(text)[0]) for p, text in zip(parts, marked, strict=True)]
    return parts, marked, passages


def test_every_neighbour_is_marked_whatever_its_name():
    parts, marked, passages = articles(KB)
    for part, text in zip(parts, marked, strict=True):
        assert check_marked(text, part.name, part.neighbours) == []
        topics = [m for m in read_marked(text)[1] if m.kind == "topic"]
        assert len(topics) > len(part.triples) - 1
    by_id = {p.id: p.text for p in passages}
    assert by_id["1971"].startswith("“1971” is a movie and a year. ")
    assert by_id["Vera Lind"].startswith("Vera Lind is a person. ")
    assert "“12” flooded by “a {brace}”." in by_id["12"]
    assert "Otto Brandt Jr.." not in "".join(by_id.values()) and "”.." not in "".join(by_id.values())
    assert by_id["A [b] <c> \\ d"].count("A [b] <c> \\ d") >= 2
    assert by_id["Night Harbour"].count("\n\n") == 4


def test_templates_differ_from_fact_to_fact_and_a_seed_gives_others():
    triples = [(f"Film {i}", "directed_by", "Vera Lind") for i in range(20)]
    sentences = [marked_sentence(t, "Vera Lind") for t in triples]
    shapes = Counter(re.sub(r"Film \d+", "X", s) for s in sentences)
    assert len(shapes) == 4 and sentences == [marked_sentence(t, "Vera Lind") for t in triples]
    assert sentences != [marked_sentence(t, "Vera Lind", seed=1) for t in triples]
    assert SENTENCES.keys() == RELATIONS.keys()
    for relation, (forwards, backwards) in SENTENCES.items():
        assert len(set(forwards)) == len(forwards) >= 3 and len(set(backwards)) == len(backwards) >= 3, relation


@each("relation, forwards, template", list(all_templates()))
def test_a_template_says_its_own_relation_and_no_other(relation, forwards, template):
    """The way back rests on this: from its own words, in its own direction, for names with and without quotes."""
    for head, tail in (("Night Harbour", "Vera Lind"), ("Mr. X. Again!", "olga the Great"), ("1971", "1980")):
        topic, phrase = (head, tail) if forwards else (tail, head)
        sentence = read_marked(marked_with(template, (head, relation, tail), topic))[0]
        assert relations_said(sentence, topic, phrase) == {(relation, forwards)}
        assert relations_said(f"{sentence} And so on.", topic, phrase) == {(relation, forwards)}
        assert relations_said(sentence, topic, phrase[:-3]) == set()
        assert relations_said(sentence, topic, "Somebody Else") == set()


def marked_with(template, triple, topic):
    """Return a sentence by one template, as `marked_sentence` writes it under the seed that chooses it."""
    wanted = templates_of(triple[1], topic == triple[0])
    seen = {}
    for seed in range(200):
        seen.setdefault(marked_sentence(triple, topic, seed), seed)
        if len(seen) == len(wanted):
            break
    shape = re.escape(template).replace(r"\{head\}", ".+").replace(r"\{tail\}", ".+").removesuffix(r"\.")
    matching = [s for s in seen if re.fullmatch(rf"{shape}\.?", s)]
    return (
        min(matching, key=len)
        if len(matching) == 1
        else max(matching, key=lambda s: sum(w in s for w in re.findall(r"\w+", template)))
    )


def test_quotation_marks_stand_where_nobody_could_tell_the_name():
    assert needs_quotes("Night Harbour", "movie") and needs_quotes("1971", "movie") and needs_quotes("good", "rating")
    assert not needs_quotes("Guy de Maupassant", "person") and not needs_quotes("Robert Downey Jr.", "person")
    assert needs_quotes("50 Cent", "person") and needs_quotes("olga the Great", "") and not needs_quotes("1971", "year")
    assert not needs_quotes("“Weird” Al", "person")  # they would not stand out inside others


def test_fallback_sentences_and_descriptions():
    (part,) = parts_of(KB[:11], {"Night Harbour"})
    text = appended_sentences(part, ["Vera Lind", "harbour"])
    assert {m.name for m in read_marked(text)[1]} == {"Night Harbour", "Vera Lind", "harbour"}
    assert text.count("[Vera Lind]") == 2  # both relations to her
    assert bracketed_sentence(KB[0]) == "“[Night Harbour]” was directed by [Vera Lind]."
    assert template_description(part) == (
        "Night Harbour is a movie. Night Harbour was directed by Vera Lind. Night Harbour was written by Vera Lind. "
        "Night Harbour stars Otto Brandt Jr."
    )


def test_the_round_trip_of_a_small_knowledge_base():
    parts, _, passages = articles(KB)
    found = round_trip(parts, passages)
    # Lost, of 37: a relation without templates and one of a thing with itself, and what a title that holds the end of a
    # sentence tears apart (`Wait... What?`). `vera lind` and `Vera Lind` are told apart.
    assert (found["stated"], found["recovered"], found["false"]) == (37, 37 - 2 - 1 - 3, 0)
    assert (found["triples"], found["triples_recovered"]) == (19, 19 - 1 - 1 - 1)
    assert found["both_ends"] >= found["recovered"]
    assert found["by_relation"]["has_tags, told of its head"] == {"stated": 4, "recovered": 3, "both_ends": 4}


def test_what_is_read_back_rests_on_the_sentence_alone():
    said = "Vera Lind directed “Night Harbour”."
    both = Extraction(triples=(("Vera Lind", said, "Night Harbour"), ("Vera Lind", "Vera Lind met X.", "X")))
    read, joined = read_back("Vera Lind", both)
    assert read == {("Night Harbour", "directed_by", "Vera Lind")} and joined == {"Night Harbour", "X"}
    assert read_back("Otto Brandt", both) == (set(), set())


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED_DATA / "metaqa").is_dir(), reason=f"the benchmark data is not at {SHARED_DATA}")
def test_two_thousand_real_entities_come_back():
    """Acceptance: 2,000 entities without a model, every neighbour covered, markup valid, at least 95% read back."""
    triples = read_triples(Path(SHARED_DATA / "metaqa" / "kb.txt"))
    chosen = chosen_entities(triples, SampleConfig(entities=2000), 0)
    assert len(chosen) == 2000 and chosen <= entity_types(triples).keys()
    parts, marked, passages = articles(triples, chosen)
    assert {p.name for p in parts} == chosen
    assert not any(check_marked(t, p.name, p.neighbours) for p, t in zip(parts, marked, strict=True))
    found = round_trip(parts, passages)
    assert found["recovered"] / found["stated"] >= 0.99
    assert found["triples_recovered"] / found["triples"] >= 0.99 and found["false"] <= 5
    for name, row in found["by_relation"].items():
        assert row["recovered"] / row["stated"] >= 0.95 or row["stated"] < 20, name
