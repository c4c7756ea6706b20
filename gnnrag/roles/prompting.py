"""Prompted roles: render, generate, parse, one retry, and a record of it all.

Calls, tokens, malformed replies and model errors are counted here; the flags of a role's result by whoever called it. A
reply that cannot be used counts as `parse_failure`, and under its reason where that is known: `cut_off` (at the limit
of its length), `empty`, `loop`, `refused`, `filtered`, `no_answer`, `no_fact`, `out_of_range`. A reply cut off has
failed; a prompter with `keeps_cut` reads it, and counts `cut_off` and `cut_but_read`. A request that is rejected for
what it holds (too long, filtered) counts as `rejected`, a model that cannot be asked as `llm_error`, both also under
the error's `kind`. A prompt that failed, reminder included, is not sent again for the same question where sampling is
greedy: that counts as `repeated_prompt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from gnnrag.errors import BudgetError, LLMError
from gnnrag.io import well_formed
from gnnrag.llm.base import Backend, Message, RejectedError, Reply, Request
from gnnrag.prompts import SMALL, bounded, load_prompt
from gnnrag.roles.base import ResultT, Role, TaskT
from gnnrag.roles.parsing import CUT_OFF, EMPTY, FILTERED, LOOP, MAX_REPLY, parsed
from gnnrag.roles.parsing import MalformedError as MalformedError
from gnnrag.session import Session
from gnnrag.types import to_dict

T = TypeVar("T")
Failure = Literal["", "parse_failure", "rejected", "llm_error"]
Messages = tuple[Message, ...]
REMINDER = "Reply in exactly the format asked for, and with nothing else."


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

    messages: Messages
    reply: Reply | None = None
    problem: str = ""
    flags: tuple[str, ...] = ()  # what it is counted as


@dataclass(slots=True)
class _Exchange(Generic[T]):
    """All attempts of one ask, kept apart from the session until they are booked in order."""

    key: Hashable  # what was asked for, and how
    attempts: list[_Attempt] = field(default_factory=list)
    value: T | None = None
    failure: Failure = ""

    @property
    def outcome(self) -> Outcome[T]:
        reply = self.attempts[-1].reply if self.attempts else None
        return Outcome(self.value, self.failure, reply.text if reply else "")


class Prompter:
    """One role's way to its language model."""

    def __init__(
        self,
        role: str,  # name under which calls, tokens and failures are counted
        backend: Backend,
        config: Any,
        prompt: str = "",  # default name; `config.prompt` goes before it
        options: Sequence[str] = (),  # optional sentences of the prompt
        raw: bool = False,  # the reply continues the prompt's own text, without a chat template and without a reminder
        tries: int = 2,  # replies asked for before a malformed one counts as a failure
        *,
        keeps_cut: bool = False,  # read a reply that was cut off: for parsers that take what is whole in it
    ) -> None:
        self.role, self.backend, self.config, self.raw, self.tries = role, backend, config, raw, tries
        self.keeps_cut = keeps_cut
        small = SMALL if backend.wants_small and not raw else ""
        self.prompt = load_prompt(config.prompt or f"{prompt or role}{small}", *options)

    async def ask(
        self,
        session: Session,
        values: Mapping[str, str],
        parse: Callable[[str], T],
        before: Messages = (),
        shown: int | None = None,
    ) -> Outcome[T]:
        """Ask once; a malformed reply is counted and asked for once more. Never raises LLMError.

        `values` has one for each placeholder; `parse` raises MalformedError; `before` holds the earlier turns of the
        conversation; `shown`, how many things the prompt numbers from 1, bounds the integers in the reply's schema.
        """
        return (await self.ask_many(session, [values], parse, before, [shown]))[0]

    async def ask_many(
        self,
        session: Session,
        batch: Sequence[Mapping[str, str]],
        parse: Callable[[str], T] | Sequence[Callable[[str], T]],
        before: Messages = (),
        shown: Sequence[int | None] = (),
    ) -> list[Outcome[T]]:
        """Ask for each of `batch` concurrently; recorded in order, so that traces do not depend on timing."""
        parsers = [parse] * len(batch) if callable(parse) else parse
        rows = zip(batch, parsers, shown or [None] * len(batch), strict=True)
        tasks = [asyncio.ensure_future(self._exchange(session, values, one, before, n)) for values, one, n in rows]
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
        return [exchange.outcome for exchange in exchanges]

    async def _exchange(
        self,
        session: Session,
        values: Mapping[str, str],
        parse: Callable[[str], T],
        before: Messages,
        shown: int | None,
    ) -> _Exchange[T]:
        """Generate and parse, `tries` times at most."""
        messages, c = (*before, *self.prompt.render(**values)), self.config
        exchange: _Exchange[T] = _Exchange((self.role, messages, c.max_tokens, c.temperature, c.seed))
        if exchange.key in session.failed_prompts:
            exchange.failure = "parse_failure"
            return exchange
        schema = bounded(self.prompt.schema, shown) if self.prompt.schema and shown else self.prompt.schema
        for turn in (messages, *(self._reminded(messages, number) for number in range(2, self.tries + 1))):
            if exchange.attempts and turn == messages and self._is_greedy():
                break  # a raw prompt has no reminder
            exchange.attempts.append(attempt := _Attempt(turn))
            request = Request(turn, c.max_tokens, c.temperature, self.prompt.stop, c.seed, schema, raw=self.raw)
            try:
                attempt.reply = await self.backend.generate(request)
                is_cut = attempt.reply.finish_reason == "length"
                if attempt.reply.finish_reason == "content_filter":
                    raise MalformedError("stopped by the provider's content filter", FILTERED)
                text = attempt.reply.text
                exchange.value = parsed(text, parse, messages[-1].content, is_cut and not self.keeps_cut)
                exchange.failure, attempt.flags = "", (CUT_OFF, "cut_but_read") if is_cut else ()
                break
            except LLMError as error:
                exchange.failure = "rejected" if isinstance(error, RejectedError) else "llm_error"
                attempt.problem = well_formed(str(error))
                attempt.flags = (exchange.failure, error.kind if error.kind != exchange.failure else "")
                break
            except MalformedError as error:
                exchange.failure, attempt.problem = "parse_failure", str(error) or "malformed"
                reason = CUT_OFF if is_cut and error.reason != LOOP else error.reason if text_of(attempt) else EMPTY
                attempt.flags = ("parse_failure", reason)
                if error.reason == FILTERED:
                    break
        return exchange

    def _is_greedy(self) -> bool:
        """Whether the same prompt gets the same reply; null leaves the temperature to the server."""
        own = self.config.temperature
        return (self.backend.identity.get("temperature", 0.0) if own is None else own) == 0

    def _reminded(self, messages: Messages, number: int) -> Messages:
        """Append the reminder to the last turn: everything before it stays cached, and no bad reply is quoted."""
        if self.raw:
            return messages
        reminder = self.prompt.reminder or REMINDER
        if number > 2:  # else a response cache would give the same reply again
            reminder += f" (Try {number}.)"
        return (*messages[:-1], replace(messages[-1], content=f"{messages[-1].content}\n\n{reminder}"))

    def _book(self, session: Session, exchange: _Exchange[T]) -> BudgetError | None:
        """Write an exchange into the session; returns the error of a budget that it exceeds."""
        over_budget = None
        if not exchange.attempts:
            session.record("repeated_prompt", role=self.role, prompt=self.prompt.name)
            session.flag(self.role, "repeated_prompt")
        elif exchange.failure == "parse_failure" and self._is_greedy():
            session.failed_prompts.add(exchange.key)
        for attempt in exchange.attempts:
            reply = attempt.reply
            text, finish = (reply.text[:MAX_REPLY], reply.finish_reason) if reply else (None, None)
            session.record(
                "llm", role=self.role, prompt=self.prompt.name, messages=[to_dict(m) for m in attempt.messages],
                reply=text, finish_reason=finish, problem=attempt.problem,
            )  # fmt: skip
            session.flag(self.role, *filter(None, attempt.flags))
            if reply is None:
                continue
            session.flag(self.role, *reply.flags)
            try:
                session.add_call(self.role, reply.prompt_tokens, reply.completion_tokens, reply.cost, reply.cached)
            except BudgetError as error:
                over_budget = error
        return over_budget


