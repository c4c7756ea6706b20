"""The Python API: build an index of documents, search it, ask it by any method on any retriever, evaluate on it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from gnnrag.config import EvaluateConfig, load_config, shipped
from gnnrag.datasets.base import Dataset, chunking, load_passages, load_questions
from gnnrag.datasets.folder import write_report
from gnnrag.datasets.jsonl import read_question
from gnnrag.errors import ConfigError
from gnnrag.hub import with_pulled
from gnnrag.index import index as stored
from gnnrag.index.index import build_index, data_source, index_path
from gnnrag.index.tables import PASSAGES, latest_version, local_folder, place_of
from gnnrag.index.update import change_documents, is_empty, loading_of
from gnnrag.io import well_formed
from gnnrag.run import evaluate as evaluation
from gnnrag.run.answers import Answer, make_answer
from gnnrag.run.evaluate import index_settings, needed_stages
from gnnrag.run.opened import LoopThread, Opened, split_limits
from gnnrag.run.rundir import read_predictions
from gnnrag.session import Session
from gnnrag.types import OnProgress, Passage, Prediction, Query, Question, no_progress

T = TypeVar("T")
Settings = Mapping[str, Any]  # dotted names of settings to values: {"roles.reader": "prompted", "retriever.top_k": 5}
History = Sequence[Answer | tuple[str, str]]  # oldest first
ALWAYS = ("titles", "lexical", "embeddings")  # stages that a build makes besides those that its parts read


class SearchOptions(TypedDict, total=False):
    """Options of a search; see `Index.ask`."""

    retriever: str | None
    settings: Settings | None
    filter: str | None


class AskOptions(SearchOptions, total=False):
    """Options of a question; see `Index.ask`."""

    method: str | None
    history: History


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A passage that a search found; `rank` is 1-based, best first, `score` as the retriever gives it."""

    rank: int
    score: float
    passage: Passage


@dataclass(frozen=True, slots=True)
class Results:
    """An evaluation: its run directory, the metrics of all questions, and a row for each of them."""

    path: Path
    metrics: Mapping[str, Any]
    predictions: tuple[Prediction, ...]


