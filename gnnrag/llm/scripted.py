"""A scripted language model: answers by rule. For tests, examples without a key, and dry runs of a config."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import Backend, Reply, Request, estimate_tokens

Match = str | re.Pattern[str] | Callable[[Request], bool]
Answer = str | Reply | BaseException | Callable[[Request], Any]


@dataclass
class ScriptedConfig:
    """Rules, tried in order; the first whose regex is found in the text of all messages answers.

    In YAML `{match: REGEX, reply: TEXT or list of TEXT}`; in Python also a pair (match, reply): match may be a function
    of the request, reply a Reply, an exception, a function of the request, or a list. The last of a list repeats.
    """

    rules: list[Any] = field(default_factory=list)
    default: str | None = None  # reply when no rule matches; null makes that an error
    latency_s: float = 0.0


@dataclass(slots=True)
class _Rule:
    match: Match
    matches: Callable[[Request], bool]
    answers: Sequence[Answer]
    used: int = 0


class ScriptedBackend(Backend):
    """Answers by rule; keeps all requests in order of arrival, and the `peak` number in flight at once."""

    config_class = ScriptedConfig

    def __init__(self, config: ScriptedConfig | None = None) -> None:
        self.config = config or ScriptedConfig()
        self.requests: list[Request] = []
        self.peak = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._rules = [_rule(r) for r in self.config.rules]

    @classmethod
    def of(cls, *rules: tuple[Match, Any], default: str | None = None, latency_s: float = 0.0) -> ScriptedBackend:
        """Build one from (match, reply) pairs."""
        return cls(ScriptedConfig(list(rules), default, latency_s))

    @property
    def identity(self) -> Mapping[str, Any]:
        """The rules as text, functions by name: other rules, other replies."""
        rules = [[_describe(r.match), *map(_describe, r.answers)] for r in self._rules]
        return {"type": "scripted", "rules": rules, "default": self.config.default}

    async def generate(self, request: Request) -> Reply:
        """Answer by the first rule that matches."""
        with self._lock:
            self.requests.append(request)
            answer = self._choose(request)
            self._in_flight += 1
            self.peak = max(self.peak, self._in_flight)
        try:
            await asyncio.sleep(self.config.latency_s)
        finally:
            with self._lock:
                self._in_flight -= 1
        if callable(answer) and not isinstance(answer, BaseException):
            answer = answer(request)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Reply):
            return answer
        text = str(answer)
        return Reply(text, "stop", estimate_tokens(request.text), estimate_tokens(text), model="scripted")

    def _choose(self, request: Request) -> Answer:
        for rule in self._rules:
            if rule.matches(request):
                rule.used += 1
                return rule.answers[min(rule.used, len(rule.answers)) - 1]
        if self.config.default is not None:
            return self.config.default
        return LLMError(f"scripted: no rule matches {request.messages[-1].content[-200:]!r}; add one, or a default")


def _rule(rule: Any) -> _Rule:
    if isinstance(rule, Mapping):
        if rule.keys() != {"match", "reply"}:
            raise ConfigError(f"scripted rule with keys {sorted(map(str, rule))}: it needs exactly match and reply")
        match, reply = rule["match"], rule["reply"]
    else:
        match, reply = rule
    # Config libraries bring list types of their own.
    answers = list(reply) if isinstance(reply, Sequence) and not isinstance(reply, str) else [reply]
    if not answers:
        raise ConfigError(f"scripted rule {match!r}: its list of replies is empty")
    if callable(match):
        return _Rule(match, match, answers)
    pattern = re.compile(match, re.DOTALL)
    return _Rule(match, lambda request: bool(pattern.search(request.text)), answers)


def _describe(part: object) -> str:
    """Return the same text in every process; the repr of a function holds its address."""
    name = getattr(part, "__qualname__", None)
    return f"{getattr(part, '__module__', '')}.{name}" if name else repr(part)