def text_of(attempt: _Attempt) -> str:
    """Return the text of an attempt's reply without blanks around it."""
    return attempt.reply.text.strip() if attempt.reply else ""


class PromptedRole(Role[TaskT, ResultT]):
    """Base of prompted roles: a role adds values, parser and fallback; `prompt` empty: the prompt named as `role`."""

    config_class: ClassVar[type[PromptedConfig]] = PromptedConfig
    role: ClassVar[str]
    prompt: ClassVar[str] = ""

    def __init__(self, backend: Backend, config: Any = None) -> None:
        self.config: Any = config or self.config_class()
        self.prompters = (Prompter(self.role, backend, self.config, self.prompt),)
        self.ask, self.ask_many = self.prompters[0].ask, self.prompters[0].ask_many


@dataclass(eq=False)
class PromptedPart(Role[TaskT, ResultT]):
    """Base of prompted roles that are parts: a role adds values, parser and fallback."""

    prompt_name: ClassVar[str] = ""  # of the packaged prompt; empty: that of the role's name

    prompt: str = ""  # a packaged prompt by name, or the path of a .yaml file, in place of the role's own
    temperature: float | None = None  # null: the backend's, like seed
    max_tokens: int = 512
    seed: int | None = None

    def setup(self) -> None:
        """Load the prompt."""
        self.prompters = (Prompter(self.name.split(".")[0], self.backend, self, self.prompt_name),)
        self.ask, self.ask_many = self.prompters[0].ask, self.prompters[0].ask_many


def at_most(tokens: int) -> type[PromptedConfig]:
    """Return the settings of a role whose replies are that long, where nothing else is set."""
    return make_dataclass("PromptedConfig", [("max_tokens", int, tokens)], bases=(PromptedConfig,))
