"""An index: tables of passages and what was computed of them, and artefacts, each made when it is first read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, fields, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnrag.config import DataConfig, IndexConfig, RoleConfig
from gnnrag.datasets.base import chunking
from gnnrag.datasets.chunk import Chunking
from gnnrag.errors import ArtefactError, ConfigError, DataError, GnnragError, NotGivenError, nearest
from gnnrag.graphs.titles import Layout, TitleMatcher
from gnnrag.index import corpus, summaries, triples  # noqa: F401 - they register artefacts
from gnnrag.index.artefacts import ARTEFACTS, Work, folders_in
from gnnrag.index.embedder import Embedder, make_embedder
from gnnrag.index.filters import checked, matching
from gnnrag.index.lexical import Lexical
from gnnrag.index.nearest import FLAT_UP_TO, Nearest
from gnnrag.index.tables import (
    PASSAGES,
    PassageTable,
    ValueTable,
    is_remote,
    latest_version,
    load_arrays,
    local_folder,
    names_in,
    passage_rows,
    place_of,
    pull,
    push,
    put_json,
    save_arrays,
    undone_on_failure,
    write_passages,
)
from gnnrag.index.work import index_tasks
from gnnrag.index_config import WRITERS
from gnnrag.io import digest, exclusive_lock, read_object, write_folder
from gnnrag.metrics.replies import WARN, by_writer, remarks
from gnnrag.parts import from_settings
from gnnrag.text.analyse import question_phrases
from gnnrag.types import OnProgress, Passage, no_progress

if TYPE_CHECKING:
    from gnnrag.graphs.entities import EntityKnowledge
    from gnnrag.graphs.hierarchy import HierarchyGraph
    from gnnrag.graphs.knowledge import KnowledgeGraph, KnowledgeVectors

logger = logging.getLogger(__name__)
RECORD = "record.json"  # of an artefact: settings, tables, counts, seconds
_FORMAT = 2  # of the files of artefacts
WAIT_S = 600.0  # how long one process waits for another that makes artefacts of the same index


def _value(name: str) -> Any:
    return property(lambda index: index.read(name))


class Index:
    """An index, opened at one version of its passages: later edits do not change what this object sees.

    `root` is a folder, or `s3://...`, whose artefacts are also kept in a local folder. `caller` gives the settings that
    an index does not record: a device, the model of prompted writers, limits. A missing artefact is made when it is
    first read. Raises ArtefactError where there is no index.
    """

    hierarchy: HierarchyGraph = _value("hierarchy")  # passages, sentences and phrases as a graph
    entity_graph: EntityKnowledge = _value("entity_graph")  # entities and facts as a graph, with their vectors
    knowledge: KnowledgeGraph = _value("knowledge")  # entities, relations and hyperedges with their texts
    knowledge_vectors: KnowledgeVectors = _value("knowledge_vectors")
    phrase_vectors: np.ndarray = _value("phrase_vectors")  # (num_phrases, dim) float32, of the nodes of `hierarchy`
    passage_vectors: np.ndarray = _value("embeddings")  # (num_passages, dim) float32 unit rows, mapped into memory

    def __init__(
        self,
        root: Path | str,
        caller: IndexConfig | None = None,
        progress: OnProgress = no_progress,
        version: int | None = None,
    ) -> None:
        self.root, self.place, self.progress = Path(root), str(root), progress
        self.table = PassageTable(self.uri(PASSAGES), version)
        self.local = local_folder(root)
        self.local.mkdir(parents=True, exist_ok=True)
        caller = caller or IndexConfig()
        if recorded(caller) != self.settings:
            try:
                caller = completed(from_settings(IndexConfig, self.settings), caller)
            except ConfigError as error:
                raise ArtefactError(
                    f"index {root} was made by another version ({error}); delete it, and build it again"
                ) from error
        self.config = replace(caller, path=self.place)
        self._values: dict[str, Any] = {}
        self._keys: dict[str, str] = {}

    def uri(self, name: str) -> str:
        return f"{self.place}/{name}"

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.table.state["settings"]  # type: ignore[no-any-return]

    @property
    def source(self) -> dict[str, Any]:
        return self.table.state["source"]  # type: ignore[no-any-return]

    # ------------------------------------------------------------------------------------------------------ artefacts
    def read(self, name: str) -> Any:
        """Return an artefact's value; it is made if missing, and loaded once. ArtefactError: it is damaged."""
        if name == "passages":
            return self.passages
        if name not in self._values:
            folder, artefact = self.folder(name), ARTEFACTS[name]
            try:
                self._values[name] = (
                    artefact.load(self, folder) if artefact.load else load_arrays(folder / "value", artefact.kind)
                )
            except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
                problem = f"is damaged ({type(error).__name__}: {error}); delete it, and it is made anew"
                raise ArtefactError(f"index artefact {folder} {problem}") from error
        return self._values[name]

    def forget(self, but: Collection[str]) -> None:
        """Free the memory of all loaded artefacts except these; reading one loads it again."""
        self._values = {name: value for name, value in self._values.items() if name in but}

    def folder(self, name: str) -> Path:
        folder = self._folder(name)
        if not self.has(name):
            with self.locked(partial(self.has, name)):  # another process may make it, and then others without a pause
                if not self.has(name):
                    self._make(name, folder)
        return folder

    def locked(self, needless: Callable[[], bool] = lambda: False) -> AbstractContextManager[None]:
        """Return a context in which no other process makes artefacts of this index, unless that is `needless`."""
        return exclusive_lock(self.local / ".lock", f"index {self.place}", WAIT_S, needless)

    def _folder(self, name: str) -> Path:
        return self.local / f"{name}-{self.artefact_key(name)[:16]}"

    def has(self, name: str) -> bool:
        """Tell whether an artefact exists; False if its key needs settings that the caller did not give."""
        try:
            return self._is_here(self._folder(name))
        except NotGivenError:
            return False

    def _is_here(self, folder: Path) -> bool:
        """Tell whether a folder holds an artefact, after copying it from the object store if need be."""
        if (folder / RECORD).is_file():
            return True
        return is_remote(self.place) and folder.name in self._listed and pull(self.uri(folder.name), folder)

    @cached_property
    def _listed(self) -> set[str]:
        return names_in(self.place)

    def record(self, name: str) -> dict[str, Any]:
        """Return the record written with an artefact (counts, seconds, tables); empty if there is no artefact."""
        return read_object(self._folder(name) / RECORD)

    def table_of(self, name: str) -> ValueTable:
        return ValueTable(self.uri(f"{self.record(name)['tables'][0]}.lance"))

    def artefact_key(self, name: str) -> str:
        """Return an artefact's key: a hash of its settings and of the keys of its inputs, 64 hex digits.

        If it cannot be computed, because the caller does not give the model or files behind the artefact, it is the key
        of the artefact of these passages that was used last.
        """
        if name == "passages":
            return self.table.key
        if name not in self._keys:
            try:
                self._keys[name] = digest(
                    [_FORMAT, self._settings(name), *map(self.artefact_key, inputs_of(name, self.config))]
                )
            except (GnnragError, OSError):
                if not (known := self._newest(name)):
                    raise
                self._keys[name] = known["key"]
        return self._keys[name]

    def _settings(self, name: str) -> str:
        """Return a digest of the settings, embedder and writers that an artefact depends on."""
        artefact, used = ARTEFACTS[name], list[Any]()
        for what in artefact.uses if artefact.settings is None else ():
            section, _, writer = what.partition(".")
            if section == "embedder":
                used.append(self.embedder.identity)
            else:
                used.append(self.tasks.identity(writer) if writer else asdict(getattr(self.config, section)))
        return digest([name, [artefact.version, artefact.settings(self) if artefact.settings else used]])

    def _newest(self, name: str) -> dict[str, Any]:
        """Return the record of the artefact of these passages that was used last; empty if there is none."""
        folders = (self.local / folder for folder in folders_in(self.place).get(name, ()))
        paths = [folder / RECORD for folder in folders if self._is_here(folder)]
        records = map(read_object, sorted(paths, key=lambda path: -path.stat().st_mtime_ns))
        return next((record for record in records if record.get("passages") == self.table.key), {})

    def _make(self, name: str, folder: Path) -> None:
        for need in inputs_of(name, self.config):
            if need != "passages" and not self.has(need):
                self._make(need, self._folder(need))
        started, work = time.perf_counter(), Work(self, name, self._settings(name))
        self.progress(name, 0, len(self.passages))

        def write(new: Path) -> dict[str, Any]:
            value, counts = ARTEFACTS[name].make(work)
            if value is not None:
                save_arrays(new / "value", value)
            record = {"key": self.artefact_key(name), "passages": self.table.key, "tables": work.tables}
            seconds = round(time.perf_counter() - started, 3)
            put_json(new / RECORD, {**record, "seconds": seconds, "counts": counts})
            return counts

        counts = write_folder(folder, write)
        if is_remote(self.place):
            push(folder, self.uri(folder.name))
        for line in remarks(by_writer(counts), WARN, None):
            logger.warning("index, artefact %s: %s", name, line)

    @cached_property
    def tasks(self) -> Any:
        return index_tasks(self.config)

    def file_names(self) -> set[str]:
        """Return the names of the artefact folders for these passages and settings."""
        folders = set()
        for name in folders_in(self.place):
            with suppress(NotGivenError):  # no artefact of these passages exists
                folders.add(self._folder(name).name)
        return folders

    @property
    def fingerprint(self) -> dict[str, str]:
        names = folders_in(self.place)  # maybe of other passages or settings; a key takes a while
        return {name: self.artefact_key(name) for name in ARTEFACTS if name in names and self.has(name)}

    @property
    def generation(self) -> str:
        """16 hex digits that change with the passages or the recorded settings."""
        return digest([self.table.key, recorded(self.config)])[:16]

    # --------------------------------------------------------------------------------------------------------- content
    @cached_property
    def passages(self) -> Sequence[Passage]:
        """The corpus, in index order."""
        return passage_rows(self.table.rows)

    @cached_property
    def ids(self) -> Sequence[str]:
        """Passage ids, in index order."""
        return self.table.rows["id"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def position(self) -> Mapping[str, int]:
        return {id_: i for i, id_ in enumerate(self.ids)}

    def lookup(self, ids: Iterable[str]) -> tuple[Passage, ...]:
        """Return passages by id, in the order given."""
        return self.table.take([self.position[id_] for id_ in ids])

    def condition(self, condition: str) -> str:
        """Return a filter as Lance takes it. ConfigError: see `filters.checked`."""
        return checked(condition, self.table.columns)

    @cached_property
    def matching(self) -> Callable[[str], np.ndarray]:
        """Filter to the passages that meet it, (num_passages,) bool, read-only; see `filters.matching`."""
        return lru_cache(16)(partial(matching, self.table))

    @cached_property
    def titles(self) -> TitleMatcher:
        return TitleMatcher(self.hierarchy, self.read("titles").tables)

    @property
    def layout(self) -> Layout:
        return self.read("titles").layout

    @cached_property
    def question_phrases(self) -> Callable[[str], list[str]]:
        """Finds the phrases of a question in the same way as those of the passages."""
        text: Any = self.config.text
        return partial(question_phrases, analyser=text.language, rules=text.phrase_rules)

    @cached_property
    def lexical(self) -> Lexical:
        """The BM25 index. Passages that an edit added after it was built are scored without it."""
        language = self.config.lexical.language
        return Lexical(self.table) if self.table.has_bm25(language) else self.read("lexical")

    @cached_property
    def nearest(self) -> Nearest:
        """Finds the passages nearest to vectors by the index of their table."""
        return Nearest(self.table_of("embeddings").dataset, self.table.keys)

    @cached_property
    def embedder(self) -> Embedder:
        return make_embedder(self.config.embedder)

    def bm25_scores(self, queries: Sequence[str]) -> np.ndarray:
        """BM25 of queries and passages, (len(queries), num_passages) float64."""
        return self.lexical.scores(queries)

    def cosines(self, vector: np.ndarray, near: int = 0) -> np.ndarray:
        """Cosines of a unit vector (dim,) and the passages, (num_passages,) float32.

        With `near`, of more than 200,000 passages only so many are compared; the others get a low cosine.
        """
        if near and len(self.ids) > FLAT_UP_TO:
            return self.nearest.cosines(vector, near)
        return self.passage_vectors @ vector  # alone: the rounding of a matrix-matrix product depends on the batch

    def dense_scores(self, queries: Sequence[str]) -> np.ndarray:
        """Cosine of queries and passages, (len(queries), num_passages) float32."""
        vectors = self.embedder.encode(queries, is_query=True)
        return np.array([self.cosines(v) for v in vectors], np.float32).reshape(len(queries), len(self.ids))


# ------------------------------------------------------------------------------------------------------------ settings
_LOCAL = ("path", "root", "llm", "llm_cache", "executor", "max_calls", "max_tokens")  # never recorded


def recorded(config: IndexConfig) -> dict[str, Any]:
    """Return the settings that an index records: those that artefacts depend on, not addresses, keys or devices."""
    plain = {key: value for key, value in asdict(config).items() if key not in _LOCAL}
    plain["embedder"] = {key: value for key, value in plain["embedder"].items() if key != "device"}
    default = plain["writers"].pop("default")
    plain["writers"] = {
        name: {"impl": None if name == "triples" else role["impl"] or default, "options": role["options"]}
        for name, role in plain["writers"].items()
    }
    return plain


def completed(stored: IndexConfig, caller: IndexConfig) -> IndexConfig:
    """Return the stored settings of an index; those that it does not record (`_LOCAL`, models) are the caller's."""
    writers: Any = stored.writers
    roles = {}
    for name in WRITERS:
        role, given = getattr(writers, name), getattr(caller.writers, name)
        roles[name] = RoleConfig(role.impl, given.llm, given.model, given.settings, given.path, role.options)
    local = {f.name: getattr(caller, f.name) for f in fields(IndexConfig) if f.name in _LOCAL}
    embedder = replace(stored.embedder, device=caller.embedder.device)
    return replace(stored, writers=replace(writers, **roles), embedder=embedder, **local)


def closure(names: Iterable[str], config: IndexConfig) -> list[str]:
    """Return artefacts and all their inputs but the passages, in the order in which they are made."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name != "passages" and name not in order:
            if name not in ARTEFACTS:
                raise ConfigError(f"artefact {name!r} is unknown. {nearest(name, ARTEFACTS)}")
            for need in inputs_of(name, config):
                visit(need)
            order[name] = None

    for name in sorted(names):
        visit(name)
    return list(order)


def inputs_of(name: str, config: IndexConfig) -> Sequence[str]:
    inputs = ARTEFACTS[name].inputs
    return inputs if isinstance(inputs, tuple) else inputs(config)


# ------------------------------------------------------------------------------------------------------------ building
def index_path(config: IndexConfig, name: str) -> Path | str:
    """Return where an index lies: as configured, or under the root by the name of the data."""
    return place_of(config.path or f"{config.root}/{name}")


def data_source(config: DataConfig) -> dict[str, Any]:
    """Return what an index records about where its passages came from."""
    cut = chunking(config)
    chunks = {"chunking": asdict(cut)} if cut != Chunking() else {}
    bare = {} if config.titles else {"titles": False}
    return {"path": config.path, **chunks, **bare}


def open_or_build(
    config: IndexConfig,
    data: DataConfig,
    name: str,
    passages: Sequence[Passage],
    stages: Iterable[str],
    progress: OnProgress = no_progress,
) -> Index:
    """Return the index of the corpus `name`, with the artefacts `stages`; what is missing or out of date is made.

    Raises ArtefactError where that would undo changes or silently replace triples; see `build_index`.
    """
    root, source = index_path(config, name), data_source(data)
    index = Index(root, config, progress) if exists(root) else None
    state = {"settings": recorded(config), "source": source}
    if index is None or index.table.state != state or not index.table.holds(passages):
        stages = closure(stages, config)
        if index and "extraction" in stages:
            _refuse_to_replace_triples(index, config)
        build_index(root, passages, config, stages, source, progress, keep_edits=True)
        index = Index(root, config, progress)
    for stage in stages:
        index.folder(stage)
    return index


def build_index(
    root: Path | str,
    passages: Sequence[Passage],
    config: IndexConfig,
    names: Iterable[str] | None = None,
    source: Mapping[str, Any] | None = None,
    progress: OnProgress = no_progress,
    keep_edits: bool = False,
) -> list[str]:
    """Make the artefacts `names` (None: all) of passages with these settings; returns those that were made.

    Existing artefacts are reused, and so are artefacts and vectors that a killed build left. A section of the settings
    that neither `names` nor their inputs read stays as stored. `keep_edits` refuses to undo changes by `update_index`.

    Raises DataError: no passages, an empty one, or a shared id. ConfigError: an unknown artefact.
    ArtefactError: `keep_edits`, and `passages` lack edits.
    """
    check_passages(root, passages)
    if not passages:
        raise DataError(root, "there are no passages to index")
    wanted = closure(ARTEFACTS if names is None else names, config)
    record, uri = dict(source or {}), f"{root}/{PASSAGES}"
    with exclusive_lock(local_folder(root) / ".writer.lock", f"index {root}", WAIT_S):
        existing = Index(root) if exists(root) else None
        if existing:
            is_edited = keep_edits and existing.source.get("edited")
            if is_edited and list(existing.passages) != list(passages):
                raise ArtefactError(
                    f"index {root} was changed by gnnrag index add or remove, and this would undo it. Ask it as it is: "
                    f"gnnrag ask index.path={root}. To undo the changes: gnnrag index build data.path=... "
                    f"index.path={root}"
                )
            config = _with_stored_settings(existing, config, wanted)
            record = {**(record or existing.source), **({"edited": True} if is_edited else {})}
        state = {"settings": recorded(config), "source": record}
        with undone_on_failure(uri):
            if existing is None or not existing.table.holds(passages):
                if existing and existing.source.get("path") != record.get("path"):
                    before = existing.source.get("path")
                    logger.warning("index %s held %s and now holds %s instead", root, before, record.get("path"))
                write_passages(uri, passages, state)
            elif existing.table.state != state:
                existing.table.record(state)
            return make_all(Index(root, config, progress), wanted)


def exists(root: Path | str) -> bool:
    """Tell whether there is an index, maybe one without passages."""
    return latest_version(f"{root}/{PASSAGES}") is not None


def check_passages(root: Path | str, passages: Sequence[Passage]) -> None:
    """Raise DataError where passages share an id, or one has neither title nor text."""
    seen: dict[str, int] = {}
    for number, passage in enumerate(passages, start=1):
        if passage.id in seen:
            first = seen[passage.id]
            raise DataError(root, f"passages {first} and {number} share the id {passage.id!r}; ids must differ")
        seen[passage.id] = number
        if not passage.text.strip() and not passage.title.strip():
            raise DataError(root, f"passage {passage.id!r} has neither title nor text; remove it")


def _with_stored_settings(index: Index, config: IndexConfig, wanted: Sequence[str]) -> IndexConfig:
    """Return `config`, but with the stored settings in sections that no wanted artefact reads."""
    stored, settings = index.settings, recorded(config)
    read = {section for name in wanted for section in ARTEFACTS[name].uses}
    writers = {w: (settings if f"writers.{w}" in read else stored)["writers"][w] for w in WRITERS}
    settings = {section: (settings if section in read else stored)[section] for section in settings}
    return completed(from_settings(IndexConfig, settings | {"writers": writers}), config)


def make_all(index: Index, names: Iterable[str]) -> list[str]:
    """Make those of the artefacts and their inputs that are missing; returns their names."""
    made = []
    order = closure(names, index.config)
    for number, name in enumerate(order):
        if not index.has(name):
            made.append(name)
        (index.folder(name) / RECORD).touch()  # marks it as used last, for `_newest`
        index.forget({need for later in order[number + 1 :] for need in inputs_of(later, index.config)})
    return made


def _refuse_to_replace_triples(index: Index, config: IndexConfig) -> None:
    """Raise ArtefactError if rules would silently replace triples that came from a file or a model."""
    stored = from_settings(IndexConfig, index.settings).extract
    if config.extract.method == "offline" != stored.method:
        where = " index.extract.path=FILE" if stored.path else f" index.extract.format={stored.format}"
        raise ArtefactError(
            f"index {index.place} holds triples of index.extract.method={stored.method}, and rules would replace them: "
            f"give index.extract.method={stored.method}{where}, or another index.path for triples made by rules"
        )
