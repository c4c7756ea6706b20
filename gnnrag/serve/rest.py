"""REST: indexes, asking, searching, passages, the graph, documents in and out, jobs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from starlette.types import Receive, Scope, Send

from gnnrag.datasets.chunk import document_of
from gnnrag.datasets.documents import SUFFIXES
from gnnrag.datasets.folder import read_report
from gnnrag.index.filters import EXAMPLE
from gnnrag.index.filters import LONGEST as LONGEST_FILTER
from gnnrag.index.index import Index
from gnnrag.index.tables import local_folder
from gnnrag.io import well_formed
from gnnrag.run.answers import Answer, where
from gnnrag.serve.graph import answer_graph, busiest, find, neighbourhood, open_graph, titled
from gnnrag.serve.indexes import LONGEST, Ask, Problem, ServedIndex, Server
from gnnrag.serve.jobs import Job
from gnnrag.serve.settings import Right
from gnnrag.text.sentences import span_of
from gnnrag.types import Passage

router = APIRouter(prefix="/api")
T = TypeVar("T")
_HITS = 5  # passages of a round that are sent with their texts
_SNIPPET = 240
MOST_TURNS = 50  # earlier ones are left out
_nfc = AfterValidator(well_formed)  # names are stored so; a Mac's client may send others
IndexName = Annotated[str, Path(max_length=100, description="of GET /api/indexes")]
DocumentName = Annotated[str, Path(max_length=1000, description="as GET .../documents lists it"), _nfc]


class Body(BaseModel):
    """A request; null is the default."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


class Strict(Body):
    """A request without unknown fields: a misspelt one is named."""

    model_config = ConfigDict(extra="forbid")


class Limits(Strict):
    """What a question may take; without a limit it is the server's."""

    seconds: float | None = Field(default=None, gt=0, le=86400)
    calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0, description="dollars")


class Turn(Strict):
    question: str = Field(max_length=LONGEST)
    answer: str = Field(max_length=LONGEST)


Condition = Annotated[
    str, Field(min_length=1, max_length=LONGEST_FILTER, description=f"SQL on passages and metadata: {EXAMPLE}")
]


class AskBody(Strict):
    question: str = Field(min_length=1, max_length=LONGEST)
    history: list[Turn] = Field([], description="what it follows up on, oldest first")
    method: str | None = Field(default=None, max_length=60)
    retriever: str | None = Field(default=None, max_length=60)
    filter: Condition | None = None
    style: Literal["short", "sentence", "long"] | None = Field(None, description="how long the answer is")
    stream: bool = Field(False, description="server-sent events: step as it happens, then answer or error")
    trace: bool = Field(False, description="with everything that happened, long lists and texts cut short")
    budget: Limits = Limits()


class SearchBody(Strict):
    query: str = Field(min_length=1, max_length=LONGEST)
    k: int = Field(10, ge=1, le=100)
    retriever: str | None = Field(default=None, max_length=60)
    filter: Condition | None = None


class GraphBody(Strict):
    passages: list[Annotated[str, Field(max_length=2000)]] = Field(max_length=30)
    question: str = Field("", max_length=LONGEST)


def server_of(request: Request) -> Server:
    return request.app.state.server  # type: ignore[no-any-return]


def served(request: Request, name: str, right: Right = "ask") -> ServedIndex:
    """Return an index that the caller may ask or write. Problem: it may not."""
    return server_of(request).find(name, request.state.caller, right)


@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Tell whether the server answers; needs no token."""
    return {"status": "ok", "indexes": len(server_of(request).served)}


@router.get("/indexes")
async def indexes(request: Request) -> dict[str, Any]:
    """List the indexes that the caller may ask or write, and what each can be asked by."""
    rows = []
    for name, target in server_of(request).served.items():
        if rights := [right for right in ("ask", "write") if request.state.caller.may(right, name)]:
            config = target.service.config
            row = {"name": name, "rights": rights, "method": config.method.name, "retriever": config.retriever.name}
            row["jobs"] = target.jobs.open
            try:
                index, parts = await target.index(), await target.parts()
                state = {"state": "ready", "passages": len(index), "generation": index.generation, **parts}
            except Problem as problem:
                state = {"state": str(problem), "passages": 0, "methods": [], "retrievers": []}
            rows.append({**row, **state})
    return {"indexes": rows}


@router.post("/indexes/{index}/ask", response_model=None)
async def ask(request: Request, index: IndexName, body: AskBody) -> dict[str, Any] | EventStream:
    """Answer a question, from one state of the index; with `stream` tell each round as it happens.

    A client that leaves stops its question.
    """
    target, server = served(request, index), server_of(request)
    history = [(turn.question, turn.answer) for turn in body.history[-MOST_TURNS:]]
    question = Ask(
        body.question, history, body.method, body.retriever, body.budget.model_dump(), body.filter, body.style
    )
    if body.stream:
        await target.check(question)
        return EventStream(_sse(request, target, question))
    answer = await until_gone(request, server.answer(target, question))
    more = {"trace": [shortened(event) for event in answer.trace]} if body.trace else {}
    return {**answer_data(answer), **more}


class EventStream(StreamingResponse):
    """Server-sent events. If the client disconnects, the generator of the events is closed."""

    def __init__(self, events: AsyncGenerator[str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()


async def until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, which is cancelled if the client disconnects."""
    task = asyncio.create_task(work)

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        if watching.done():
            raise Problem(499, "the client has left") from None
        raise
    finally:
        watching.cancel()


