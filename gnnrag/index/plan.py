"""What a build of an index would do: which stages, with which settings and keys. Nothing is written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from gnnrag.common.files import digest
from gnnrag.config import IndexConfig
from gnnrag.errors import ArtefactError, ConfigError, GnnragError, NotGivenError, nearest
from gnnrag.index.embedder import Embedder, is_folder
from gnnrag.index.settings import (
    only_recorded,
    open_embedder,
    recorded_analyser,
    recorded_model,
    recorded_settings,
    recorded_weights,
    stored_config,
    without_caller,
)
from gnnrag.index.stage import Context, Stage
from gnnrag.index.stages import STAGES
from gnnrag.index.store import Store
from gnnrag.types import Passage

BUILD, ADD = (f"gnnrag index {what}" for what in ("build CONFIG", "add INDEX PATH CONFIG"))


@dataclass(frozen=True)
class Step:
    """A stage in a plan."""

    name: str  # of the stage
    settings: str  # hash; empty where they are those of the artefact that is there, and not known
    key: str  # that its artefact is to have
    is_current: bool  # the artefact that is there has it


class Plan:
    """The steps that bring an index up to date; `wanted` names stages, none where the settings are the index's own.

    A stage that is there and not wanted keeps its settings (`with_kept_settings`). Some of them only the caller knows:
    a model, a file. Where nothing that such a stage reads has changed it is current, and nobody has to give them; where
    it is made again, they must be those that it was made with, or one artefact would be of two models.
    """

    def __init__(
        self,
        store: Store,
        passages: Sequence[Passage],
        config: IndexConfig,
        wanted: Sequence[str],
        embedder: Callable[[], Embedder],
    ) -> None:
        self.store, self.wanted = store, wanted
        self.config = with_kept_settings(store, config, wanted) if wanted else config
        self.record = recorded_settings(self.config)
        self.embedder: Embedder | None = None  # once a stage has asked for it
        self._make_embedder = embedder
        self.context = Context(store, self.config, passages, self._embedder, lambda name: None)
        self._bare = Context(store, without_caller(self.config), passages, self._embedder, lambda name: None)
        read = {section for name in wanted for section in STAGES[name].sections}
        self._kept = {
            n for n, stage in STAGES.items() if store.key(n) and n not in wanted and not read & {*stage.sections}
        }
        self._keys: dict[str, str] = {}
        self._current: dict[str, bool] = {}

    def _embedder(self) -> Embedder:
        self.embedder = self.embedder or self._make_embedder()
        return self.embedder

    @cached_property
    def is_recorded(self) -> bool:
        """Whether the manifest holds these settings."""
        return self._analysed(settings_of(self.store)) == self._analysed(self.record)

    def _analysed(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return settings with the analyser that the index was made with in place of whichever there is."""
        text = record.get("text")
        if not isinstance(text, Mapping) or text.get("language") not in ("auto", "spacy"):
            return record
        return {**record, "text": {**text, "language": recorded_analyser(self.store) or text["language"]}}

    def steps(self, names: Iterable[str]) -> Iterator[Step]:
        """Yield what is to be done for stages and all that they need, in building order.

        Raises ArtefactError where a stage has to be made again with other settings of the caller than it was made with,
        and NotGivenError where it cannot be without something that only the caller can give.
        """
        for name in closure(names, self.config):
            step = self._step(name)
            self._keys[name], self._current[name] = step.key, step.is_current
            yield step

    def _step(self, name: str) -> Step:
        if name in self._kept:
            try:
                settings = digest([name, STAGES[name].settings(self._bare)])
            except NotGivenError as error:
                return self._locked(name, error)
        else:
            settings = digest([name, STAGES[name].settings(self.context)])
        key = self._key(name, settings)
        return Step(name, settings, key, self.store.key(name) == key)

    def _locked(self, name: str, error: NotGivenError) -> Step:
        """Plan a stage that is to stay as it is, and reads what no index says."""
        store, before = self.store, str(self.store.key(name))
        made_with = settings_hash(store, name)
        is_same = self.is_same_embedder and all(self._current[need] for need in self._needs(name))
        if is_same and (self._key(name, made_with) == before if made_with else store.manifest["complete"]):
            return Step(name, made_with, before, True)
        try:
            settings = digest([name, STAGES[name].settings(self.context)])
        except NotGivenError:
            raise NotGivenError(self._missing(name, error)) from error
        self._refuse_another(name, settings)
        key = self._key(name, settings)
        return Step(name, settings, key, key == before)

    @cached_property
    def is_same_embedder(self) -> bool:
        """Whether the index says of its embedder what these settings would have it say."""
        if settings_of(self.store).get("embedder") != self.record["embedder"]:
            return False
        weights = recorded_weights(self.store) if is_folder(self.config.embedder.model) else ""
        return not weights or weights == self._embedder().weights

    def _needs(self, name: str) -> tuple[str, ...]:
        return needs(STAGES[name], self.config)

    def _key(self, name: str, settings: str) -> str:
        return digest([settings, [self._keys[need] for need in self._needs(name)]])

    def _missing(self, name: str, error: NotGivenError) -> str:
        models = {writer: recorded_model(self.store, writer) for writer in prompted_writers(name, self.config)}
        asked = "; ".join(f"{writer}: {describe(model)}" for writer, model in models.items() if model)
        by = f" was written by a model ({asked})" if asked else " is of a file or a model"
        return (
            f"index {self.store.root}: its {name}{by}, and has to be brought up to date, which takes what no index "
            f"says ({error}): give the config that it was built with, as in {ADD} [llm.base_url=...]"
        )

    def _refuse_another(self, name: str, settings: str) -> None:
        """Raise ArtefactError where a stage would be made again with another model or file than it was made with."""
        store, made_with = self.store, settings_hash(self.store, name)
        for writer in prompted_writers(name, self.config):
            old, new = recorded_model(store, writer), self.context.tasks.model(writer)
            if any(old[key] != new[key] for key in old.keys() & new.keys()):
                both = f"{name} is by {describe(old)}, and these settings name {describe(new)}"
                break
        else:
            before = digest([settings, [store.key(need) for need in self._needs(name)]])
            is_alike = (
                settings == made_with if made_with else before == store.key(name) or not store.manifest["complete"]
            )
            if is_alike or not self.is_same_embedder:
                return
            both = f"{name} was made with another file, or by a model at another address, than these settings name"
        raise ArtefactError(
            f"index {store.root}: its {both}: one artefact would be of both. Give the settings that it was made with, "
            f"or make it anew with {BUILD}"
        )


