"""The graph retriever on a small corpus, with bag-of-words stand-ins for its searches."""

from __future__ import annotations

import numpy as np
import pytest

from gnnrag.graphs.hierarchy import build_hierarchy
from gnnrag.graphs.linking import TitleMatcher
from gnnrag.retrievers.chg import CHGConfig, CHGRetriever
from gnnrag.text.analyse import analyse
from gnnrag.text.normalise import words
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
        self.hierarchy = build_hierarchy(analyse(passages))
        self.titles = TitleMatcher(self.hierarchy, [p.title for p in passages])
        self.bags = [set(words(p.content)) for p in passages]

    def dense_scores(self, texts: list[str]) -> np.ndarray:
        bags = [set(words(text)) for text in texts]
        return np.array([[len(q & b) / (1 + len(q | b)) for b in self.bags] for q in bags]).reshape(len(texts), -1)

    def bm25_scores(self, texts: list[str]) -> np.ndarray:
        bags = [set(words(text)) for text in texts]
        return np.array([[float(len(q & b)) for b in self.bags] for q in bags]).reshape(len(texts), -1)


INDEX = BagIndex(CORPUS)
RETRIEVER = CHGRetriever(INDEX)


def top(text: str, count: int = 3, retriever: CHGRetriever = RETRIEVER) -> list[str]:
    return list(retriever.retrieve([Query(text, top_k=count)])[0].ids)


def test_second_hop_follows_the_title_link_nearest_to_what_is_asked():
    """Nothing in the director's passage resembles the question; the mention next to `directed` leads there."""
    assert top("Where was the director of Amber Road born?", 2) == ["amber", "holm"]
    ranks = top("Where was the director of Amber Road born?", 28)
    assert ranks.index("holm") < ranks.index("lind")
    assert top("Who stars in Amber Road and when did she die?", 2) == ["amber", "lind"]


def test_without_bridges_the_second_hop_is_lost():
    plain = CHGRetriever(INDEX, CHGConfig(bridge_mass=0.0))
    question = "Where was the director of Amber Road born?"
    assert top(question, 28, plain).index("holm") > top(question, 28).index("holm")


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
    assert CHGRetriever(BagIndex([])).retrieve([Query("x")])[0].ids == ()
    one = CHGRetriever(BagIndex([CORPUS[0]]))
    assert one.retrieve([Query("Amber Road"), Query("nothing")])[1].ids == ("amber",)
