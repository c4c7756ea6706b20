"""Indexes that are served and the questions under way: each admitted, limited, cancelled, answered from one state."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnrag.api import Found, Index
from gnnrag.config import Choice, EvaluateConfig, build_settings, load_config
from gnnrag.errors import ArtefactError, ConfigError, GnnragError, described
from gnnrag.index import index as stored
from gnnrag.index.store import Store
from gnnrag.registry import METHODS, RETRIEVERS, resolve
from gnnrag.run.answers import Answer
from gnnrag.run.opened import Opened
from gnnrag.run.pipeline import check_fit, needed_stages
from gnnrag.serve import writer
from gnnrag.serve.settings import Caller, Service
from gnnrag.serve.state import State

logger = logging.getLogger("gnnrag.serve")
LONGEST = 16_000  # characters of a question or a query
_PARTS = 12  # pairs of method and retriever that stay open: then all are opened anew
_TICK_S, _COLLECT_S = 0.5, 2.0


class Problem(Exception):  # noqa: N818 - what a client is told, not always its fault
    """A request that is answered by an HTTP status and one line."""

    def __init__(self, status: int, message: str, retry_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_s = status, message, retry_s


@dataclass(frozen=True)
class Ask:
    """A question as a client put it; None: the settings of the server. `history`: earlier questions and answers."""

    question: str
    history: Sequence[tuple[str, str]] = ()
    method: str | None = None
    retriever: str | None = None
    limits: Mapping[str, float | None] = field(default_factory=dict)


class ServedIndex(Index):
    """An index that follows what other processes write."""

    def __init__(self, path: Path, source: str | None, overrides: Sequence[str]) -> None:
        self._overrides, self._configs = overrides, dict[tuple[str, ...], EvaluateConfig]()
        super().__init__(path, config=source)

    @property
    def stored(self) -> stored.Index:
        """The state that is asked, read-only; whole as long as somebody has it."""
        return self._opened.index

    def _config(self, dots: Sequence[str]) -> EvaluateConfig:
        key = tuple(dots)
        if key not in self._configs:  # to read settings takes longer than to open an index anew
            self._configs[key] = load_config(EvaluateConfig, self._source, [*self._overrides, *dots])
        return self._configs[key]

    def renew(self) -> bool:
        """Answer from what the folder holds now, opening what was asked so far first; False while it is being built."""
        fresh = Opened(self.path, self._config(()))
        if not fresh.index.store.manifest["complete"]:
            return False
        before, recorded = self._opened, "embedder_weights"
        is_same = fresh.index.config.embedder == before.index.config.embedder
        is_same &= fresh.index.store.manifest.get(recorded) == before.index.store.manifest.get(recorded)
        if is_same and "embedder" in vars(before.index):
            fresh.index.embedder = before.index.embedder  # a model that takes seconds to load, and changes nothing
        fresh.open_as(before, self._config)
        self._opened = fresh
        self._thread.submit(before.retire())
        return True

    def leave(self) -> None:
        """Close, after the last question under way."""
        time.sleep(_TICK_S)  # one may just be on its way
        while self._opened.is_asked:
            time.sleep(_TICK_S)
        self.close()

    async def asearch(self, query: str, k: int, retriever: str | None) -> list[Found]:
        """Search, see `search`; cancelling the task stops it."""
        dots = [f"retriever={retriever}"] if retriever else []
        return await asyncio.wrap_future(self._thread.submit(self._search(query, k, ["method=single", *dots])))


class Served:
    """One index of a server: opened when it is there, renewed when it has changed, and its jobs."""

    def __init__(self, service: Service, name: str) -> None:
        self.service, self.name, self.path = service, name, service.indexes[name]
        self.state = State(service.state_folder(name))
        self.config = service.settings_for(name)
        self._index: ServedIndex | None = None
        self._seen: tuple[int, ...] | None = None
        self._is_emptied = False  # its last document was removed
        self._renewing = asyncio.Lock()
        self._parts: tuple[Any, dict[str, list[str]]] = (None, {})
        self._asked: set[tuple[str | None, str | None]] = set()
        self._writer: subprocess.Popen[bytes] | None = None

    async def index(self) -> ServedIndex:
        """Return the index as it is now. Problem: there is none, or it is being built for the first time."""
        if self._signature() != self._seen:
            async with self._renewing:
                try:
                    if (signature := self._signature()) != self._seen and await asyncio.to_thread(self._renew):
                        self._seen = signature
                except ArtefactError as error:
                    raise Problem(503, str(error).replace(str(self.path), self.name)) from error
        if self._index is None:
            is_empty = self._signature() is None or self._is_emptied
            problem = "has no documents yet: add some" if is_empty else "is being built; ask again in a while"
            raise Problem(404 if is_empty else 503, f"index {self.name} {problem}", None if is_empty else 5)
        return self._index

    def _signature(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.path / "manifest.json")
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _renew(self) -> bool:
        try:
            now = Store(self.path).manifest
            self._is_emptied = now["complete"] and not now["stages"]
            if self._is_emptied:
                before, self._index = self._index, None
                if before is not None:
                    threading.Thread(target=before.leave, daemon=True).start()
                return True
            if self._index is not None:
                return self._index.renew()
            fresh = ServedIndex(self.path, self.service.source, self.service.asked_with(self.name))
        except ArtefactError:
            if self._index is None and self._signature() is not None and not self.state.has_work():
                raise
            return False  # it is being written
        if fresh.stored.store.manifest["complete"]:
            self._index = fresh
        return self._index is not None

    async def parts(self) -> dict[str, list[str]]:
        """Return the methods and retrievers that the index has the stages for; the settings' own come first."""
        index = await self.index()
        stages = set(index.stored.store.manifest["stages"])
        if self._parts[0] != stages:
            self._parts = (stages, await asyncio.to_thread(self._fitting, stages))
        return self._parts[1]

    def _fitting(self, stages: set[str]) -> dict[str, list[str]]:
        own = {"method": self.config.method.name, "retriever": self.config.retriever.name}
        found: dict[str, list[str]] = {}
        for kind, table in (("retriever", RETRIEVERS), ("method", METHODS)):
            # A method asks the settings' retriever here; a retriever is asked by the plainest method.
            plain = replace(self.config, method=_choice("method", "single", METHODS))
            base = plain if kind == "retriever" else self.config
            names = dict.fromkeys([own[kind], *table])
            found[f"{kind}s"] = [name for name in names if _fits(base, kind, name, table, stages)]
        return found

    async def check(self, ask: Ask) -> ServedIndex:
        """Return the index, if it can be asked so; Problem: what is unknown, and what there is."""
        index, parts = await self.index(), await self.parts()
        for kind, name in (("method", ask.method), ("retriever", ask.retriever)):
            if name is not None and name not in parts[f"{kind}s"]:
                known = ", ".join(parts[f"{kind}s"])
                raise Problem(400, f"{kind} {name[:60]!r} cannot be asked of index {self.name}; allowed: {known}")
        if (ask.method, ask.retriever) not in self._asked and len(self._asked) >= _PARTS:
            self._asked.clear()  # parts that nobody asks any more are let go
            await asyncio.to_thread(index.refresh)
        self._asked.add((ask.method, ask.retriever))
        return index

    def tick(self) -> None:
        """Start the writer where a job waits and nobody works on it."""
        if self._writer is not None and self._writer.poll() is None:
            return
        if self.state.has_work() and not writer.is_at_work(self.service, self.name):
            self._writer = writer.start(self.service, self.name)

    def close(self) -> None:
        """Stop what is under way; a writer with jobs goes on."""
        if self._writer is not None and self._writer.poll() is None and not self.state.has_work():
            self._writer.terminate()
            self._writer.wait()
        if self._index is not None:
            self._index.close()
        self.state.close()


