"""A scripted model drives every prompted role of every method and retriever, well and badly.

Methods, retrievers and roles come from the registry: one that is new and has no settings below, or whose prompts have
no reply in `helpers/replies.py`, fails here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, partialmethod
from typing import Any

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.index.index import Index, build_index
from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.registry import Roles
from gnnrag.run.evaluate import Pipeline, asked_roles, index_settings, needed_stages
from gnnrag.session import Session
from gnnrag.types import Passage, Prediction, Question
from tests.helpers.every_method import RETRIEVER_SETTINGS, SETTINGS
from tests.helpers.names import METHODS, RETRIEVERS, ROLES, forms
from tests.helpers.parts import COMPOSITIONAL, CORPUS
from tests.helpers.replies import ATTACK, BAD, attack_in, good, prompt_of, user

HOSTILE = Passage(
    "p8", "The director of the film Night Harbour", f"The director of the film Night Harbour was born. {ATTACK}"
)
BASE = ["index.embedder.model=hash", "index.text.language=blank:en", "roles=prompted", "llm=scripted", "llm_cache=null"]
# Where any text is a reply of the right form, garbage cannot be told from one.
EXCLUDED_FIELDS = {
    "chain", "drafter", "grounder", "refiner", "refiner_triples", "sub_answerer", "reason_gcot", "reason_ircot",
    "reason_iter_retgen", "redirect", "report_reduce", "summary",
}  # fmt: skip
COUNTS = {"calls", "prompt_tokens", "completion_tokens", "cached_calls", "parse_failure", "refused"}


READS_PASSAGES = {"thoughts", "chain", "verifier", "reasoner", "agent", "evidence_extractor", "refiner", "reader",
                  "report_points"}  # fmt: skip


@cache
def load(dots: tuple[str, ...]) -> EvaluateConfig:
    return load_config(EvaluateConfig, None, [*BASE, *dots])


@cache
def runs() -> dict[str, list[str]]:
    """Return the settings of every run by its name: each method, and each retriever that asks roles."""
    found = {f"{name}{n or ''}": [f"method={name}", *dots] for name in METHODS for n, dots in enumerate(SETTINGS[name])}
    for name in RETRIEVERS:
        config = load(tuple(RETRIEVER_SETTINGS[name]))
        if config.retriever.part.role_names:
            found[f"single-{name}"] = RETRIEVER_SETTINGS[name]
    return found


@cache
def pairs() -> list[tuple[str, str]]:
    """Return every run with every role that it asks."""
    return [(run, role) for run, dots in runs().items() for role in asked_roles(load(tuple(dots)))]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    path = tmp_path_factory.mktemp("index")
    configs = [load(tuple(dots)) for dots in runs().values()]
    stages = set().union(*(needed_stages(c) for c in configs))
    build_index(path, [*CORPUS, HOSTILE], index_settings(configs[0]), stages)
    return Index(path)


# Whose model a question has: good, or one that is bad in one role.
WHO: ContextVar[str] = ContextVar("WHO")


def backend_for(roles: Roles, script: Callable[[str, Request], str], role: Any) -> ScriptedBackend:
    """Stand in for `Roles.backend`: give every role a model of its own, which knows whose it is."""
    name = next(name for name in ROLES if getattr(roles.config, name) is role)
    return ScriptedBackend.of((".", lambda request: script(name, request)))


class Run:
    """One run of a method: a question for each way its model may be, all with the same text.

    Attributes:
        rows: prediction and record of each question.
        requests: each role's requests, by question.
    """

    def __init__(self, index: Index, name: str) -> None:
        self.rows: dict[str, tuple[Prediction, Session]] = {}
        self.requests: dict[tuple[str, str], list[Request]] = {}
        ways = ["good", *(f"{role} {kind}" for run, role in pairs() if run == name for kind in BAD)]
        self.questions = [Question(way, COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1")) for way in ways]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Roles, "backend", partialmethod(backend_for, self.script))
            pipeline = Pipeline(load(tuple(runs()[name])), index)
            answer = pipeline.loop.answer

            def answer_as(question: Question) -> Any:
                WHO.set(question.id)
                return answer(question)

            patch.setattr(pipeline.loop, "answer", answer_as)
            asyncio.run(pipeline.run(self.questions, lambda p, s: self.rows.update({p.question_id: (p, s)})))

    def script(self, role: str, request: Request) -> str:
        """Reply to a role, as the question's model would."""
        way = WHO.get()
        self.requests.setdefault((way, role), []).append(request)
        who, _, kind = way.partition(" ")
        return BAD[kind] if who == role else good(request)

    def counts(self, way: str, role: str) -> dict[str, int]:
        """Return what was counted under a role."""
        return self.rows[way][0].usage["roles"].get(role, {})


