"""Change the passages of an index; delete what it no longer needs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gnnrag.config import IndexConfig
from gnnrag.datasets.chunk import document_of
from gnnrag.errors import DataError, nearest
from gnnrag.index.index import (
    MANIFEST,
    STAGES,
    WAIT_S,
    Index,
    check_passages,
    make_all,
    passages_key,
    write_passages,
)
from gnnrag.io import exclusive_lock, read_object, write_json
from gnnrag.types import OnProgress, Passage, no_progress


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
    manifest = {**before.manifest, "passages": write_passages(root, passages), "source": source}
    made = make_all(Index(root, caller, progress, manifest), names) if passages else []
    write_json(root / MANIFEST, manifest)
    collect_garbage(root, {before.manifest["passages"]})
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


def is_empty(root: Path) -> bool:
    """Tell whether there is no index, or one without passages."""
    return not (root / MANIFEST).is_file() or read_object(root / MANIFEST).get("passages") == passages_key(())


# -------------------------------------------------------------------------------------------------------------- checks
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
