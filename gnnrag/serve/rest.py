"""REST: indexes, asking, searching, passages, the graph, documents in and out, jobs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from gnnrag.common.files import child, open_log, tidy
from gnnrag.datasets.chunk import document_of
from gnnrag.datasets.documents.readers import READERS
from gnnrag.datasets.documents.report import read_report
from gnnrag.errors import ArtefactError
from gnnrag.index.index import Index
from gnnrag.run.answers import Answer, where
from gnnrag.serve.asking import LONGEST, Ask, Asking, Desk, Problem, Served, brief, told_answer
from gnnrag.serve.graph import answer_graph, busiest, find, neighbourhood, open_graph, titled
from gnnrag.serve.settings import Caller
from gnnrag.text.sentences import content_words, sentence_spans

router = APIRouter(prefix="/api")
_FOUND = 5  # passages of a round that are told with their texts
_SNIPPET = 240
IndexName = Annotated[str, Path(max_length=100, description="of GET /api/indexes")]
DocumentName = Annotated[str, Path(max_length=1000, description="as GET .../documents lists it")]


class Strict(BaseModel):
    """A body without unknown fields: a misspelt one is told."""

    model_config = ConfigDict(extra="forbid")


class Limits(Strict):
    """What a question may take; none is the server's."""

    seconds: float | None = Field(default=None, gt=0, le=86400)
    calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0, description="dollars")


class Turn(Strict):
    """An earlier question with its answer."""

    question: str = Field(max_length=LONGEST)
    answer: str = Field(max_length=LONGEST)


class AskBody(Strict):
    """A question of an index."""

    question: str = Field(min_length=1, max_length=LONGEST)
    history: list[Turn] = Field([], max_length=50, description="what it follows up on, oldest first")
    method: str | None = Field(default=None, max_length=60)
    retriever: str | None = Field(default=None, max_length=60)
    stream: bool = Field(False, description="server-sent events: asked, each step as it happens, answer or error")
    budget: Limits = Limits()


class SearchBody(Strict):
    """A query of a retriever."""

    query: str = Field(min_length=1, max_length=LONGEST)
    k: int = Field(10, ge=1, le=100)
    retriever: str | None = Field(default=None, max_length=60)


class GraphBody(Strict):
    """The passages of an answer and its question."""

    passages: list[Annotated[str, Field(max_length=2000)]] = Field(max_length=30)
    question: str = Field("", max_length=LONGEST)


def desk_of(request: Request) -> Desk:
    """Return what this process serves."""
    return request.app.state.desk  # type: ignore[no-any-return]


def caller_of(request: Request) -> Caller:
    """Return who asks, as the guard found."""
    return request.state.caller  # type: ignore[no-any-return]


def served(request: Request, name: str, right: str = "ask") -> Served:
    """Return an index that the caller may ask or write, and note it for the log."""
    request.state.log["index"] = name[:100]
    return desk_of(request).find(name, caller_of(request), right)