@pytest.fixture(scope="module")
def run(index: Index) -> Callable[[str], Run]:
    return cache(lambda name: Run(index, name))


def test_every_prompted_role_is_driven() -> None:
    prompted = {name for name in ROLES if "prompted" in forms(name)}
    assert {role for _, role in pairs()} == prompted - {"rewriter"}  # which is asked before a run: test_rewriter.py


@pytest.mark.slow
@pytest.mark.parametrize("name", runs())
def test_every_question_has_a_row(run: Callable[[str], Run], name: str) -> None:
    result = run(name)
    assert result.rows.keys() == {q.id for q in result.questions}
    assert {p.error for p, _ in result.rows.values()} == {None}


@pytest.mark.parametrize("name, role", pairs())
def test_good_replies_leave_no_flag(run: Callable[[str], Run], name: str, role: str) -> None:
    result = run(name)
    requests = result.requests.get(("good", role), [])
    method = name.rstrip("1")
    assert requests or any(run(other).requests.get(("good", role)) for other in runs() if other.rstrip("1") == method)
    counts = result.counts("good", role)
    assert counts.get("calls", 0) == len(requests) and not counts.get("parse_failure")
    assert not [flag for flag in counts if flag.endswith("_failed") or "fallback" in flag]


@pytest.mark.parametrize("name, role, kind", [(*pair, kind) for pair in pairs() for kind in BAD])
def test_a_bad_reply_is_counted(run: Callable[[str], Run], name: str, role: str, kind: str) -> None:
    result, way = run(name), f"{role} {kind}"
    requests = result.requests.get((way, role), [])
    if not requests or (kind == "garbage" and {prompt_of(request) for request in requests} <= EXCLUDED_FIELDS):
        return
    counts = result.counts(way, role)
    assert counts.keys() - COUNTS, f"{kind} replies of {role} leave no trace"
    # The agents' transcripts are continued: what is no move is told them, and not asked for again.
    assert counts.get("parse_failure") or (role in ("agent", "reader") and kind != "refusal")
    assert kind != "refusal" or counts["refused"]


def test_the_attack_reaches_the_roles_that_read_passages(run: Callable[[str], Run]) -> None:
    reached = {role for name in runs() for (_, role), rs in run(name).requests.items() if any(map(attack_in, rs))}
    assert reached >= READS_PASSAGES


def test_no_element_loses_its_tags_on_the_way(run: Callable[[str], Run]) -> None:
    """One that was joined by hand would be escaped."""
    requests = [request for name in runs() for found in run(name).requests.values() for request in found]
    assert requests and not [r for r in requests if re.search(r'&lt;(?:passage|path|answer) id="', r.text)]


ELEMENT = re.compile(
    r"<(passage|notes|path|information)\b[^>]*>.*?</\1>|<\|begin_of_documents\|>.*?<\|end_of_documents\|>"
    r"|^(?:Observation \d+: )?\(\d+\) [^\n]*$",
    re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize("name", runs())
def test_no_passage_leaves_its_element(run: Callable[[str], Run], name: str) -> None:
    for (way, _), requests in run(name).requests.items():
        for request in requests if way == "good" else ():
            assert "HACKED" not in ELEMENT.sub("", user(request))
