"""The worked trace of `specs/graphsearch.md` 8: passages, edges, a retriever of both channels, scripted replies."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.graphsearch import GraphSearch
from gnnrag.methods.graphsearch.roles import (
    PromptedDrafter,
    PromptedEvidenceCheck,
    PromptedExpander,
    PromptedGrounder,
    PromptedRefiner,
    PromptedSubAnswerer,
)
from gnnrag.parts import from_settings, set_up
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.decomposer import PromptedDecomposer
from gnnrag.run.loop import Loop
from gnnrag.session import Session
from gnnrag.types import Passage, Prediction, Query, Question, Ranking
from tests.helpers.parts import read_nothing

QUESTION = Question(
    "q",
    "How long is the river that flows through the town where the composer of Lanterns of Orrin was born?",
    ("212 km",),
    gold=("P1", "P2", "P3"),
)
PASSAGES = {
    "P1": "Lanterns of Orrin is a 1931 chamber opera by Maren Tolvik.",
    "P2": "Maren Tolvik (1898-1967) was born in Esker Vale and taught in Port Hallam.",
    "P3": "The Brannock passes Esker Vale and is 212 km long.",
    "P4": "The Orrin Lantern Fair has been held in Port Hallam since 1978.",
}
EDGES = {
    "e1": ("Lanterns of Orrin - composed by - Maren Tolvik", "P1"),
    "e2": ("Maren Tolvik - born in - Esker Vale", "P2"),
    "e3": ("Maren Tolvik - taught in - Port Hallam", "P2"),
    "e4": ("Brannock - passes - Esker Vale", "P3"),
    "e5": ("Brannock - length - 212 km", "P3"),
    "e6": ("Orrin Lantern Fair - held in - Port Hallam", "P4"),
}
TEXT_QUERIES = (
    "Who composed Lanterns of Orrin?",
    "Where was Maren Tolvik born?",
    "How long is the river flowing through Esker Vale?",
)
LENGTH = "What is the length of the Brannock river?"
TABLE: dict[tuple[str, str], list[str]] = {
    ("text", QUESTION.text): ["P1", "P4"],
    ("graph", QUESTION.text): ["e1", "e6"],
    ("text", TEXT_QUERIES[0]): ["P1", "P4"],
    ("text", TEXT_QUERIES[1]): ["P2"],
    ("text", TEXT_QUERIES[2]): ["P3", "P2"],
    ("graph", "Lanterns of Orrin composed by"): ["e1", "e6"],
    ("graph", "Lanterns of Orrin composed by Entity"): ["e1", "e6"],
    ("graph", "Maren Tolvik was born in"): ["e2", "e3"],
    ("graph", "Maren Tolvik was born in Entity"): ["e2", "e3"],
    ("graph", "flows through Esker Vale has length"): ["e2", "e4"],
    ("graph", "Entity flows through Esker Vale Entity has length Entity"): ["e2", "e4"],
    ("graph", LENGTH): ["e5", "e4"],
}
MARKS = {
    "qd_text": "for a search over text",
    "qd_graph": "for a search over a knowledge graph",
    "cr_text": "You extract evidence",
    "cr_graph": "You extract triples",
    "qg_text": "You complete sub-questions",
    "qg_graph": "You complete triples",
    "ans": "You answer a query",
    "draft": "You answer complex questions",
    "check": "You are a critical checker",
    "expand": "You find the queries",
}
PLAN_TEXT = json.dumps({
    "Sub-query 1": TEXT_QUERIES[0], "Sub-query 2": "Where was #1 born?",
    "Sub-query 3": "How long is the river flowing through #2?"})  # fmt: skip
PLAN_GRAPH = (
    '{"Sub-query 1": [("Lanterns of Orrin","composed by","Entity#1")],'
    ' "Sub-query 2": [("Entity#1","was born in","Entity#2")],'
    ' "Sub-query 3": [("Entity#3","flows through","Entity#2"),("Entity#3","has length","Entity#4")]}'
)
SETS_OUT: dict[str, Any] = {
    "qd_text": PLAN_TEXT,
    "qd_graph": PLAN_GRAPH,
    "cr_text": {
        QUESTION.text: "The opera of 1931 is by Maren Tolvik.",
        TEXT_QUERIES[0]: "The opera is by Maren Tolvik [1].",
        TEXT_QUERIES[1]: "She was born in Esker Vale [1].",
        TEXT_QUERIES[2]: "The Brannock passes Esker Vale and is 212 km long [1].",
    },
    "cr_graph": {
        "Query: What is the length": '[("Brannock","length","212 km")]',
        '("Entity#3","flows through"': '[("Brannock","passes","Esker Vale")]',
        '"was born in"': '[("Maren Tolvik","born in","Esker Vale")]',
        "": '[("Lanterns of Orrin","composed by","Maren Tolvik")]',
    },
    "qg_text": {"Where was #1": TEXT_QUERIES[1], "through #2": TEXT_QUERIES[2]},
    "qg_graph": {
        '[("Entity#1"': '[("Maren Tolvik","was born in","Entity#2")]',
        '[("Entity#3"': '[("Entity#3","flows through","Esker Vale"),("Entity#3","has length","Entity#4")]',
    },
    "ans": {
        "Who composed": "Maren Tolvik",
        "Where was": "Esker Vale",
        "How long": "212 km",
        '"composed by"': "Maren Tolvik",
        '"was born in"': "Esker Vale",
        '"flows through"': "the Brannock; its length is not given",
    },
    "draft_text": "1. The opera is by Tolvik. 2. She was born in Esker Vale. 3. The Brannock is 212 km long.",
    "draft_graph": "1. The river is the Brannock; its length cannot be stated.",
    "final": "1. Tolvik. 2. Esker Vale. 3. The Brannock.\nAnswer: 212 km",
    "check_text": "Each step is supported. Yes",
    "check_graph": "The length is unsupported. No",
    "expand_text": "[]",
    "expand_graph": json.dumps([LENGTH]),
}


class SearchIndex:
    """The passages of the trace."""

    def lookup(self, ids: Iterable[str]) -> tuple[Passage, ...]:
        """See `Index`."""
        return tuple(Passage(id_, "", PASSAGES[id_]) for id_ in ids)


class TwoChannels(Retriever):
    """A retriever of passages and of relations with their source passages; both out of a table.

    Args:
        table: (channel, query text) to ids, best first; other queries find nothing, an exception is raised.
    """

    channels = frozenset({"text", "graph"})

    def __init__(self, table: Mapping[tuple[str, str], Any] = TABLE) -> None:
        self.table = table
        self.asked: list[Query] = []

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """See `Retriever`."""
        self.asked += queries
        out = []
        for query in queries:
            ids = self.table.get((query.channel, query.text), [])
            if isinstance(ids, BaseException):
                raise ids
            scores = np.linspace(1.0, 0.5, len(ids))
            if query.channel == "text":
                out.append(Ranking(tuple(ids), scores, branch="toy"))
                continue
            texts, sources = [EDGES[i][0] for i in ids], [(EDGES[i][1],) for i in ids]
            out.append(Ranking(tuple(ids), scores, "relation", "toy", texts=tuple(texts), sources=tuple(sources)))
        return out


def module_of(request: Request) -> str:
    """Return which module a request is from; the side too where one prompt serves both."""
    name = next(name for name, mark in MARKS.items() if mark in request.text)
    if name == "draft" and ("Background information:" in request.text or "End with a line" in request.text):
        return "final"
    if name in ("draft", "check", "expand"):
        return f"{name}_graph" if '[("' in user_text(request) else f"{name}_text"
    return name


def user_text(request: Request) -> str:
    """Return the last turn of a request, without the codes in its tags."""
    return request.messages[-1].content


def scripted(**replies: Any) -> ScriptedBackend:
    """Return a backend with the trace's replies, some of them replaced.

    A dictionary maps a part of the query (the last line of a prompt) to a reply; a list is used up in order.
    """
    script = SETS_OUT | replies
    used: dict[str, int] = {}

    def reply(request: Request) -> Any:
        name = module_of(request)
        given = script[name]
        if isinstance(given, Mapping):
            query = user_text(request).rpartition("Query: ")[2] or user_text(request)
            query = "Query: " + query if "Query: " in user_text(request) else user_text(request).rpartition("\n")[2]
            return next(text for part, text in given.items() if part in query)
        if isinstance(given, list):
            used[name] = used.get(name, 0) + 1
            return given[min(used[name], len(given)) - 1]
        return given(request) if callable(given) else given

    return ScriptedBackend.of((".", answer_or_raise(reply)))


def answer_or_raise(reply: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """Raise what is an exception, and return everything else."""

    def answer(request: Request) -> Any:
        found = reply(request)
        if isinstance(found, BaseException):
            raise found
        return found

    return answer


def prompted(backend: ScriptedBackend) -> dict[str, Any]:
    """Return GraphSearch's seven roles on one language model."""
    roles = {
        "decomposer": PromptedDecomposer,
        "grounder": PromptedGrounder,
        "refiner": PromptedRefiner,
        "sub_answerer": PromptedSubAnswerer,
        "drafter": PromptedDrafter,
        "evidence_check": PromptedEvidenceCheck,
        "expander": PromptedExpander,
    }
    return {name: opened(cls, backend=backend) for name, cls in roles.items()}


