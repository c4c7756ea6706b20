"""Build an index of passages; add passages to it and remove them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnrag.config import IndexConfig
from gnnrag.datasets.base import find_source
from gnnrag.datasets.chunk import document_of
from gnnrag.errors import ArtefactError, ConfigError, DataError, nearest
from gnnrag.index.index import (
    MANIFEST,
    STAGES,
    WAIT_S,
    Index,
    closure,
    recorded,
    write_manifest,
    write_passages,
)
from gnnrag.io import digest, exclusive_lock, read_object
from gnnrag.parts import from_settings
from gnnrag.types import OnProgress, Passage, no_progress


def build_index(
    root: Path,
    passages: Sequence[Passage],
    config: IndexConfig,
    names: Iterable[str] | None = None,
    source: Mapping[str, Any] | None = None,
    progress: OnProgress = no_progress,
    keep_edits: bool = False,
) -> list[str]:
    """Make the artefacts `names` (None: all) of passages with these settings; returns those that were made.

    Existing artefacts are reused, as are those and the vectors that a killed build left. Settings that only artefacts
    outside `names` and their inputs read stay as stored. An index of another `source` is refused unless
    `config.replace`; `keep_edits` refuses to undo changes by `update_index`.

    Raises DataError: no passages, an empty one, or a shared id. ConfigError: an unknown artefact, another source.
    ArtefactError: `keep_edits`, and `passages` lack edits.
    """
    check_passages(root, passages)
    if not passages:
        raise DataError(root, "there are no passages to index")
    if root.is_file():
        raise ArtefactError(f"index {root} is a file; index.path must name a folder, new or of an earlier index")
    wanted = closure(STAGES if names is None else names, config)
    manifest = read_object(root / MANIFEST)
    if manifest and not (config.replace and not _is_same(manifest["source"], source or {})):
        _refuse_other_source(root, manifest, source or {}, passages)
        if keep_edits and manifest["source"].get("edited") and list(Index(root).passages) != list(passages):
            raise ArtefactError(
                f"index {root} was changed by gnnrag index add or remove, and this would undo it. Ask it as it is: "
                f"gnnrag ask index.path={root}. To undo the changes: gnnrag index build data.path=... index.path={root}"
            )
        config = _with_stored_settings(manifest, config, wanted)
    record = dict(source) if source else manifest.get("source", {})
    if keep_edits and manifest.get("source", {}).get("edited"):
        record["edited"] = True
    write_manifest(root, write_passages(root, passages), recorded(config), record)
    return _make_all(Index(root, config, progress), wanted)


def update_index(
    root: Path,
    add: Sequence[Passage] = (),
    remove: Sequence[str] = (),
    progress: OnProgress = no_progress,
    documents: Collection[str] = (),
    caller: IndexConfig | None = None,
    may_empty: bool = False,
) -> list[str]:
    """Add, replace or remove passages; artefacts equal those of the changed corpus built from scratch.

    A passage whose id is known replaces the old one in place; a new one goes to the end. `remove` takes ids
    of passages, or names of documents, whose passages are all removed. Of the documents in `documents`, only the
    passages in `add` are kept. All existing artefacts are made again, reusing what has not changed.
    `may_empty` permits a result without passages; without it that is a DataError.

    Raises DataError: an id to remove is not in the index, or two passages to add share an id. ArtefactError: no index.
    """
    check_passages(root, add)
    Index(root, caller)  # raises if there is no index, before the lock makes the folder
    with exclusive_lock(root / ".writer.lock", f"index {root}", WAIT_S):
        return _update(root, add, remove, progress, documents, caller, may_empty)


def _update(
    root: Path,
    add: Sequence[Passage],
    remove: Sequence[str],
    progress: OnProgress,
    documents: Collection[str],
    caller: IndexConfig | None,
    may_empty: bool,
) -> list[str]:
    before = Index(root, caller)
    names = list(before.fingerprint)
    at = {passage.id: i for i, passage in enumerate(before.passages)}
    gone = {position for name in remove for position in named(root, name, before.passages, at)}
    after = {p.id: p for i, p in enumerate(before.passages) if i not in gone}
    new = {passage.id: passage for passage in add}
    if documents:
        names_of = frozenset(documents)
        after = {id_: p for id_, p in after.items() if id_ in new or not is_cut_from(id_, names_of)}
    passages = list({**after, **new}.values())
    if not passages and not may_empty:
        raise DataError(root, "no passage would be left; delete the folder instead")
    is_other = passages != list(before.passages)
    source = {**before.manifest["source"], **({"edited": True} if is_other else {})}
    # The manifest changes only when all new artefacts exist, so that a reader finds the old state or the new one.
    staged = Index(root, caller, progress)
    staged.manifest = {**staged.manifest, "passages": write_passages(root, passages)}
    made = _make_all(staged, names) if passages else []
    write_manifest(root, staged.manifest["passages"], before.manifest["settings"], source)
    collect_garbage(root, {before.manifest["passages"]})
    return made


def _make_all(index: Index, names: Iterable[str]) -> list[str]:
    made, index.trusts_known_keys = [], False
    for name in closure(names, index.config):
        if not index.has(name):
            index.folder(name)
            made.append(name)
    return made


def collect_garbage(root: Path, spare: Collection[str] = ()) -> list[str]:
    """Delete artefacts of earlier passages or settings; returns the names of what was deleted.

    `spare` are keys of passages whose artefacts readers may still hold open.
    """
    index = Index(root)
    keep = index.file_names().union(*(index.file_names(key) for key in spare))
    gone = []
    for path in root.iterdir():
        is_ours = path.name.rpartition("-")[0] in (*STAGES, "passages")
        if is_ours and path.name not in keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            gone.append(path.name)
    return sorted(gone)


def stored_passages(root: Path) -> Sequence[Passage]:
    """Return the passages that an index holds, none where there is no index."""
    return Index(root).passages if (root / MANIFEST).is_file() else []


# -------------------------------------------------------------------------------------------------------------- checks
def check_passages(root: Path, passages: Sequence[Passage]) -> None:
    """Raise DataError where passages share an id, or one has neither title nor text."""
    seen: dict[str, int] = {}
    for number, passage in enumerate(passages, start=1):
        if passage.id in seen:
            first = seen[passage.id]
            raise DataError(root, f"passages {first} and {number} share the id {passage.id!r}; ids must differ")
        seen[passage.id] = number
        if not passage.text.strip() and not passage.title.strip():
            raise DataError(root, f"passage {passage.id!r} has neither title nor text; remove it")


def place(path: str) -> str | None:
    """Return an identifier of the data at a path, equal for all paths that lead to them; None if there are none."""
    try:
        source = find_source(Path(path))
    except (DataError, OSError, ValueError):
        return None
    return digest([str(source.path.resolve()), source.name])


def _is_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Tell whether two records name the same source; one without a path matches any."""
    if "path" not in before or "path" not in now:
        return True
    places = [source.get("place") or place(str(source["path"])) for source in (before, now)]
    return before["path"] == now["path"] or (places[0] == places[1] and places[0] is not None)