def _choice(kind: str, name: str, table: dict[str, str]) -> Choice:
    return Choice(name, build_settings(resolve(kind, name, table), {}, name))


def _fits(base: EvaluateConfig, kind: str, name: str, table: dict[str, str], stages: set[str]) -> bool:
    try:
        is_own = getattr(base, kind).name == name
        config = base if is_own else replace(base, **{kind: _choice(kind, name, table)})  # type: ignore[arg-type]
        check_fit(config)
        return needed_stages(config) <= stages
    except (GnnragError, ImportError):
        return False


class Asking:
    """A question under way: its events as they come, then its answer or the Problem that ended it."""

    def __init__(self, key: str, caller: Caller) -> None:
        self.key, self.caller = key, caller
        self._events: asyncio.Queue[Mapping[str, Any] | Answer | Problem | None] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None

    def put(self, event: Mapping[str, Any] | Answer | Problem | None) -> None:
        """Tell an event; None is the last."""
        self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[Mapping[str, Any] | Answer | Problem]:
        """Yield what happens; whoever leaves early stops the question."""
        try:
            while (event := await self._events.get()) is not None:
                yield event
        finally:
            self.stop()

    async def answer(self) -> Answer:
        """Return the answer; Problem: why there is none."""
        last: Any = None
        async for event in self.events():
            last = event
        if isinstance(last, Answer):
            return last
        raise last if isinstance(last, Problem) else Problem(409, "the question was cancelled")

    def stop(self) -> None:
        """Cancel it."""
        if self.task is not None:
            self.task.cancel()


