"""Runs the writers of an index: many tasks at once, with results in order and usage counted. A dead server ends it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from gnnrag.errors import BudgetError, LLMError, NotGivenError
from gnnrag.index_config import IndexConfig, RoleConfig, with_own_model
from gnnrag.llm.base import Message, Request
from gnnrag.llm.cache import open_backend, with_model
from gnnrag.parts import build, part_from_settings
from gnnrag.session import Session

logger = logging.getLogger(__name__)
BATCH = 16  # tasks of a model between two writes of a stage's journal
NEWS_S = 30  # seconds between two lines on calls that are under way


def model_settings(config: IndexConfig, name: str) -> tuple[str, Any]:
    """Return a prompted writer's backend and settings; NotGivenError: none given; ConfigError: no such settings."""
    role = with_own_model(getattr(config.writers, name), config.llm)
    if not role.llm:
        raise NotGivenError(f"index.writers.{name}=prompted needs a model: give index.llm.name and its settings")
    has_settings = getattr(config.writers, name).settings is not None
    where = f"index.writers.{name}.settings" if has_settings else "index.llm"
    settings = part_from_settings("llm", role.llm, role.settings or {}, where)
    return role.llm, with_model(role.llm, settings, role.model)


class IndexTasks:
    """Writers by name: `triples`, `summary`, `report`, `curator`, `types`.

    `usage` counts calls, tokens and flags of each, for the record of a stage.
    """

    def __init__(self, config: IndexConfig) -> None:
        self.config = config
        self.usage: dict[str, Counter[str]] = {}
        self._built: dict[str, Any] = {}
        self._spent: Counter[str] = Counter()

    def identity(self, name: str) -> Any:
        """Return JSON data that changes whenever a writer's results would."""
        writer = self._writer(name)
        options = getattr(self.config.writers, name).options
        identity: list[Any] = [writer.name.partition(".")[2], options, writer.version]
        if prompters := writer.prompters:
            identity += [[p.prompt.digest for p in prompters], dict(prompters[0].backend.identity)]
        return identity

    def batch(self, name: str, offline: int) -> int:
        """Return how many tasks to run between two journal writes: few where a model is called, else `offline`."""
        return min(BATCH, offline) if self._writer(name).prompters else offline

    def run(self, name: str, tasks: Sequence[Any], concurrency: int = 16) -> list[Any]:
        """Return one result for each task, in order.

        After an error no result of these tasks is returned, not even of those that were finished: hand over no more
        than `batch` at once, and keep what comes back. The replies themselves stay in `llm_cache`. ConfigError: the
        writer has no such implementation, or lacks a model. BudgetError: `max_calls` or `max_tokens` is used up.
        LLMError: a call failed for good, and the server is at fault.
        """
        writer = self._writer(name)
        return asyncio.run(self._run(name, writer, tasks, concurrency)) if tasks else []

    async def _run(self, name: str, writer: Any, tasks: Sequence[Any], concurrency: int) -> list[Any]:
        gate, sessions = asyncio.Semaphore(concurrency), [Session(f"index-{n}") for n in range(len(tasks))]

        answered, started = 0, time.monotonic()

        async def work(task: Any, session: Session) -> Any:
            nonlocal answered
            async with gate:
                self._check_budget()
                result = await writer(task, session)
            answered += 1
            session.flag(name, *result.flags)
            self._spent.update(session.by_role[name])
            return result

        async def tell() -> None:
            while True:
                await asyncio.sleep(NEWS_S)
                past = time.monotonic() - started
                logger.warning("index: %s: %d of these %d answered after %.0f s", name, answered, len(tasks), past)

        usage = self.usage.setdefault(name, Counter())
        news = asyncio.create_task(tell())
        try:
            results = await asyncio.gather(*map(work, tasks, sessions))
            unanswered = [at for at, session in enumerate(sessions) if _is_unanswered(session.by_role[name])]
            is_up = not unanswered or await _is_up(writer)
            if unanswered and is_up:
                for at in unanswered:
                    usage.update(sessions[at].by_role[name])
                    sessions[at] = Session(sessions[at].question_id)
                again = await asyncio.gather(*(work(tasks[at], sessions[at]) for at in unanswered))
                for at, result in zip(unanswered, again, strict=True):
                    results[at] = result
                is_up = await _is_up(writer)  # it may have died meanwhile
        finally:
            news.cancel()
            for prompter in writer.prompters:
                await prompter.backend.close()
        for session in sessions:
            usage.update(session.by_role[name])
        for task, session in zip(tasks, sessions, strict=True):
            counts = session.by_role[name]
            is_own = is_up and _is_unanswered(counts)  # the server fails at this one, twice, and answers others
            if (problem := session.failed_calls()) and not is_own:
                raise LLMError(f"index: {problem}")
            if is_own or counts["rejected"] or counts["filtered"]:
                problem = next((e["problem"] for e in session.events if e["event"] == "llm" and e["problem"]), "")
                logger.warning("index: %s refused for %s: %s", name, shorten(repr(task), 120), problem)
        return results

    def count(self, name: str, usage: Counter[str]) -> None:
        """Count what a worker elsewhere has spent. Raises BudgetError where that has used up a limit."""
        self.usage.setdefault(name, Counter()).update(usage)
        self._spent.update(usage)
        self._check_budget()

    def _check_budget(self) -> None:
        """Refuse further tasks where what is done has used up a limit."""
        tokens = self._spent["prompt_tokens"] + self._spent["completion_tokens"]
        for limit, spent in (("max_calls", self._spent["calls"]), ("max_tokens", tokens)):
            allowed = getattr(self.config, limit)
            if allowed is not None and spent >= allowed:
                raise BudgetError(
                    f"index.{limit}={allowed} is used up ({spent}); all finished batches of {BATCH} are kept, and the "
                    "same command with a higher limit goes on from there"
                )

    def record(self, name: str) -> dict[str, float]:
        """Return what a writer has spent, for a stage's info; nothing where it called no model."""
        spent = sorted(self.usage.get(name, Counter()).items())
        return {f"{name} {key}": round(count, 8) for key, count in spent if count}

    def _writer(self, name: str) -> Any:
        if name not in self._built:
            writers: Any = self.config.writers
            role: RoleConfig = getattr(writers, name)
            # Which records a model writes is a property of the extraction, not of who writes them.
            is_triples = name == "triples"
            impl = self.config.extract.format if is_triples else role.impl or writers.default
            settings = part_from_settings("writer", f"{name}.{impl}", role.options, f"index.writers.{name}.options")
            given: dict[str, Any] = {}
            if is_triples or impl == "prompted":
                backend, llm = model_settings(self.config, name)
                given = {"backend": open_backend("index.llm", backend, llm, self.config.llm_cache)}
            self._built[name] = build("writer", settings, **given)
        return self._built[name]


async def _is_up(writer: Any) -> bool:
    """Tell whether the server answers a request that nothing can be wrong with, and that no cache knows."""
    hello = Request((Message("user", f"Say: {time.time_ns()}"),), max_tokens=32)
    try:
        await writer.prompters[0].backend.generate(hello)
    except LLMError:
        return False
    return True


def _is_unanswered(counts: Counter[str]) -> bool:
    """Tell whether calls failed, and all for reasons that may be the server's or the request's."""
    return 0 < counts["llm_error"] == counts["timeout"] + counts["unanswered"]
