"""The hops of gold annotation, whatever form a benchmark gives it, and how they can be asked for."""

from __future__ import annotations

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.oracle import OracleHop, gold_hops, ways_to_ask
from gnnrag.types import GoldHop, Question
from tests.helpers.parts import COMPOSITIONAL, MUSIQUE

EVIDENCE = (("Night Harbour", "director", "Vera Lindqvist"), ("Vera Lindqvist", "place of birth", "Kalmar"))
TWO_WIKI = Question("q", COMPOSITIONAL, ("Kalmar",), gold=("p1", "p0"), evidence=EVIDENCE)
HOTPOT = Question("q", COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1"))


@pytest.mark.parametrize(
    "question, hops",
    [
        (MUSIQUE, [OracleHop("Night Harbour director", "Vera Lindqvist", "p0"),
                   OracleHop("Where was Vera Lindqvist born?", "Kalmar", "p1")]),
        # evidence triples, in reasoning order
        (TWO_WIKI, [OracleHop("Night Harbour director", "Vera Lindqvist", "p0"),
                    OracleHop("Vera Lindqvist place of birth", "Kalmar", "p1")]),
        # titles alone
        (HOTPOT, [OracleHop("Night Harbour", "", "p0"), OracleHop("Vera Lindqvist", "", "p1")]),
        (Question("q", "Who?", ("x",)), []),
        # a qualifier is no part of the name
        (Question("q", "?", gold=("p6",), evidence=(("Night Harbour", "author", "Pia Holm"),)),
         [OracleHop("Night Harbour author", "Pia Holm", "p6")]),
        # gold that the index lacks or repeats
        (Question("q", "?", gold=("p1", "absent", "p1"), decomposition=(GoldHop("who?", "x", "absent"),)),
         [OracleHop("Vera Lindqvist", "", "p1")]),
        # a reference to a hop that is not there stays
        (Question("q", "?", decomposition=(GoldHop("Where is #3?", "x", "p0"), GoldHop("#0 or #1?", "y", "p1"))),
         [OracleHop("Where is #3?", "x", "p0"), OracleHop("#0 or x?", "y", "p1")]),
    ],
)  # fmt: skip
def test_hops(index: Index, question: Question, hops: list[OracleHop]) -> None:
    assert gold_hops(question, index) == hops


def test_ways_to_ask_say_more_each_time_and_nothing_twice(index: Index) -> None:
    hops = gold_hops(MUSIQUE, index)
    ways = [text for _, text in ways_to_ask(hops, ("night harbour  DIRECTOR",), index)]
    assert ways == [
        "Where was Vera Lindqvist born?",
        "Night Harbour director Vera Lindqvist",
        "Where was Vera Lindqvist born? Kalmar",
    ], "what was asked is left out; a title that a query names is not added to it"
    unnamed = OracleHop("Who wrote it?", "Pia Holm", "p0")
    assert [text for _, text in ways_to_ask([unnamed], (), index)] == [
        "Who wrote it?", "Who wrote it? Pia Holm", "Night Harbour Who wrote it? Pia Holm",
    ]  # fmt: skip
    assert ways_to_ask([], ("x",), index) == []
