"""Follow-ups as questions of their own: by rules, by a model, and where that fails."""

from __future__ import annotations

import asyncio

import pytest

from gnnrag.config import EvaluateConfig, load_config, to_plain
from gnnrag.index.index import Index
from gnnrag.roles.rewriter import FollowUp, OfflineRewriter, PromptedRewriter, Standalone
from gnnrag.run.evaluate import Pipeline
from gnnrag.run.rundir import deciding_settings
from gnnrag.session import Budget, Session
from gnnrag.text.followup import standalone
from tests.helpers.roles import ask

DIRECTED = ("Who directed Solaris?", "Andrei Tarkovsky")
BORN = ("Where was Andrei Tarkovsky born?", "Zavrazhye")
RELEASED = ("When was The Mirror of the Sea released?", "1975")


@pytest.mark.parametrize(
    "question, history, expected",
    [
        ("Where was he born?", [DIRECTED], "Where was Andrei Tarkovsky born?"),
        ("Who was his father?", [DIRECTED], "Who was Andrei Tarkovsky's father?"),
        ("Where did he die?", [DIRECTED, BORN], "Where did Andrei Tarkovsky die?"),
        ("Who lives there?", [DIRECTED, BORN], "Who lives Zavrazhye?"),
        ("When was it released?", [DIRECTED], "When was Solaris released?"),
        ("Who directed it?", [RELEASED], "Who directed The Mirror of the Sea?"),
        ("Which river is it on?", [("What is the capital of France?", "Paris")], "Which river is Paris on?"),
        ("Where did they live?", [DIRECTED], "Where did Andrei Tarkovsky live?"),
        ("Where was he born?", [DIRECTED, ("What else?", "")], "Where was Andrei Tarkovsky born?"),
        ("Where was he born?", [], "Where was he born?"),
        ("Where was he born?", [("?", "a b c d e f g h i"), ("", "")], "Where was he born?"),
        ("Where was Bach born?", [DIRECTED], "Where was Bach born?"),
    ],
)
def test_rules(question: str, history: list[tuple[str, str]], expected: str) -> None:
    assert standalone(question, history) == expected
    assert ask(OfflineRewriter(), FollowUp(question, tuple(history))).result == Standalone(expected)


@pytest.mark.parametrize(
    "reply, expected",
    [
        ("<think>he is T.</think>\nQuestion: Who is T.?", Standalone("Who is T.?")),
        *((wrong, Standalone("Where did Andrei Tarkovsky die?", ("rewriter_failed",))) for wrong in
          ("", "Her name\nwas", "x" * 401)),
    ],
)  # fmt: skip
def test_a_model_rewrites_or_the_rules_say(reply: str, expected: Standalone) -> None:
    asked = ask(PromptedRewriter(), FollowUp("Where did he die?", (DIRECTED, BORN)), reply)
    assert asked.result == expected
    assert "Question: Who directed Solaris?\nAnswer: Andrei Tarkovsky" in asked.shown()
    assert asked.shown().endswith("Where did he die?")


def test_in_a_pipeline(index: Index) -> None:
    dots = ["retriever=bm25", "method=single", "llm=scripted", "llm_cache=null"]
    rewriter = ["roles.rewriter=prompted", "llm.default=Who was Larisa?"]
    session = Session("q")
    pipeline = Pipeline(load_config(EvaluateConfig, None, [*dots, *rewriter]), index)
    assert asyncio.run(pipeline.standalone("And she?", [DIRECTED], session)) == "Who was Larisa?"
    assert session.events[-1] == {"event": "rewrite", "asked": "And she?", "text": "Who was Larisa?"}
    assert asyncio.run(pipeline.standalone("And she?", [], Session("q"))) == "And she?", "nothing is asked for that"

    session = Session("q", Budget(max_calls=0))
    assert asyncio.run(pipeline.standalone("And he?", [DIRECTED], session)) == "And he?"


def test_it_decides_no_run() -> None:
    plain = to_plain(load_config(EvaluateConfig))
    assert "rewriter" in plain["roles"] and "rewriter" not in deciding_settings(plain)["roles"]
