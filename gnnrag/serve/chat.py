"""The API that OpenAI's clients speak: `/v1/models`, `/v1/chat/completions`. A model is INDEX/METHOD[/RETRIEVER]."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from textwrap import shorten
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from pydantic import Field

from gnnrag.run.answers import Answer
from gnnrag.serve.guard import as_response
from gnnrag.serve.indexes import LONGEST, Ask, Problem, ServedIndex
from gnnrag.serve.rest import MOST_TURNS, Body, Condition, EventStream, Limits, served, server_of, until_gone
from gnnrag.text.tokens import BYTES, estimate_tokens

router = APIRouter(prefix="/v1")
_SOURCES = "\n\nSources:\n"
_MARK = re.compile(r" ?\[\d{1,3}\]")
_NO_ANSWER = "No answer was found in the passages."
_PIECE = 40  # characters of one chunk
_ASKED = re.compile(r"^USER: *(.+)", re.MULTILINE)  # in the history that a task quotes
_KEY = re.compile(r'"(title|tags|follow_ups|queries|text|prompt)"\s*:')  # of the JSON that a task wants
_MODEL = {"object": "model", "created": 0, "owned_by": "gnnrag"}


class Message(Body):
    """A message as clients send it: a text, or a list of parts, of which the texts are read."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[str | dict[str, Any]] = ""

    @property
    def text(self) -> str:
        parts = [self.content] if isinstance(self.content, str) else self.content
        texts = [part if isinstance(part, str) else part.get("text") for part in parts]
        return "\n".join(text for text in texts if isinstance(text, str)).strip()


class ResponseFormat(Body):
    type: Literal["text", "json_object"] = "text"


class ChatBody(Body):
    """A request for a completion; what is for a language model only (temperature, tools, ...) has no effect."""

    model: str = Field(max_length=300)
    messages: list[Message] = Field(min_length=1)
    stream: bool = False
    stream_options: dict[str, Any] = Field({})
    n: int = Field(1, ge=1, le=128, description="so many choices, all the same")
    max_completion_tokens: int | None = Field(None, ge=1, description="as estimated, 4 bytes each")
    max_tokens: int | None = Field(None, ge=1, description="the older name of max_completion_tokens")
    response_format: ResponseFormat = ResponseFormat()
    filter: Condition | None = None
    budget: Limits = Limits()


