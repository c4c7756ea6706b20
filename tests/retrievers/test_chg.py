"""The graph retriever on a small corpus, with bag-of-words stand-ins for its searches."""

from __future__ import annotations

import numpy as np
import pytest

from gnnrag.graphs.hierarchy import build_hierarchy
from gnnrag.graphs.titles import TitleMatcher, build_titles, layout_of
from gnnrag.parts import ready
from gnnrag.retrievers.chg import CHGRetriever
from gnnrag.text.analyse import analyse
from gnnrag.text.normalise import words
from gnnrag.text.subjects import PATH, subjects_of
from gnnrag.types import Passage, Query
from tests.helpers.each import each

CORPUS = [
    Passage("amber", "Amber Road", "Amber Road is a 1931 film directed by Karl Holm. It stars Ada Lind and Bo Ek."),
    Passage("birch", "Birch Lane (film)", "Birch Lane is a 1987 film by King Otto II. It was shot in Oslo."),
    Passage("holm", "Karl Holm", "Karl Holm (1890 – 1951) made silent pictures. He grew up in Odense."),
    Passage("lind", "Ada Lind", "Ada Lind (1901 – 1988) acted on stage. She grew up in Malmo."),
    Passage("ek", "Bo Ek", "Bo Ek was a singer and acted in plays."),
    Passage("otto", "Otto II of Varn", "Otto II of Varn ruled and made pictures."),
    Passage("odense", "Odense", "Odense is a city in Denmark."),
    *(
        Passage(f"f{i}", f"Film {i}", f"Film {i} was directed by someone born in {1900 + i} in a town.")
        for i in range(20)
    ),
    Passage("bare", "", ""),
]


class BagIndex:
    """What CHGRetriever reads of an index."""

    def __init__(self, passages: list[Passage]) -> None:
        self.passages = passages
        self.ids = [p.id for p in passages]
        self.position = {id_: i for i, id_ in enumerate(self.ids)}
        self.hierarchy = build_hierarchy(analyse(passages))
        subjects = [() if p.title else subjects_of(p.text) for p in passages]
        titles = ["" if PATH in p.title else p.title for p in passages]
        self.titles = TitleMatcher(self.hierarchy, build_titles(self.hierarchy, titles, subjects))
        self.layout = layout_of(passages)
        self.bags = [set(words(p.content)) for p in passages]

    def dense_scores(self, texts: list[str]) -> np.ndarray:
        bags = [set(words(text)) for text in texts]
        return np.array([[len(q & b) / (1 + len(q | b)) for b in self.bags] for q in bags]).reshape(len(texts), -1)

    def bm25_scores(self, texts: list[str]) -> np.ndarray:
        bags = [set(words(text)) for text in texts]
        return np.array([[float(len(q & b)) for b in self.bags] for q in bags]).reshape(len(texts), -1)


INDEX = BagIndex(CORPUS)
RETRIEVER = ready(CHGRetriever(), index=INDEX)


def top(text: str, count: int = 3, retriever: CHGRetriever = RETRIEVER) -> list[str]:
    return list(retriever.retrieve([Query(text, top_k=count)])[0].ids)


def test_second_hop_follows_the_title_link_nearest_to_what_is_asked():
    """Nothing in the director's passage resembles the question; the mention next to `directed` leads there."""
    assert top("Where was the director of Amber Road born?", 2) == ["amber", "holm"]
    ranks = top("Where was the director of Amber Road born?", 28)
    assert ranks.index("holm") < ranks.index("lind")
    assert top("Who stars in Amber Road and when did she die?", 2) == ["amber", "lind"]


def test_without_bridges_the_second_hop_is_lost():
    plain = ready(CHGRetriever(bridge_mass=0.0), index=INDEX)
    question = "Where was the director of Amber Road born?"
    assert top(question, 28, plain).index("holm") > top(question, 28).index("holm")


UNTITLED = BagIndex([Passage(p.id, "", p.text) for p in CORPUS])


def test_without_titles_the_second_hop_follows_what_passages_are_about():
    retriever = ready(CHGRetriever(), index=UNTITLED)
    assert top("Where was the director of Amber Road born?", 2, retriever) == ["amber", "holm"]
    assert top("Who stars in Amber Road and when did she die?", 2, retriever) == ["amber", "lind"]