# ------------------------------------------------------------------------------------------------------------- indexes
@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Tell whether the server answers, and how busy it is; needs no token."""
    desk = desk_of(request)
    return {"status": "ok", "indexes": len(desk.served), "asking": len(desk.asking)}


@router.get("/indexes")
async def indexes(request: Request) -> dict[str, Any]:
    """List the indexes that the caller may ask or write, and what each can be asked by."""
    desk, caller, rows = desk_of(request), caller_of(request), []
    for name in desk.served:
        rights = [right for right in ("ask", "write") if caller.may(right, name)]
        if rights:
            rows.append({"name": name, "rights": rights, **await _facts(desk.served[name])})
    return {"indexes": rows}


async def _facts(one: Served) -> dict[str, Any]:
    own = {"method": one.config.method.name, "retriever": one.config.retriever.name}
    try:
        index = await one.index()
        return {"passages": len(index), "generation": index.generation, **own, **await one.parts(), "state": "ready"}
    except (Problem, ArtefactError) as problem:
        return {
            "passages": 0,
            **own,
            "methods": [],
            "retrievers": [],
            "state": str(problem).replace(str(one.path), one.name),
        }


# -------------------------------------------------------------------------------------------------------------- asking
@router.post("/indexes/{index}/ask", response_model=None)
async def ask(request: Request, index: IndexName, body: AskBody) -> Response:
    """Answer a question, from one state of the index; with `stream` tell each round as it happens.

    A client that leaves stops its question; so does DELETE /api/questions/ID, with the id in `x-question-id`.
    """
    one = served(request, index)
    history = [(turn.question, turn.answer) for turn in body.history]
    wanted = Ask(body.question, history, body.method, body.retriever, body.budget.model_dump())
    asking = await desk_of(request).begin(one, wanted, caller_of(request))
    request.state.log |= {"id": asking.key, "question": body.question}
    if body.stream:
        return EventStream(_sse(request, one, asking), asking)
    answer = await until_gone(request, asking)
    return JSONResponse(told_answer(asking.key, answer), headers={"x-question-id": asking.key})


class EventStream(StreamingResponse):
    """Server-sent events of a question, which ends with them: also where a client leaves before the first."""

    def __init__(self, events: AsyncIterator[str], asking: Asking) -> None:
        headers = {"x-question-id": asking.key, "cache-control": "no-store"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self.asking = asking

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them; ASGI."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.asking.stop()


async def until_gone(request: Request, asking: Asking) -> Answer:
    """Return the answer; a client that leaves cancels the question. Problem: why there is none."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving, answering = asyncio.create_task(left()), asyncio.create_task(asking.answer())
    try:
        await asyncio.wait({leaving, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise Problem(499, "the client has left")
        answer = answering.result()
        request.state.log["answer"] = answer.text
        return answer
    finally:
        leaving.cancel()
        answering.cancel()
        asking.stop()


async def _sse(request: Request, one: Served, asking: Asking) -> AsyncIterator[str]:
    index = (await one.index()).stored
    yield event("asked", {"id": asking.key})
    async for step in asking.events():
        if isinstance(step, Problem):
            yield event("error", {"status": step.status, "message": step.message})
        elif isinstance(step, Answer):
            request.state.log["answer"] = step.text
            yield event("answer", told_answer(asking.key, step))
        else:
            yield event("step", told_step(step, index))


def event(name: str, data: Mapping[str, Any]) -> str:
    """Return a server-sent event; JSON has no line feeds."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def told_step(step: Mapping[str, Any], index: Index) -> dict[str, Any]:
    """Return an event of a trace for clients: a query with what it found, anything else cut short."""
    if step["event"] != "query":
        return brief(step, 10)  # type: ignore[no-any-return]
    ids = [id_ for id_ in step["ranking"]["ids"][:_FOUND] if id_ in index.position]  # of another state: none
    found = [{"passage": p.id, "title": p.title, "text": p.text[:_SNIPPET]} for p in index.lookup(ids)]
    return {**{key: step[key] for key in ("event", "round", "kind", "text", "retriever")}, "found": found}


@router.delete("/questions/{id}", status_code=202)
async def stop(request: Request, id: Annotated[str, Path(max_length=200)]) -> dict[str, bool]:
    """Stop a question of the caller."""
    return {"stopped": desk_of(request).stop(id, caller_of(request))}


@router.get("/indexes/{index}/answers/{id}")
async def answer(request: Request, index: IndexName, id: Annotated[str, Path(max_length=200)]) -> dict[str, Any]:
    """Return an answer that was kept for the caller, with everything that happened."""
    if (found := served(request, index).state.answer(id, caller_of(request).name)) is None:
        raise Problem(404, "this answer is not kept, or has gone with a document")
    return found


@router.post("/indexes/{index}/search")
async def search(request: Request, index: IndexName, body: SearchBody) -> dict[str, Any]:
    """Return the best passages of a query."""
    one = served(request, index)
    found = await desk_of(request).search(one, body.query, body.k, body.retriever)
    told = [{"rank": f.rank, "score": float(f.score), "passage": f.passage.id, "title": f.passage.title} for f in found]
    texts = [f.passage.text[:_SNIPPET] for f in found]
    return {"passages": [row | {"text": text} for row, text in zip(told, texts, strict=True)]}


# ------------------------------------------------------------------------------------------------- passages, the graph
@router.get("/indexes/{index}/passages/{id:path}")
async def passage(
    request: Request,
    index: IndexName,
    id: Annotated[str, Path(max_length=2000)],
    sentence: Annotated[str, Query(max_length=LONGEST)] = "",
) -> dict[str, Any]:
    """Return a passage; `parts` are its text before, in and after what says most of `sentence`."""
    opened = (await served(request, index).index()).stored
    return open_passage(opened, id, sentence)


def open_passage(index: Index, id_: str, sentence: str = "") -> dict[str, Any]:
    """Return a passage as JSON data, see `passage`; Problem: there is none."""
    if id_ not in index.position:
        raise Problem(404, "there is no such passage now")
    row = index.position[id_]
    found = index.passages[row]
    start, end = _said(found.text, sentence)
    parts = [found.text[:start], found.text[start:end], found.text[end:]]
    around = {name: index.ids[at] for name, at in (("before", row - 1), ("after", row + 1)) if 0 <= at < len(index.ids)}
    own = document_of(id_)
    near = {name: other for name, other in around.items() if own and document_of(other) == own}
    return {"id": id_, "title": found.title, "place": where(found), "document": own or id_, "parts": parts, **near}


def _said(text: str, sentence: str) -> tuple[int, int]:
    """Return where a text says a sentence: where it stands, or the sentence with most of its words; else nowhere."""
    bare = sentence.removeprefix("... ").removesuffix(" ...").strip()
    wanted = content_words(bare)
    if not wanted:
        return 0, 0
    if (at := text.find(bare)) >= 0:
        return at, at + len(bare)
    spans = sentence_spans(text)
    inside = [span for span in spans if " ".join(text[slice(*span)].split()) in bare]
    if inside:
        return inside[0][0], inside[-1][1]
    best = max(spans, key=lambda span: len(wanted & content_words(text[slice(*span)])), default=(0, 0))
    return best if wanted & content_words(text[slice(*best)]) else (0, 0)


@router.get("/indexes/{index}/graph")
async def graph(
    request: Request,
    index: IndexName,
    node: Annotated[str, Query(max_length=2000, description="p:PASSAGE, e:NAME, or a name; none: where to begin")] = "",
    find_: Annotated[str, Query(alias="find", max_length=200, description="a part of a name")] = "",
    limit: Annotated[int, Query(ge=2, le=60)] = 25,
) -> dict[str, Any]:
    """Return the neighbourhood of a node; with `find`, or without `node`, names to begin at."""
    opened = (await served(request, index).index()).stored
    if node:
        return await asyncio.to_thread(neighbourhood, opened, node, limit)
    return await asyncio.to_thread(_names, opened, find_)


def _names(index: Index, text: str) -> dict[str, Any]:
    found, graph = find(index, text) if text else busiest(index), open_graph(index)
    names = [{"id": f"e:{graph.names[row]}", "label": graph.names[row], "type": graph.kind(row)} for row in found]
    passages = [index.passages[row] for row in titled(index, text)]
    names += [{"id": f"p:{passage.id}", "label": passage.title, "type": "passage"} for passage in passages]
    return {"names": names}


@router.post("/indexes/{index}/graph")
async def graph_of_answer(request: Request, index: IndexName, body: GraphBody) -> dict[str, Any]:
    """Return the passages of an answer and the names that join them, to each other and to its question."""
    opened = (await served(request, index).index()).stored
    return await asyncio.to_thread(answer_graph, opened, body.passages, body.question)


# ----------------------------------------------------------------------------------------------------- documents, jobs
@router.get("/indexes/{index}/documents")
async def documents(
    request: Request,
    index: IndexName,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> dict[str, Any]:
    """List the documents by name, with title, number of passages and what was remarked when they were read."""
    one = served(request, index)
    try:
        opened = (await one.index()).stored
    except Problem:
        return {"documents": [], "total": 0}
    return await asyncio.to_thread(_documents, one, opened, offset, limit)  # of a million passages it takes seconds


def _documents(one: Served, opened: Index, offset: int, limit: int) -> dict[str, Any]:
    titles: dict[str, list[str]] = {}
    for found in opened.passages:
        titles.setdefault(document_of(found.id) or found.id, []).append(found.title)
    report = read_report(one.path)
    names = sorted(titles, key=_natural)[offset : offset + limit]
    rows = [{"name": n, "title": titles[n][0], "passages": len(titles[n])} for n in names]
    why = {name: row.get("why", []) for name, row in report.items()}
    return {"documents": [{**row, "why": why.get(str(row["name"]), [])} for row in rows], "total": len(titles)}


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return what sorts names as people do: 2 before 10."""
    parts = re.findall(r"\d{1,18}|\D+", name.casefold())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


_FILE = {"requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}}


@router.put("/indexes/{index}/documents/{document:path}", status_code=202, openapi_extra=_FILE)
async def add(request: Request, index: IndexName, document: DocumentName) -> dict[str, Any]:
    """Add a document, or replace the one of this name: the body is the file. Returns the job that indexes it."""
    one = served(request, index, "write")
    _check_name(document)
    state = one.state
    key = state.new_key()
    folder = state.inbox(key)
    try:
        size = 0
        with open_log(child(folder, document)) as file:
            async for chunk in request.stream():
                size += len(chunk)
                file.write(chunk)
        if not size:
            raise Problem(400, "the body is empty; it has to be the file")
        if not state.add_job(key, "add", document):
            raise Problem(503, "too many jobs wait; come again in a while", 30)
    except BaseException:
        tidy(folder, state.root)
        raise
    request.state.log |= {"job": key, "document": document}
    one.tick()
    return {"job": key, "document": document}


def _check_name(name: str) -> None:
    suffix = f".{name.rpartition('.')[2].lower()}" if "." in name else ""
    if name.startswith(".") or "/" in name or name != name.strip() or len(name.encode("utf-8", "replace")) > 200:
        raise Problem(400, "the name of a document is that of a file, without folders, of at most 200 bytes")
    if not name.isprintable() or "\\" in name or "#" in name:
        raise Problem(400, "the name of a document has no control characters, no backslash and no #")
    if suffix not in READERS:
        raise Problem(
            415, f"documents of type {suffix[:20] or 'none'} are not read; those that are: {', '.join(READERS)}"
        )


@router.delete("/indexes/{index}/documents/{document:path}", status_code=202)
async def remove(request: Request, index: IndexName, document: DocumentName) -> dict[str, Any]:
    """Remove a document: its passages, and all kept answers and replies of models of this index."""
    one = served(request, index, "write")
    key = one.state.new_key()
    if not one.state.add_job(key, "remove", document):
        tidy(one.state.inbox(key), one.state.root)
        raise Problem(503, "too many jobs wait; come again in a while", 30)
    request.state.log |= {"job": key, "document": document}
    one.tick()
    return {"job": key, "document": document}


@router.get("/indexes/{index}/jobs")
async def jobs(request: Request, index: IndexName) -> dict[str, Any]:
    """List the last hundred jobs, newest first, with their progress."""
    return {"jobs": served(request, index, "write").state.jobs()}


@router.get("/indexes/{index}/jobs/{job}")
async def job(request: Request, index: IndexName, job: Annotated[str, Path(max_length=100)]) -> dict[str, Any]:
    """Return one job: queued, running (at a stage, so far of so much), done, or failed with why."""
    if (found := served(request, index, "write").state.job(job)) is None:
        raise Problem(404, "there is no such job, or it has long ended")
    return found