class Index:
    """An index folder, opened for asking. One object may be used from many threads and tasks at once.

    All questions run in one background thread, so that they share batches. `close` or leaving a `with` block ends it.

    Args:
        path: the folder of an index that is there, or `hub:ORG/NAME@REVISION`.
        config: settings of a run: a YAML file, or nested values; None for the defaults.
        settings: dotted names of settings to values, over those of `config`.

    Raises:
        ArtefactError: there is no index, or it is damaged.
        ConfigError: a setting is unknown or of a wrong type.
    """

    def __init__(
        self, path: str | Path, *, config: str | Path | Settings | None = None, settings: Settings | None = None
    ) -> None:
        self.path = place_of(with_pulled(str(path)))
        self._source, self._dots = config, _dots(settings)
        self._opened = Opened(self.path, self._config(()))
        self._thread = LoopThread()
        self._numbers = itertools.count(1)

    # ------------------------------------------------------------------------------------------- building, changing
    @classmethod
    def build(
        cls,
        documents: str | Path | Dataset,
        path: str | Path | None = None,
        *,
        config: str | Path | Settings | None = None,
        settings: Settings | None = None,
        method: str | None = None,
        retriever: str | None = None,
        on_progress: OnProgress = no_progress,
        fresh: bool = False,
    ) -> Index:
        """Build the index of a folder or file, or update it, and open it.

        Args:
            documents: own documents, or a benchmark in any layout that `gnnrag.datasets.base.load_dataset` reads; or
                what `read_documents` returned.
            path: the index's folder; None: `indexes/NAME`, after the documents.
            config: as for the class.
            settings: as for the class.
            method: the method that will be asked: the stages that it reads are built.
            retriever: likewise. bm25, dense and chg can always be asked.
            on_progress: called with the stage, passages done since the last call, and passages in all.
            fresh: discard what `add` and `remove` changed; without it an index with such changes is refused.

        Raises:
            DataError: nothing can be read there. ConfigError: a wrong setting, or the index is of other documents.
            ArtefactError: `add` or `remove` has changed the index, or it is a hub's.
        """
        places = {} if isinstance(documents, Dataset) else {"data.path": str(documents)}
        places |= {"index.path": str(path)} if path is not None else {}
        run_config = load_config(EvaluateConfig, config, _dots({**(settings or {}), **places}, method, retriever))
        if isinstance(documents, Dataset):
            data, source = documents, {"own": True, "edited": True, "chunking": asdict(chunking(run_config.data))}
            source |= {} if run_config.data.titles else {"titles": False}
        else:
            d = run_config.data
            data, source = load_passages(d.path, chunking(d), on_progress, d.titles), data_source(d)
        folder = index_path(run_config.index, data.name)
        stages = {*needed_stages(run_config), *ALWAYS}
        build_index(
            folder, data.passages, index_settings(run_config), stages, source, on_progress, keep_edits=not fresh
        )
        if data.report:
            write_report(local_folder(folder), data.report)
        return cls(folder, config=config, settings=settings)

    def add(
        self,
        documents: str | Path | Dataset,
        *,
        remove: Sequence[str] = (),
        may_empty: bool = False,
        on_progress: OnProgress = no_progress,
    ) -> None:
        """Add documents; one with a known name replaces the old one. Arguments and errors: `build`, `remove`."""
        if not isinstance(documents, Dataset):
            documents = load_passages(documents, progress=on_progress, **loading_of(self.path))
        caller = index_settings(self._config(()))
        change_documents(self.path, documents, remove, on_progress, caller, may_empty)
        if not is_empty(self.path):
            self.refresh()

    def remove(self, *names: str, may_empty: bool = False, on_progress: OnProgress = no_progress) -> None:
        """Remove documents by name or path, or passages by id; nothing of them stays.

        Raises DataError where there is none of them, or where none would be left and the index may not be emptied. An
        emptied index is as one that was never built: it cannot be asked.
        """
        self.add(Dataset("", ()), remove=names, may_empty=may_empty, on_progress=on_progress)

    def refresh(self) -> None:
        """Reopen the folder as it is now. Questions in progress finish on the state that they began with."""
        before, self._opened = self._opened, Opened(self.path, self._config(()))
        if self._thread.is_running:
            self._thread.submit(before.retire())

    def inspect(self) -> dict[str, Any]:
        """Return what the index holds, its size in bytes, and gaps; see `pages.inspection`."""
        from gnnrag.pages.inspection import inspect_index

        return inspect_index(self.path)

    @property
    def is_current(self) -> bool:
        """Tell whether the folder holds what it held when it was opened."""
        return latest_version(f"{self.path}/{PASSAGES}") == self._opened.index.table.dataset.version

    @property
    def generation(self) -> str:
        """16 hex digits that change with what the index holds."""
        return self._opened.generation

    @property
    def stored(self) -> stored.Index:
        """The stored index that answers now; read-only."""
        return self._opened.index

    @property
    def passages(self) -> Sequence[Passage]:
        """The corpus, in index order."""
        return self._opened.index.passages

    def lookup(self, ids: Iterable[str]) -> tuple[Passage, ...]:
        """Return passages by id, in the order given."""
        return self._opened.index.lookup(ids)

    def __len__(self) -> int:
        return len(self.passages)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self)} passages, generation {self.generation})"

    # ------------------------------------------------------------------------------------------- searching, asking
    def search(self, query: str, k: int = 10, **options: Unpack[SearchOptions]) -> list[SearchHit]:
        """Return the `k` best passages of one query, without a method or a reader; options and errors as of `ask`."""
        return self._thread.wait(self._search(query, k, **options))

    async def asearch(self, query: str, k: int = 10, **options: Unpack[SearchOptions]) -> list[SearchHit]:
        """Search, see `search`; cancelling the task stops it."""
        return await asyncio.wrap_future(self._thread.submit(self._search(query, k, **options)))

    def ask(
        self,
        question: str,
        *,
        method: str | None = None,
        retriever: str | None = None,
        settings: Settings | None = None,
        history: History = (),
        filter: str | None = None,
    ) -> Answer:
        """Answer a question; what goes wrong with it alone is in `Answer.error`.

        Args:
            question: in words.
            method: `bdtr`, `single`, ... or `package.module:Class`; None: that of the settings.
            retriever: `chg`, `dense`, ... or `package.module:Class`; None: that of the settings.
            settings: dotted names of settings to values, for this question.
            history: earlier answers, or questions with answers, oldest first: a follow-up becomes a question of its
                own (`Answer.question`), as `roles.rewriter` says.
            filter: a condition in SQL on what may be read, over `id`, `title`, `text`, `place` and the metadata of
                passages: `source LIKE 'reports/%' AND date >= '2020-01-01'`.

        Raises:
            ConfigError: a setting or a part that there is not, or that does not fit; a malformed filter.
            ArtefactError: the index is damaged.

        What the index lacks for this method and retriever is made first, once: graphs, vectors, summaries.
        """
        options = AskOptions(method=method, retriever=retriever, settings=settings, history=history, filter=filter)
        return self._thread.wait(self._answer(question, **options))

    async def aask(self, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answer a question, see `ask`; cancelling the task stops it at once."""
        return await asyncio.wrap_future(self._thread.submit(self._answer(question, **options)))

    async def stream(self, question: str, **options: Unpack[AskOptions]) -> AsyncIterator[Mapping[str, Any] | Answer]:
        """Yield each event of the trace as it happens (`event`: query, llm, chain, evidence, ...), then the Answer.

        Arguments and errors as of `ask`. Leaving the loop early (`aclose`) or cancelling the task stops the question.
        """
        caller, events = asyncio.get_running_loop(), asyncio.Queue[Mapping[str, Any] | None]()

        def put(event: Mapping[str, Any] | None) -> None:
            with suppress(RuntimeError):  # the caller's loop has ended
                caller.call_soon_threadsafe(events.put_nowait, event)

        future = self._thread.submit(self._answer(question, put, **options))
        future.add_done_callback(lambda _: put(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel all questions in progress and end the thread; the next question starts it again."""
        self._thread.close(self._opened.close)

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _config(self, dots: Sequence[str]) -> EvaluateConfig:
        return load_config(EvaluateConfig, self._source, [*self._dots, *dots])

    async def _answer(
        self, question: str, tell: Callable[[Any], None] | None = None, **options: Unpack[AskOptions]
    ) -> Answer:
        text, history, condition = _text(question), options.pop("history", ()), options.pop("filter", None)
        turns: list[Any] = [(turn.question, turn.text) if isinstance(turn, Answer) else tuple(turn) for turn in history]
        if wrong := [turn for turn in turns if len(turn) != 2 or not all(isinstance(part, str) for part in turn)]:
            raise ConfigError(f"history={wrong[0]!r:.80}: give answers, or pairs of a question and its answer")
        shared, limits = split_limits(_dots(**options))  # type: ignore[misc]  # history and filter are taken out
        async with self._opened as opened, opened.turn(shared, self._config) as parts:
            budget = replace(parts.loop.budget, **limits)  # type: ignore[arg-type]
            condition = await _checked(opened.index, condition, parts.loop.filter)
            session = Session(f"ask-{next(self._numbers)}", budget, condition, tell=tell)
            text = await parts.standalone(text, turns, session)
            prediction, _ = await parts.loop.answer(Question(session.question_id, text), session)
            return make_answer(text, prediction, session.events, opened.index)

    async def _search(self, query: str, k: int, **options: Unpack[SearchOptions]) -> list[SearchHit]:
        condition = options.pop("filter", None)
        dots = _dots(method="single", **options)  # type: ignore[misc]  # the filter is taken out
        if k < 1:
            raise ConfigError(f"k={k}: must be at least 1")
        async with self._opened as opened, opened.turn(dots, self._config) as parts:
            condition = await _checked(opened.index, condition, parts.loop.filter)
            asked = Query(_text(query), top_k=k, filter=condition)
            session = Session(f"search-{next(self._numbers)}")
            (ranking,) = await parts.loop.search([asked], session)
            hits = [hit for hit in ranking.hits if hit.id in opened.index.position]
            return [SearchHit(hit.rank, hit.score, opened.index.lookup([hit.id])[0]) for hit in hits]


def evaluate(
    index: Index,
    questions: str | Path | Iterable[Question | Mapping[str, Any]],
    *,
    method: str | None = None,
    retriever: str | None = None,
    settings: Settings | None = None,
    name: str | None = None,
    on_question: Callable[[Prediction], None] = lambda prediction: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> Results:
    """Ask an index many questions and score the answers; the same call continues a run that was cut off.

    Args:
        index: what is asked.
        questions: a questions file, `Question`s, or rows with `id`, `question`, `answers` and perhaps `gold` (passage
            ids), such as those of a Hugging Face `datasets.Dataset`.
        method: as in `Index.ask`.
        retriever: as in `Index.ask`.
        settings: as in `Index.ask`; `run.root` is where run directories go.
        name: of the run directory; None: after data, method, retriever and settings.
        on_question: called as each question ends.
        on_note: called with what a person should know.

    Raises:
        DataError: a question is malformed, or its gold is not in the index. ConfigError, ArtefactError: as `Index.ask`.
    """
    opened = index._opened.index
    named = {"run.name": name} if name is not None else {}
    run_config = index._config(_dots({**(settings or {}), **named}, method, retriever))
    data = Dataset(Path(index.path).name, tuple(opened.passages), tuple(_questions(questions, opened)))
    observer = evaluation.Observer(on_question=on_question, on_note=on_note)

    def run() -> tuple[Path, dict[str, Any]]:
        return evaluation.evaluate(run_config, observer, opened, data)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        path, metrics = run()
    else:  # a notebook: a loop of its own needs a thread of its own
        with ThreadPoolExecutor(1) as thread:
            path, metrics = thread.submit(run).result()
    return Results(path, metrics, tuple(read_predictions(path)))


def _questions(questions: str | Path | Iterable[Any], index: stored.Index) -> Iterable[Question]:
    if isinstance(questions, str | Path):
        return load_questions(shipped(questions), index.passages)
    rows = list(questions)
    ids = frozenset(index.ids)
    return [row if isinstance(row, Question) else read_question(row, n, ids) for n, row in enumerate(rows, start=1)]


async def _checked(index: stored.Index, *conditions: str | None) -> str | None:
    """Join filters by AND, after evaluating each of them. ConfigError: one is malformed."""
    given = [condition for condition in conditions if condition is not None]
    for condition in given:
        await asyncio.to_thread(index.matching, condition)
    return " AND ".join(f"({condition})" for condition in given) if len(given) > 1 else next(iter(given), None)


def _text(question: str) -> str:
    if not isinstance(question, str) or not question.strip():
        raise ConfigError(f"question={question!r}: give a question in words")
    return well_formed(question.strip())


def _dots(settings: Settings | None = None, method: str | None = None, retriever: str | None = None) -> list[str]:
    """Return settings as overrides; JSON is YAML, so that every value keeps its type."""
    values = {**(settings or {})} | {
        key: value for key, value in (("method", method), ("retriever", retriever)) if value is not None
    }
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]
