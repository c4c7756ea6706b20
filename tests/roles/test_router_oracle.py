from __future__ import annotations

import asyncio

from gnnrag.roles.base import RouterTask, Routing
from gnnrag.roles.router import OracleRouter, class_of
from gnnrag.session import Session
from gnnrag.types import GoldHop, Question
from tests.helpers.each import each


@each(
    "kind, name",
    [
        ("bridge", "multi_hop"), ("comparison", "multi_hop"), ("Compositional", "multi_hop"),
        ("inference", "multi_hop"), ("bridge_comparison", "multi_hop"), ("2hop", "multi_hop"), ("3hop1", "multi_hop"),
        ("1hop", "passage_local"), ("1-hop", "passage_local"), ("thematic", "thematic"),
        ("movie_to_director", "passage_local"), ("movie_to_director_to_movie", "multi_hop"),
        ("passage_local", "passage_local"),
    ],
)  # fmt: skip
def test_types_of_the_benchmarks(kind: str, name: str) -> None:
    assert class_of(Question("q", "?", type=kind)) == (name, True)


def test_a_type_that_says_nothing_is_judged_by_the_annotation() -> None:
    hops = (GoldHop("a?", "b"), GoldHop("c?", "d"))
    assert class_of(Question("q", "?", decomposition=hops)) == ("multi_hop", False)
    assert class_of(Question("q", "?", gold=("p1", "p2"))) == ("multi_hop", False)
    assert class_of(Question("q", "?", type="unanswerable")) == ("passage_local", False)


def test_the_role() -> None:
    def route(question: Question) -> Routing:
        return asyncio.run(OracleRouter()(RouterTask(question), Session("q")))

    assert route(Question("q", "?", type="thematic")) == Routing({"thematic": 1.0})
    assert route(Question("q", "?")) == Routing({"passage_local": 1.0}, flags=("type_unknown",))
