"""Asking one role, whose model replies as a test says."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import set_up
from gnnrag.session import Session


class Asked(NamedTuple):
    """What came of it; `counts` are those of the role, with the flags of its result."""

    result: Any
    counts: Counter[str]
    requests: list[Request]
    session: Session

    def shown(self, number: int = 0) -> str:
        """Return the last turn of a request."""
        return self.requests[number].messages[-1].content


def ask(role: Any, task: Any, *replies: Any, rules: tuple[Any, ...] = (), **given: Any) -> Asked:
    """Ask a role.

    Args:
        role: a part that has its settings, not set up.
        replies: of its model, in turn: texts, `Reply`s, exceptions, functions of the request; the last one repeats.
        rules: pairs of a pattern and a reply, which go before `replies`.
        given: what the part works on besides: `index`, `embedder`.
    """
    backend, session = ScriptedBackend.of(*rules, (".", list(replies) or [""])), Session("q")
    result = asyncio.run(set_up(role, backend=backend, **given)(task, session))
    name = role.name.split(".")[0]
    return Asked(result, session.by_role[name] + Counter(result.flags), backend.requests, session)
