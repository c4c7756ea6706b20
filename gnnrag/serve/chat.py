"""The API that OpenAI's clients speak: `/v1/models`, `/v1/chat/completions`. A model is INDEX/METHOD[/RETRIEVER]."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby, zip_longest
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from pydantic import Field

from gnnrag.run.answers import Answer
from gnnrag.serve.guard import as_response
from gnnrag.serve.indexes import LONGEST, Ask, Problem, ServedIndex
from gnnrag.serve.rest import (
    MOST_TURNS,
    Body,
    Condition,
    EventStream,
    Limits,
    served,
    server_of,
    until_gone,
)

router = APIRouter(prefix="/v1")
_SOURCES = "\n\nSources:\n"
_MARK = re.compile(r" ?\[\d{1,3}\]")
_NO_ANSWER = "The passages do not say."
_PIECE = 40  # characters of one chunk
_MODEL = {"object": "model", "created": 0, "owned_by": "gnnrag"}


class Message(Body):
    """A message as clients send it: a text, or a list of parts, of which the texts are read."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] = ""

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content.strip()
        return "\n".join(str(part.get("text", "")) for part in self.content if part.get("type") == "text").strip()


class ChatBody(Body):
    """A request for a completion; what is for a language model only (temperature, tools, ...) has no effect."""

    model: str = Field(max_length=300)
    messages: list[Message] = Field(min_length=1)
    stream: bool = False
    stream_options: dict[str, Any] = Field({})
    n: Literal[1] = 1
    filter: Condition | None = None
    budget: Limits = Limits()


@router.get("/models")
async def models(request: Request) -> dict[str, Any]:
    """List what may be asked: each index with each of its methods, on the retriever of the settings."""
    ids = []
    for name, target in server_of(request).served.items():
        if request.state.caller.may("ask", name):
            try:
                ids += [f"{name}/{method}" for method in (await target.parts())["methods"]]
            except Problem:  # no documents yet, or being built
                continue
    return {"object": "list", "data": [{**_MODEL, "id": id_} for id_ in ids]}


@router.get("/models/{model:path}")
async def model(request: Request, model: str) -> dict[str, Any]:
    """Tell whether there is such a model."""
    target, method, retriever = _parts(request, model)
    await target.check(Ask("-", (), method, retriever))
    return {**_MODEL, "id": model}


def _parts(request: Request, model: str) -> tuple[ServedIndex, str | None, str | None]:
    name, *parts = model.split("/")
    if len(parts) > 2:
        raise Problem(404, "a model is INDEX/METHOD or INDEX/METHOD/RETRIEVER; GET /v1/models lists them")
    method, retriever = [part or None for part in (*parts, "", "")[:2]]
    return served(request, name), method, retriever


@router.post("/chat/completions", response_model=None)
async def completions(request: Request, body: ChatBody) -> dict[str, Any] | EventStream:
    """Answer the last message of the user; what was said before makes it a question of its own.

    The text names its sources ([1], and a list); `annotations` say which passages they are.
    """
    messages = [(message.role, message.text) for message in body.messages if message.role in ("user", "assistant")]
    questions = [place for place, (role, text) in enumerate(messages) if role == "user" and text]
    if not questions:
        raise Problem(400, "messages: there is none of the user with a text in it")
    target, method, retriever = _parts(request, body.model)
    question, history = messages[questions[-1]][1], _turns(messages[: questions[-1]])
    ask = Ask(question, history[-MOST_TURNS:], method, retriever, body.budget.model_dump(), body.filter)
    if body.stream:
        await target.check(ask)
        return EventStream(_chunks(request, target, body, ask))
    answer = await until_gone(request, server_of(request).answer(target, ask))
    if problem := _failure(answer):
        raise problem
    text, notes = _rendered(request, target, answer)
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": notes}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return {**_object(body.model, "chat.completion"), "choices": [choice], "usage": _usage(answer)}


def _turns(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return earlier questions with the answers that followed them, without their sources."""
    turns: list[tuple[str, str]] = []
    for (role, text), (following, reply) in zip_longest(messages, messages[1:], fillvalue=("", "")):
        if role == "user":
            bare = _MARK.sub("", reply.partition(_SOURCES)[0]).strip() if following == "assistant" else ""
            turns.append((text[:LONGEST], "" if bare == _NO_ANSWER else bare[:LONGEST]))
    return turns


def _failure(answer: Answer) -> Problem | None:
    if answer.error is None:
        return None
    return Problem(504 if answer.error.startswith("budget.") else 502, answer.error)


def _rendered(request: Request, target: ServedIndex, answer: Answer) -> tuple[str, list[dict[str, Any]]]:
    """Return an answer's text with its sources, and the annotations that say where in it they are named."""
    if not answer.text:
        return _NO_ANSWER, []
    text, notes = answer.marked, []
    sources: dict[int, list[str]] = {}
    for (number, at), group in groupby(answer.citations, key=lambda one: (one.number, one.at)):
        *before, one = group  # of sentences that share a mark the one before it
        page = f"{request.base_url}#/{quote(target.name, safe='')}/passage/{quote(one.passage, safe='')}"
        place = {"start_index": at, "end_index": at + len(f"[{number}]")}
        about = {**place, "title": one.title or one.place, "url": page}
        notes.append({"type": "url_citation", "url_citation": about})
        quotes = [" ".join(each.sentence.split()) for each in (*before, one)]
        sources.setdefault(number, [one.title or one.place]).extend(quotes)
    lines = [f"[{number}] {title}: {' '.join(quotes)}" for number, (title, *quotes) in sorted(sources.items())]
    return text + (_SOURCES + "\n".join(lines) if lines else ""), notes


def _usage(answer: Answer) -> dict[str, int]:
    """Return the tokens that language models read and wrote for an answer; none without a model."""
    read, written = answer.usage["prompt_tokens"], answer.usage["completion_tokens"]
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _object(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}


async def _chunks(request: Request, target: ServedIndex, body: ChatBody, ask: Ask) -> AsyncGenerator[str]:
    """Yield the chunks of a streamed reply; rounds are sent as comments, which keep the connection alive."""
    head, has_usage = _object(body.model, "chat.completion.chunk"), bool(body.stream_options.get("include_usage"))

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> str:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
        return _data({**head, "choices": choices, **({"usage": None} if has_usage else {})})

    yield chunk({"role": "assistant", "content": ""})
    async with aclosing(server_of(request).events(target, ask)) as events:
        async for step in events:
            if not isinstance(step, Answer | Problem):
                yield f": {step['event']} {step.get('round', '')}\n\n"
                continue
            problem = step if isinstance(step, Problem) else _failure(step)
            if problem is not None:
                yield _data(json.loads(bytes(as_response(problem).body)))
            elif isinstance(step, Answer):
                text, notes = _rendered(request, target, step)
                for start in range(0, len(text), _PIECE):
                    yield chunk({"content": text[start : start + _PIECE]})
                yield chunk({"annotations": notes} if notes else {}, "stop")
                if has_usage:
                    yield _data({**head, "choices": [], "usage": _usage(step)})
    yield "data: [DONE]\n\n"


def _data(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
