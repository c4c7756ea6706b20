"""What every prompted role owes whoever asks it, whatever its model replies: a result, its fallback counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.base import ContextLengthError, Reply, Request
from gnnrag.methods.dotrag.roles import (
    GENERIC,
    ConceptsTask,
    JudgeTask,
    PathText,
    PromptedConcepts,
    PromptedPathJudge,
    PromptedRedirect,
    PromptedRules,
    RedirectTask,
    RulesTask,
)
from gnnrag.methods.dotrag.schema import Schema, SchemaTerm
from gnnrag.methods.tog_graph import PromptedPruner, PruneTask
from gnnrag.retrievers.graphrag.report_roles import (
    Point,
    PromptedReduce,
    PromptedReportPoints,
    ReduceTask,
    ReportPointsTask,
)
from gnnrag.retrievers.hypergraphrag import HyperQueryTask, PromptedHyperQuery
from gnnrag.retrievers.keywords import PromptedKeywords
from gnnrag.retrievers.minirag import PromptedMentions
from gnnrag.roles.agent import PromptedAgent
from gnnrag.roles.base import (
    Chain,
    ChainTask,
    DecomposeTask,
    KeywordsTask,
    MentionsTask,
    MoveTask,
    ReaderTask,
    ReasonTask,
    RouterTask,
    ThoughtsTask,
    VerifierTask,
)
from gnnrag.roles.chain import PromptedChain
from gnnrag.roles.decomposer import PromptedDecomposer
from gnnrag.roles.reader import PromptedReader
from gnnrag.roles.reasoner import PromptedReasoner
from gnnrag.roles.rewriter import FollowUp, PromptedRewriter
from gnnrag.roles.router import PromptedRouter
from gnnrag.roles.thoughts import PromptedThoughts
from gnnrag.roles.verifier import PromptedVerifier
from gnnrag.roles.writers.base import CurateTask, ReportTask, SummaryTask, TriplesTask
from gnnrag.roles.writers.entities import PromptedCurator
from gnnrag.roles.writers.report import PromptedReport, PromptedSummary
from gnnrag.roles.writers.triples import HyperTriples, LightRAGTriples, OpenIETriples
from gnnrag.types import Passage, Question
from tests.helpers.parts import CORPUS
from tests.helpers.replies import REFUSAL, good
from tests.helpers.roles import Asked, ask

QUESTION = Question("q", "Where was the director of Night Harbour born?")
SCHEMA = Schema("Films.", (SchemaTerm("movie"),), (SchemaTerm("directed by"),), {})
FILM = Passage("film", "Night Harbour", "Vera Lindqvist directed it.")
PASSAGES = (FILM, *CORPUS[:2])
ENTITIES = (("e1", "Vera Lindqvist", "person", FILM.text), ("e2", "Vera", "", ""), ("e3", "Kalmar", "town", ""))
CITED = json.dumps({"sentences": [{"text": "She was born in Kalmar.", "passages": [3]}]})
ROLES: dict[str, tuple[Any, Any]] = {
    "thoughts": (PromptedThoughts, ThoughtsTask(QUESTION, PASSAGES)),
    "thoughts separate": (lambda: PromptedThoughts(mode="separate"), ThoughtsTask(QUESTION, PASSAGES)),
    "chain": (PromptedChain, ChainTask(QUESTION, PASSAGES, ("Who directed it?",))),
    "verifier": (PromptedVerifier, VerifierTask(QUESTION, Chain("a - b - c"), PASSAGES)),
    "reader": (PromptedReader, ReaderTask(QUESTION, PASSAGES)),
    "reader closed": (PromptedReader, ReaderTask(QUESTION, ())),
    "reader cited": (PromptedReader, ReaderTask(QUESTION, PASSAGES, style="long")),
    **{f"decomposer {form}": (PromptedDecomposer, DecomposeTask(QUESTION, 4, form)) for form in
       ("plain", "linked", "triples")},
    **{f"reasoner {style}": (PromptedReasoner, ReasonTask(QUESTION, PASSAGES, ("x",), style)) for style in
       ("ircot", "iter_retgen", "gcot", "tog")},
    **{f"agent {name}": (PromptedAgent, MoveTask(QUESTION, (), name)) for name in
       ("react", "search_r1", "r1_searcher")},
    "concepts": (PromptedConcepts, ConceptsTask(QUESTION, SCHEMA)),
    "rules": (PromptedRules, RulesTask(QUESTION, SCHEMA, "Night Harbour", ("Night Harbour",))),
    "path_judge": (PromptedPathJudge, JudgeTask(QUESTION, SCHEMA, GENERIC, (), (PathText("p1", "a", (), (), ()),))),
    "redirect": (PromptedRedirect, RedirectTask(QUESTION, GENERIC, "Night Harbour", (), ())),
    "pruner": (PromptedPruner, PruneTask(QUESTION, "Night Harbour", ("directed by", "shot in"))),
    "router": (PromptedRouter, RouterTask(QUESTION)),
    "rewriter": (PromptedRewriter, FollowUp("Where was he born?", (("Who directed it?", "Otto Brandt"),))),
    "keywords": (PromptedKeywords, KeywordsTask("Who directed it?")),
    "mentions": (PromptedMentions, MentionsTask("Who directed it?", ("person",))),
    "hyper_query": (PromptedHyperQuery, HyperQueryTask("Who directed it?")),
    "report_points": (PromptedReportPoints, ReportPointsTask("Who directed it?", (("c-1", "# One\nA report."),))),
    "report_reduce": (PromptedReduce, ReduceTask("Who directed it?", (Point("Vera did.", 90.0, ("c-1",)),))),
    "summary": (PromptedSummary, SummaryTask((FILM.text, CORPUS[1].text))),
    "report": (PromptedReport, ReportTask(ENTITIES, (("r1", "Vera", "Kalmar", "born in"),), PASSAGES)),
    "curator": (PromptedCurator, CurateTask(ENTITIES)),
    "triples openie": (OpenIETriples, TriplesTask(FILM)),
    "triples lightrag": (LightRAGTriples, TriplesTask(FILM, gleaning=1)),
    "triples hyper": (HyperTriples, TriplesTask(FILM, gleaning=1)),
}  # fmt: skip
AGENTS = {name for name in ROLES if name.startswith("agent")}  # what is no move, they are told
ANY_TEXT = {"chain", "reader", "reader closed", "reasoner ircot", "reasoner iter_retgen", "reasoner gcot",
            "report_reduce", "redirect", "rewriter", "summary", "thoughts separate"}  # fmt: skip


def valid(name: str) -> Any:
    return {"reader cited": CITED, "rewriter": "Where was Otto Brandt born?"}.get(name, good)


def run(name: str, reply: Any) -> Asked:
    make, task = ROLES[name]
    return ask(make(), task, reply)


def failed(asked: Asked) -> list[str]:
    return [flag for flag in asked.result.flags if "fail" in flag or "fallback" in flag or flag == "loop_error"]


@pytest.mark.parametrize("name", ROLES)
def test_a_valid_reply_is_used(name: str) -> None:
    asked = run(name, valid(name))
    assert asked.counts["calls"] == len(asked.requests) > 0 == asked.counts["parse_failure"] and not failed(asked)


BAD = [("empty", "<think>hm</think>"), ("refused", REFUSAL), ("malformed", '{"x": [')]


@pytest.mark.parametrize("kind, reply", BAD)
@pytest.mark.parametrize("name", ROLES)
def test_a_reply_that_says_nothing_is_asked_for_again_then_counted(name: str, kind: str, reply: str) -> None:
    if name in {"refused": set(), "empty": AGENTS, "malformed": AGENTS | ANY_TEXT}[kind]:
        return
    asked = run(name, reply)
    assert failed(asked) and asked.counts["parse_failure"] == asked.counts["calls"] == len(asked.requests)
    assert asked.requests[0].raw or len({request.text for request in asked.requests}) == len(asked.requests) > 1
    assert kind != "refused" or asked.counts["refused"] == asked.counts["calls"]


@pytest.mark.parametrize("name", ROLES)
def test_a_reply_that_was_cut_off_is_no_reply(name: str) -> None:
    def cut(request: Request) -> Reply:
        text = valid(name)
        text = text(request) if callable(text) else text
        return Reply(text[: len(text) // 2], "length")

    asked = run(name, cut)
    assert asked.counts["cut_off"] == asked.counts["calls"]
    assert failed(asked) or (name.startswith("triples") and asked.counts["cut_but_read"])


@pytest.mark.parametrize("error, flag", [(LLMError("down"), "llm_error"), (ContextLengthError("8k"), "rejected")])
@pytest.mark.parametrize("name", ROLES)
def test_no_reply_is_not_asked_for_again(name: str, error: LLMError, flag: str) -> None:
    asked = run(name, error)
    assert failed(asked) and asked.counts[flag] == len(asked.requests) and not asked.counts["parse_failure"]
    assert bool(asked.session.failed_calls()) == (flag == "llm_error")
