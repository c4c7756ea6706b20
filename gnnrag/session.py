"""The session of one question: its usage counters, its budget and its trace."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from gnnrag.errors import BudgetError
from gnnrag.types import Query, Ranking

T = TypeVar("T")


def normalised(text: str) -> str:
    """Return a query with case folded and spaces collapsed. Two queries are the same if these are equal."""
    return " ".join(text.casefold().split())


def query_key(query: Query) -> Query:
    """Return the key under which equal queries of a question share a ranking; case, spaces and `origin` are ignored."""
    return replace(query, text=normalised(query.text), origin="")


@dataclass
class Budget:
    """Limits for one question; None means unlimited. Going beyond one ends the question with an error row."""

    max_calls: int | None = None  # language-model calls
    max_tokens: int | None = None  # prompt plus completion tokens
    max_seconds: float | None = None
    max_cost: float | None = None  # dollars, by the prices that the settings give


@dataclass
class Session:
    """Mutable record of one question in flight. Not shared between questions, hence no locks."""

    question_id: str
    budget: Budget = field(default_factory=Budget)
    filter: str | None = None  # condition on all passages of this question, see `Query.filter`
    events: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    by_role: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    cost: float = 0.0
    cached_calls: int = 0
    started: float = field(default_factory=time.monotonic)
    counted: set[Query] = field(default_factory=set)  # queries already in the counts, as `query_key` returns them
    rankings: dict[Query, Ranking] = field(default_factory=dict)  # what equal queries gave before, likewise
    traceback: str = ""  # of the first part that raised, for the log
    failed_prompts: set[Hashable] = field(default_factory=set)  # prompts without a usable reply, even after a reminder
    # is given each event as it is added; concurrent jobs add theirs when they end
    tell: Callable[[Mapping[str, Any]], None] | None = None

    def record(self, event: str, **details: Any) -> None:
        """Append one event to the trace (JSON-serialisable details only)."""
        self._add({"event": event, **details})

    def _add(self, *events: dict[str, Any]) -> None:
        self.events += events
        if self.tell:
            for event in events:
                self.tell(event)

    def count_queries(self, queries: Sequence[Query]) -> None:
        """Count retriever calls, and how many of them repeat an earlier query of this question."""
        for query in queries:
            key = query_key(query)
            self.counts["retriever_calls"] += 1
            self.counts["duplicate_query"] += int(key in self.counted)
            self.counted.add(key)

    def flag(self, role: str, *names: str) -> None:
        """Count failures and fallbacks (`parse_failure`, `verifier_failed`, ...) under their role."""
        for name in names:
            self.by_role[role][name] += 1

    def add_call(
        self, role: str, prompt_tokens: int, completion_tokens: int, cost: float = 0.0, cached: bool = False
    ) -> None:
        """Count one language-model call. In `usage` a cached reply counts like any other."""
        row = self.by_role[role]
        row["calls"] += 1
        row["prompt_tokens"] += prompt_tokens
        row["completion_tokens"] += completion_tokens
        self.cached_calls += int(cached)
        self.cost += cost
        if cost:
            row["cost"] += cost  # type: ignore[assignment]
        self.check()

    def take(self, part: Session) -> None:
        """Add the counters and events of a job of this question; see `concurrently`."""
        self._add(*part.events)
        self.counts.update(part.counts)
        for role, row in part.by_role.items():
            self.by_role[role].update(row)
        self.cost += part.cost
        self.cached_calls += part.cached_calls
        self.failed_prompts |= part.failed_prompts

    def failed_calls(self) -> str | None:
        """Return how many calls failed after retries, and why, as the error of the question's row; None if none did."""
        failed = {role: row["llm_error"] for role, row in sorted(self.by_role.items()) if row["llm_error"]}
        if not failed:
            return None
        first = next((e["problem"] for e in self.events if e["event"] == "llm" and e["reply"] is None), "")
        counts = ", ".join(f"{role}: {n}" for role, n in failed.items())
        return f"language-model calls failed after retries ({counts}): {first}"

    def check(self) -> None:
        """Raise BudgetError when a limit is passed."""
        limits = (
            ("calls", self.total("calls"), self.budget.max_calls),
            ("tokens", self.total("prompt_tokens") + self.total("completion_tokens"), self.budget.max_tokens),
            ("seconds", time.monotonic() - self.started, self.budget.max_seconds),
            ("cost", self.cost, self.budget.max_cost),
        )
        for name, used, limit in limits:
            if limit is not None and used > limit:
                raise BudgetError(f"budget.max_{name}={limit} is used up ({used:g}); raise it or set it to null")

    def total(self, name: str) -> int:
        return sum(row[name] for row in self.by_role.values())

    def usage(self) -> dict[str, Any]:
        return {
            "llm_calls": self.total("calls"),
            "prompt_tokens": self.total("prompt_tokens"),
            "completion_tokens": self.total("completion_tokens"),
            "cost": round(self.cost, 8),
            "retriever_calls": self.counts["retriever_calls"],
            "roles": {r: {k: round(v, 8) for k, v in sorted(row.items())} for r, row in sorted(self.by_role.items())},
            "flags": {k: v for k, v in sorted(self.counts.items()) if v and k != "retriever_calls"},
        }


async def concurrently(session: Session, jobs: Sequence[Callable[[Session], Awaitable[T]]]) -> list[T]:
    """Run jobs of one question concurrently. Events follow the order of `jobs`; the first failure is raised last."""
    parts = [
        Session(
            session.question_id,
            session.budget,
            session.filter,
            started=session.started,
            failed_prompts={*session.failed_prompts},
        )
        for _ in jobs
    ]
    results = await asyncio.gather(*(job(part) for job, part in zip(jobs, parts, strict=True)), return_exceptions=True)
    for part in parts:
        session.take(part)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    session.check()
    return done


async def ask_all(name: str, role: Any, tasks: Sequence[Any], session: Session) -> list[Any]:
    """Give a role several tasks at once and count flags under `name`. All calls are logged before a BudgetError."""

    async def ask(task: Any, own: Session) -> Any:
        result = await role(task, own)
        own.flag(name, *result.flags)
        return result

    return await concurrently(session, [partial(ask, task) for task in tasks])
