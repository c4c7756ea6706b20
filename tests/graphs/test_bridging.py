"""How strongly a passage points to what it mentions."""

from __future__ import annotations

import math

import pytest

from gnnrag.graphs.hierarchy import build_hierarchy
from gnnrag.graphs.linking import LinkWeigher, TitleMatcher, stems
from gnnrag.text.analyse import analyse
from gnnrag.types import Passage

PASSAGES = [
    Passage("0", "Amber Road", "Amber Road was directed by Karl Holm with Ada Lind."),
    Passage("1", "Karl Holm", "Karl Holm worked."),
    Passage("2", "Ada Lind", "Ada Lind acted. Later Ada Lind sang."),
]
GRAPH = build_hierarchy(analyse(PASSAGES))
TITLES = TitleMatcher(GRAPH, [p.title for p in PASSAGES])


def test_stems_join_forms_of_a_word():
    assert stems(["directed", "director", "who"]) == ["direc", "direc", "who"]


def test_weight_is_nearness_over_rarity_by_hand():
    weights = LinkWeigher(GRAPH, TITLES, context_weight=2.0, context_reach=4.0).weights(0, stems(["director"]))
    # One word (`by`) lies between `directed` and `karl`; the name stands in two sentences.
    assert weights["karl holm"] == pytest.approx((1 + 2 * math.exp(-1 / 4)) / math.log2(3))
    # Four words (`by karl holm with`) lie before `ada`; the name stands in three sentences.
    assert weights["ada lind"] == pytest.approx((1 + 2 * math.exp(-4 / 4)) / math.log2(4))


def test_without_wanted_words_only_rarity_counts():
    weights = LinkWeigher(GRAPH, TITLES).weights(0, [])
    assert weights == {"karl holm": pytest.approx(1 / math.log2(3)), "ada lind": pytest.approx(1 / math.log2(4))}
    assert LinkWeigher(GRAPH, TITLES).weights(1, []) == {}