@dataclass
class Reply:
    text: str
    notes: list[dict[str, Any]] = field(default_factory=list)  # annotations: where the text cites which passage
    usage: Mapping[str, int] = field(default_factory=dict)  # tokens of language models
    finish: Literal["stop", "length"] = "stop"
    form: str = "stated"  # as `Answer.form`; it is not in OpenAI's API, and clients ignore it

    def cut_to(self, tokens: int | None) -> Reply:
        if tokens is None or estimate_tokens(self.text) <= tokens:
            return self
        text = self.text.encode()[: BYTES * tokens].decode(errors="ignore")
        notes = [note for note in self.notes if note["url_citation"]["end_index"] <= len(text)]
        return Reply(text, notes, self.usage, "length", self.form)

    def counts(self) -> dict[str, int]:
        read, written = self.usage.get("prompt_tokens", 0), self.usage.get("completion_tokens", 0)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


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

    The text names its sources ([1], and a list); `annotations` say which passages they are. With `response_format`
    `json_object` the text is JSON: `answer`, `form` and `sources`. The message has the `form`, too (`Answer.form`).
    """
    messages = [(message.role, message.text) for message in body.messages if message.role in ("user", "assistant")]
    last = max((place for place, (role, _) in enumerate(messages) if role == "user"), default=None)
    if last is None or not messages[last][1]:
        raise Problem(400, "messages: the last one of the user has no text; only texts are read, no pictures or files")
    target, method, retriever = _parts(request, body.model)
    question, history = messages[last][1], _turns(messages[:last])
    ask = Ask(question, history[-MOST_TURNS:], method, retriever, body.budget.model_dump(), body.filter)
    reply = _task(question, target.name)
    if body.stream:
        if reply is None:
            await target.check(ask)
        return EventStream(_chunks(request, target, body, ask, reply))
    if reply is None:
        answer = await until_gone(request, server_of(request).answer(target, ask))
        if problem := _failure(answer):
            raise problem
        reply = _rendered(request, target, answer, body)
    message = {
        "role": "assistant",
        "content": reply.text,
        "refusal": None,
        "annotations": reply.notes,
        "form": reply.form,
    }
    choice = {"message": message, "finish_reason": reply.finish, "logprobs": None}
    choices = [{"index": i, **choice} for i in range(body.n)]
    return {**_object(body.model, "chat.completion"), "choices": choices, "usage": reply.counts()}


def _task(text: str, index: str) -> Reply | None:
    """Answer Open WebUI's requests for a title, tags or the like of a chat without a search.

    Its templates begin with `### Task:`, show the JSON they want and quote the chat. None: it is a question.
    """
    task, mark, chat = text.partition("<chat_history>")
    if not (mark and task.startswith("### Task:")):
        return None
    key = _KEY.search(task)
    asked = _ASKED.search(chat)
    title = shorten(asked[1], 50, placeholder=" …") if asked else index
    if key is None:
        return Reply(title)
    value = {"title": title, "tags": [index], "text": "", "prompt": title}.get(key[1], [])
    return Reply(json.dumps({key[1]: value}, ensure_ascii=False))


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


def _rendered(request: Request, target: ServedIndex, answer: Answer, body: ChatBody) -> Reply:
    """Return an answer's text with its sources, and where in it they are named."""
    tokens = body.max_completion_tokens or body.max_tokens
    if body.response_format.type == "json_object":
        names = ("number", "title", "place", "passage", "sentence")
        sources = [{name: getattr(citation, name) for name in names} for citation in answer.citations]
        data = {"answer": answer.text, "form": answer.form, "sources": sources}
        return Reply(json.dumps(data, ensure_ascii=False), [], answer.usage, form=answer.form).cut_to(tokens)
    head = answer.head  # clients show no other sign that nothing is certain
    text, notes, quoted = head + (answer.marked or _NO_ANSWER), [], dict[int, list[str]]()
    for (number, at), group in groupby(answer.citations, key=lambda citation: (citation.number, citation.at)):
        citations = list(group)  # sentences that share a mark; the last one comes right before it
        last = citations[-1]
        page = f"{request.base_url}#/{quote(target.name, safe='')}/passage/{quote(last.passage, safe='')}"
        place = {"start_index": len(head) + at, "end_index": len(head) + at + len(f"[{number}]")}
        about = {**place, "title": last.title or last.place, "url": page}
        notes.append({"type": "url_citation", "url_citation": about})
        sentences = [" ".join(citation.sentence.split()) for citation in citations]
        quoted.setdefault(number, [last.title or last.place]).extend(sentences)
    lines = [f"[{number}] {title}: {' '.join(sentences)}" for number, (title, *sentences) in sorted(quoted.items())]
    text += _SOURCES + "\n".join(lines) if lines else ""
    return Reply(text, notes, answer.usage, form=answer.form).cut_to(tokens)


def _object(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}


async def _chunks(
    request: Request, target: ServedIndex, body: ChatBody, ask: Ask, reply: Reply | None
) -> AsyncGenerator[str]:
    """Yield the chunks of a streamed reply; rounds are sent as comments, which keep the connection alive."""
    head, has_usage = _object(body.model, "chat.completion.chunk"), bool(body.stream_options.get("include_usage"))

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> str:
        choices = [{"index": i, "delta": delta, "finish_reason": finish, "logprobs": None} for i in range(body.n)]
        usage = {"usage": None} if has_usage else {}
        return "".join(_data({**head, "choices": [choice], **usage}) for choice in choices)

    yield chunk({"role": "assistant", "content": ""})
    if reply is None:
        async with aclosing(server_of(request).events(target, ask)) as events:
            async for step in events:
                if not isinstance(step, Answer | Problem):
                    yield f": {step['event']} {step.get('round', '')}\n\n"
                elif (problem := step if isinstance(step, Problem) else _failure(step)) is not None:
                    yield _data(json.loads(bytes(as_response(problem).body)))
                elif isinstance(step, Answer):
                    reply = _rendered(request, target, step, body)
    if reply is not None:
        for start in range(0, len(reply.text), _PIECE):
            yield chunk({"content": reply.text[start : start + _PIECE]})
        notes = {"annotations": reply.notes} if reply.notes else {}
        yield chunk({**notes, "form": reply.form}, reply.finish)
        if has_usage:
            yield _data({**head, "choices": [], "usage": reply.counts()})
    yield "data: [DONE]\n\n"


def _data(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
