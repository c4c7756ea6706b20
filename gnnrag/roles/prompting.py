"""What all prompted roles share: render, generate, parse, one retry, and a record of it all.

A role file holds what is its own: the values that go into its prompt, the parser of its replies, and its fallback.
Calls, tokens, malformed replies, refusals and model errors are counted here; the flags of a role's result by whoever
called it. A prompted role names its prompters in `prompters`, so that a run can record their prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from gnnrag.errors import BudgetError, LLMError
from gnnrag.llm.base import Backend, Message, Reply, Request
from gnnrag.prompts.load import Prompt, load_prompt
from gnnrag.prompts.quoting import unquoted
from gnnrag.roles.parsing import is_refusal
from gnnrag.session import Session
from gnnrag.types import shallow

T = TypeVar("T")
Failure = Literal["", "parse_failure", "llm_error"]
REFUSED = "refused"  # problem of a reply that refuses, and the name it is counted under


class MalformedError(ValueError):
    """Raised by a parser: the reply does not have the format that was asked for."""


@dataclass
class PromptedConfig:
    """Settings that every prompted role has. Sampling settings left at null are the backend's."""

    prompt: str = ""  # name of a packaged prompt or path of a .yaml file; empty means the role's own
    temperature: float | None = None
    max_tokens: int = 512
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What asking gave: a parsed value, or the reason why there is none."""

    value: T | None
    failure: Failure = ""
    reply: str = ""  # the last reply's text as it was parsed, empty when there was none


@dataclass(slots=True)
class _Attempt:
    """One request and what became of it."""

    messages: tuple[Message, ...]
    reply: Reply | None = None
    problem: str = ""


@dataclass(slots=True)
class _Exchange(Generic[T]):
    """All attempts of one ask, kept apart from the session until they are booked."""

    prompt: Prompt
    attempts: list[_Attempt] = field(default_factory=list)
    value: T | None = None
    failure: Failure = ""
    text: str = ""  # of the last reply, as it was parsed

    def outcome(self) -> Outcome[T]:
        return Outcome(self.value, self.failure, self.text if self.attempts[-1].reply else "")


class Prompter:
    """One role's way to its language model.

    Args:
        role: name under which calls, tokens and failures are counted.
        backend: the language model.
        config: sampling settings.
        prompt: default prompt name; `config.prompt` goes before it.
        options: optional sentences of the prompt.
        raw: the reply continues the prompt's own text, without a chat template and without a reminder.
        tries: how many replies are asked for before a malformed one counts as a failure.
    """

    def __init__(
        self,
        role: str,
        backend: Backend,
        config: PromptedConfig,
        prompt: str = "",
        options: Sequence[str] = (),
        raw: bool = False,
        tries: int = 2,
    ) -> None:
        self.role, self.backend, self.config, self.raw, self.tries = role, backend, config, raw, tries
        self.prompt = load_prompt(config.prompt or prompt or role, *options)

    async def ask(
        self,
        session: Session,
        values: Mapping[str, str],
        parse: Callable[[str], T],
        before: tuple[Message, ...] = (),
    ) -> Outcome[T]:
        """Ask once; a malformed reply is counted and asked for once more. Never raises LLMError.

        Args:
            session: the question's record.
            values: one for each placeholder of the prompt.
            parse: turns the reply's text into the value; raises MalformedError.
            before: the turns of a conversation that this one continues.
        """
        return (await self.ask_many(session, [values], parse, before))[0]

    async def ask_many(
        self,
        session: Session,
        batch: Sequence[Mapping[str, str]],
        parse: Callable[[str], T],
        before: tuple[Message, ...] = (),
    ) -> list[Outcome[T]]:
        """Ask for each of `batch` concurrently; booked in their order, so that traces do not depend on timing."""
        tasks = [asyncio.ensure_future(self._exchange(values, parse, before)) for values in batch]
        try:
            exchanges = await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # after a cancellation or a bug none may go on spending
                task.cancel()
        over_budget: BudgetError | None = None
        for exchange in exchanges:
            over_budget = self._book(session, exchange) or over_budget
        if over_budget:  # only now, so that every call already paid for is in the books
            raise over_budget
        return [exchange.outcome() for exchange in exchanges]

    async def _exchange(
        self, values: Mapping[str, str], parse: Callable[[str], T], before: tuple[Message, ...]
    ) -> _Exchange[T]:
        """Generate and parse, `tries` times at most. Quotations are out of a reply before any parser sees it."""
        exchange: _Exchange[T] = _Exchange(self.prompt)
        messages = (*before, *self.prompt.render(**values))
        for turn in (messages, *(self._reminded(messages, number) for number in range(2, self.tries + 1))):
            attempt = _Attempt(turn)
            exchange.attempts.append(attempt)
            try:
                attempt.reply = await self.backend.generate(self._request(turn))
                exchange.text = unquoted(attempt.reply.text, messages[-1].content)
                if is_refusal(exchange.text):
                    raise MalformedError(REFUSED)
                exchange.value, exchange.failure = parse(exchange.text), ""
                break
            except LLMError as error:
                exchange.failure, attempt.problem = "llm_error", str(error)
                break
            except MalformedError as error:
                exchange.failure, attempt.problem = "parse_failure", str(error) or "malformed"
        return exchange

    def _request(self, messages: tuple[Message, ...]) -> Request:
        c = self.config
        return Request(
            messages, c.max_tokens, c.temperature, self.prompt.stop, c.seed, self.prompt.schema, raw=self.raw
        )

    def _reminded(self, messages: tuple[Message, ...], number: int) -> tuple[Message, ...]:
        """Append the reminder to the last turn: everything before it stays cached, and no bad reply is quoted."""
        if self.raw:
            return messages
        reminder = self.prompt.reminder or "Reply in exactly the format asked for, and with nothing else."
        if number > 2:  # else a response cache would give the same reply again
            reminder += f" (Try {number}.)"
        return (*messages[:-1], replace(messages[-1], content=f"{messages[-1].content}\n\n{reminder}"))

    def _book(self, session: Session, exchange: _Exchange[T]) -> BudgetError | None:
        """Write an exchange into the session; returns the error of a budget that it exceeds."""
        over_budget = None
        for attempt in exchange.attempts:
            reply = attempt.reply
            session.record(
                "llm",
                role=self.role,
                prompt=exchange.prompt.name,
                messages=[shallow(m) for m in attempt.messages],
                reply=reply.text if reply else None,
                finish_reason=reply.finish_reason if reply else None,
                problem=attempt.problem,
            )
            if attempt.problem:
                refused = [REFUSED] if attempt.problem == REFUSED else []
                session.flag(self.role, "parse_failure" if reply else "llm_error", *refused)
            if reply is None:
                continue
            session.flag(self.role, *["usage_estimated"] * reply.is_estimated)
            try:
                session.add_call(self.role, reply.prompt_tokens, reply.completion_tokens, reply.cost, reply.cached)
            except BudgetError as error:
                over_budget = error
        return over_budget