async def _sse(request: Request, target: ServedIndex, question: Ask) -> AsyncGenerator[str]:
    index = (await target.index()).stored
    async with aclosing(server_of(request).events(target, question)) as events:
        async for step in events:
            if isinstance(step, Problem):
                name, data = "error", {"status": step.status_code, "message": step.detail}
            elif isinstance(step, Answer):
                name, data = "answer", answer_data(step)
            elif step["event"] == "query":
                ids = [id_ for id_ in step["ranking"]["ids"][:_HITS] if id_ in index.position]  # others were removed
                shown = {key: step[key] for key in ("event", "round", "origin", "text", "retriever")}
                name, data = "step", {**shown, "found": [_snippet(passage) for passage in index.lookup(ids)]}
            else:
                name, data = "step", shortened(step, 10)
            yield f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"  # JSON has no line feeds


def answer_data(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON data for clients; its marks, as in `it is given [2]`, are the numbers of citations."""
    shown = ("question", "text", "marked", "form", "confidence", "usage", "seconds", "rounds", "generation", "error")
    cited = [asdict(citation) for citation in answer.citations]
    context = [passage.id for passage in answer.context]
    return {**{name: getattr(answer, name) for name in shown}, "citations": cited, "context": context}


def shortened(value: Any, most: int = 20) -> Any:
    """Return an event of a trace with its lists and texts cut short."""
    if isinstance(value, Mapping):
        return {str(key): shortened(item, most) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(item, most) for item in value[:most]]
    if isinstance(value, str) and len(value) > 2000:
        return f"{value[:2000]} …"
    return value if isinstance(value, str | int | float | bool | None) else str(value)[:200]


@router.post("/indexes/{index}/search")
async def search(request: Request, index: IndexName, body: SearchBody) -> dict[str, Any]:
    """Return the best passages of a query."""
    hits = await server_of(request).search(served(request, index), body.query, body.k, body.retriever, body.filter)
    return {"passages": [{"rank": hit.rank, "score": float(hit.score), **_snippet(hit.passage)} for hit in hits]}


def _snippet(passage: Passage) -> dict[str, str]:
    return {"passage": passage.id, "title": passage.title, "text": passage.text[:_SNIPPET]}


@router.get("/indexes/{index}/passages/{id:path}")
async def passage(
    request: Request,
    index: IndexName,
    id: Annotated[str, Path(max_length=2000)],
    sentence: Annotated[str, Query(max_length=LONGEST)] = "",
) -> dict[str, Any]:
    """Return a passage; `parts` are its text before, in and after what says most of `sentence`."""
    return open_passage((await served(request, index).index()).stored, id, sentence)


def open_passage(index: Index, id_: str, sentence: str = "") -> dict[str, Any]:
    """Return a passage as JSON data, see `passage`; Problem: there is none."""
    if (id_ := well_formed(id_)) not in index.position:
        raise Problem(404, "there is no such passage now")
    row = index.position[id_]
    passage, document = index.passages[row], document_of(id_)
    start, end = span_of(passage.text, sentence) if sentence.strip() else (0, 0)
    parts = [passage.text[:start], passage.text[start:end], passage.text[end:]]
    around = {name: index.ids[at] for name, at in (("before", row - 1), ("after", row + 1)) if 0 <= at < len(index.ids)}
    near = {name: other for name, other in around.items() if document and document_of(other) == document}
    shown = {"id": id_, "title": passage.title, "place": where(passage), "document": document or id_, "parts": parts}
    return {**shown, **near, "metadata": dict(passage.metadata)}


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
    rows, graph = find(index, text) if text else busiest(index), open_graph(index)
    names = [{"id": f"e:{graph.names[row]}", "label": graph.names[row], "type": graph.kind(row)} for row in rows]
    passages = [index.passages[row] for row in titled(index, text)]
    return {"names": names + [{"id": f"p:{p.id}", "label": p.title, "type": "passage"} for p in passages]}


@router.post("/indexes/{index}/graph")
async def graph_of_answer(request: Request, index: IndexName, body: GraphBody) -> dict[str, Any]:
    """Return the passages of an answer, with the names that they share with each other or with its question."""
    opened = (await served(request, index).index()).stored
    return await asyncio.to_thread(answer_graph, opened, body.passages, body.question)


@router.get("/indexes/{index}/documents")
async def documents(
    request: Request,
    index: IndexName,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> dict[str, Any]:
    """List the documents by name, with title, number of passages and what was remarked when they were read."""
    target = served(request, index)
    try:
        opened = (await target.index()).stored
    except Problem:
        return {"documents": [], "total": 0}
    return await asyncio.to_thread(_documents, target, opened, offset, limit)  # of a million passages it takes seconds


def _documents(target: ServedIndex, opened: Index, offset: int, limit: int) -> dict[str, Any]:
    titles: dict[str, list[str]] = {}
    for passage in opened.passages:
        titles.setdefault(document_of(passage.id) or passage.id, []).append(passage.title)
    names, report = sorted(titles, key=str.casefold)[offset : offset + limit], read_report(local_folder(target.path))
    rows = [
        {"name": n, "title": titles[n][0], "passages": len(titles[n]), "why": report.get(n, {}).get("why", [])}
        for n in names
    ]
    return {"documents": rows, "total": len(titles)}


_FILE = {"requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}}


@router.put("/indexes/{index}/documents/{document:path}", status_code=202, openapi_extra=_FILE)
async def add(request: Request, index: IndexName, document: DocumentName) -> dict[str, Any]:
    """Add a document, or replace the one of this name: the body is the file. Returns the job that indexes it."""
    target = served(request, index, "write")
    _check_name(document)
    job, size = Job("add", document), 0
    path = target.jobs.upload(job)
    path.parent.mkdir()
    try:
        with path.open("xb") as file:
            async for chunk in request.stream():
                size += len(chunk)
                file.write(chunk)
        if not size:
            raise Problem(400, "the body is empty; it has to be the file")
        return _queued(target, job)
    except BaseException:
        target.jobs.discard(job)
        raise


def _check_name(name: str) -> None:
    suffix = f".{name.rpartition('.')[2].lower()}" if "." in name else ""
    if name.startswith(".") or "/" in name or name != name.strip() or len(name.encode("utf-8", "replace")) > 200:
        raise Problem(400, "the name of a document is that of a file, without folders, of at most 200 bytes")
    if not re.sub("[\u200c\u200d]", "", name).isprintable() or "\\" in name or "#" in name:  # joiners are letters' own
        raise Problem(400, "the name of a document has no control characters, no backslash and no #")
    if suffix not in SUFFIXES:
        known = ", ".join(sorted(SUFFIXES))
        raise Problem(415, f"documents of type {suffix[:20] or 'none'} are not read; those that are: {known}")


def _queued(target: ServedIndex, job: Job) -> dict[str, Any]:
    if not target.jobs.add(job):
        raise Problem(503, "too many jobs wait; come again in a while", 30)
    return {"job": job.key, "document": job.document}


@router.delete("/indexes/{index}/documents/{document:path}", status_code=202)
async def remove(request: Request, index: IndexName, document: DocumentName) -> dict[str, Any]:
    """Remove a document: its passages and all that was made of them. Returns the job that does it."""
    return _queued(served(request, index, "write"), Job("remove", document))


@router.get("/indexes/{index}/jobs")
async def jobs(request: Request, index: IndexName) -> dict[str, Any]:
    """List the last hundred jobs, newest first, with their progress."""
    return {"jobs": [job.to_dict() for job in served(request, index, "write").jobs.newest()]}


@router.get("/indexes/{index}/jobs/{job}")
async def job(request: Request, index: IndexName, job: Annotated[str, Path(max_length=100)]) -> dict[str, Any]:
    """Return one job: queued, running (at a stage, so far of so much), done, cancelled, or failed with why."""
    return _job(served(request, index, "write"), job).to_dict()


@router.delete("/indexes/{index}/jobs/{job}", status_code=202)
async def cancel(request: Request, index: IndexName, job: Annotated[str, Path(max_length=100)]) -> dict[str, Any]:
    """Cancel a job and return it; one that runs is cancelled at its next step, if it is not done before."""
    target = served(request, index, "write")
    target.cancel(known := _job(target, job))
    return known.to_dict()


def _job(target: ServedIndex, key: str) -> Job:
    if (known := target.jobs.get(key)) is None:
        raise Problem(404, "there is no such job, or it has long ended")
    return known
