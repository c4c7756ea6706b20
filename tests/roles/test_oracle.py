"""The oracle roles, and the gold annotation they read, whatever form a benchmark gives it."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.agent import OracleAgent
from gnnrag.roles.base import (
    ChainTask,
    MoveTask,
    NextMove,
    ReasonTask,
    Step,
    Thoughts,
    ThoughtsTask,
    Turn,
    Verdict,
    VerifierTask,
)
from gnnrag.roles.chain import OracleChain
from gnnrag.roles.gold import OracleHop, gold_hops, ways_to_ask
from gnnrag.roles.reasoner import OracleReasoner, OracleReasonerConfig
from gnnrag.roles.thoughts import OracleThoughts
from gnnrag.roles.verifier import OracleVerifier
from gnnrag.session import Session
from gnnrag.types import GoldHop, Question
from tests.helpers.parts import small_index

MUSIQUE = Question(
    "q", "Where was the director of Night Harbour born?", ("Kalmar",), gold=("p0", "p1"),
    decomposition=(
        GoldHop("Night Harbour >> director", "Vera Lindqvist", "p0"), GoldHop("Where was #1 born?", "Kalmar", "p1")
    ),
)  # fmt: skip
TWO_WIKI = Question(
    "q", "Where was the director of Night Harbour born?", ("Kalmar",), gold=("p1", "p0"),
    evidence=(("Night Harbour", "director", "Vera Lindqvist"), ("Vera Lindqvist", "place of birth", "Kalmar")),
)  # fmt: skip
HOTPOT = Question("q", "Where was the director of Night Harbour born?", ("Kalmar",), gold=("p0", "p1"))
NO_GOLD = Question("q", "Who?", ("x",))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(tmp_path_factory.mktemp("index"))


def test_hops_of_a_decomposition(index: Index) -> None:
    assert gold_hops(MUSIQUE, index) == [
        OracleHop("Night Harbour director", "Vera Lindqvist", "p0"),
        OracleHop("Where was Vera Lindqvist born?", "Kalmar", "p1"),
    ]


def test_hops_of_evidence_triples_are_in_reasoning_order(index: Index) -> None:
    assert gold_hops(TWO_WIKI, index) == [
        OracleHop("Night Harbour director", "Vera Lindqvist", "p0"),
        OracleHop("Vera Lindqvist place of birth", "Kalmar", "p1"),
    ]


def test_hops_of_titles_alone(index: Index) -> None:
    assert gold_hops(HOTPOT, index) == [OracleHop("Night Harbour", "", "p0"), OracleHop("Vera Lindqvist", "", "p1")]
    assert gold_hops(NO_GOLD, index) == []


def test_a_qualifier_is_no_part_of_the_name(index: Index) -> None:
    question = Question("q", "?", gold=("p6",), evidence=(("Night Harbour", "author", "Pia Holm"),))
    assert gold_hops(question, index) == [OracleHop("Night Harbour author", "Pia Holm", "p6")]


def test_gold_that_the_index_lacks_or_repeats(index: Index) -> None:
    question = Question("q", "?", gold=("p1", "absent", "p1"), decomposition=(GoldHop("who?", "x", "absent"),))
    assert [h.gold for h in gold_hops(question, index)] == ["p1"]


def test_a_reference_to_a_hop_that_is_not_there_stays(index: Index) -> None:
    question = Question("q", "?", decomposition=(GoldHop("Where is #3?", "x", "p0"), GoldHop("#0 or #1?", "y", "p1")))
    assert [h.query for h in gold_hops(question, index)] == ["Where is #3?", "#0 or x?"]


def think(index: Index, question: Question, *shown: str, earlier: tuple[str, ...] = ()) -> Thoughts:
    task = ThoughtsTask(question, index.lookup(shown), earlier=earlier)
    return asyncio.run(OracleThoughts(index)(task, Session("q")))


def test_thoughts_ask_for_the_hops_that_are_missing(index: Index) -> None:
    assert think(index, MUSIQUE, "p7") == Thoughts("Night Harbour director", "Where was Vera Lindqvist born?")
    assert think(index, MUSIQUE, "p0") == Thoughts(
        "Where was Vera Lindqvist born?", "Where was Vera Lindqvist born? Kalmar"
    )
    assert think(index, HOTPOT, "p0") == Thoughts("Vera Lindqvist", None)


def test_thoughts_skip_what_was_asked_in_vain(index: Index) -> None:
    first = think(index, MUSIQUE)
    assert first.fast is not None
    assert think(index, MUSIQUE, earlier=(first.fast,)).fast == "Where was Vera Lindqvist born?"


def test_thoughts_know_when_to_stop(index: Index) -> None:
    done = Thoughts(sufficient=True, flags=("nothing_missing",))
    assert think(index, MUSIQUE, "p1", "p0") == done and think(index, NO_GOLD) == done


def test_chain(index: Index) -> None:
    chain = asyncio.run(OracleChain(index)(ChainTask(MUSIQUE, index.lookup(["p7", "p0"])), Session("q")))
    assert chain.text.splitlines() == [
        "Night Harbour director - Vera Lindqvist [2]",
        "Where was Vera Lindqvist born? - Kalmar [MISSING]",
    ]
    assert chain.bridges == ("Vera Lindqvist",)
    assert asyncio.run(OracleChain(index)(ChainTask(NO_GOLD, ()), Session("q"))).text == ""


def test_verifier(index: Index) -> None:
    chain = asyncio.run(OracleChain(index)(ChainTask(MUSIQUE, ()), Session("q")))
    task = VerifierTask(MUSIQUE, chain, index.lookup(["p1", "p5", "p0"]))
    assert asyncio.run(OracleVerifier(index)(task, Session("q"))) == Verdict(("p1", "p0"))
    task = VerifierTask(NO_GOLD, chain, index.lookup(["p1"]))
    assert asyncio.run(OracleVerifier(index)(task, Session("q"))) == Verdict()


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


def test_thoughts_end_when_every_way_was_asked(index: Index) -> None:
    asked = tuple(text for _, text in ways_to_ask(gold_hops(MUSIQUE, index), (), index))
    assert think(index, MUSIQUE, earlier=asked) == Thoughts(flags=("asked_in_vain",))


def reason(index: Index, *shown: str, steps: tuple[str, ...] = (), read: int = 5) -> Step:
    task = ReasonTask(MUSIQUE, index.lookup(shown), steps, "ircot")
    return asyncio.run(OracleReasoner(index, OracleReasonerConfig(read))(task, Session("q")))


def test_steps_ask_for_what_the_reader_would_not_see(index: Index) -> None:
    assert reason(index, "p0", "p7", "p1", read=3).done
    assert reason(index, "p0", "p7", "p1", read=2).query == "Where was Vera Lindqvist born?"
    again = reason(index, "p0", "p7", "p1", read=2, steps=("Where was Vera Lindqvist born?",))
    assert again.query == again.text == "Where was Vera Lindqvist born? Kalmar"
    given_up = reason(index, "p0", steps=("Where was Vera Lindqvist born?", "Where was Vera Lindqvist born? Kalmar"))
    assert given_up == Step(done=True, flags=("asked_in_vain",))


def move(index: Index, *turns: tuple[str, tuple[str, ...]], may_search: bool = True) -> NextMove:
    made = tuple(Turn("", "search", query, index.lookup(found)) for query, found in turns)
    return asyncio.run(OracleAgent(index)(MoveTask(MUSIQUE, made, "react", may_search), Session("q")))


def test_an_agent_asks_for_what_no_search_showed_then_for_what_none_put_first(index: Index) -> None:
    first, second = "Night Harbour director", "Where was Vera Lindqvist born?"
    assert move(index).argument == first
    late = (first, ("p7", "p0"))  # shown, but not first
    assert move(index, late).argument == second
    assert move(index, late, (second, ("p1",))).argument == "Night Harbour director Vera Lindqvist"
    assert move(index, (first, ("p0",)), (second, ("p1",))) == NextMove("finish", "Kalmar")
    assert move(index, late, may_search=False) == NextMove("finish", "Kalmar")
