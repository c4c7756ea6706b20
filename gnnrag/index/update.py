"""Add and remove documents of an index by name; delete artefacts and tables that it no longer needs."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance

from gnnrag.config import IndexConfig
from gnnrag.datasets.base import Dataset
from gnnrag.datasets.chunk import Chunking, document_of
from gnnrag.datasets.folder import write_report
from gnnrag.errors import ArtefactError, DataError, nearest
from gnnrag.index.artefacts import ARTEFACTS, Work, folders_in
from gnnrag.index.index import WAIT_S, Index, check_passages, exists, make_all
from gnnrag.index.nearest import FLAT_UP_TO, index_vectors
from gnnrag.index.tables import (
    PASSAGES,
    PassageTable,
    ValueTable,
    delete,
    local_folder,
    names_in,
    text_key,
    undone_on_failure,
)
from gnnrag.io import exclusive_lock, well_formed
from gnnrag.parts import from_settings
from gnnrag.types import OnProgress, Passage, no_progress


def update_index(
    root: Path | str,
    add: Sequence[Passage] = (),
    remove: Sequence[str] = (),
    progress: OnProgress = no_progress,
    documents: Collection[str] = (),
    caller: IndexConfig | None = None,
    may_empty: bool = False,
) -> list[str]:
    """Add, replace or remove passages in one commit, then make anew the artefacts that there were; returns their names.

    New passages and those that replace one of their id go to the end. `remove` takes ids of passages, or names of
    documents, whose passages are all removed. Of the documents in `documents`, only the passages in `add` are kept.
    `may_empty` permits a result without passages; without it that is a DataError.

    Raises DataError: an id to remove is not in the index, or two passages to add share an id. ArtefactError: no index.
    """
    check_passages(root, add)
    PassageTable(f"{root}/{PASSAGES}")  # ArtefactError, before a folder is made for the lock
    with exclusive_lock(local_folder(root) / ".writer.lock", f"index {root}", WAIT_S):
        before = Index(root, caller)
        # Those that an edit which was cut off had still to make are in the state.
        unmade = before.table.state.get("unmade", [])
        wanted = [name for name in ARTEFACTS if name in {*before.fingerprint, *unmade}]
        gone, new = _changes(before, add, remove, documents)
        if len(gone) == len(before.ids) and not new and not may_empty:
            raise DataError(root, "no passage would be left; delete the folder instead")
        if not gone and not new and not unmade:
            return []
        if "embeddings" in wanted and new:  # before the commit, so that readers need not wait for them
            keys = [text_key(passage.title, passage.text) for passage in new]
            Work(before).embedded("embeddings", keys, new)
        uri = before.table.dataset.uri
        with undone_on_failure(uri):
            state = {**before.table.state, "source": {**before.source, "edited": True}, "unmade": wanted}
            before.table.record(state)
            after = PassageTable(uri)
            after = after.edit(gone, new) if gone or new else after
            made = []
            if len(after.row_ids):
                index = Index(root, caller, progress)
                made = make_all(index, [name for name in wanted if name != "lexical"])
                if "lexical" in wanted:  # comes last: the BM25 of before finds new passages all the same
                    after.with_bm25(index.config.lexical.language, is_anew=True)
                    made += make_all(Index(root, caller, progress), ["lexical"])  # its record
            del state["unmade"]
            PassageTable(uri).record(state)
        collect_garbage(root, {before.table.dataset.version})
        return made


def change_documents(
    root: Path | str,
    data: Dataset,
    remove: Sequence[str] = (),
    progress: OnProgress = no_progress,
    caller: IndexConfig | None = None,
    may_empty: bool = False,
) -> list[str]:
    """Add or replace loaded documents, and remove others; returns the artefacts that were made.

    `data` must be cut as the index is, with or without titles (`loading_of`). `remove` are ids of passages, or
    documents by the index's names or by their paths. `may_empty` and errors: see `update_index`.
    """
    index = Index(root)
    known = _passages_by_document(index) if remove else {}
    gone = [_known_as(name, index, known) for name in remove]
    made = update_index(root, data.passages, gone, progress, data.documents, caller, may_empty)
    write_report(local_folder(root), data.report, set(gone))
    return made


def loading_of(root: Path | str) -> dict[str, Any]:
    """Return the arguments with which `load_passages` gives documents as those of an index are.

    They are cut alike, have titles or not, and are named by their paths below the folder that was indexed.
    """
    source = Index(root).source
    cut = from_settings(Chunking, source.get("chunking", {}), "chunking")
    return {"chunking": cut, "titles": source.get("titles") is not False, "within": source.get("path")}


def is_empty(root: Path | str) -> bool:
    """Tell whether there is no index, or one without passages."""
    return not exists(root) or not len(Index(root).table.row_ids)


# ------------------------------------------------------------------------------------------------------------ garbage
def collect_garbage(root: Path | str, spare: Collection[int] = ()) -> list[str]:
    """Delete artefacts of earlier passages or settings; returns the names of what was deleted.

    `spare` are versions of the passages whose artefacts readers may still hold open.
    """
    index = Index(root)
    keep = index.file_names()
    for version in spare:
        with suppress(ArtefactError):  # Lance has deleted it
            keep |= Index(root, version=version).file_names()
    gone = sorted({folder for folders in folders_in(root).values() for folder in folders} - keep)
    for name in gone:
        delete(root, name)
    return gone


def collect_tables(root: Path | str) -> list[str]:
    """Delete tables that no artefact rests on, values of passages that are gone, and old versions; returns names.

    Readers and builds of the index must have ended; what killed builds left is deleted, too.
    """
    index = Index(root)
    keep = {f"{table}.lance" for name in index.fingerprint for table in index.record(name)["tables"]}
    replaced = {name.rpartition("-")[0] for name in keep}  # other tables may be of artefacts that are still to be made
    tables = {name for name in names_in(root) if name.endswith(".lance")}
    gone = {name for name in tables - keep if name.rpartition("-")[0] in replaced}
    for name in gone:
        delete(root, name)
    for name in tables - gone:
        if name in keep and name.startswith(("text-", "embeddings-")):
            ValueTable(index.uri(name)).keep(index.table.keys.to_pylist())
            if name.startswith("embeddings-") and len(index.ids) > FLAT_UP_TO:
                index_vectors(index.uri(name))
        lance.dataset(index.uri(name)).cleanup_old_versions(older_than=timedelta(0))
    for folder in index.local.glob(".*-*.new"):
        shutil.rmtree(folder)
    return sorted(gone)


# -------------------------------------------------------------------------------------------------------------- names
def _changes(
    index: Index, add: Sequence[Passage], remove: Sequence[str], documents: Collection[str]
) -> tuple[list[str], list[Passage]]:
    """Return the ids of the passages to delete and the passages to add; unchanged ones are in neither.

    DataError: a name to remove is neither a passage's nor a document's.
    """
    there = {name for name in remove if name in index.position}
    new = {passage.id: passage for passage in add}
    names = [name for name in remove if name not in there]
    known = _passages_by_document(index) if names or documents else {}
    for name in names:
        if name not in known:
            files = dict.fromkeys(document_of(passage.id) for passage in index.passages if passage.place)
            hint = nearest(name, list(index.ids if "#" in name or not files else files)[:2000])[:200]
            problem = f"passage {name!r} is not in the index{', nor a document' if files else ''}. {hint}"
            raise DataError(index.place, problem)
        there.update(known[name])
    for name in documents:
        there.update(id_ for id_ in known.get(name, ()) if id_ not in new)
    for id_ in new.keys() & index.position.keys():
        if index.lookup([id_])[0] == new[id_] and id_ not in there:
            del new[id_]
        else:
            there.add(id_)
    return [id_ for id_ in index.ids if id_ in there], list(new.values())


def _passages_by_document(index: Index) -> dict[str, list[str]]:
    """Return the ids of the passages that were cut from each document and from each record."""
    rows, named = index.table.rows, defaultdict[str, list[str]](list)
    sources = rows["source"].to_pylist() if "source" in rows.column_names else [None] * len(rows)
    for id_, source in zip(index.ids, sources, strict=True):
        for name in dict.fromkeys(documents_of(id_, source)):
            named[name].append(id_)
    return named


def documents_of(id_: str, source: object = None) -> list[str]:
    """Return the names of what a passage (`notes/a.md#3`, `faq.jsonl:42#1`) was cut from: a record, its file.

    `source` is the passage's file, if known: without it, a file called `faq.jsonl:42.txt` looks like a record.
    """
    stem, _, number = id_.rpartition("#")
    if not number.isdecimal():
        return []
    if isinstance(source, str) and (stem == source or stem.startswith(f"{source}:")):
        return [stem, source]
    return [stem, *(stem[: m.end() - 1] for m in re.finditer(r"\.jsonl:", stem, re.I))]


def _known_as(name: str, index: Index, known: Collection[str]) -> str:
    """Return the one of the `known` documents that a file is, by its path within the indexed folder; else `name`."""
    name = name if name in index.position else well_formed(name)
    folder = index.source.get("path")
    if name in index.position or not isinstance(folder, str) or name in known:
        return name
    try:
        own = well_formed(Path(name).resolve().relative_to(Path(folder).resolve()).as_posix())
    except (OSError, RuntimeError, ValueError):  # elsewhere, or a link that leads back to itself
        return name
    return own if own in known else name
