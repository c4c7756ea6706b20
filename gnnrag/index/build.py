"""Build, extend and check an index: plan its stages, compute what is missing, write each atomically."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.files import digest, exclusive_lock, tidy
from gnnrag.common.records import INDEX, refuse_other
from gnnrag.common.tables import Lazy
from gnnrag.common.untrusted import is_well_formed
from gnnrag.common.waiting import moved, waiting
from gnnrag.common.yaml_config import MARK
from gnnrag.config import IndexConfig
from gnnrag.datasets.chunk import document_of
from gnnrag.datasets.source import find_source
from gnnrag.errors import ArtefactError, ConfigError, DataError, nearest
from gnnrag.index.embedder import is_folder, make_embedder
from gnnrag.index.passages import EditedPassages, positions_of
from gnnrag.index.plan import Plan, Step, closure, prompted_writers, settings_hash
from gnnrag.index.settings import open_embedder, stored_config
from gnnrag.index.stage import Context
from gnnrag.index.stages import STAGES, PassageStage
from gnnrag.index.store import BUILDING, Store, forget_journals, read_artefact
from gnnrag.metrics.replies import WARN, by_writer, remarks
from gnnrag.types import Passage

logger = logging.getLogger(__name__)


def place(path: str) -> str | None:
    """Return what tells the data at a path from those at another, from wherever it is named; None where none are."""
    try:
        source = find_source(Path(path))
    except (DataError, OSError, ValueError):
        return None
    return digest([str(source.path.resolve()), source.name])


def refuse_other_source(store: Store, source: Mapping[str, Any], passages: Sequence[Passage], suggested: str) -> None:
    """Refuse to put other data into an index than it was made of: raises ConfigError that names both.

    Data that have moved, and a copy, are the same data, and so are data at another place that hold most of what the
    index does, where the place they came from is gone. `suggested` is another folder for an index.
    """
    before = store.manifest["source"]
    known = before.get("path")
    if not isinstance(known, str) or "path" not in source or store.key("passages") is None or is_same(before, source):
        return
    there = list(stored_passages(store))
    if there == list(passages):
        return
    if not _is_there(before, known):
        now = set(passages)
        if 2 * sum(passage in now for passage in there) >= len(there):
            return
    raise ConfigError(
        f"index {store.root} is of data.path={known}, and data.path={source['path']} is another source: give it an "
        f"index of its own, such as index.path={suggested}, or replace this one with index.replace=true"
    )


def is_own(store: Store, source: Mapping[str, Any], passages: Sequence[Passage]) -> bool:
    """Tell whether an index is of this source, or says of none; see `refuse_other_source`."""
    try:
        refuse_other_source(store, source, passages, "")
    except ConfigError:
        return False
    return True


def is_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Tell whether two records name one place."""
    one, two = (source.get("place") for source in (before, now))
    if one and two:
        return bool(one == two)
    paths = [str(source.get("path")) for source in (before, now)]
    return paths[0] == paths[1] or _place(paths[0]) == (two or _place(paths[1])) is not None


def _place(path: str) -> str | None:
    return None if MARK in path else place(path)


