"""Which passages a name stands for, names in questions, and how strongly a passage points to what it mentions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.graphs.linking import LinkWeigher, link_question, stems
from gnnrag.graphs.titles import TitleMatch, TitleMatcher, layout_of
from gnnrag.text.analyse import analyse
from gnnrag.text.subjects import PATH, Subject, subjects_of
from gnnrag.types import Passage
from tests.helpers.titles import build_titles

PASSAGES = [
    Passage(
        "0", "Sigrid of Varn", "Sigrid of Varn was a daughter of King Eric XIV and of Agnes Holm. King Eric XIV died."
    ),
    Passage("1", "Eric XIV of Varn", "Eric XIV of Varn ruled Varn from 1501."),
    Passage("2", "Amber Road (film)", "Amber Road is a film directed by Karl Jerzy Holm. Varn likes the Amber Road."),
    Passage("3", "Karl Holm", "Karl Holm was a director born in Varn."),
    Passage("4", "Amber Road (song)", "Amber Road is a song by 2 Plumz."),
    Passage("5", "2 Plumz", "2 Plumz are a duo from Varn."),
    Passage("6", "Eric XV of Varn", "Eric XV of Varn followed."),
    Passage("7", "Karl Holm (painter)", "Karl Holm was a painter from Varn."),
    # Words are weighed by how rare they are, so the common ones must be common here too.
    *(Passage(f"k{i}", f"Place {i}", f"It has a statue of King Q{i} and one of Count Jerzy Q{i}.") for i in range(60)),
]


def make(passages: list[Passage] = PASSAGES, **settings: float) -> tuple[HierarchyGraph, TitleMatcher]:
    graph = build_hierarchy(analyse(passages))
    return graph, TitleMatcher(graph, build_titles(graph, [p.title for p in passages]), **settings)


def targets(matcher: TitleMatcher, passage: int) -> set[int]:
    return {t for link in matcher.links(passage) for t in matcher.passages(link.match.form)}


def test_titles_are_known_with_and_without_qualifier():
    _, titles = make()
    assert titles.passages("amber road film") == (2,)
    assert titles.passages("amber road") == (2, 4)
    assert titles.passages("karl holm painter") == (7,)
    assert titles.match("the of") is None
    assert titles.passages("karl holm") == (3,), "a bare title wins over qualified ones"
    assert 0 < titles.rarity(["varn"]) < titles.rarity(["varn", "sigrid"]) <= 1


def test_links_of_a_passage_reach_what_it_mentions_but_not_itself():
    graph, titles = make()
    assert targets(titles, 0) == {1}
    assert targets(titles, 2) == {3}
    assert targets(titles, 4) == {5}
    link = titles.links(2)[0]
    assert graph.phrases[link.phrase] == "Karl Jerzy Holm"
    assert "directed by" in graph.sentences[link.sentence]


@pytest.mark.parametrize("min_overlap, min_jaccard", [(0.8, 0.4), (0.5, 0.5), (0.3, 0.2)])
def test_the_title_of_a_name_is_that_of_a_full_scan(min_overlap: float, min_jaccard: float) -> None:
    rng = np.random.default_rng(0)
    pool = ["Alder", "Birch", "Cedar", "Doum", "Elder", "Fir", "Gum", "Hazel", "Ivy", "Juniper"]
    drawn = [" ".join(rng.choice(pool, rng.integers(2, 5), replace=False)) for _ in range(120)]
    forms, keys = list(dict.fromkeys(drawn[:90])), [*(name.casefold() for name in drawn[90:]), "alder zebra"]
    passages = [Passage(str(i), form, f"{form} grows near {pool[i % 3]}.") for i, form in enumerate(forms)]
    graph, named = build_hierarchy(analyse(passages)), len(forms) // 2  # the others are known by their subjects
    titles = [form if i < named else "" for i, form in enumerate(forms)]
    subjects = [[] if i < named else [Subject(form, 0.7)] for i, form in enumerate(forms)]
    matcher = TitleMatcher(graph, build_titles(graph, titles, subjects), min_overlap, min_jaccard)

    def weight(words: set[str] | list[str]) -> float:
        return sum(math.log1p(len(graph.sentences) / (1 + graph.word_count(word))) for word in words)

    found = []
    for key in {*keys} - {form.casefold() for form in forms}:
        words, ranked = key.split(), []
        for i, own in enumerate(form.casefold().split() for form in forms):
            shared = weight([word for word in own if word in words])
            alike = shared / (weight(words) + weight(own) - shared)
            if alike >= min_jaccard and shared >= min_overlap * min(weight(words), weight(own)):
                ranked.append((-round(alike, 9), " ".join(own), 1.0 if i < named else 0.7))
        want = [(form, pytest.approx(-less * sure)) for less, form, sure in sorted(ranked)[:1]]
        match = matcher.match(key)
        assert ([(match.form, match.confidence)] if match else []) == want
        found += want
    assert len(found) > 10


def test_parts_follow_by_number_and_sections_by_heading() -> None:
    rows = [("a#1", "A"), ("a#2", "A"), ("a#4", "A"), ("b#2", f"X{PATH}1"), ("b#1", f"X{PATH}2"), ("b#3", f"Y{PATH}1"),
            ("c", ""), ("c#x", f"X{PATH}1")]  # fmt: skip
    layout = layout_of(*zip(*rows, strict=True))
    assert layout.following.tolist() == [1, -1, -1, 5, 3, -1, -1, -1]
    assert layout.sections.tolist() == [0, 0, 0, 1, 1, 2, 0, 3]


UNTITLED = [
    Passage("0", "", "Amber Road is a film directed by Karl Jerzy Holm."),
    Passage("1", "", "Karl Holm was a director born in Varn."),
    Passage("2", "", "In 1890 it was so."),
    Passage("3", "Varn", "A town."),
    Passage("4", "", "Varn is a river."),
]


def untitled() -> TitleMatcher:
    graph, subjects = build_hierarchy(analyse(UNTITLED)), [subjects_of(p.text) for p in UNTITLED]
    return TitleMatcher(graph, build_titles(graph, [p.title for p in UNTITLED], subjects))


def test_passages_without_titles_are_meant_by_their_subjects():
    titles = untitled()
    match = titles.match("karl holm")
    assert titles.passages("karl holm") == (1,)
    assert 0 < match.confidence < 1, "a subject is less sure than a title"
    assert titles.match("karl jerzy holm").confidence < match.confidence, "a loose match of a subject still less"
    assert targets(titles, 0) == {1}
    assert targets(titles, 2) == set()
    asked = link_question("Where was Karl Holm born?", build_hierarchy(analyse(UNTITLED)), titles)
    assert [name.title for name in asked.names] == [match]


def test_a_title_wins_over_a_subject_of_the_same_name():
    assert untitled().passages("varn") == (3,)
    assert untitled().match("varn") == TitleMatch("varn", 1.0)


ASKED = [
    Passage("0", "Arrête ton cinéma", "Arrête ton cinéma is a comedy directed by Diane Kurys."),
    Passage("1", "Agni (2004 film)", "Agni is a film directed by Swapan Saha for Delta Pictures."),
    Passage("2", "Swapan Saha", "Swapan Saha is a director born in Ajmer."),
    Passage("3", "Boris Vladimirovich", "Boris Vladimirovich was a duke. He met the Die Band."),
    Passage("4", "Film", "A film is a sequence of images."),
]
ASKED_GRAPH = build_hierarchy(analyse(ASKED))
ASKED_TITLES = TitleMatcher(ASKED_GRAPH, build_titles(ASKED_GRAPH, [p.title for p in ASKED]))


def names(text: str) -> dict[str, str | None]:
    return {n.key: n.title.form if n.title else None for n in link_question(text, ASKED_GRAPH, ASKED_TITLES).names}


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "Which film has the director born later, Arrête Ton Cinéma or Agni (2004 Film)?",
            {"arrete ton cinema": "arrete ton cinema", "agni 2004 film": "agni 2004 film"},
        ),
        ("where was the director of arrete ton cinema born", {"arrete ton cinema": "arrete ton cinema"}),
        ("Where was Swapan Saha born?", {"swapan saha": "swapan saha"}),
        ("Swapan Saha's birthplace?", {"swapan saha": "swapan saha"}),
        ("What did Delta Pictures make?", {"delta pictures": None}),
        ("Which film did Swapan Saha make?", {"swapan saha": "swapan saha"}),  # not the article on film
        ("what is a film", {"film": "film"}),
        (
            "Did Boris Vladimirovich and Swapan Saha meet?",
            {"boris vladimirovich": "boris vladimirovich", "swapan saha": "swapan saha"},
        ),
        ("Who is it?", {}),
        ("", {}),
    ],
)
def test_exact_names(text, expected):
    assert names(text) == expected


@pytest.mark.parametrize(
    "text, form",
    [
        ("Where was Swapan Sahaa born?", "swapan saha"),
        ("Where was Boris Vladimirovitch born?", "boris vladimirovich"),
        ("Where did Boris of Vladimirovitch die?", "boris vladimirovich"),
    ],
)
def test_misspelt_names_are_corrected_to_titles(text, form):
    linked = link_question(text, ASKED_GRAPH, ASKED_TITLES)
    assert [n.title.form for n in linked.names if n.title] == [form]
    assert all(n.title.confidence < 1 for n in linked.names if n.title)
    assert linked.rest in (("born",), ("die",))
    linked = link_question("Where was the director of Agni (2004 film) born?", ASKED_GRAPH, ASKED_TITLES)
    assert linked.rest == ("director", "born"), "what is left is what is asked"


POINTING = [
    Passage("0", "Amber Road", "Amber Road was directed by Karl Holm with Ada Lind."),
    Passage("1", "Karl Holm", "Karl Holm worked."),
    Passage("2", "Ada Lind", "Ada Lind acted. Later Ada Lind sang."),
]
POINTING_GRAPH = build_hierarchy(analyse(POINTING))
POINTING_TITLES = TitleMatcher(POINTING_GRAPH, build_titles(POINTING_GRAPH, [p.title for p in POINTING]))


def test_weight_is_nearness_over_rarity_by_hand():
    weights = LinkWeigher(POINTING_GRAPH, POINTING_TITLES, context_weight=2.0, context_reach=4.0).weights(
        0, stems(["director"])
    )
    # One word (`by`) lies between `directed` and `karl`; the name stands in two sentences.
    assert weights["karl holm"] == pytest.approx((1 + 2 * math.exp(-1 / 4)) / math.log2(3))
    # Four words (`by karl holm with`) lie before `ada`; the name stands in three sentences.
    assert weights["ada lind"] == pytest.approx((1 + 2 * math.exp(-4 / 4)) / math.log2(4))


@pytest.mark.parametrize(
    "word, expected",
    [
        ("sigird", "sigird"),
        ("sigrd", "sigrid"),
        ("plumzy", "plumz"),
        ("karl", "karl"),
        ("holn", "holn"),
        ("xyzzy", "xyzzy"),
    ],
)
def test_spelling_correction(word, expected):
    assert make()[1].correct(word) == expected
