"""Thoughts and chain without a language model, on the small corpus of `tests/helpers/parts.py`."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.base import Chain, ChainTask, Thoughts, ThoughtsTask
from gnnrag.roles.chain import OfflineChain, OfflineChainConfig
from gnnrag.roles.thoughts import OfflineThoughts
from gnnrag.session import Session
from gnnrag.types import Question
from tests.helpers.parts import COMPARISON, COMPOSITIONAL


@pytest.fixture(scope="module")
def thoughts(index: Index) -> OfflineThoughts:
    return OfflineThoughts(index)


def think(role: OfflineThoughts, text: str, *shown: str, earlier: tuple[str, ...] = ()) -> Thoughts:
    session = Session("q")
    found = asyncio.run(role(ThoughtsTask(Question("q", text), role.index.lookup(shown), earlier=earlier), session))
    assert session.usage()["llm_calls"] == 0
    return found


def both(thoughts: Thoughts) -> str:
    return f"{thoughts.fast} {thoughts.slow}".casefold()


def chain_of(index: Index, text: str, *shown: str, config: OfflineChainConfig | None = None) -> Chain:
    task = ChainTask(Question("q", text), index.lookup(shown), ("a thought",))
    return asyncio.run(OfflineChain(index, config)(task, Session("q")))


def test_it_asks_for_what_the_question_names_and_the_pool_lacks(thoughts: OfflineThoughts) -> None:
    found = think(thoughts, COMPARISON, "p0", "p1")
    assert found.fast is not None and "copper road" in found.fast.casefold() and not found.sufficient


def test_it_asks_for_the_bridge(thoughts: OfflineThoughts) -> None:
    assert "vera lindqvist" in both(think(thoughts, COMPOSITIONAL, "p0", "p7"))


def test_it_does_not_ask_for_what_is_shown(thoughts: OfflineThoughts) -> None:
    asked = both(think(thoughts, COMPOSITIONAL, "p0", "p1"))
    assert "vera lindqvist" not in asked


def test_the_two_thoughts_differ(thoughts: OfflineThoughts) -> None:
    for shown in (("p7",), ("p0",), ("p0", "p1"), ("p3",)):
        found = think(thoughts, COMPARISON, *shown)
        assert found.slow is None or found.slow.casefold() != (found.fast or "").casefold()


def test_it_repeats_no_search(thoughts: OfflineThoughts) -> None:
    first = think(thoughts, COMPOSITIONAL, "p0")
    again = think(thoughts, COMPOSITIONAL, "p0", earlier=tuple(t for t in (first.fast, first.slow) if t))
    assert first.fast is not None and again.fast != first.fast


def test_nothing_missing(thoughts: OfflineThoughts) -> None:
    found = think(thoughts, COMPOSITIONAL, *(f"p{i}" for i in range(8)))
    assert (found.fast, found.slow, found.flags) == (None, None, ("nothing_missing",)) and found.sufficient


def test_a_question_without_names(thoughts: OfflineThoughts) -> None:
    """It is never sure that nothing is missing; with no passage at all it has nothing to ask."""
    found = think(thoughts, "which food is prepared with dry heat")
    assert found.fast is None and not found.sufficient
    assert think(thoughts, "who made the film that was shot in the north", "p0").fast


def test_the_same_task_gives_the_same_thoughts(index: Index, thoughts: OfflineThoughts) -> None:
    other = OfflineThoughts(index)
    for text in (COMPOSITIONAL, COMPARISON):
        assert think(thoughts, text, "p0", "p4") == think(other, text, "p0", "p4")


def test_the_chain_names_anchors_and_bridges_with_their_numbers(index: Index) -> None:
    chain = chain_of(index, COMPOSITIONAL, "p7", "p0")
    assert "Vera Lindqvist" in chain.bridges and chain.flags == ()
    lines = chain.text.casefold().splitlines()
    assert "night harbour" in lines[0] and "[2]" in lines[0]
    assert any("vera lindqvist" in line and "[missing]" in line for line in lines)
    assert "[1]" in chain_of(index, COMPOSITIONAL, "p1").text, "what is shown has a number"


def test_the_chain_keeps_few_bridges(index: Index) -> None:
    assert len(chain_of(index, COMPARISON, config=OfflineChainConfig(max_bridges=1)).bridges) <= 1


def test_a_chain_without_anchors(index: Index) -> None:
    assert chain_of(index, "which food is prepared with dry heat", "p7").flags == ("no_anchor",)
