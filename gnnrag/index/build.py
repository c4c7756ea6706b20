"""Building an index: run the stages whose inputs or settings changed, and no others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gnnrag.config import IndexConfig, to_plain
from gnnrag.errors import ArtefactError, ConfigError, DataError, GnnragError, nearest
from gnnrag.files import digest, exclusive_lock
from gnnrag.index.checks import check_passages, is_cut_from, named
from gnnrag.index.embedder import Embedder, make_embedder
from gnnrag.index.stage_base import Context, Stage
from gnnrag.index.stages import STAGES
from gnnrag.index.store import Store, forget_journals
from gnnrag.index_config import SECTIONS, with_own_model
from gnnrag.outputs import INDEX, refuse_other
from gnnrag.types import Passage

WAIT_S = 600.0  # how long a build waits for another process that builds the same index
Progress = Callable[[str, int, int], None]  # stage, passages done now, passages in all


def build_index(
    root: Path,
    passages: Sequence[Passage],
    config: IndexConfig,
    stages: Iterable[str] | None = None,
    source: dict[str, Any] | None = None,
    progress: Progress = lambda stage, done, total: None,
    keep_edits: bool = False,
) -> list[str]:
    """Bring an index folder up to date with passages and settings.

    A killed build continues where it stopped. Stages whose key is unchanged are not touched. Stages that the index has
    are kept up to date even where they are not asked for: no artefact is ever of another corpus than its neighbours.
    Triples and the entity graph keep the settings they were made with until they are asked for: a run of another
    retriever, whose config says nothing of them, does not replace them.

    Args:
        root: the index folder.
        passages: the corpus, in order.
        config: embedder and text settings.
        stages: what to build, with what it needs; all stages by default.
        source: where the passages come from, for the record.
        progress: told what is being done.
        keep_edits: refuse to undo what `update_index` has changed since the last build.

    Returns:
        The stages that were built.

    Raises:
        DataError: two passages share an id, or one has no text.
        ConfigError: unknown stage.
        ArtefactError: `keep_edits`, and the index has passages added or removed that `passages` does not reflect.
    """
    check_passages(root, passages)
    if not passages:
        raise DataError(root, "there are no passages to index")
    wanted = closure(STAGES if stages is None else stages, config)
    if root.is_dir() and _is_current(Store(root), passages, config, wanted, source):
        return []  # readers of a finished index, however many, need no lock
    with _writing(root, WAIT_S):
        store = Store(root)  # again: another process may just have built it
        if keep_edits:
            _refuse_to_undo(store, passages)
        return _build(store, passages, _with_kept_settings(store, config, wanted), wanted, source, progress)


def update_index(
    root: Path,
    add: Sequence[Passage] = (),
    remove: Sequence[str] = (),
    progress: Progress = lambda stage, done, total: None,
    documents: Collection[str] = (),
) -> list[str]:
    """Add, replace or remove passages; equal to building the changed corpus from scratch.

    A passage whose id is known replaces the old one in place; a new one goes to the end.

    Args:
        root: the index folder.
        add: passages.
        remove: ids of passages; the name of a document, `notes.txt`, stands for all that were cut from it.
        progress: told what is being done.
        documents: names of documents that `add` has all passages of: what else was cut from them goes.

    Raises:
        DataError: an id to remove is not in the index, or two passages to add share an id.
        ArtefactError: there is no index.
    """
    Store(root).folder("passages")  # before the lock, which would make the folder
    check_passages(root, add)
    with _writing(root, WAIT_S):
        store = Store(root)
        if not store.manifest["complete"]:  # finish what a kill cut off, so that this change finds a whole index
            _build(store, STAGES["passages"].load(store.folder("passages")), stored_config(store), [], None, progress)
        before: list[Passage] = STAGES["passages"].load(store.folder("passages"))
        passages = {p.id: p for p in before}
        for name in remove:
            for id_ in named(root, name, passages):
                del passages[id_]
        passages.update((p.id, p) for p in add)
        added, whole = {p.id for p in add}, frozenset(documents)
        kept = [p for p in passages.values() if p.id in added or not is_cut_from(p.id, whole)]
        if not kept:
            raise DataError(root, "no passage would be left; delete the folder instead")
        source = {**store.manifest["source"], "edited": True} if kept != before else None
        return _build(store, kept, stored_config(store), [], source, progress)


def stored_config(store: Store) -> IndexConfig:
    """Return the settings an index was made with. Raises ArtefactError when the manifest lacks them."""
    saved = {"path": str(store.root), **{k: v for k, v in store.manifest["settings"].items() if k in SECTIONS}}
    try:
        if not {"embedder", "text"} <= saved.keys():
            raise KeyError("embedder, text")
        stored = OmegaConf.merge(OmegaConf.structured(IndexConfig), saved)
        return OmegaConf.to_object(stored)  # type: ignore[return-value]
    except (KeyError, TypeError, ValueError, OmegaConfBaseException) as error:
        raise ArtefactError(f"index {store.root} holds no readable settings ({error}); build it again") from error


def _is_current(
    store: Store,
    passages: Sequence[Passage],
    config: IndexConfig,
    wanted: Sequence[str],
    source: dict[str, Any] | None,
) -> bool:
    """Tell whether nothing has to be built: every key is what it would become."""
    manifest, config = store.manifest, _with_kept_settings(store, config, wanted)
    record = {"settings": _settings(config), "source": source or manifest["source"]}
    if not manifest["complete"] or any(manifest[name] != value for name, value in record.items()):
        return False
    embedder = cache(lambda: make_embedder(config.embedder))
    context = Context(store, config, passages, embedder, lambda name: None)
    keys: dict[str, str] = {}
    for name in closure([*wanted, *manifest["stages"]], config):
        _, keys[name] = _hashes(name, context, keys)
        if store.key(name) != keys[name]:
            return False
    return not any((store.root / ".partial").glob("*"))


def stage_states(store: Store) -> dict[str, str]:
    """Say of each artefact whether it is what its own settings and inputs would give: `current`, or why it is not.

    Nothing is built. After a build that was cut off, or where a file that triples come from has changed, it is not.
    """
    config = stored_config(store)
    passages: list[Passage] = STAGES["passages"].load(store.folder("passages"))
    embedder = cache(lambda: make_embedder(config.embedder))
    context = Context(store, config, passages, embedder, lambda name: None)
    states: dict[str, str] = {}
    for name in (n for n in STAGES if store.key(n) is not None):
        behind = [n for n in needs(STAGES[name], config) if states.get(n, "missing") != "current"]
        try:
            _, key = _hashes(name, context, {need: store.key(need) for need in needs(STAGES[name], config)})
            states[name] = "current" if key == store.key(name) else "out of date"
        except GnnragError as error:
            states[name] = f"cannot tell: {error}"
        if behind and states[name] == "current":
            states[name] = f"waits for {', '.join(behind)}"
    return states


def _hashes(name: str, context: Context, keys: Mapping[str, str | None]) -> tuple[str, str]:
    """Return the hash of a stage's settings, and its key: that of the settings and of the keys of what it needs."""
    stage = STAGES[name]
    settings = digest([name, stage.settings(context)])
    return settings, digest([settings, [keys[need] for need in needs(stage, context.config)]])


