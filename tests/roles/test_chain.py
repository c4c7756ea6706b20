"""The reasoning chain: of a model's reply, of anchors and bridges, of the annotation."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.errors import LLMError
from gnnrag.index.index import Index
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import ready
from gnnrag.roles.base import Chain, ChainTask
from gnnrag.roles.chain import OfflineChain, OracleChain, PromptedChain, parse_chain
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session
from gnnrag.types import Passage, Question
from tests.helpers.each import each
from tests.helpers.parts import COMPARISON, COMPOSITIONAL, MUSIQUE

TASK = ChainTask(Question("q", "Q is the question?"), (Passage("p", "T", "text"),), ("A?", "B?"))


# ------------------------------------------------------------------------------------------------------ prompted
def run(llm: ScriptedBackend, task: ChainTask = TASK) -> tuple[Chain, Session]:
    session = Session("q")
    return asyncio.run(ready(PromptedChain(), backend=llm)(task, session)), session


def test_bridges_of_a_reply() -> None:
    expected = {
        "Y - directed by - X [1]\nBridge entities: X; Y": ("X", "Y"),
        "Y - r - X\n**Bridge entities:** Paris, Texas; X": ("Paris, Texas", "X"),
        "Bridging entity: X": ("X",),
        "Bridge entities: X, Y, X": ("X", "Y"),
        "Bridge entities: none": (),
        "Y - r - X [MISSING]": (),
    }
    assert {reply: parse_chain(f"Y - r - X [1]\n{reply}").bridges for reply in expected} == expected


def test_text_is_passed_on() -> None:
    chain = parse_chain("<think>x</think>\nY - r - X [1]\nX - s - ? [MISSING]\n")
    assert chain.text == "Y - r - X [1]\nX - s - ? [MISSING]"
    with pytest.raises(MalformedError):
        parse_chain("<think>only this")


@each(
    "reply",
    ["Reasoning chain:", "Q is the question?", "Bridge entities: X; Y", "No information.", "[MISSING]",
     "The answer is:"],
)  # fmt: skip
def test_a_chain_without_a_fact_is_none(reply: str) -> None:
    chain, session = run(ScriptedBackend.of((".", reply)))
    assert chain == Chain("A?\nB?", flags=("chain_failed",))
    assert session.by_role["chain"]["no_fact"] == session.by_role["chain"]["parse_failure"] == 2


def test_the_prompt_shows_thoughts_and_passages() -> None:
    llm = ScriptedBackend.of((".", "Y - r - X"))
    chain, session = run(llm)
    last = llm.requests[0].messages[-1].content
    assert chain == Chain("Y - r - X") and "- A?\n- B?" in last and '<passage id="1" title="T">' in last
    assert session.by_role["chain"]["calls"] == 1


@each("answer", [LLMError("down"), "", "<think>"])
def test_thoughts_stand_in_for_a_chain_that_failed(answer) -> None:
    assert run(ScriptedBackend.of((".", answer)))[0] == Chain("A?\nB?", flags=("chain_failed",))
    chain, _ = run(ScriptedBackend.of((".", answer)), ChainTask(Question("q", "Q?"), ()))
    assert chain.text == "Q?", "never empty: the verifier is not skipped silently"


# ------------------------------------------------------------------------------------------------------- offline
def chain_of(index: Index, text: str, *shown: str, config: OfflineChain | None = None) -> Chain:
    task = ChainTask(Question("q", text), index.lookup(shown), ("a thought",))
    return asyncio.run(ready(config or OfflineChain(), index=index)(task, Session("q")))


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
    chain = asyncio.run(ready(OracleChain(), index=index)(ChainTask(MUSIQUE, index.lookup(["p7", "p0"])), Session("q")))
    assert chain.text.splitlines() == [
        "Night Harbour director - Vera Lindqvist [2]",
        "Where was Vera Lindqvist born? - Kalmar [MISSING]",
    ]
    assert chain.bridges == ("Vera Lindqvist",)
    nothing = ChainTask(Question("q", "Who?", ("x",)), ())
    assert asyncio.run(ready(OracleChain(), index=index)(nothing, Session("q"))).text == ""
