"""From a config to a working loop: the wiring that `ask.py`, `evaluate.py` and the tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gnnrag.config import (
    ROLES,
    Choice,
    DataConfig,
    EvaluateConfig,
    IndexConfig,
    RoleConfig,
    implementation,
    to_plain,
)
from gnnrag.datasets.chunk import Chunking
from gnnrag.errors import ArtefactError, BudgetError, ConfigError
from gnnrag.index.build import build_index, place
from gnnrag.index.index import MANIFEST, Index, closure
from gnnrag.index_config import WRITERS
from gnnrag.io import read_object
from gnnrag.methods.routed import Route
from gnnrag.parts import build, find_class, from_settings, names
from gnnrag.roles.base import WORDS, Answer, ReaderTask
from gnnrag.roles.offline_reader.question import answer_style
from gnnrag.roles.registry import Roles, made_role
from gnnrag.roles.rewriter import FollowUp, Standalone
from gnnrag.run.loop import Loop
from gnnrag.session import Budget, Session
from gnnrag.types import OnProgress, Passage, Prediction, Question, no_progress


class Pipeline:
    """Retriever, roles, method and loop for one config. Raises ConfigError for parts that do not exist or do not fit.

    `wrap` returns the roles that the method is given in place of `self.roles`, for instance to record their decisions.
    """

    def __init__(
        self, config: EvaluateConfig, index: Index, wrap: Callable[[Pipeline], Mapping[str, Any]] | None = None
    ) -> None:
        self.index = index
        self.roles = Roles(index, config.roles, config.llm, config.llm_cache)
        check_fit(config)
        for name in needed_stages(config):
            index.folder(name)  # load it now, not while a question waits
        retriever = open_retriever(config.retriever, index, self.roles)
        further = {r.name: r.retriever for r in routes(config).values() if r.name and r.retriever}
        others = {
            name: retriever if choice == config.retriever else open_retriever(choice, index, self.roles)
            for name, choice in further.items()
        }
        roles = wrap(self) if wrap else self.roles
        method = build("method", config.method.part, index=index, roles=roles)
        for chosen, _ in pairs(config):  # built now, so that a run records all prompts
            for role in chosen.part.role_names or ():
                self.roles[role]
        self.reader, self.answer = self.roles["reader"], config.answer
        b = config.budget
        budget = Budget(b.max_calls, b.max_tokens, b.max_seconds)
        self.loop = Loop(method, retriever, self._read, index.lookup, budget, config.concurrency, b.max_rounds, others)

    async def _read(self, task: ReaderTask, session: Session) -> Answer:
        """Ask the reader for an answer of the style that is set, else of one that suits the question."""
        style: Any = self.answer.style or answer_style(task.question.text)
        return await self.reader(replace(task, style=style, words=self.answer.words or WORDS), session)  # type: ignore[no-any-return]

    async def standalone(self, question: str, history: Sequence[tuple[str, str]], session: Session) -> str:
        """Let `roles.rewriter` turn a follow-up into a standalone question. Without a history it is returned unchanged.

        Args:
            question: as a person typed it.
            history: earlier questions with their answers, oldest first; an empty answer means that none was found.
            session: of the question. Its budget includes this call, but an exhausted budget is not raised here.
        """
        if not history:
            return question
        found = Standalone(question)
        with suppress(BudgetError, TimeoutError):
            async with asyncio.timeout(session.budget.max_seconds):
                found = await self.roles["rewriter"](FollowUp(question, tuple(history)), session)
        session.flag("rewriter", *found.flags)
        session.record("rewrite", asked=question, text=found.text)
        return found.text

    async def run(
        self,
        questions: Sequence[Question],
        done: Callable[[Prediction, Session], None],
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Answer questions; see `Loop.run`."""
        try:
            await self.loop.run(questions, done, stop)
        finally:
            await self.roles.close()


def open_retriever(choice: Choice, index: Any, roles: Any) -> Any:
    """Return a retriever ready for work."""
    return build("retriever", choice.part, index=index, roles=roles)


def index_path(config: IndexConfig, name: str) -> Path:
    """Return the folder of the index: as configured, or under the root by the name of the data."""
    return Path(config.path) if config.path else Path(config.root) / name


def routes(config: EvaluateConfig) -> dict[str, Route]:
    """Return the routes of the method of a run, by name. Only routing methods have any."""
    return dict(config.method.part.routes)


def pairs(config: EvaluateConfig) -> list[tuple[Choice, Choice]]:
    """Return each method of a run with the retriever that it asks: the run's own first, then those of its routes."""
    found = [(config.method, config.retriever)]
    return found + [(route.method, route.retriever or config.retriever) for route in routes(config).values()]


def check_fit(config: EvaluateConfig) -> None:
    """Refuse a retriever that lacks a channel that its method asks. Raises ConfigError, naming those that fit."""
    for where, (method, retriever) in zip(("", *routes(config)), pairs(config), strict=True):
        wanted = method.part.asked_channels
        have = retriever.part.channels
        if not wanted <= have:
            fitting = [name for name in names("retriever") if wanted <= find_class("retriever", name)().channels]
            raise ConfigError(
                f"{where and f'route method.{where}: '}method={method.name} asks the channels "
                f"{', '.join(sorted(wanted))}, which retriever={retriever.name} does not have; "
                f"suitable: {', '.join(fitting) or 'none'}"
            )
    if implementation(config.roles, "thoughts") == "tuned":
        _check_vector_thoughts(config)