def is_same_record(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Tell whether an index says of its source what it would be told now; nothing is told by who knows of none."""
    facts = [{key: value for key, value in one.items() if key not in ("path", "place")} for one in (before, now)]
    return not now or (facts[0] == facts[1] and is_same(before, now))


def _is_there(before: Mapping[str, Any], path: str) -> bool:
    """Tell whether the data of a record are still where they were; from another folder, a path may lead elsewhere."""
    found = _place(path)
    return found is not None and before.get("place") in (None, found)


def refuse_to_undo(store: Store, passages: Sequence[Passage]) -> None:
    """Raise ArtefactError when the index has passages added or removed that `passages` does not reflect."""
    if not store.manifest["source"].get("edited"):
        return
    if list(stored_passages(store)) != list(passages):
        raise ArtefactError(
            f"index {store.root} was changed by gnnrag index add or remove, and this would undo it. Ask it as it is, "
            f"with gnnrag ask index.path={store.root} and no config, or undo the changes with the same config or "
            f"data.path, by: gnnrag index build data.path=... index.path={store.root} (in Python: fresh=True), or give "
            f"another index.path"
        )


def stored_passages(store: Store) -> Sequence[Passage]:
    """Return the passages that an index holds: a list of few; many are read where they are asked for."""
    passages: Sequence[Passage] = store.load("passages", STAGES["passages"].load)
    return passages


def check_passages(root: Path, passages: Sequence[Passage]) -> None:
    """Refuse passages that no index could serve."""
    seen: dict[str, int] = {}
    for number, passage in enumerate(passages, start=1):
        if passage.id in seen:
            first = seen[passage.id]
            raise DataError(root, f"passages {first} and {number} share the id {passage.id!r}; ids must differ")
        seen[passage.id] = number
        if not passage.text.strip() and not passage.title.strip():
            raise DataError(root, f"passage {passage.id!r} has neither title nor text; remove it")
        if not is_well_formed(f"{passage.id}{passage.title}{passage.text}{passage.place}"):
            raise DataError(root, f"passage {passage.id!r} has half of a surrogate pair, which no file takes: mend it")


def named(root: Path, name: str, passages: Sequence[Passage], at: Mapping[str, int]) -> list[int]:
    """Return where a name stands: the passage with that id, else those cut from that document; DataError without any.

    `at` has the position of each id.
    """
    if name in at:
        return [at[name]]
    found = [position for position, id_ in enumerate(at) if is_cut_from(id_, {name})]
    if not found:
        files = dict.fromkeys(document_of(passage.id) for passage in passages if passage.place)
        hint = nearest(name, list(at if "#" in name or not files else files)[:2000])[:200]
        raise DataError(root, f"passage {name!r} is not in the index{', nor a document' if files else ''}. {hint}")
    return found


def is_cut_from(id_: str, documents: Collection[str]) -> bool:
    """Tell whether an id such as `notes/a.md#3` or `faq.jsonl:42#1` is of one of these documents, or of a record."""
    stem, _, number = id_.rpartition("#")
    if not number.isdecimal():
        return False
    return stem in documents or any(stem[: m.end() - 1] in documents for m in re.finditer(r"\.jsonl:", stem, re.I))


WAIT_S = 600.0  # how long a build waits for another process that builds the same index
TELL_S = 60.0  # and how often it says so
# Stage, passages done now, passages in all. One that has a method `tell` is told in a line, at once and then every
# minute, that another process has to be waited for, and for what.
Progress = Callable[[str, int, int], None]


class _NothingToDoError(Exception):
    """While this process waited, another one has built what it needs."""


def build_index(
    root: Path,
    passages: Sequence[Passage],
    config: IndexConfig,
    stages: Iterable[str] | None = None,
    source: dict[str, Any] | None = None,
    progress: Progress = lambda stage, done, total: None,
    keep_edits: bool = False,
) -> list[str]:
    """Bring an index folder up to date with passages and settings; returns the stages that were built.

    A killed build continues where it stopped. Stages whose key is unchanged are not touched. Stages that the index has
    are kept up to date even where they are not asked for: no artefact is ever of another corpus than its neighbours.
    Triples and the entity graph keep the settings they were made with until they are asked for. `stages` are built with
    what they need, None for all; an index of another `source` is refused unless `config.replace`. `keep_edits`, for
    readers, refuses to undo what `update_index` changed, and waits for nobody who builds other stages.

    Raises:
        DataError: two passages share an id, or one has no text.
        ConfigError: unknown stage, or the index is of another source.
        NotGivenError: a stage that the index has needs a model or a file that the settings do not give.
        ArtefactError: `keep_edits`, and `passages` lack edits; or a stage that it has would become one of two models.
    """
    check_passages(root, passages)
    if not passages:
        raise DataError(root, "there are no passages to index")
    wanted = closure(STAGES if stages is None else stages, config)
    job = _Job(root, passages, config, wanted, source or {}, keep_edits)
    if root.is_dir() and job.missing() is None:
        return []  # readers of what is finished, however many, need no lock
    try:
        with _writing(root, job, progress):
            return _build(job.plan(job.store()), source, progress)  # again: another process may just have built it
    except _NothingToDoError:
        return []


class _Job:
    """What one call of `build_index` is to bring about; the arguments are its."""

    def __init__(
        self,
        root: Path,
        passages: Sequence[Passage],
        config: IndexConfig,
        wanted: Sequence[str],
        source: dict[str, Any],
        is_reader: bool,
    ) -> None:
        self.root, self.passages, self.config, self.wanted = root, passages, config, wanted
        self.source, self.is_reader = source, is_reader
        self.embedder = cache(lambda: make_embedder(config.embedder))

    def store(self) -> Store:
        """Return the index, without its stages where it is to be replaced. Raises GnnragError where it may not be."""
        store = Store(self.root)
        if self.config.replace and not is_own(store, self.source, self.passages):
            store.manifest.update(settings={}, source={}, stages={}, models={}, complete=False)
            return store
        refuse_other_source(store, self.source, self.passages, f"{self.root}-2")
        if self.is_reader:
            refuse_to_undo(store, self.passages)
        return store

    def plan(self, store: Store) -> Plan:
        return Plan(store, self.passages, self.config, self.wanted, self.embedder)

    def missing(self) -> str | None:
        """Return the first stage to build, an empty text where only the record changes; None: nothing is to be done.

        Where a writer ends meanwhile, and takes what it replaced, it is looked for again.
        """
        while True:
            before = _which(self.root / "manifest.json")
            try:
                return self._missing()
            except ArtefactError:
                if _which(self.root / "manifest.json") == before:
                    raise

    def _missing(self) -> str | None:
        # A reader needs its own stages alone where another build is under way, or was cut off.
        store = self.store()
        plan, is_whole = self.plan(store), store.manifest["complete"]
        names = [*self.wanted, *(store.manifest["stages"] if is_whole or not self.is_reader else ())]
        if stale := next((step.name for step in plan.steps(names) if not step.is_current), None):
            return stale
        is_known = plan.is_recorded and is_same_record(store.manifest["source"], self.source)
        is_tidy = is_whole and not any((self.root / ".partial").glob("*")) and not (self.root / BUILDING).exists()
        return None if is_known and (is_tidy or self.is_reader) else ""


def _which(path: Path) -> int:
    """Return what tells a file from the one that it replaced; 0: there is none."""
    return path.stat().st_ino if path.exists() else 0


def update_index(
    root: Path,
    add: Sequence[Passage] = (),
    remove: Sequence[str] = (),
    progress: Progress = lambda stage, done, total: None,
    documents: Collection[str] = (),
    caller: IndexConfig | None = None,
    may_empty: bool = False,
) -> list[str]:
    """Add, replace or remove passages; equal to building the changed corpus from scratch.

    A passage whose id is known replaces the old one in place; a new one goes to the end. `remove` takes ids, or the
    name of a document for all that were cut from it; of the `documents` named, `add` has all passages: what else was
    cut from them goes. `caller` gives what no index says: the model of prompted writers with its server, paths. Where
    no passage is left, `may_empty` makes the folder as one that nothing was built in.

    Raises:
        DataError: an id to remove is not in the index, or two passages to add share an id.
        ArtefactError: there is no index; or what the caller gives is not what it was made with.
        NotGivenError: something is needed that the caller has not given; nothing has been changed.
    """
    Store(root).folder("passages", is_hashed=False)  # before the lock, which would make the folder
    check_passages(root, add)
    with _writing(root, None, progress):
        store = Store(root)
        before = stored_passages(store)
        if not store.manifest["complete"]:  # finish what a kill cut off, so that this change finds a whole index
            _build(_own_plan(store, before, caller), None, progress)
        passages = _edited(root, before, add, remove, frozenset(documents))
        if not len(passages) and not may_empty:
            raise DataError(root, "no passage would be left; delete the folder instead")
        if not len(passages):
            store.manifest.update(settings={}, source={}, stages={}, models={}, complete=True)
            store.save()
            tidy(root / ".partial", root)
            store.clean()
            return []
        source = {**store.manifest["source"], "edited": True} if passages.is_other else None
        return _build(_own_plan(store, passages, caller), source, progress)


def _edited(
    root: Path,
    before: Sequence[Passage],
    add: Sequence[Passage],
    remove: Sequence[str],
    documents: frozenset[str],
) -> EditedPassages:
    """Return what `update_index` makes of a corpus. Raises ArtefactError where its ids are not distinct."""
    at, stays = positions_of(before), np.ones(len(before), dtype=bool)
    if len(at) != len(before):
        raise ArtefactError(f"index {root} has two passages of one id; it is damaged or forged: build it again")
    for name in remove:
        where = named(root, name, before, at)
        if not stays[where].any():
            raise DataError(root, f"passage {name!r} is not in the index any more: it is named twice")
        stays[where] = False
    rows = np.arange(len(before) + len(add))
    known = np.array([at.get(passage.id, -1) for passage in add], dtype=np.int64)
    known = np.where(np.append(stays, False)[known], known, -1)  # what is removed and added goes to the end
    if documents:
        stays &= np.fromiter((not is_cut_from(id_, documents) for id_ in at), dtype=bool, count=len(at))
    replaced = np.flatnonzero(known >= 0)
    rows[known[replaced]], stays[known[replaced]] = len(before) + replaced, True
    rows = rows[np.concatenate([stays, known < 0])]
    return EditedPassages(before, add, rows)


def _own_plan(store: Store, passages: Sequence[Passage], caller: IndexConfig | None) -> Plan:
    config = stored_config(store, caller)
    return Plan(store, passages, config, (), cache(lambda: open_embedder(store, config, caller)))


@contextmanager
def _writing(root: Path, job: _Job | None, progress: Progress) -> Iterator[None]:
    """Hold the lock of an index; what is waited for is told, and where others have done the job it ends."""
    if root.exists() and not root.is_dir():
        raise ArtefactError(f"index {root} is a file; index.path must name a folder, new or of an earlier index")
    refuse_other(root, INDEX)
    told, seen = -TELL_S, 0.0
    stage: str | None = ""

    def waiting(waited: float) -> None:
        nonlocal told, seen, stage
        manifest = root / "manifest.json"
        changed = manifest.stat().st_mtime if manifest.exists() else 0.0
        if job is not None and changed != seen:
            seen, stage = changed, job.missing()
            if stage is None:
                raise _NothingToDoError
        if waited - told >= TELL_S:
            told = waited
            what = f" (stage {stage})" if stage else ""
            logger.warning(
                f"index {root} is being built by another process{what}: waiting, {waited:.0f} of at most {WAIT_S:.0f} s"
            )

    with exclusive_lock(root / ".lock", f"index {root}", WAIT_S, waiting):
        yield


def _build(plan: Plan, source: dict[str, Any] | None, progress: Progress) -> list[str]:
    """Build what is wanted or there already, and out of date. The caller holds the lock."""
    store, context = plan.store, plan.context
    steps = list(plan.steps([*plan.wanted, *store.manifest["stages"]]))  # what is refused is refused before any work
    if not store.manifest["stages"]:
        store.save()  # where others are replaced, nothing names what goes
    store.begin({step.name: step.key for step in steps})
    passages = context.passages
    loaded: dict[str, Any] = {"passages": passages if isinstance(passages, Lazy) else list(passages)}

    def read(name: str) -> Any:
        if name not in loaded:
            loaded[name] = read_artefact(store.folder(name, is_hashed=name not in made), STAGES[name].load)
        return loaded[name]

    made: list[str] = []
    context.read = read

    # An index cut off here holds stages of two corpora or settings; `complete` tells those who would read it.
    record = {"settings": plan.record, "source": source or store.manifest["source"]}
    stale = not store.manifest["complete"] or any(store.manifest[k] != v for k, v in record.items())
    store.manifest.update(record, complete=False)
    for at, step in enumerate(steps):
        # What no later stage reads would only fill the memory.
        ahead = {need for later in steps[at:] for need in STAGES[later.name].needs_for(plan.config)}
        for name in loaded.keys() - ahead:
            del loaded[name]
        if step.is_current or store.adopt(step.name, step.key, prompted_writers(step.name, context.config)):
            forget_journals(store, step.name)  # a kill may have come between the commit and this
        else:
            _run(step, context, progress)
            made.append(step.name)
    store.manifest["complete"] = True
    weights = store.manifest.get("embedder_weights")
    if not is_folder(plan.config.embedder.model):
        store.manifest.pop("embedder_weights", None)
    elif plan.embedder is not None:
        store.manifest["embedder_weights"] = plan.embedder.weights
    is_other = made or any(not step.is_current for step in steps)
    if is_other or stale or weights != store.manifest.get("embedder_weights"):
        store.save()
    tidy(store.root / BUILDING, store.root)  # also of a change cut off: it is there, or not wanted
    store.clean()
    return made


def _run(step: Step, context: Context, progress: Progress) -> None:
    name, store, total = step.name, context.store, len(context.passages)

    def on_progress(done: int) -> None:
        moved()
        progress(name, done, total)

    context.progress = on_progress
    context.remarks.clear()
    # Passages have no settings but themselves.
    read = [settings_hash(store, need) for need in closure([name], context.config) if need not in ("passages", name)]
    own = f"passages {PassageStage.version}" if name == "passages" else step.settings
    context.made_with = digest([own, read])
    started = time.perf_counter()
    progress(name, 0, total)
    writers = prompted_writers(name, context.config)
    spent = context.tasks.go_on(store.root / ".partial" / f"{name}-{step.key[:16]}.spent") if writers else nullcontext()
    with spent, waiting(f"stage {name} of the index"):
        write = STAGES[name].build(context, step.settings)
    store.record_models({writer: context.tasks.model(writer) for writer in writers})
    store.commit(name, step.key, write, time.perf_counter() - started, step.settings)
    for line in [*remarks(by_writer(store.info(name)), WARN, None), *context.remarks]:
        logger.warning("index, stage %s: %s", name, line)
    forget_journals(store, name)
