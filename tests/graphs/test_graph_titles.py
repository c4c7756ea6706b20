"""Which passages a name stands for."""

from __future__ import annotations

from gnnrag.graphs.hierarchy import HierarchyGraph, build_hierarchy
from gnnrag.graphs.linking import TitleMatch, TitleMatcher
from gnnrag.text.analyse import analyse
from gnnrag.text.normalise import FUNCTION_WORDS, phrase_key
from gnnrag.types import Passage
from tests.helpers.each import each

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
    return graph, TitleMatcher(graph, [p.title for p in passages], **settings)


def targets(matcher: TitleMatcher, passage: int) -> set[int]:
    return {t for link in matcher.links(passage) for t in matcher.passages(link.match.form)}


def test_titles_are_known_with_and_without_qualifier():
    _, titles = make()
    assert titles.passages("amber road film") == (2,)
    assert titles.passages("amber road") == (2, 4)
    assert titles.passages("karl holm painter") == (7,)
    assert titles.passages("karl holm") == (3,), "a bare title wins over qualified ones"
    assert 0 < titles.rarity(["varn"]) < titles.rarity(["varn", "sigrid"]) <= 1


def test_match_by_rare_words():
    _, titles = make()
    assert titles.match("eric xiv of varn") == TitleMatch("eric xiv of varn", 1.0)
    match = titles.match("king eric xiv")
    assert match is not None
    assert match.form == "eric xiv of varn"
    assert 0.4 <= match.confidence < 1
    assert titles.match("karl jerzy holm").form == "karl holm"
    assert titles.match("agnes holm") is None
    assert titles.match("the of") is None


def test_links_of_a_passage_reach_what_it_mentions_but_not_itself():
    graph, titles = make()
    assert targets(titles, 0) == {1}
    assert targets(titles, 2) == {3}
    assert targets(titles, 4) == {5}
    link = titles.links(2)[0]
    assert graph.phrases[link.phrase] == "Karl Jerzy Holm"
    assert "directed by" in graph.sentences[link.sentence]


def test_stricter_bounds_leave_only_exact_matches():
    _, titles = make(min_overlap=1.01, min_jaccard=1.0)
    assert targets(titles, 0) == set()
    assert targets(titles, 4) == {5}


def test_prefix_filter_finds_what_a_full_scan_finds(two_wiki_passages):
    graph, titles = make(two_wiki_passages[:400])
    keys = [key for key in graph.phrase_nodes if set(key.split()) - FUNCTION_WORDS][:1500]
    found = {key: titles.match(key) for key in keys}
    titles._candidates = lambda weights, total: dict.fromkeys(titles._passages)  # every title
    titles._matches.clear()
    assert {key: titles.match(key) for key in keys} == found
    assert sum(match is not None for match in found.values()) > 200


@each(
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


def test_matches_do_not_depend_on_the_order_asked():
    keys = [phrase_key(p) for p in make()[0].phrases]
    forward, backward = make()[1], make()[1]
    assert [forward.match(k) for k in keys] == [backward.match(k) for k in reversed(keys)][::-1]
