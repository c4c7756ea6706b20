"""Reasoning chain of a question from its passages (BDTR); prompted, and by rules (by gold: `oracle`)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline, passage_elements
from gnnrag.roles.base import Chain, ChainTask
from gnnrag.roles.bridges import BridgingRole
from gnnrag.roles.parsing import (
    LINE_START,
    Lines,
    ReplyModel,
    Rows,
    Text,
    clean_line,
    json_value,
    need_answer,
    plain,
    read_as,
)
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session

_BRIDGES = re.compile(rf"{LINE_START}\W*+bridg(?:e|ing)\s+entit(?:y|ies)\W*:\s*(.*)$", re.IGNORECASE | re.MULTILINE)


@part("role", "chain.prompted")
class PromptedChain(PromptedPart[ChainTask, Chain]):
    """Asks for the hops that lead to the answer; without a reply the thoughts stand in (`chain_failed`)."""

    max_tokens: int = 256

    async def __call__(self, task: ChainTask, session: Session) -> Chain:
        values = {
            "passages": passage_elements(task.passages),
            "thoughts": "\n".join(f"- {inline(t)}" for t in task.thoughts) or "(none)",
            "question": inline(task.question.text),
        }
        outcome = await self.ask(session, values, lambda text: parse_chain(text, task.question.text))
        if outcome.value is not None:
            return outcome.value
        return Chain("\n".join(task.thoughts) or task.question.text, flags=("chain_failed",))


class ChainFact(ReplyModel):
    subject: Text
    relation: Text
    object: Text
    passage: int = 0  # none


class ChainReply(ReplyModel):
    facts: Annotated[list[ChainFact], Rows, Field(min_length=1)]
    bridges: Lines = Field(default_factory=list)


def parse_chain(text: str, question: str = "") -> Chain:
    """Return a reply as it is, and the bridge entities of their line, if any; MalformedError where it is empty.

    A reply in JSON is a `ChainReply`.
    """
    text = need_answer(plain(text), question)
    if isinstance(value := json_value(text), dict) and "facts" in value:
        reply = read_as(ChainReply, text)
        lines = (f"{f.subject} - {f.relation} - {f.object} [{f.passage or 'MISSING'}]" for f in reply.facts)
        return Chain("\n".join(dict.fromkeys(lines)), tuple(reply.bridges))
    line = _BRIDGES.search(text)
    # Semicolons are asked for; commas separate only where there are none, as names may hold commas.
    names = re.split(r";" if line and ";" in line[1] else r",", line[1]) if line else []
    bridges = dict.fromkeys(name for name in map(clean_line, names) if name)
    return Chain(text, tuple(bridges))


@part("role", "chain.offline")
class OfflineChain(BridgingRole[ChainTask, Chain]):
    """One line a hop: `anchor -> bridge [passage number, or MISSING]`; `no_anchor` where the question names none."""

    max_bridges: int = 2  # bridges that the chain names, over all anchors
    frontier: int = 2  # passages that bridges start from where the question names no title

    async def __call__(self, task: ChainTask, session: Session) -> Chain:
        question = self.finder.read(task.question.text)
        numbers = {self.index.position[p.id]: i for i, p in enumerate(task.passages, start=1)}
        anchors = question.anchors
        shown = [self.index.position[p.id] for p in task.passages]
        sources = [a.passage for a in anchors] or shown[: self.frontier]
        bridges = self.finder.bridges(question, sources)[: self.max_bridges]
        title = [p.title for p in self.index.passages]
        lines = [f"{a.name} [{numbers.get(a.passage, 'MISSING')}]" for a in anchors]
        lines += [
            f"{title[b.source]} -> {b.name} -> {title[b.passage]} [{numbers.get(b.passage, 'MISSING')}]"
            for b in bridges
        ]
        flags = () if anchors else ("no_anchor",)
        support = [self.index.ids[p] for p in (*(a.passage for a in anchors), *(b.passage for b in bridges))]
        return Chain("\n".join(lines), tuple(b.name for b in bridges), tuple(support), flags)
