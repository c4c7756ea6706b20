"""The API that OpenAI's clients speak: `/v1/models`, `/v1/chat/completions`. A model is INDEX/METHOD[/RETRIEVER]."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from gnnrag.errors import GnnragError
from gnnrag.run.answers import Answer
from gnnrag.serve.asking import LONGEST, Ask, Asking, Problem, Served, told_answer
from gnnrag.serve.guard import as_response
from gnnrag.serve.rest import EventStream, Limits, caller_of, desk_of, served, until_gone

router = APIRouter(prefix="/v1")
_SOURCES = "\n\nSources:\n"
_MARK = re.compile(r" ?\[\d{1,3}\]")
_NO_ANSWER = "The passages do not say."
_PIECE = 40  # characters of a streamed piece


class Message(BaseModel):
    """A message as clients send it: a text, or a list of parts, of which the texts are read."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """The texts of the message."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part.get("text", "")) for part in self.content or () if part.get("type") == "text")


class StreamOptions(BaseModel):
    """Of a streamed reply."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class ChatBody(BaseModel):
    """A request for a completion; what is for a language model only (temperature, tools, ...) has no effect."""

    model_config = ConfigDict(extra="ignore")
    model: str = Field(max_length=300)
    messages: list[Message] = Field(min_length=1, max_length=200)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1, None] = None
    budget: Limits = Limits()


@router.get("/models")
async def models(request: Request) -> dict[str, Any]:
    """List what may be asked: each index with each of its methods, on the retriever of the settings."""
    desk, caller, rows = desk_of(request), caller_of(request), []
    for name, one in desk.served.items():
        if caller.may("ask", name):
            try:
                methods = (await one.parts())["methods"]
            except (Problem, GnnragError):  # no documents yet, or being built
                continue
            rows += [{"id": f"{name}/{m}", "object": "model", "created": 0, "owned_by": "gnnrag"} for m in methods]
    return {"object": "list", "data": rows}


@router.get("/models/{model:path}")
async def model(request: Request, model: str) -> dict[str, Any]:
    """Tell whether there is such a model."""
    one, wanted = _model(request, model, ())
    await one.check(wanted)
    return {"id": model, "object": "model", "created": 0, "owned_by": "gnnrag"}


def _model(request: Request, model: str, history: Sequence[tuple[str, str]], question: str = "") -> tuple[Served, Ask]:
    name, method, retriever, *more = [*model.split("/"), "", ""] if model.count("/") < 2 else [*model.split("/")]
    if any(more):
        raise Problem(404, "a model is INDEX/METHOD or INDEX/METHOD/RETRIEVER; GET /v1/models lists them")
    return served(request, name), Ask(question, history, method or None, retriever or None)


@router.post("/chat/completions", response_model=None)
async def completions(request: Request, body: ChatBody) -> Response:
    """Answer the last message of the user; what was said before makes it a question of its own.

    The text names its sources ([1], and a list); `annotations` say which passages they are.
    """
    said = [(message.role, message.text.strip()) for message in body.messages if message.role in ("user", "assistant")]
    asked = [place for place, (role, text) in enumerate(said) if role == "user" and text]
    if not asked:
        raise Problem(400, "messages: there is none of the user with a text in it")
    one, wanted = _model(request, body.model, _turns(said[: asked[-1]]), said[asked[-1]][1])
    wanted = Ask(wanted.question, wanted.history, wanted.method, wanted.retriever, body.budget.model_dump())
    asking = await desk_of(request).begin(one, wanted, caller_of(request))
    request.state.log |= {"id": asking.key, "question": wanted.question}
    if body.stream:
        has_usage = body.stream_options is not None and body.stream_options.include_usage
        return EventStream(_chunks(request, one, body.model, asking, has_usage), asking)
    answer = await until_gone(request, asking)
    if problem := failure(answer):
        return as_response(problem)
    text, notes = rendered(request, one, asking.key, answer)
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": notes}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    whole = _object(asking, body.model, "chat.completion") | {"choices": [choice], "usage": usage(answer)}
    return JSONResponse(whole, headers={"x-question-id": asking.key})


def _turns(said: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return earlier questions with the answers that followed them, without their sources."""
    turns: list[tuple[str, str]] = []
    for (role, text), (following, reply) in zip_longest(said, said[1:], fillvalue=("", "")):
        if role == "user":
            bare = _MARK.sub("", reply.partition(_SOURCES)[0]).strip() if following == "assistant" else ""
            turns.append((text[:LONGEST], "" if bare == _NO_ANSWER else bare[:LONGEST]))
    return turns


def failure(answer: Answer) -> Problem | None:
    """Return what went wrong with a question, as a status."""
    if answer.error is None:
        return None
    return Problem(504 if answer.error.startswith("budget.") else 502, answer.error)


def rendered(request: Request, one: Served, key: str, answer: Answer) -> tuple[str, list[dict[str, Any]]]:
    """Return an answer's text with its sources, and the annotations that say where in it they are named."""
    if not answer.text:
        return _NO_ANSWER, []
    rows = {row["number"]: row for row in told_answer(key, answer)["citations"]}
    text, notes = answer.text, []
    for number, row in rows.items():
        start = len(text) + 1
        text += f" [{number}]"
        page = f"{request.base_url}#/{quote(one.name, safe='')}/passage/{quote(row['passage'], safe='')}"
        about = {"start_index": start, "end_index": len(text), "title": row["title"] or row["place"], "url": page}
        notes.append({"type": "url_citation", "url_citation": about})
    lines = [f"[{n}] {row['title'] or row['place']}: {' '.join(row['sentence'].split())}" for n, row in rows.items()]
    return text + (_SOURCES + "\n".join(lines) if lines else ""), notes


def usage(answer: Answer) -> dict[str, int]:
    """Return the tokens that language models read and wrote for an answer; none without a model."""
    read, written = answer.usage["prompt_tokens"], answer.usage["completion_tokens"]
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _object(asking: Asking, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{asking.key}", "object": kind, "created": int(time.time()), "model": model}


async def _chunks(request: Request, one: Served, model: str, asking: Asking, has_usage: bool) -> AsyncIterator[str]:
    """Yield the chunks of a streamed reply; rounds are comments, which keep the connection alive and bother nobody."""
    head = _object(asking, model, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> str:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
        return _data({**head, "choices": choices, **({"usage": None} if has_usage else {})})

    yield chunk({"role": "assistant", "content": ""})
    async for step in asking.events():
        if not isinstance(step, Answer | Problem):
            yield f": {step['event']} {step.get('round', '')}\n\n"
            continue
        problem = step if isinstance(step, Problem) else failure(step)
        if problem is not None:
            yield _data(json.loads(bytes(as_response(problem).body)))
        elif isinstance(step, Answer):
            request.state.log["answer"] = step.text
            text, notes = rendered(request, one, asking.key, step)
            for start in range(0, len(text), _PIECE):
                yield chunk({"content": text[start : start + _PIECE]})
            yield chunk({"annotations": notes} if notes else {}, "stop")
            if has_usage:
                yield _data({**head, "choices": [], "usage": usage(step)})
    yield "data: [DONE]\n\n"


def _data(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
