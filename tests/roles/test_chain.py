"""The reasoning chain: of a model's reply, of anchors and bridges, of the annotation."""

from __future__ import annotations

import json

import pytest

from gnnrag.index.index import Index
from gnnrag.roles.base import Chain, ChainTask
from gnnrag.roles.chain import OfflineChain, PromptedChain, parse_chain
from gnnrag.roles.oracle import OracleChain
from gnnrag.roles.parsing import MalformedError
from gnnrag.types import Passage, Question
from tests.helpers.parts import COMPARISON, COMPOSITIONAL, MUSIQUE
from tests.helpers.roles import ask

TASK = ChainTask(Question("q", "Q is the question?"), (Passage("p", "T", "text"),), ("A?", "B?"))


# ------------------------------------------------------------------------------------------------------ prompted
@pytest.mark.parametrize(
    "reply, bridges",
    [
        ("Y - directed by - X [1]\nBridge entities: X; Y", ("X", "Y")),
        ("Y - r - X\n**Bridge entities:** Paris, Texas; X", ("Paris, Texas", "X")),
        ("Bridging entity: X", ("X",)),
        ("Bridge entities: X, Y, X", ("X", "Y")),
        ("Bridge entities: none", ()),
        ("Y - r - X [MISSING]", ()),
    ],
)
def test_bridges_of_a_reply(reply: str, bridges: tuple[str, ...]) -> None:
    assert parse_chain(f"Y - r - X [1]\n{reply}").bridges == bridges


def test_a_reply_in_json_gives_its_facts_a_line_each() -> None:
    rows = [("Y", "r", "X", 1), ("X", "s", "?", 0), ("Y", "r", "X", 1)]
    facts = [dict(zip(("subject", "relation", "object", "passage"), row, strict=True)) for row in rows]
    assert parse_chain(json.dumps({"facts": facts, "bridges": ["X"]})) == Chain(
        "Y - r - X [1]\nX - s - ? [MISSING]", ("X",)
    )
    with pytest.raises(MalformedError):
        parse_chain('{"facts": [], "bridges": ["X"]}')


def test_text_is_passed_on_and_the_prompt_shows_thoughts_and_passages() -> None:
    asked = ask(PromptedChain(), TASK, "<think>x</think>\nY - r - X [1]\nX - s - ? [MISSING]\n")
    assert asked.result == Chain("Y - r - X [1]\nX - s - ? [MISSING]")
    assert "- A?\n- B?" in asked.shown() and '<passage id="1" title="T">' in asked.shown()


@pytest.mark.parametrize("reply", ["Q is the question?", "Thought:", "The answer is:"])
def test_thoughts_stand_in_for_a_chain_that_says_nothing(reply: str) -> None:
    asked = ask(PromptedChain(), TASK, reply)
    assert asked.result == Chain("A?\nB?", flags=("chain_failed",))
    assert asked.counts["no_answer"] == asked.counts["parse_failure"] == 2
    bare = ask(PromptedChain(), ChainTask(Question("q", "Q?"), ()), reply).result
    assert bare.text == "Q?", "never empty: the verifier is not skipped silently"


# ------------------------------------------------------------------------------------------------------- offline
def chain_of(index: Index, text: str, *shown: str, config: OfflineChain | None = None) -> Chain:
    task = ChainTask(Question("q", text), index.lookup(shown), ("a thought",))
    return ask(config or OfflineChain(), task, index=index).result


def test_offline_names_anchors_and_bridges_with_their_numbers(index: Index) -> None:
    chain = chain_of(index, COMPOSITIONAL, "p7", "p0")
    assert "Vera Lindqvist" in chain.bridges and chain.flags == ()
    lines = chain.text.casefold().splitlines()
    assert "night harbour" in lines[0] and "[2]" in lines[0]
    assert any("vera lindqvist" in line and "[missing]" in line for line in lines)
    assert "[1]" in chain_of(index, COMPOSITIONAL, "p1").text, "what is shown has a number"
    two = ("p0", "p3")
    assert len(chain_of(index, COMPARISON, *two).bridges) > 1
    assert len(chain_of(index, COMPARISON, *two, config=OfflineChain(max_bridges=1)).bridges) == 1
    assert chain_of(index, "which food is prepared with dry heat", "p7").flags == ("no_anchor",)


# -------------------------------------------------------------------------------------------------------- oracle
def test_oracle(index: Index) -> None:
    chain = ask(OracleChain(), ChainTask(MUSIQUE, index.lookup(["p7", "p0"])), index=index).result
    assert chain.text.splitlines() == [
        "Night Harbour director - Vera Lindqvist [2]",
        "Where was Vera Lindqvist born? - Kalmar [MISSING]",
    ]
    assert chain.bridges == ("Vera Lindqvist",)
    nothing = ChainTask(Question("q", "Who?", ("x",)), ())
    assert ask(OracleChain(), nothing, index=index).result.text == ""