def opened(cls: Any, **given: Any) -> Any:
    """Return a role with its default settings."""
    return set_up(cls(), **given)


def search(**dotted: Any) -> Any:
    """Return settings of GraphSearch from dotted names with `__` for the dot."""
    nested: dict[str, Any] = {}
    for name, value in dotted.items():
        section, _, key = name.rpartition("__")
        (nested.setdefault(section, {}) if section else nested)[key or name] = value
    return from_settings(GraphSearch, nested, "method")


def run_search(
    backend: ScriptedBackend, retriever: Any = None, question: Question = QUESTION, **dotted: Any
) -> tuple[Prediction, Session]:
    """Run one question through the loop."""
    index = SearchIndex()
    method = set_up(search(**dotted), index=index, roles=prompted(backend))
    loop = Loop(method, retriever or TwoChannels(), read_nothing, index.lookup)
    return asyncio.run(loop.answer(question))


def events(session: Session, name: str, side: str = "") -> list[dict[str, Any]]:
    """Return the events of a name, of one side where one is given."""
    return [e for e in session.events if e["event"] == name and side in ("", e.get("side"))]


ACCEPT = {"check_graph": "All is supported. Yes"}  # the text side accepts in the worked trace, too: nothing is expanded


def modules(backend: ScriptedBackend) -> Counter[str]:
    """Return how often each module was called."""
    return Counter(module_of(request) for request in backend.requests)


def calls(backend: ScriptedBackend, module: str) -> list[str]:
    """Return what a module was shown, call by call."""
    return [user_text(request) for request in backend.requests if module_of(request) == module]


def final_prompt(backend: ScriptedBackend) -> str:
    """Return what the final answer was read from."""
    (prompt,) = calls(backend, "final")
    return prompt


def flags(session: Any, role: str) -> Counter[str]:
    """Return what was counted under a role."""
    return session.by_role[role]