class Desk:
    """All that a worker serves, and the questions that it has under way."""

    def __init__(self, service: Service) -> None:
        self.service, self.own = service, service.own
        self.served = {name: Served(service, name) for name in service.indexes}
        self.asking: dict[str, Asking] = {}
        self._turns = asyncio.Semaphore(self.own.asking)
        self._searching = 0

    def find(self, name: str, caller: Caller, right: str = "ask") -> Served:
        """Return an index that a caller may ask or write; Problem: it may not, or there is none."""
        if name not in self.served or not any(caller.may(one, name) for one in ("ask", "write")):
            raise Problem(404, f"there is no index {name[:100]!r} for you; GET /api/indexes lists those that there are")
        if not caller.may(right, name):
            raise Problem(403, f"your token has not the right to {right} index {name}")
        return self.served[name]

    async def begin(self, served: Served, ask: Ask, caller: Caller) -> Asking:
        """Take a question on. Problem: it cannot be asked, or too many are waiting."""
        question = ask.question.strip()
        if not question or len(question) > LONGEST:
            raise Problem(400, f"question: give 1 to {LONGEST} characters, not {len(question)}")
        self._refuse_more()
        asking = Asking(f"{served.name}-{secrets.token_hex(12)}", caller)
        self.asking[asking.key] = asking  # before the first await: what is admitted is counted
        try:
            await served.check(ask)
        except BaseException:
            del self.asking[asking.key]
            raise
        asking.task = asyncio.create_task(self._answer(served, ask, asking))
        asking.task.add_done_callback(lambda _: self._ended(asking))  # also of one that is stopped before it began
        return asking

    def _refuse_more(self) -> None:
        count = len(self.asking) + self._searching
        if count >= self.own.asking + self.own.waiting:
            raise Problem(503, f"{count} questions are under way or waiting; ask again in a while", 2)

    async def search(self, served: Served, query: str, k: int, retriever: str | None = None) -> list[Found]:
        """Return the passages of a query, when it is its turn. Problem: as of a question."""
        self._refuse_more()
        if not query.strip():
            raise Problem(400, "query: give some words")
        self._searching += 1
        try:
            index = await served.check(Ask(query, retriever=retriever))
            async with asyncio.timeout(self.own.seconds), self._turns:
                return await index.asearch(query.strip(), k, retriever)
        except TimeoutError:
            raise Problem(504, f"nothing found within {self.own.seconds:g} s") from None
        finally:
            self._searching -= 1

    def _ended(self, asking: Asking) -> None:
        self.asking.pop(asking.key, None)
        asking.put(None)

    async def _answer(self, served: Served, ask: Ask, asking: Asking) -> None:
        epoch, key = served.state.epoch(), asking.key
        seconds = min(self.own.seconds, ask.limits.get("seconds") or self.own.seconds)
        cost = min((limit for limit in (self.own.cost, ask.limits.get("cost")) if limit is not None), default=None)
        limits = {"cost": cost, **{name: ask.limits.get(name) for name in ("calls", "tokens")}}
        settings = {f"budget.max_{name}": limit for name, limit in limits.items() if limit is not None}
        try:
            async with asyncio.timeout(seconds), self._turns:
                index = await served.index()
                parts: dict[str, Any] = {"method": ask.method, "retriever": ask.retriever, "settings": settings}
                stream = index.stream(ask.question, history=ask.history, **parts)
                async with aclosing(stream) as events:  # type: ignore[type-var]
                    async for event in events:
                        asking.put(event)
                        if isinstance(event, Answer):
                            served.state.keep(key, asking.caller.name, kept(key, event), epoch, self.own.keep)
        except TimeoutError:
            asking.put(Problem(504, f"no answer within {seconds:g} s"))
        except asyncio.CancelledError:
            asking.put(Problem(409, "the question was cancelled"))
        except (ConfigError, ArtefactError) as error:
            asking.put(Problem(400, str(error).replace(str(served.path), served.name)))
        except Problem as problem:
            asking.put(problem)
        except Exception as error:
            logger.exception("question failed: %s", type(error).__name__)
            asking.put(Problem(500, "the server failed; its log says why"))

    def stop(self, key: str, caller: Caller) -> bool:
        """Stop a question of this caller; False: it may be another process's, which is told."""
        if (asking := self.asking.get(key)) is not None and asking.caller.name == caller.name:
            asking.stop()
            return True
        name = key.rpartition("-")[0]
        is_known = name in self.served and caller.may("ask", name)
        if self.own.workers == 1 or not is_known:
            raise Problem(404, "no question of yours with this id is under way")
        self.served[name].state.stop(key, caller.name)
        return False

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Follow the indexes and their jobs until the block ends."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            for asking in list(self.asking.values()):
                asking.stop()
            for served in self.served.values():
                await asyncio.to_thread(served.close)

    async def _follow(self) -> None:
        collected = 0.0
        while True:
            if (parent := multiprocessing.parent_process()) and not parent.is_alive():
                signal.raise_signal(signal.SIGTERM)  # nobody watches over it, and it holds the port of the next server
            for served in self.served.values():
                try:
                    served.tick()
                    if served._signature() is not None:
                        await served.index()
                    for key, name in served.state.stops() if self.asking else ():
                        if (asking := self.asking.get(key)) and asking.caller.name == name:
                            asking.stop()
                except (Problem, GnnragError, OSError):
                    pass  # whoever asks it is told
                except Exception as error:  # noqa: BLE001 - without this loop nothing would be written any more
                    logger.error("cannot follow index %s: %s", served.name, described(error))
            if time.monotonic() - collected > _COLLECT_S and any(map(_has_earlier, self.served.values())):
                gc.collect()  # an earlier state's files stay until nothing refers to it, cycles and all
                collected = time.monotonic()
            await asyncio.sleep(_TICK_S)