def _refuse_other_source(
    root: Path, manifest: Mapping[str, Any], source: Mapping[str, Any], passages: Sequence[Passage]
) -> None:
    """Raise ConfigError where an index is of other data; moved or copied data count as the same."""
    if _is_same(manifest["source"], source):
        return
    there, now = list(Index(root).passages), set(passages)
    if there == list(passages):
        return
    if place(str(manifest["source"]["path"])) is None and 2 * sum(passage in now for passage in there) >= len(there):
        return
    raise ConfigError(
        f"index {root} is of data.path={manifest['source']['path']}, and data.path={source['path']} is another source: "
        f"give it an index of its own, such as index.path={root}-2, or replace this one with index.replace=true"
    )


def _with_stored_settings(manifest: Mapping[str, Any], config: IndexConfig, wanted: Sequence[str]) -> IndexConfig:
    """Return `config`, but with the stored settings in sections that no wanted artefact reads."""
    stored: Any = from_settings(IndexConfig, manifest["settings"])
    read = {section for name in wanted for section in STAGES[name].sections}
    sections = {section for stage in STAGES.values() for section in stage.sections} - read
    plain = {name: getattr(stored, name) for name in sections if "." not in name}
    writers: Any = stored.writers
    roles = {
        name: replace(getattr(writers, name), impl=getattr(writers, name).impl or writers.default)
        for section in sections if (name := section.partition("writers.")[2]) and name != "triples"
    }  # fmt: skip
    return replace(config, **plain, writers=replace(config.writers, **roles))


def named(root: Path, name: str, passages: Sequence[Passage], at: Mapping[str, int]) -> list[int]:
    """Return positions: of the passage with that id, else of those cut from that document; DataError without any.

    `at` maps each id to its position.
    """
    if name in at:
        return [at[name]]
    positions = [position for position, id_ in enumerate(at) if is_cut_from(id_, {name})]
    if not positions:
        files = dict.fromkeys(document_of(passage.id) for passage in passages if passage.place)
        hint = nearest(name, list(at if "#" in name or not files else files)[:2000])[:200]
        raise DataError(root, f"passage {name!r} is not in the index{', nor a document' if files else ''}. {hint}")
    return positions


def is_cut_from(id_: str, documents: Collection[str]) -> bool:
    """Tell whether an id (`notes/a.md#3`, `faq.jsonl:42#1`) was cut from one of these documents or records."""
    stem, _, number = id_.rpartition("#")
    if not number.isdecimal():
        return False
    return stem in documents or any(stem[: m.end() - 1] in documents for m in re.finditer(r"\.jsonl:", stem, re.I))
