"""Roles on a scripted model that replies what another implementation decides: what an API run sends, without an API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from gnnrag.index.index import Index
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.registry import ROLES, resolve
from gnnrag.roles.base import Role
from gnnrag.session import Session

_REPLY: ContextVar[str] = ContextVar("_REPLY")  # one for each question in flight


@dataclass
class ToldConfig:
    """Settings of a told role."""

    teacher: str = "offline"  # implementation that decides: offline or oracle
    latency_s: float = 0.0  # of each call


class ToldRole(Role[Any, Any]):
    """The prompted role; replies have the format that it asks for, and tokens are estimated, four characters each."""

    config_class = ToldConfig
    stages = ("hierarchy", "embeddings")
    role = ""

    def __init__(self, index: Index, config: ToldConfig | None = None) -> None:
        self.config = config or ToldConfig()
        backend = ScriptedBackend.of((_any, _reply), latency_s=self.config.latency_s)
        self.teacher = resolve(self.role, self.config.teacher, ROLES[self.role])(index, None)
        self.prompted = resolve(self.role, "prompted", ROLES[self.role])(backend)
        self.prompters = self.prompted.prompters

    async def __call__(self, task: Any, session: Session) -> Any:
        """Ask the teacher, then the model."""
        _REPLY.set(WRITERS[self.role](task, await self.teacher(task, session)))
        return await self.prompted(task, session)


class ToldThoughts(ToldRole):
    """Thoughts; where the rules have none, the question again: a model always asks something."""

    role = "thoughts"


class ToldChain(ToldRole):
    """The chain."""

    role = "chain"


class ToldVerifier(ToldRole):
    """The verifier."""

    role = "verifier"


class ToldReader(ToldRole):
    """The reader."""

    role = "reader"


def _any(request: Any) -> bool:
    return True


def _reply(request: Any) -> str:
    return _REPLY.get()


def _thoughts(task: Any, found: Any) -> str:
    fast, slow = found.fast or found.slow or task.question.text, found.slow
    return f"Fast Thought: {fast}" + (f"\nSlow Thought: {slow}" if slow else "")


def _selection(task: Any, found: Any) -> str:
    return json.dumps({"selected": [n for n, p in enumerate(task.passages, start=1) if p.id in found.selected]})


def _chain(task: Any, found: Any) -> str:
    return f"{found.text or '? [MISSING]'}\nBridge entities: {'; '.join(found.bridges) or 'none'}"


def _answer(task: Any, found: Any) -> str:
    return f"Thought: {found.thought or 'The passages say so.'}\nAnswer: {found.text or 'unknown'}"


WRITERS: Mapping[str, Callable[[Any, Any], str]] = {
    "thoughts": _thoughts,
    "chain": _chain,
    "verifier": _selection,
    "reader": _answer,
}


def register_told() -> None:
    """Make `roles.thoughts=told` and its like known, in this process."""
    for role in WRITERS:
        ROLES[role]["told"] = f"{__name__}:Told{role.title()}"
