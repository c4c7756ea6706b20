"""GraphSearch's prompted roles: what they make of good, malformed, empty and refusing replies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.graphsearch.roles import (
    Check,
    ContextTask,
    Draft,
    Expansion,
    PromptedDrafter,
    PromptedEvidenceCheck,
    PromptedExpander,
    PromptedGrounder,
    PromptedRefiner,
    PromptedSubAnswerer,
    SubQueryTask,
    TextResult,
    View,
)
from gnnrag.roles.base import DecomposeTask, Decomposition
from gnnrag.roles.decomposer import PromptedDecomposer
from gnnrag.session import Session
from gnnrag.text.subqueries import HistoryItem
from gnnrag.types import Hit, Passage, Question
from tests.helpers.search import opened

QUESTION = Question("q", "How long is the river?")
REFUSAL = "I'm sorry, I can't help with that."
VIEW = View((Passage("P3", "Brannock", "It is 212 km long."), Passage("P2", "", "Born in Esker Vale.")))
FACTS = View(facts=(Hit("e4", 1.0, 1, "relation", "Brannock - passes - Esker Vale", ("P3",)),))
HISTORY = (HistoryItem(1, "Who?", "Who?", refined="Tolvik made it", answer="Tolvik"),)
TRIPLES = '[("Entity#1","born in","Entity#2")]'


def ask(cls: Any, task: Any, *replies: Any) -> tuple[Any, Session, ScriptedBackend]:
    backend, session = ScriptedBackend.of((".", list(replies))), Session("q")
    return asyncio.run(opened(cls, backend=backend)(task, session)), session, backend


def shown(backend: ScriptedBackend) -> str:
    return backend.requests[0].messages[-1].content


GROUND = SubQueryTask(QUESTION, "semantic", "Where was #1 born?", history=HISTORY, plan="the plan")
GROUND_TRIPLES = SubQueryTask(QUESTION, "relational", TRIPLES, history=HISTORY, plan="the plan")
REFINE = SubQueryTask(QUESTION, "semantic", "How long?", VIEW)
REFINE_TRIPLES = SubQueryTask(QUESTION, "relational", TRIPLES, FACTS)
ANSWER = SubQueryTask(QUESTION, "semantic", "How long?", VIEW, HISTORY, context="the context")
DRAFT, FINAL = ContextTask(QUESTION, "history"), ContextTask(QUESTION, "history", answer_line=True)
CHECK = ContextTask(QUESTION, "history", (), "draft")
EXPAND = replace(CHECK, analysis="analysis")
RAW = replace(EXPAND, released=True)
LINKED, TRIPLE_FORM = DecomposeTask(QUESTION, 12, "linked"), DecomposeTask(QUESTION, 12, "triples")

LONG = " ".join(map(str, range(200)))  # no loop

CASES: list[tuple[Any, Any, str, Any]] = [
    (PromptedDecomposer, LINKED, '{"Sub-query 1": "a?"}', Decomposition(("a?",), '{"Sub-query 1": "a?"}')),
    (PromptedDecomposer, LINKED, REFUSAL, Decomposition(flags=("decomposer_failed",))),
    (PromptedDecomposer, TRIPLE_FORM, '{"Sub-query 1": [("a","b","c"), ("d")]}',
     Decomposition(('[("a","b","c")]',), '{"Sub-query 1": [("a","b","c"), ("d")]}', ("malformed_triple",))),
    (PromptedGrounder, GROUND, " Where was\nTolvik born? ", TextResult("Where was Tolvik born?")),
    (PromptedGrounder, GROUND, "", TextResult(GROUND.query, (), ("grounder_failed",))),
    (PromptedGrounder, GROUND, LONG, TextResult(GROUND.query, (), ("grounding_kept",))),
    (PromptedGrounder, GROUND_TRIPLES, '[["Tolvik", "born in", "Entity#2"]]',
     TextResult('[("Tolvik","born in","Entity#2")]')),
    (PromptedGrounder, GROUND_TRIPLES, "Tolvik was born there", TextResult(TRIPLES, (), ("grounder_failed",))),
    (PromptedGrounder, GROUND_TRIPLES, f'[("{LONG}","b","c")]', TextResult(TRIPLES, (), ("grounding_kept",))),
    (PromptedRefiner, REFINE, "It is long [1] and [9].", TextResult("It is long [1] and [9].", ("P3",))),
    (PromptedRefiner, REFINE, "", TextResult(flags=("refiner_failed",))),
    (PromptedRefiner, REFINE_TRIPLES, '[("a","b","c")] [1]', TextResult('[("a","b","c")] [1]')),
    (PromptedRefiner, REFINE_TRIPLES, "", TextResult(flags=("refiner_failed",))),
    (PromptedSubAnswerer, ANSWER, " 212 km ", TextResult("212 km")),
    (PromptedSubAnswerer, ANSWER, "Not in the context.", TextResult("Not in the context.")),
    (PromptedSubAnswerer, ANSWER, "", TextResult(flags=("sub_answerer_failed",))),
    (PromptedDrafter, DRAFT, "1. so\n2. it is", Draft("1. so\n2. it is", "1. so\n2. it is")),
    (PromptedDrafter, DRAFT, "", Draft(flags=("drafter_failed",))),
    (PromptedDrafter, FINAL, "1. so\n**Answer:** 212 km", Draft("1. so\n**Answer:** 212 km", "212 km")),
    (PromptedDrafter, FINAL, "", Draft(flags=("drafter_failed",))),
    (PromptedDrafter, FINAL, "1. so\nAnswer:", Draft(flags=("drafter_failed",))),
    (PromptedEvidenceCheck, CHECK, "Closed. **Yes**", Check("accept", "Closed. **Yes**")),
    (PromptedEvidenceCheck, CHECK, "Gaps. No.", Check("reject", "Gaps. No.")),
    (PromptedEvidenceCheck, CHECK, "Hard to say.", Check("unknown", "Hard to say.", ("evidence_check_failed",))),
    (PromptedEvidenceCheck, CHECK, "", Check("unknown", "", ("evidence_check_failed",))),
    (PromptedEvidenceCheck, ContextTask(QUESTION, "h", (), "d", released=True), "Hm.", Check("reject", "Hm.")),
    (PromptedExpander, EXPAND, '["a?", "b?"]', Expansion(("a?", "b?"))),
    (PromptedExpander, EXPAND, "[]", Expansion()),
    (PromptedExpander, EXPAND, "", Expansion(flags=("expander_failed",))),
    (PromptedExpander, RAW, "look\nthere", Expansion(("look\nthere",))),
]  # fmt: skip


@pytest.mark.parametrize("cls, task, reply, expected", CASES)
def test_what_a_reply_becomes(cls: Any, task: Any, reply: str, expected: Any) -> None:
    found, session, backend = ask(cls, task, reply)
    assert found == expected
    failed = any(flag.endswith("_failed") for flag in expected.flags)
    assert len(backend.requests) == (2 if failed else 1)  # a malformed reply is asked for once more
    assert session.usage()["llm_calls"] == len(backend.requests)
    assert sum(row["parse_failure"] for row in session.by_role.values()) == (2 if failed else 0)
    if failed and reply == "":  # a model that is down gives the same fallback
        found, session, _ = ask(cls, task, LLMError("the server is down"))
        assert found == expected and session.failed_calls() is not None


def test_what_the_roles_are_shown() -> None:
    backend = ask(PromptedGrounder, GROUND, "x")[2]
    assert all(part in shown(backend) for part in ("the plan", "Answer: Tolvik", "Where was #1 born?"))
    backend = ask(PromptedRefiner, REFINE, "x")[2]
    assert '<passage id="1" title="Brannock">' in shown(backend) and shown(backend).endswith("Query: How long?")
    backend = ask(PromptedRefiner, REFINE_TRIPLES, "x")[2]
    assert "<notes>\nrelation: Brannock - passes - Esker Vale\n</notes>" in shown(backend)
    backend = ask(PromptedSubAnswerer, ANSWER, "x")[2]
    assert shown(backend).index("Tolvik made it") < shown(backend).index("the context")
    backend = ask(PromptedExpander, EXPAND, "[]")[2]
    assert all(part in shown(backend) for part in ("history", "draft", "analysis", QUESTION.text))