def _with_kept_settings(store: Store, config: IndexConfig, wanted: Sequence[str]) -> IndexConfig:
    """Return `config` with the stored settings of what is there and not wanted; see `Stage.sections`."""
    readers: dict[str, list[str]] = {}
    for name, stage in STAGES.items():
        for section in stage.sections:
            readers.setdefault(section, []).append(name)
    there = {name for name in STAGES if store.key(name) is not None}
    kept = [s for s, names in readers.items() if there.intersection(names) and not set(wanted).intersection(names)]
    if not there:
        return config
    stored = stored_config(store)
    config = replace(config, **{s: getattr(stored, s) for s in kept if "." not in s})
    writers: Any = stored.writers
    roles = {name: getattr(writers, name) for s in kept for name in [s.partition("writers.")[2]] if name}
    roles = {name: replace(role, impl=role.impl or writers.default) for name, role in roles.items()}
    llm = config.llm or stored.llm
    for name, role in roles.items() if llm != stored.llm else ():  # no kept stage gets another model
        if (stored.extract.method if name == "triples" else role.impl) == "prompted":
            roles[name] = with_own_model(role, stored.llm)
    return replace(config, writers=replace(config.writers, **roles), llm=llm)


def _refuse_to_undo(store: Store, passages: Sequence[Passage]) -> None:
    """Raise ArtefactError when the index has passages added or removed that `passages` does not reflect."""
    if not store.manifest["source"].get("edited"):
        return
    if STAGES["passages"].load(store.folder("passages")) != list(passages):
        raise ArtefactError(
            f"index {store.root} was changed by index.py add or remove, and this would undo it. Ask it as it is with "
            f"ask.py index.path={store.root} and no config, or undo the changes with index.py build, "
            "or give another index.path"
        )


@contextmanager
def _writing(root: Path, wait_s: float = 0.0) -> Iterator[None]:
    if root.exists() and not root.is_dir():
        raise ArtefactError(f"index {root} is a file; index.path must name a folder, new or of an earlier index")
    refuse_other(root, INDEX)
    with exclusive_lock(root / ".lock", f"index {root}", wait_s):
        yield


def _build(
    store: Store,
    passages: Sequence[Passage],
    config: IndexConfig,
    wanted: Iterable[str],
    source: dict[str, Any] | None,
    progress: Progress,
) -> list[str]:
    """Build what is wanted or there already, and out of date. The caller holds the lock."""
    store.clean()
    loaded: dict[str, Any] = {"passages": list(passages)}

    def read(name: str) -> Any:
        if name not in loaded:
            loaded[name] = STAGES[name].load(store.folder(name))
        return loaded[name]

    @cache
    def embedder() -> Embedder:
        return make_embedder(config.embedder)

    # An index cut off here holds stages of two corpora or settings; `complete` tells those who would read it.
    record = {"settings": _settings(config), "source": source or store.manifest["source"]}
    stale = not store.manifest["complete"] or any(store.manifest[k] != v for k, v in record.items())
    store.manifest.update(record, complete=False)
    built = []
    for name in closure([*wanted, *store.manifest["stages"]], config):
        context = Context(store, config, passages, embedder, read)
        context.progress = lambda n, name=name: progress(name, n, len(passages))  # type: ignore[misc]
        stage = STAGES[name]
        settings, key = _hashes(name, context, {need: store.key(need) for need in needs(stage, config)})
        if store.key(name) == key:
            forget_journals(store, name)  # a kill may have come between the commit and this
            continue
        started = time.perf_counter()
        progress(name, 0, len(passages))
        write = stage.build(context, settings)
        store.commit(name, key, write, time.perf_counter() - started)
        forget_journals(store, name)
        built.append(name)
    store.manifest["complete"] = True
    if built or stale:
        store.save()
    return built


def _settings(config: IndexConfig) -> dict[str, Any]:
    return {name: to_plain(getattr(config, name)) for name in SECTIONS}


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
    return stage.needs_for(config) if hasattr(stage, "needs_for") else stage.needs
