"""GraphSearch's preset official: whole flows of the released code with scripted replies, and its parsers once more."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.methods.graphsearch import GraphSearch
from gnnrag.methods.graphsearch.roles import (
    Check,
    Draft,
    Expansion,
    PromptedGrounder,
    TextResult,
    parse_expansion,
    parse_verdict,
)
from gnnrag.parts import from_settings, set_up
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.base import Decomposition
from gnnrag.roles.decomposer import released_parts
from gnnrag.types import Question, Ranking
from tests.goldens.reading import golden
from tests.goldens.test_golden_graphsearch import PARSERS
from tests.helpers.parts import ToyIndex, answer_all

FLOWS, TEXTS = "graphsearch_flow.json.gz", "graphsearch_parsers_fresh.json.gz"
PARTS = {"graph decomposition": "graph_decomposition", "letters": "letters_only"}
KG = {"semantic": "text", "relational": "kg"}


def tight(text: str) -> str:
    """The file holds texts without blanks between the parts of triples or before a line feed, and no empty lines."""
    return re.sub(r" *\n+", "\n", re.sub(r'(["\])]), (?=["\[(])', r"\1,", text)).strip()


class Asked(Retriever):
    """Finds one passage for everything, and keeps what it was asked by side."""

    channels = frozenset({"text", "graph"})

    def __init__(self) -> None:
        self.asked: defaultdict[str, set[str]] = defaultdict(set)

    def retrieve(self, queries: Any) -> list[Ranking]:
        for query in queries:
            self.asked["background" if query.origin == "question" else query.origin].add(query.text)
        return [Ranking(("p",), np.ones(1)) for _ in queries]


class Replies:
    """All roles of a flow, from its table of replies."""

    is_guess = False

    def __init__(self, replies: dict[str, str]) -> None:
        self.replies = replies

    def of(self, kind: str, text: str) -> str:
        return self.replies[f"{kind}|{tight(text)}"]

    def roles(self) -> dict[str, Any]:
        return {name: Role(getattr(self, name)) for name in GraphSearch.role_names}

    async def decomposer(self, task: Any, session: Any) -> Decomposition:
        kind = {"linked": "text", "triples": "kg"}[task.form]
        reply = tight(self.of(f"dec_{kind}", task.question.text))
        return Decomposition(released_parts(reply, task.form), reply)

    async def grounder(self, task: Any, session: Any) -> TextResult:
        reply = self.of(f"ground_{KG[task.side]}", task.query)
        return await set_up(PromptedGrounder(), backend=ScriptedBackend.of((".", [reply])))(task, session)

    async def refiner(self, task: Any, session: Any) -> TextResult:
        return TextResult(tight(self.of(f"sum_{KG[task.side]}", task.query)))

    async def sub_answerer(self, task: Any, session: Any) -> TextResult:
        return TextResult(self.of("ans", task.query))

    async def drafter(self, task: Any, session: Any) -> Draft:
        text = self.replies.get(f"draft|{tight(task.context)}", "the final answer")
        return Draft(text, text)

    async def evidence_check(self, task: Any, session: Any) -> Check:
        analysis = self.of("verify", task.context)
        return Check(parse_verdict(analysis, task.released), analysis)

    async def expander(self, task: Any, session: Any) -> Expansion:
        return Expansion(parse_expansion(self.of("expand", task.context), task.released))


class Role:
    is_guess = False

    def __init__(self, call: Any) -> None:
        self.call = call

    async def __call__(self, task: Any, session: Any) -> Any:
        return await self.call(task, session)


@pytest.mark.parametrize("number", range(len(golden(FLOWS)["cases"])))
def test_flows(number: int) -> None:
    """Equal queries, whatever their order: independent ones are sent at once here."""
    case = golden(FLOWS)["cases"][number]
    method = set_up(
        from_settings(GraphSearch, {"preset": "official"}), index=ToyIndex(), roles=Replies(case["replies"]).roles()
    )
    retriever = Asked()
    question = Question("q", golden(FLOWS)["question"])
    (prediction, session), *_ = answer_all(method, retriever, [question])
    assert prediction.error is None
    assert dict(retriever.asked) == {side: set(texts) for side, texts in case["retrievals"].items() if texts}
    context = next(event["text"] for event in session.events if event["event"] == "context")
    assert tight(context) == case["final_context"].strip()


def test_released_parsers_on_random_texts() -> None:
    for case in golden(TEXTS)["cases"]:
        assert PARSERS[PARTS.get(case["part"], case["part"])](case["reply"]) == case["released"], case["reply"]