def _has_earlier(served: Served) -> bool:
    return any(served.path.glob(".generation-*.json"))


def kept(key: str, answer: Answer) -> dict[str, Any]:
    """Return an answer with what happened, as it is kept: rankings down to their best."""
    return {**told_answer(key, answer), "trace": [brief(event) for event in answer.trace], "at": time.time()}


def told_answer(key: str, answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON data for clients; citations are numbered from 1, one number a passage."""
    numbers: dict[str, int] = {}
    cited = []
    for citation in answer.citations:
        number = numbers.setdefault(citation.passage, len(numbers) + 1)
        cited.append(
            {
                "number": number,
                "passage": citation.passage,
                "title": citation.title,
                "place": citation.place,
                "sentence": citation.sentence,
                "supported": citation.supported,
            }
        )
    shown = ("question", "text", "usage", "seconds", "rounds", "generation", "error")
    return {
        "id": key,
        **{name: getattr(answer, name) for name in shown},
        "citations": cited,
        "context": [passage.id for passage in answer.context],
    }


def brief(value: Any, most: int = 20) -> Any:
    """Return an event of a trace with its lists and texts cut short."""
    if isinstance(value, Mapping):
        return {str(key): brief(item, most) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [brief(item, most) for item in value[:most]]
    if isinstance(value, str) and len(value) > 2000:
        return f"{value[:2000]} …"
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)[:200]
