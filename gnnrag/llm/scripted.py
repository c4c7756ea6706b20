"""A scripted language model: answers by rule. For tests, examples without a key, and dry runs of a config."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Self

from gnnrag.errors import LLMError
from gnnrag.llm.base import Backend, Reply, Request
from gnnrag.parts import part
from gnnrag.text.tokens import estimate_tokens


@part("llm", "scripted")
class ScriptedBackend(Backend):
    """Answers by rules, tried in order: the first whose regex is found in the text of all messages.

    In YAML `{match: REGEX, reply: TEXT or list of TEXT}`; in Python also a pair (match, reply): match may be a function
    of the request, reply a Reply, an exception, a function of the request, or a list. The last of a list repeats.
    `requests` are all so far, in order of arrival.
    """

    rules: list[Any] = field(default_factory=list)
    default: str | None = None  # reply when no rule matches; null makes that an error
    latency_s: float = 0.0

    @classmethod
    def of(cls, *rules: tuple[Any, Any], default: str | None = None, latency_s: float = 0.0) -> Self:
        """Build one from (match, reply) pairs."""
        model = cls()
        model.rules, model.default, model.latency_s = list(rules), default, latency_s
        model.setup()
        return model

    def setup(self) -> None:
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._rules = [_rule(rule) for rule in self.rules]
        self._used = [0] * len(self._rules)

    @property
    def identity(self) -> Mapping[str, Any]:
        rules = [[_describe(match), *map(_describe, answers)] for match, answers in self._rules]
        return {"type": "scripted", "rules": rules, "default": self.default}

    async def generate(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            answer = self._choose(request)
        await asyncio.sleep(self.latency_s)
        if callable(answer) and not isinstance(answer, BaseException):
            answer = answer(request)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Reply):
            return answer
        text = str(answer)
        return Reply(text, "stop", estimate_tokens(request.text), estimate_tokens(text), model="scripted")

    def _choose(self, request: Request) -> Any:
        for number, (match, answers) in enumerate(self._rules):
            if match(request) if callable(match) else match.search(request.text):
                self._used[number] += 1
                return answers[min(self._used[number], len(answers)) - 1]
        if self.default is not None:
            return self.default
        return LLMError(f"scripted: no rule matches {request.messages[-1].content[-200:]!r}; add one, or a default")


def _rule(rule: Any) -> tuple[re.Pattern[str] | Callable[[Request], bool], Sequence[Any]]:
    match, reply = (rule["match"], rule["reply"]) if isinstance(rule, Mapping) else rule
    answers = list(reply) if isinstance(reply, Sequence) and not isinstance(reply, str) else [reply]
    return (match if callable(match) else re.compile(match, re.DOTALL)), answers


def _describe(part: object) -> str:
    """Return the same text in every process; the repr of a function holds its address."""
    name = getattr(part, "__qualname__", None)
    return f"{getattr(part, '__module__', '')}.{name}" if name else repr(part)