def describe(model: Mapping[str, Any]) -> str:
    """Return in a few words what is known of a model."""
    prompts = [str(one)[:8] for one in model.get("prompts", ()) if isinstance(one, str)]
    rest = [f"{key}={value}" for key, value in model.items() if key not in ("backend", "model", "prompts")]
    named = " ".join(str(model[key]) for key in ("backend", "model") if key in model) or "an unknown model"
    return ", ".join([named, *rest, *([f"prompts {' '.join(prompts)}"] if prompts else [])])


def settings_of(store: Store) -> dict[str, Any]:
    """Return what the manifest says of settings, as far as it may; nothing where it holds none."""
    try:
        return only_recorded(store.manifest["settings"])
    except (TypeError, AttributeError):
        return {}


def settings_hash(store: Store, name: str) -> str:
    """Return the hash of the settings that a stage was made with; empty in an index from before it was recorded."""
    found = store.manifest["stages"].get(name, {}).get("settings")
    return found if isinstance(found, str) else ""


def is_consistent(store: Store, config: IndexConfig, name: str) -> bool:
    """Tell whether a stage was made from the artefacts that the index holds: in one cut off, some were not."""
    if store.manifest["complete"]:
        return True
    made_with = settings_hash(store, name)
    inputs = [store.key(need) for need in needs(STAGES[name], config)]
    sound = all(is_consistent(store, config, need) for need in needs(STAGES[name], config))
    return (
        sound and (not inputs or bool(made_with)) and (not made_with or digest([made_with, inputs]) == store.key(name))
    )


def stage_states(store: Store) -> dict[str, str]:
    """Say of each artefact whether it is what its own settings and inputs would give: `current`, or why it is not.

    Nothing is built. After a build that was cut off it is not. Of a stage that a model or a file has part in, the index
    says only whether it is as it was made.
    """
    config = stored_config(store)
    passages: Sequence[Passage] = store.load("passages", STAGES["passages"].load)
    embedder = cache(lambda: open_embedder(store, config))
    context = Context(store, without_caller(config), passages, embedder, lambda name: None)
    states: dict[str, str] = {}
    for name in (n for n in STAGES if store.key(n) is not None):
        inputs = needs(STAGES[name], config)
        behind = [n for n in inputs if states.get(n, "missing") != "current"]
        try:
            try:
                settings = digest([name, STAGES[name].settings(context)])
            except NotGivenError:
                settings = settings_hash(store, name)
            key = digest([settings, [store.key(need) for need in inputs]])
            is_current = key == store.key(name) if settings else is_consistent(store, config, name)
            states[name] = "current" if is_current else "out of date"
        except GnnragError as error:
            states[name] = f"cannot tell: {error}"
        if behind and states[name] == "current":
            states[name] = f"waits for {', '.join(behind)}"
    return states


def prompted_writers(name: str, config: IndexConfig) -> list[str]:
    """Return the writers of a stage that ask a model."""
    writers: Any = config.writers
    found = [section.removeprefix("writers.") for section in STAGES[name].sections if section.startswith("writers.")]
    if "triples" in found:
        return found if config.extract.method == "prompted" else []
    return [writer for writer in found if (getattr(writers, writer).impl or writers.default) == "prompted"]


def with_kept_settings(store: Store, config: IndexConfig, wanted: Sequence[str]) -> IndexConfig:
    """Return `config` with the stored settings of what is there and not wanted; see `Stage.sections`."""
    readers: dict[str, list[str]] = {}
    for name, stage in STAGES.items():
        for section in stage.sections:
            readers.setdefault(section, []).append(name)
    there = {name for name in STAGES if store.key(name) is not None}
    kept = [s for s, names in readers.items() if there.intersection(names) and not set(wanted).intersection(names)]
    if not there:
        return config
    stored = stored_config(store, config)
    config = replace(config, **{s: getattr(stored, s) for s in kept if "." not in s})
    writers: Any = stored.writers
    roles = {name: getattr(writers, name) for s in kept for name in [s.partition("writers.")[2]] if name}
    roles = {name: replace(role, impl=role.impl or writers.default) for name, role in roles.items()}
    return replace(config, writers=replace(config.writers, **roles))


def closure(names: Iterable[str], config: IndexConfig) -> list[str]:
    """Return the stages and what they need, in building order."""
    wanted: set[str] = {"passages"}

    def visit(name: str) -> None:
        if name not in STAGES:
            raise ConfigError(f"stage {name!r} is unknown. {nearest(name, STAGES)}")
        wanted.add(name)
        for need in needs(STAGES[name], config):
            visit(need)

    for name in names:
        visit(name)
    return [name for name in STAGES if name in wanted]


def needs(stage: Stage, config: IndexConfig) -> tuple[str, ...]:
    """Return the stages that a stage reads under these settings."""
    return stage.needs_for(config)