def _check_vector_thoughts(config: EvaluateConfig) -> None:
    """Refuse thoughts in vectors if a retriever cannot search by them. Raises ConfigError, naming those that can."""
    if "thoughts" not in asked_roles(config) or not made_role(config.roles, "thoughts").asks_in_vectors:
        return
    for _, retriever in pairs(config):
        if not retriever.part.accepts_vectors:
            fitting = [name for name in names("retriever") if find_class("retriever", name)().accepts_vectors]
            raise ConfigError(
                f"retriever={retriever.name} cannot search by a vector, and tuned thoughts ask in "
                f"vectors; suitable: {', '.join(sorted(fitting))}"
            )


def needed_stages(config: EvaluateConfig, roles: Sequence[str] = ()) -> set[str]:
    """Return the index artefacts that a run reads: those that its retrievers, methods and roles declare."""
    needed: set[str] = set()
    for method, retriever in pairs(config):
        needed.update(retriever.part.reads)
        needed.update(method.part.reads)
    for name in (*asked_roles(config), *roles):
        if role := made_role(config.roles, name):
            needed.update(role.reads)
    return needed


def asked_roles(config: EvaluateConfig) -> list[str]:
    """Return the roles that a run may ask: those that its methods and retrievers name."""
    wanted = {"reader"}
    for method, retriever in pairs(config):
        asked = method.part.role_names
        wanted.update(ROLES if asked is None else asked)
        wanted.update(retriever.part.role_names)
    return [name for name in ROLES if name in wanted]


def idle_settings(config: EvaluateConfig, further: Sequence[str] = ()) -> list[str]:
    """Return notes on role settings without effect: of a role that is not asked, or of a model for one without."""
    asked, book, found = [*asked_roles(config), *further], config.roles, []
    for name in ROLES:
        role: RoleConfig = getattr(book, name)
        chosen = implementation(book, name)
        given = [key for key, value in to_plain(role).items() if value not in (None, {})]
        shown = ", ".join(f"roles.{name}={role.impl}" if key == "impl" else f"roles.{name}.{key}" for key in given)
        if given and name not in asked:
            who = f"method={config.method.name} on retriever={config.retriever.name}"
            found.append(f"{shown}: without effect, for {who} asks only {', '.join(asked)}")
        elif chosen != "prompted" and (model := [key for key in given if key in ("llm", "model", "settings")]):
            of_model = ", ".join(f"roles.{name}.{key}" for key in model)
            found.append(f"{of_model}: without effect, for the role is {chosen}; give roles.{name}=prompted")
    return found


def open_index(
    config: EvaluateConfig,
    name: str,
    passages: Sequence[Passage],
    progress: OnProgress = no_progress,
    roles: Sequence[str] = (),
) -> Index:
    """Build what is missing or out of date for a run, then open the index. `roles` are asked besides the run's own."""
    return open_shared_index([config], name, passages, progress, roles)


def open_shared_index(
    configs: Sequence[EvaluateConfig],
    name: str,
    passages: Sequence[Passage],
    progress: OnProgress = no_progress,
    roles: Sequence[str] = (),
    further: Collection[str] = (),
) -> Index:
    """Build once what several runs read, then open the index.

    With a build per run, one that does not read the triples of an existing index would leave them as they are,
    whatever the settings say (`build_index`). Data and index settings must be the same in all `configs`. `roles` are
    asked besides those of the runs; `further` are stages to build besides. Raises ArtefactError if these settings
    would silently replace triples of the index, ConfigError if the index was built from other data.
    """
    config = configs[0]
    path, source, settings = index_path(config.index, name), data_source(config.data), index_settings(config)
    stages = {stage for each in configs for stage in needed_stages(each, roles)} | set(further)
    if not config.index.replace:
        _refuse_to_replace_triples(path, config.index, closure(stages, config.index))
    build_index(path, passages, settings, stages, source, progress, keep_edits=True)
    return Index(path, settings)


def _refuse_to_replace_triples(path: Path, config: IndexConfig, stages: Sequence[str]) -> None:
    """Raise ArtefactError if rules would silently replace triples that came from a file or a model."""
    manifest = read_object(path / MANIFEST)
    if not manifest or "extraction" not in stages or config.extract.method != "offline":
        return
    have = from_settings(IndexConfig, manifest["settings"]).extract
    if have.method != "offline":
        where = " index.extract.path=FILE" if have.path else f" index.extract.format={have.format}"
        raise ArtefactError(
            f"index {path} holds triples of index.extract.method={have.method}, and this run says nothing of them: "
            f"give index.extract.method={have.method}{where}, or another index.path for triples made by rules"
        )


def refuse_sample(config: IndexConfig, has_data: bool) -> None:
    """Raise ConfigError if the named index does not exist and no data is given: the sample data is not meant."""
    if config.path and not has_data and not Path(config.path, MANIFEST).is_file():
        raise ConfigError(
            f"index.path={config.path}: there is no index; give the name of one that is there, or what to make it of, "
            f"data.path=FOLDER"
        )


def index_settings(config: EvaluateConfig) -> IndexConfig:
    """Return the settings of the index. Prompted extraction and writers use the run's model unless another is set."""
    index, writers = config.index, config.index.writers
    impls: list[Any] = [getattr(writers, name).impl or getattr(writers, "default") for name in WRITERS]  # noqa: B009
    if index.llm is None and ("prompted" in impls or index.extract.method == "prompted"):
        index = replace(index, llm=to_plain(config.llm))
    return replace(index, llm_cache=config.llm_cache)


def chunking(config: DataConfig) -> Chunking:
    """Return how a user's own documents are split into passages."""
    return Chunking(config.chunk_words, config.chunk_overlap)


def data_source(config: DataConfig) -> dict[str, Any]:
    """Return what the index records about where its passages came from."""
    cut, where = chunking(config), place(config.path)
    chunks = {"chunking": asdict(cut)} if cut != Chunking() else {}
    return {"path": config.path, **chunks, **({"place": where} if where else {})}
