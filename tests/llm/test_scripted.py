from __future__ import annotations

import asyncio

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.base import Message, Reply, Request
from gnnrag.llm.scripted import ScriptedBackend


def ask(llm: ScriptedBackend, text: str) -> Reply:
    return asyncio.run(llm.generate(Request((Message("system", "sys"), Message("user", text)))))


def test_rules_in_order_lists_functions_and_exceptions() -> None:
    llm = ScriptedBackend.of(
        (r"sys.*\bone\b", ["1st", "2nd"]),
        (lambda r: r.messages[-1].content.startswith("call"), lambda r: r.messages[-1].content.upper()),
        ("boom", LLMError("boom")),
        ("reply", Reply("r", "length", 1, 2)),
        default="else",
    )
    assert [ask(llm, "one").text for _ in range(3)] == ["1st", "2nd", "2nd"]
    assert ask(llm, "call me").text == "CALL ME"
    assert ask(llm, "reply") == Reply("r", "length", 1, 2)
    assert ask(llm, "?") == Reply("else", "stop", 2, 1, model="scripted")
    with pytest.raises(LLMError, match="boom"):
        ask(llm, "boom")
    assert [r.messages[-1].content for r in llm.requests[:2]] == ["one", "one"]