SHARING = BagIndex([
    Passage("eyes", "", "Big Eyes is a film by Tim Bartok for the Holm Company."),
    Passage("apes", "", "Planet of Apes has a maker called Tim Bartok."),
    *(Passage(f"f{i}", "", f"In {1900 + i} the Holm Company moved from town to town.") for i in range(20)),
])  # fmt: skip


def test_without_titles_a_name_that_few_passages_share_is_a_bridge():
    question = "What is by the maker of Big Eyes?"
    plain = ready(CHGRetriever(name_share=0.0), index=SHARING)

    def score(retriever: CHGRetriever, id_: str) -> float:
        ranking = retriever.retrieve([Query(question)])[0]
        return float(ranking.scores[ranking.ids.index(id_)])

    assert score(ready(CHGRetriever(), index=SHARING), "apes") > score(plain, "apes")
    assert score(ready(CHGRetriever(), index=SHARING), "f0") <= score(plain, "f0"), (
        "of a name that many share nothing follows"
    )
    titled = BagIndex([Passage(p.id, f"Title {p.id}", p.text) for p in SHARING.passages])
    assert score(ready(CHGRetriever(), index=titled), "apes") == score(
        ready(CHGRetriever(name_share=0.0), index=titled), "apes"
    )


PARTS = BagIndex([
    Passage("a.txt#0", "Basalt > Origin", "Basalt forms where lava meets the sea."),
    Passage("a.txt#1", "Basalt > Cooling", "It cools within days."),
    Passage("b.txt#1", "Steel > Cooling", "That cools within weeks."),
    *(Passage(f"c{i}.txt#0", f"Stone {i} > Use", f"Walls of kind {i}.") for i in range(10)),
    Passage("c1.txt#x", "Stone 1", "No number."),
    Passage(f"c1.txt#{'9' * 5000}", "Stone 1", "A long number."),
])  # fmt: skip


def lead(**config: float) -> float:
    """How far the second part of `a.txt` is above a passage of another document that answers as well."""
    bare = {"follow_mass": 0.0, "section_gain": 0.0} | config
    ranking = ready(CHGRetriever(**bare), index=PARTS).retrieve(
        [Query("what forms where lava meets the sea and cools")]
    )[0]
    scores = dict(zip(ranking.ids, ranking.scores.tolist(), strict=True))
    return scores["a.txt#1"] - scores["b.txt#1"]


def test_a_part_of_a_document_that_follows_a_good_one_is_lifted():
    assert lead(follow_mass=1.0) > lead(follow_mass=0.3) > lead()


def test_a_part_in_the_section_of_a_good_one_is_lifted():
    assert lead(section_gain=4.0) > lead(section_gain=1.0) > lead()


def test_loosely_spelt_mention_is_followed():
    assert top("What else did the maker of Birch Lane make?", 2) == ["birch", "otto"]


@each(
    "text",
    ["Where did Karl Holm grow up?", "where did karl holm grow up", "KARL HÓLM", "Karl Hollm"],
)
def test_short_follow_up_puts_the_named_passage_first(text):
    assert top(text, 1) == ["holm"]


def test_both_sides_of_a_comparison_come_first():
    assert set(top("Which came out first, Amber Road or Birch Lane?", 2)) == {"amber", "birch"}


def test_ranking_is_sorted_cut_and_labelled():
    ranking = RETRIEVER.retrieve([Query("Amber Road", top_k=5)])[0]
    assert len(ranking) == 5
    assert (np.diff(ranking.scores) <= 0).all()
    assert (ranking.kind, ranking.branch) == ("passage", "ppr")
    assert ranking.high == pytest.approx(float(ranking.scores[0]))
    assert len(RETRIEVER.retrieve([Query("Amber Road")])[0]) == len(CORPUS)


@each("text", ["", "???", "of the", "zzz qqq"])
def test_queries_that_match_nothing_still_rank(text):
    assert len(top(text, 28)) == 28


def test_tiny_corpora():
    assert ready(CHGRetriever(), index=BagIndex([])).retrieve([Query("x")])[0].ids == ()
    one = ready(CHGRetriever(), index=BagIndex([CORPUS[0]]))
    assert one.retrieve([Query("Amber Road"), Query("nothing")])[1].ids == ("amber",)
