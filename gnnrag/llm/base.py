"""Messages, requests and replies of language models, and what every model offers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gnnrag.errors import LLMError
from gnnrag.io import well_formed
from gnnrag.parts import Part

Speaker = Literal["system", "user", "assistant"]


class RejectedError(LLMError):
    """This one request cannot be answered (status 400, 413, 422): others can, and asking again changes nothing."""

    kind = "rejected"


class ContentFilterError(RejectedError):
    """The provider's content filter stopped the request."""

    kind = "filtered"


class ContextLengthError(RejectedError):
    """The prompt does not fit into the model's context: show fewer or shorter passages."""

    kind = "too_long"


class UnansweredError(LLMError):
    """The server failed at this request: a lost connection, an error page, status 5xx, 403 without a reason.

    It may be the server's fault or the request's; that other requests are answered shows which.
    """

    kind = "unanswered"


class NoReplyError(UnansweredError):
    """No reply came within the time limit."""

    kind = "timeout"


@dataclass(frozen=True, slots=True)
class Message:
    role: Speaker
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One call; temperature or seed None leaves it to the model's own setting.

    Stable text goes first in `messages`, so that servers can reuse its prefix. Servers differ on whether a reply keeps
    its `stop` string, and some ignore the JSON `schema`, so replies are always parsed and validated. `raw` continues
    the joined text without a chat template; its reply keeps the stop string, where the server tells which it was.
    """

    messages: tuple[Message, ...]
    max_tokens: int = 512
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    schema: Mapping[str, Any] | None = None
    raw: bool = False

    @property
    def text(self) -> str:
        """All messages as one string: what `raw` continues and what scripted rules look at."""
        return ("" if self.raw else "\n").join(m.content for m in self.messages)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply.

    `finish_reason` is `stop` (complete), `length` (cut at max_tokens), `content_filter`, or the server's own word;
    `cost` is in the currency of the prices, for a cached reply what it cost when it was made; `is_estimated`: the
    server sent no token counts.
    """

    text: str
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    cached: bool = False
    model: str = ""
    is_estimated: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", well_formed(self.text))  # JSON may hold half a surrogate pair, files may not

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that a run counts."""
        return ("usage_estimated",) if self.is_estimated else ()


def without_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages for a model without system messages: the first one is put before the next."""
    if len(messages) < 2 or messages[0].role != "system":
        return tuple(messages)
    return (replace(messages[1], content=f"{messages[0].content}\n\n{messages[1].content}"), *messages[2:])


class Backend(Part):
    """A language model. One object serves many coroutines, and may be used from several event loops."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """All but the request that decides a reply (kind, model, server, sampling), as a cache key; never a secret."""
        raise NotImplementedError

    @property
    def wants_small(self) -> bool:
        """Whether prompted roles give it the small variants of their prompts."""
        return False

    async def generate(self, request: Request) -> Reply:
        """Answer one request. RejectedError: this request never will be; LLMError: the model cannot be asked."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections of the running event loop; the model may be used again afterwards."""


Variant = Literal["auto", "full", "small"]

SMALL_BELOW = 2e9  # parameters: 1 of 17 replies of a 1.5B to the full reader prompt never ended, 0 of 20 to the small
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([mb])(?![A-Za-z0-9])", re.IGNORECASE)  # 135M, 0.5B, 7b


def wants_small(prompts: Variant, model: str, parameters: float = 0) -> bool:
    """Tell whether a model gets the prompts for small models; `auto` goes by the size in its name, or `parameters`."""
    if prompts != "auto":
        return prompts == "small"
    name = re.split(r"[/\\]", model.rstrip("/\\"))[-1]
    sizes = [float(number) * (1e6 if unit in "mM" else 1e9) for number, unit in _SIZE.findall(name)]
    return 0 < max(sizes, default=parameters) < SMALL_BELOW
