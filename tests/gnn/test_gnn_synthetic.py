from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.gnn.sampling import QuestionMaker, path_questions
from gnnrag.graphs.messages import MessageGraph
from gnnrag.index.index import Index
from gnnrag.types import Passage
from tests.helpers.indexes import build

CORPUS = (
    Passage("s", "Solaris", "Solaris is a film directed by Andrei Tarkovsky. It was released in 1972."),
    Passage("a", "Andrei Tarkovsky", "Andrei Tarkovsky was a director born in Zavrazhye. He married Irma Raush."),
    Passage("z", "Zavrazhye", "Zavrazhye is a village located in Kostroma."),
    Passage("n", "Nostalghia", "Nostalghia is a film directed by Tonino Guerra. It was released in 1983."),
    Passage("t", "Tonino Guerra", "Tonino Guerra was a poet born in Santarcangelo."),
    Passage("e", "", "A passage without a title names Solaris."),
)


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> QuestionMaker:
    root: Path = tmp_path_factory.mktemp("synthetic")
    build(root, CORPUS, names=("hierarchy",))
    index = Index(root)
    return QuestionMaker(index.passages, index.hierarchy, index.titles)


def test_links_are_mentions_by_title_with_the_words_before_them(maker: QuestionMaker) -> None:
    assert [(link.target, link.cue) for link in maker.links(0)] == [(1, ("film", "directed"))]
    assert [(link.target, link.cue) for link in maker.links(1)] == [(2, ("director", "born"))]


def test_questions_name_their_start_and_hide_what_they_lead_to(maker: QuestionMaker) -> None:
    made = maker.make(60)
    chains = [q for q in made if q.type == "synthetic_2hop"]
    assert chains and {q.type for q in made} >= {"synthetic_3hop", "synthetic_comparison"}
    title = {p.id: p.title for p in CORPUS}
    for question in chains:
        first, second = question.gold
        assert title[first] in question.text and title[second] not in question.text
    bridges = [q for q in made if q.type == "synthetic_bridge_comparison"]
    assert {frozenset(q.gold) for q in bridges} <= {frozenset("sant")}
    assert all(q.gold[0] != q.gold[1] for q in made)


def test_questions_follow_from_the_seed(maker: QuestionMaker) -> None:
    assert maker.make(8, seed=1) == maker.make(8, seed=1)
    assert [q.text for q in maker.make(8, seed=1)] != [q.text for q in maker.make(8, seed=2)]
    assert len({q.text for q in maker.make(60)}) == len(maker.make(60))
    assert len({q.id for q in maker.make(60)}) == len(maker.make(60))


def test_a_corpus_with_nothing_to_ask_gives_nothing(tmp_path: Path) -> None:
    build(tmp_path, (Passage("a", "", "nothing at all"),), names=("hierarchy",))
    index = Index(tmp_path)
    assert QuestionMaker(index.passages, index.hierarchy, index.titles).make(5) == []


def test_paths_of_facts_reach_exactly_their_answers() -> None:
    triples = np.array([(0, 0, 1), (1, 1, 2), (1, 1, 3)], dtype=np.int32)
    graph = MessageGraph(("film", "ann", "rome", "oslo"), 0, 0, ("directed_by", "born_in"), triples, Lists.of([[]] * 4))
    made = {q.text: q for q in path_questions(graph, 30, max_hops=2)}
    found = [q for text, q in made.items() if text.endswith("is the born in of the directed by of film")]
    assert found and {tuple(q.extra["nodes"]) for q in found} == {("rome", "oslo")}
    assert all(q.extra["anchor"] not in q.extra["nodes"] for q in made.values())
    assert list(made.values()) == path_questions(graph, 30, max_hops=2)
