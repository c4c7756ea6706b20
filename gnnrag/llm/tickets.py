"""What goes between the backends of local models and the thread that runs one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Protocol

from gnnrag.llm.base import Reply, Request


@dataclass(frozen=True)
class Job:
    """A request with all that its backend's settings decide; backends with other settings may share the model.

    Attributes:
        request: what to answer.
        temperature: 0 is greedy.
        top_p: of the probability mass, how much is sampled from.
        seed: of this request alone.
        schema: JSON schema to constrain the reply to, or None.
        adapter: folder of the LoRA adapter to answer with, or None.
        name: the model's, for replies and errors.
        chat, options: how messages become a prompt; see `gnnrag.llm.chat.encode`.
        context: most tokens of prompt and reply; None takes the model's own limit.
        presence_penalty: taken from the score of each token that the reply has already.
    """

    request: Request
    temperature: float
    top_p: float
    seed: int
    schema: Mapping[str, Any] | None = None
    adapter: str | None = None
    name: str = ""
    chat: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    presence_penalty: float = 0.0


@dataclass(eq=False)
class Ticket:
    """A job, and the future that somebody awaits."""

    job: Job
    future: Future[Reply] = field(default_factory=Future)

    @property
    def is_over(self) -> bool:
        """Answered, failed, or given up by the one who asked."""
        return self.future.done()

    def finish(self, outcome: Reply | Exception) -> None:
        """Give the answer or the error; one who has given up is not told."""
        try:
            if isinstance(outcome, Reply):
                self.future.set_result(outcome)
            else:
                self.future.set_exception(outcome)
        except InvalidStateError:  # cancelled
            return


@dataclass(frozen=True)
class Limits:
    """Of one batch: rows, rows times the widest, and the share of padding among its prompts."""

    rows: int
    tokens: int
    padding: float

    def allow(self, prompts: Sequence[int], replies: Sequence[int]) -> bool:
        """Whether prompts and replies of these lengths make one batch; a single one always does."""
        size, widest = len(prompts), max(prompts)
        fits = size <= self.rows and size * (widest + max(replies)) <= self.tokens
        return size == 1 or (fits and sum(prompts) >= (1 - self.padding) * size * widest)


class Model(Protocol):
    """What runs in the thread; only that thread ever touches it."""

    def take(self, tickets: Sequence[Ticket]) -> None:
        """Accept tickets; one that cannot be answered (too long a prompt) is finished with its error at once."""
        ...

    def advance(self) -> None:
        """Do a part of the work and finish what is ready. An exception means that the model is beyond use."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether `advance` has something to do."""
        ...
