from __future__ import annotations

import asyncio

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.base import Chain, ChainTask
from gnnrag.roles.chain import PromptedChain, parse_chain
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session
from gnnrag.types import Passage, Question
from tests.helpers.each import each
from tests.helpers.prompts import uncoded

TASK = ChainTask(Question("q", "Q?"), (Passage("p", "T", "text"),), ("A?", "B?"))


def run(llm: ScriptedBackend, task: ChainTask = TASK) -> tuple[Chain, Session]:
    session = Session("q")
    return asyncio.run(PromptedChain(llm)(task, session)), session


@each(
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
def test_bridges(reply: str, bridges: tuple[str, ...]) -> None:
    assert parse_chain(f"Y - r - X [1]\n{reply}").bridges == bridges


def test_text_is_passed_on() -> None:
    assert (
        parse_chain("<think>x</think>\nY - r - X [1]\nX - s - ? [MISSING]\n").text
        == "Y - r - X [1]\nX - s - ? [MISSING]"
    )
    with pytest.raises(MalformedError):
        parse_chain("<think>only this")


@each(
    "reply",
    [
        "Reasoning chain:",
        "Q is the question?",
        "Bridge entities: X; Y",
        "No information.",
        "[MISSING]",
        "The answer is:",
    ],
)
def test_a_chain_without_a_fact_is_none(reply: str) -> None:
    llm, session = ScriptedBackend.of((".", reply)), Session("q")
    task = ChainTask(Question("q", "Q is the question?"), (), ("A?",))
    chain = asyncio.run(PromptedChain(llm)(task, session))
    assert chain == Chain("A?", flags=("chain_failed",))
    assert session.by_role["chain"]["no_fact"] == session.by_role["chain"]["parse_failure"] == 2


def test_the_prompt_shows_thoughts_and_passages() -> None:
    llm = ScriptedBackend.of((".", "Y - r - X"))
    chain, session = run(llm)
    last = uncoded(llm.requests[0].messages[-1].content)
    assert chain == Chain("Y - r - X") and "- A?\n- B?" in last and '<passage id="1" title="T">' in last
    assert llm.requests[0].max_tokens == 256 and session.by_role["chain"]["calls"] == 1


@each("answer", [LLMError("down"), "", "<think>"])
def test_thoughts_stand_in_for_a_chain_that_failed(answer) -> None:
    chain, _ = run(ScriptedBackend.of((".", answer)))
    assert chain == Chain("A?\nB?", flags=("chain_failed",))
    chain, _ = run(ScriptedBackend.of((".", answer)), ChainTask(TASK.question, ()))
    assert chain.text == "Q?", "never empty: the verifier is not skipped silently"
