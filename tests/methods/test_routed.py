"""Routing by the class of a question: rules, escalation, settings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gnnrag.errors import ConfigError
from gnnrag.methods.routed import RouteConfig, Routed, read_route
from gnnrag.parts import set_up
from gnnrag.roles.base import Answer, ReaderTask, Role, RouterTask, Routing, Thoughts
from gnnrag.run.loop import Loop
from gnnrag.session import Session
from gnnrag.types import Prediction, Question
from tests.helpers.parts import ToyIndex, ToyRetriever, scripted_roles

FLAT, GRAPH, OWN = {"Q": {"f1": 0.9, "f2": 0.8}}, {"Q": {"g1": 0.9}, "f": {"g2": 0.8}}, {"Q": {"o1": 0.9}}
# multihop in the place of bdtr: one query a round, so that what is asked can be told at a glance.
CONFIG = Routed(multi_hop=RouteConfig({"name": "multihop", "max_rounds": 1}, "chg"))


class Router(Role[RouterTask, Routing]):
    """Says what it was given, and counts."""

    def __init__(self, multi_hop: float, thematic: float = 0.0, flags: tuple[str, ...] = ()) -> None:
        rest = 1.0 - multi_hop - thematic
        self.routing = Routing({"passage_local": rest, "multi_hop": multi_hop, "thematic": thematic}, flags=flags)
        self.asked = 0

    async def __call__(self, task: RouterTask, session: Session) -> Routing:
        self.asked += 1
        return self.routing


class Found:
    """What a run left behind."""

    def __init__(self, router: Any, answers: Any, config: Routed, tables: Any) -> None:
        roles: dict[str, Any] = scripted_roles([Thoughts("f", None)], reader=answers)
        self.roles = {**roles, "router": router}
        self.flat, self.graph, self.own = (ToyRetriever(t) for t in tables)
        method = set_up(replace(config), index=ToyIndex(), roles=self.roles)
        others = {"hybrid": self.flat, "chg": self.graph}
        loop = Loop(method, self.own, self.roles["reader"], ToyIndex().lookup, others=others)
        self.prediction, self.session = asyncio.run(loop.answer(Question("q", "Q", ("yes",))))

    @property
    def asked(self) -> list[list[str]]:
        return [r.asked for r in (self.flat, self.graph, self.own)]

    def event(self, name: str) -> dict[str, Any]:
        (found,) = [e for e in self.session.events if e["event"] == name]
        return found


SURE, UNSURE = Answer("yes", confidence=0.9), Answer("maybe", confidence=0.2)


def run(router: Any, answers: Any = (SURE,), config: Routed = CONFIG, tables: Any = (FLAT, GRAPH, OWN)) -> Found:
    return Found(router, answers, config, tables)


def counts(prediction: Prediction) -> dict[str, int]:
    return dict(prediction.usage["flags"])


# ------------------------------------------------------------------------------------------------------- the rules
def test_each_class_reaches_its_own_retriever() -> None:
    local, multi, whole = run(Router(0.1)), run(Router(0.7)), run(Router(0.2, 0.7))
    assert local.asked == [["Q"], [], []] and local.prediction.ranking == ("f1", "f2")
    assert multi.asked == [[], ["Q", "f"], []] and multi.prediction.ranking == ("g1", "g2")
    assert whole.asked == [[], [], ["Q"]] and whole.prediction.ranking == ("o1",)
    for found, name in ((local, "passage_local"), (multi, "multi_hop"), (whole, "thematic")):
        event = found.event("route")
        assert event["route"] == name and counts(found.prediction) == {f"route_{name}": 1}
        assert sum(event["probabilities"].values()) == pytest.approx(1.0)
    assert [e["retriever"] for e in multi.session.events if e["event"] == "query"] == ["chg", "chg"]


@pytest.mark.parametrize(
    "multi_hop, thematic, settings, route",
    [
        (0.5, 0.5, {}, "multi_hop"),
        (0.49, 0.51, {}, "passage_local"),
        (0.4, 0.6, {}, "thematic"),
        (0.4, 0.6, {"thematic_threshold": 0.61, "multi_hop_threshold": 0.4}, "multi_hop"),
        (0.6, 0.9, {"thematic_threshold": 1.0}, "multi_hop"),
    ],
)
def test_the_first_rule_that_holds(multi_hop: float, thematic: float, settings: dict[str, Any], route: str) -> None:
    method = replace(CONFIG, **settings)
    assert method.decide(Routing({"multi_hop": multi_hop, "thematic": thematic})) == route


# ----------------------------------------------------------------------------------------------------- escalation
def test_sufficient_evidence_is_read_once() -> None:
    found = run(Router(0.1))
    assert found.prediction.answer == "yes" and len(found.roles["reader"].tasks) == 1
    assert found.event("answer")["confidence"] == 0.9, "as the loop would have recorded it"
    assert found.event("sufficiency") == {"event": "sufficiency", "value": 0.9, "enough": True}
    assert found.prediction.rounds == 0
    assert run(Router(0.1), [Answer("yes")]).asked[1] == [], "readers that are language models state no confidence"


@pytest.mark.parametrize("first", [UNSURE, Answer("")])
def test_insufficient_evidence_escalates_once(first: Answer) -> None:
    """The reader goes on abstaining: nothing sends the question anywhere again."""
    found = run(Router(0.1), [first, Answer("")])
    assert found.asked == [["Q"], ["Q", "f"], []] and found.prediction.ranking == ("g1", "g2")
    assert counts(found.prediction) == {"route_passage_local": 1, "escalated": 1}
    assert len(found.roles["reader"].tasks) == 2 and found.prediction.usage["retriever_calls"] == 3
    assert found.event("sufficiency")["enough"] is False, "exactly one such event"
    assert [p.id for p in found.roles["reader"].tasks[1].passages] == ["g1", "g2"]


def test_other_routes_never_escalate() -> None:
    assert run(Router(0.2, 0.7), [Answer("")]).asked == [[], [], ["Q"]]
    assert counts(run(Router(0.9), [Answer("")]).prediction) == {"route_multi_hop": 1}


def test_escalation_can_be_switched_off() -> None:
    found = run(Router(0.1), [Answer("")], replace(CONFIG, escalate=False))
    assert found.asked == [["Q"], [], []] and len(found.roles["reader"].tasks) == 1


def test_flat_evidence_stands_where_the_other_route_finds_nothing() -> None:
    found = run(Router(0.1), [UNSURE, UNSURE], tables=(FLAT, {}, OWN))
    assert found.prediction.ranking == ("f1", "f2") and found.prediction.answer == "maybe"
    assert counts(found.prediction)["escalated"] == 1


def test_a_flat_method_that_answers_by_itself() -> None:
    """closed_book retrieves nothing and gives no answer: the reader is asked, without passages."""
    config = replace(CONFIG, passage_local=RouteConfig("closed_book"))
    found = run(Router(0.1), [SURE], config)
    assert found.asked == [[], [], []] and found.prediction.answer == "yes"
    assert isinstance(found.roles["reader"].tasks[0], ReaderTask) and found.roles["reader"].tasks[0].passages == ()


def test_names_of_retrievers() -> None:
    """Equal settings share a retriever, others get a name of their own; no retriever is the run's."""
    plain, same = RouteConfig("single", "dense"), RouteConfig("bdtr", {"name": "dense", "search": "auto"})
    other = RouteConfig("single", {"name": "dense", "search": "flat"})
    assert read_route(plain, "r").name == read_route(same, "r").name == "dense"
    assert read_route(other, "r").name != "dense" and str(read_route(other, "r").name).startswith("dense-")
    assert read_route(RouteConfig("single"), "r").name is None


def test_a_routing_method_is_no_route() -> None:
    with pytest.raises(ConfigError, match=r"r\.method=routed: a routing method cannot be a route"):
        read_route(RouteConfig("routed"), "r")
