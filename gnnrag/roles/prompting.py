"""Prompted roles: render a prompt, generate, parse, retry, and record each call.

Calls, tokens, malformed replies and model errors are counted here; callers count the flags of a role's result. A reply
that cannot be used counts as `parse_failure`, and also under its reason if known (`gnnrag.roles.parsing`). A truncated
reply fails, unless `keeps_cut` lets the parser read it; then it counts as `cut_off` and `cut_but_read`. A request
rejected for its content (too long, filtered) counts as `rejected`, and any other error of the model as `llm_error`;
both also count under the error's `kind`. With greedy sampling, a prompt whose tries all failed to parse is not sent
again for the same question; that counts as `repeated_prompt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from gnnrag.errors import BudgetError, LLMError
from gnnrag.io import well_formed
from gnnrag.llm.base import Backend, Message, RejectedError, Reply, Request
from gnnrag.prompts import SMALL, bounded, load_prompt
from gnnrag.roles.base import ResultT, Role, TaskT
from gnnrag.roles.parsing import CUT_OFF, EMPTY, FILTERED, MAX_REPLY, read_reply
from gnnrag.roles.parsing import MalformedError as MalformedError
from gnnrag.session import Session
from gnnrag.types import to_dict

T = TypeVar("T")
Failure = Literal["", "parse_failure", "rejected", "llm_error"]
Messages = tuple[Message, ...]
REMINDER = "Reply in exactly the format asked for, and with nothing else."


@dataclass(slots=True)
class Attempt:
    messages: Messages
    reply: Reply | None = None
    problem: str = ""
    flags: tuple[str, ...] = ()  # the counters that it adds to


@dataclass(slots=True)
class Outcome(Generic[T]):
    """The parsed reply to a prompt, or the reason why there is none."""

    value: T | None = None
    failure: Failure = ""
    attempts: list[Attempt] = field(default_factory=list)  # empty: this prompt has failed before

    @property
    def reply(self) -> str:
        """The text of the last reply; empty when there was none."""
        last = self.attempts[-1].reply if self.attempts else None
        return last.text if last else ""


class Prompter:
    """Sends one prompt of a role to its language model, with sampling settings (None: those of the backend)."""

    def __init__(
        self,
        role: str,  # name under which calls, tokens and failures are counted
        backend: Backend,
        packaged: str,  # name of the packaged prompt; `prompt` replaces it
        options: Sequence[str] = (),  # optional sentences of the prompt
        *,
        prompt: str = "",
        max_tokens: int = 512,
        temperature: float | None = None,
        seed: int | None = None,
        raw: bool = False,  # the reply continues the prompt's own text, without chat template or reminder
        tries: int = 2,  # replies asked for before a malformed one counts as a failure
        keeps_cut: bool = False,  # parse truncated replies, for parsers that use only complete items
    ) -> None:
        self.role, self.backend, self.raw, self.tries, self.keeps_cut = role, backend, raw, tries, keeps_cut
        self.max_tokens, self.temperature, self.seed = max_tokens, temperature, seed
        small = SMALL if backend.wants_small and not raw else ""
        self.prompt = load_prompt(prompt or packaged + small, *options)
        # Greedy: the same prompt gets the same reply
        self.is_greedy = (backend.identity.get("temperature", 0.0) if temperature is None else temperature) == 0

    async def ask(
        self,
        session: Session,
        values: Mapping[str, str],
        parse: Callable[[str], T],
        before: Messages = (),
        shown: int | None = None,
    ) -> Outcome[T]:
        """Ask, and ask again while the reply is malformed, at most `tries` times. Never raises LLMError.

        `values` fills the placeholders; `parse` raises MalformedError; `before` holds the earlier turns of the
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
        """Ask for each of `batch` concurrently, but record in order, so that traces do not depend on timing."""
        parsers = [parse] * len(batch) if callable(parse) else parse
        prompts = [(*before, *self.prompt.render(**values)) for values in batch]
        rows = zip(prompts, parsers, shown or [None] * len(batch), strict=True)
        tasks = [asyncio.ensure_future(self._try(session, *row)) for row in rows]
        try:
            outcomes = await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # after a cancellation or an exception, no call may run on
                task.cancel()
        for messages, outcome in zip(prompts, outcomes, strict=True):
            self._book(session, messages, outcome)
        session.check()  # only now, when every call already paid for is recorded
        return outcomes

    async def _try(
        self, session: Session, messages: Messages, parse: Callable[[str], T], shown: int | None
    ) -> Outcome[T]:
        outcome: Outcome[T] = Outcome()
        if self._key(messages) in session.failed_prompts:
            outcome.failure = "parse_failure"
            return outcome
        schema = bounded(self.prompt.schema, shown) if self.prompt.schema and shown else self.prompt.schema
        for number in range(1, self.tries + 1):
            turn = messages if number == 1 or self.raw else self._reminded(messages, number)
            if number > 1 and self.raw and self.is_greedy:
                break
            outcome.attempts.append(attempt := Attempt(turn))
            request = Request(
                turn, self.max_tokens, self.temperature, self.prompt.stop, self.seed, schema, raw=self.raw
            )
            try:
                reply = attempt.reply = await self.backend.generate(request)
                is_cut = reply.finish_reason == "length"
                if reply.finish_reason == "content_filter":
                    raise MalformedError("stopped by the provider's content filter", FILTERED)
                outcome.value = read_reply(reply.text, parse, is_cut and not self.keeps_cut)
                outcome.failure, attempt.flags = "", (CUT_OFF, "cut_but_read") if is_cut else ()
                break
            except LLMError as error:
                outcome.failure = "rejected" if isinstance(error, RejectedError) else "llm_error"
                attempt.problem = well_formed(str(error))
                attempt.flags = (outcome.failure, error.kind if error.kind != outcome.failure else "")
                break
            except MalformedError as error:
                outcome.failure, attempt.problem = "parse_failure", str(error) or "malformed"
                is_blank = not reply.text.strip() and error.reason != FILTERED
                reason = CUT_OFF if is_cut else EMPTY if is_blank else error.reason
                attempt.flags = ("parse_failure", reason)
                if error.reason == FILTERED:
                    break
        return outcome

    def _key(self, messages: Messages) -> Hashable:
        return self.role, messages, self.max_tokens, self.temperature, self.seed

    def _reminded(self, messages: Messages, number: int) -> Messages:
        """Append the reminder to the last turn. The text before it stays cached, and the bad reply is not quoted."""
        reminder = self.prompt.reminder or REMINDER
        if number > 2:  # else a response cache would give the same reply again
            reminder += f" (Try {number}.)"
        return (*messages[:-1], replace(messages[-1], content=f"{messages[-1].content}\n\n{reminder}"))

    def _book(self, session: Session, messages: Messages, outcome: Outcome[Any]) -> None:
        if not outcome.attempts:
            session.record("repeated_prompt", role=self.role, prompt=self.prompt.name)
            session.flag(self.role, "repeated_prompt")
        elif outcome.failure == "parse_failure" and self.is_greedy:
            session.failed_prompts.add(self._key(messages))
        for attempt in outcome.attempts:
            reply = attempt.reply
            text, finish = (reply.text[:MAX_REPLY], reply.finish_reason) if reply else (None, None)
            session.record(
                "llm", role=self.role, prompt=self.prompt.name, messages=[to_dict(m) for m in attempt.messages],
                reply=text, finish_reason=finish, problem=attempt.problem,
            )  # fmt: skip
            session.flag(self.role, *filter(None, attempt.flags))
            if reply is not None:
                session.flag(self.role, *reply.flags)
                with suppress(BudgetError):  # `ask_many` checks when all calls are recorded
                    session.add_call(self.role, reply.prompt_tokens, reply.completion_tokens, reply.cost, reply.cached)


@dataclass(eq=False)
class PromptedPart(Role[TaskT, ResultT]):
    """Base of prompted roles; a role adds its values, its parser and what it returns on failure."""

    prompt_name = ""  # of its packaged prompt; empty: the role's name

    prompt: str = ""  # a packaged prompt by name, or the path of a .yaml file, in place of the role's own
    temperature: float | None = None  # null: the backend's, like seed
    max_tokens: int = 512
    seed: int | None = None

    def setup(self) -> None:
        self.prompters = (self.prompter(self.prompt_name),)
        self.ask, self.ask_many = self.prompters[0].ask, self.prompters[0].ask_many

    def prompter(
        self, packaged: str = "", *options: str, is_replaceable: bool = True, max_tokens: int = 0, **more: Any
    ) -> Prompter:
        """Return a prompter with the role's settings; `prompt` replaces the packaged one if `is_replaceable`."""
        role = self.name.split(".")[0]
        return Prompter(
            role, self.backend, packaged or role, options, prompt=self.prompt if is_replaceable else "",
            max_tokens=max_tokens or self.max_tokens, temperature=self.temperature, seed=self.seed, **more,
        )  # fmt: skip
