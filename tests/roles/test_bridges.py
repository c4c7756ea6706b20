"""Anchors and bridges of questions on the small corpus of `tests/helpers/parts.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.types import Passage
from tests.helpers.parts import COMPARISON, COMPOSITIONAL, CORPUS, small_index


@pytest.fixture(scope="module")
def finder(index: Index) -> BridgeFinder:
    return BridgeFinder(index)


def titles(passages: list[int]) -> list[str]:
    return [CORPUS[i].title for i in passages]


def test_anchors_are_the_titles_that_a_question_names(finder: BridgeFinder) -> None:
    assert titles([a.passage for a in finder.read(COMPARISON).anchors]) == ["Night Harbour", "Copper Road"]


def test_of_passages_with_one_title_the_one_like_the_question(tmp_path: Path) -> None:
    film = Passage("film", "Night Harbour (film)", "Night Harbour is a film that was shot in the north.")
    finder = BridgeFinder(small_index(tmp_path, [CORPUS[6], film, CORPUS[2]]))
    assert [a.passage for a in finder.read("Who directed the film Night Harbour, shot in the north?").anchors] == [1]
    assert [a.passage for a in finder.read("Who wrote the novel Night Harbour about a keeper?").anchors] == [0]


def test_a_question_that_is_a_title_keeps_its_words_and_none_has_no_anchor(finder: BridgeFinder) -> None:
    assert finder.read("Kalmar Kalmar").open_part.strip()
    for text in ("", "???", "Who directed a film about the sea?"):
        assert finder.read(text).anchors == ()


def test_bridges_lead_from_the_film_to_its_director(finder: BridgeFinder) -> None:
    question = finder.read(COMPOSITIONAL)
    bridges = finder.bridges(question, [0])
    assert CORPUS[bridges[0].passage].title == "Vera Lindqvist" and bridges[0].source == 0
    assert [b.score for b in bridges] == sorted((b.score for b in bridges), reverse=True)
    assert "Baking" not in titles([b.passage for b in bridges])


def test_bridges_leave_out_anchors_and_what_is_known(finder: BridgeFinder) -> None:
    question = finder.read("Did Vera Lindqvist direct Night Harbour?")
    assert {b.passage for b in finder.bridges(question, [0])} <= {5, 6}
    question = finder.read(COMPOSITIONAL)
    assert 1 not in {b.passage for b in finder.bridges(question, [0], known=[1])}
