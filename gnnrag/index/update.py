"""Change the passages of an index; delete what it no longer needs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import lance

from gnnrag.config import IndexConfig
from gnnrag.datasets.chunk import document_of
from gnnrag.errors import ArtefactError, DataError, nearest
from gnnrag.index.index import STAGES, WAIT_S, Index, check_passages, exists, make_all
from gnnrag.index.nearest import FLAT_UP_TO, index_vectors
from gnnrag.index.stages import Context
from gnnrag.index.tables import PassageTable, ValueTable, text_key, undone_on_failure
from gnnrag.io import exclusive_lock
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
    before = Index(root, caller)
    with exclusive_lock(before.local / ".writer.lock", f"index {root}", WAIT_S):
        before = Index(root, caller)
        # Those that an edit which was cut off had still to make are in the state.
        unmade = before.table.state.get("unmade", [])
        stages = [name for name in STAGES if name in {*before.fingerprint, *unmade}]
        gone, new = _changes(before, add, remove, documents)
        if len(gone) == len(before.ids) and not new and not may_empty:
            raise DataError(root, "no passage would be left; delete the folder instead")
        if not gone and not new and not unmade:
            return []
        if "embeddings" in stages and new:  # before the commit, so that readers need not wait for them
            _embed(before, new)
        with undone_on_failure(before.table.dataset.uri):
            state = {**before.table.state, "source": {**before.source, "edited": True}, "unmade": stages}
            before.table.record(state)
            after = PassageTable(before.table.dataset.uri)
            after = after.edit(gone, new) if gone or new else after
            if "lexical" in stages and len(after.row_ids):
                after.with_bm25(before.config.lexical.language, before.config.lexical.tokenizer, is_anew=True)
            made = make_all(Index(root, caller, progress), stages) if len(after.row_ids) else []
            del state["unmade"]
            PassageTable(before.table.dataset.uri).record(state)
        collect_garbage(root, {before.table.dataset.version})
        return made


def _changes(
    index: Index, add: Sequence[Passage], remove: Sequence[str], documents: Collection[str]
) -> tuple[list[str], list[Passage]]:
    """Return the ids of the passages that go, and those that come; what stays as it is is in neither."""
    there = {index.ids[i] for i in named(index, remove)}
    names = frozenset(documents)
    new = {passage.id: passage for passage in add}
    if names:
        rows = zip(index.ids, _sources(index), strict=True)
        there.update(id_ for id_, source in rows if id_ not in new and cut_from(id_, names, source) is not None)
    for id_ in new.keys() & index.position.keys():
        if index.lookup([id_])[0] == new[id_] and id_ not in there:
            del new[id_]
        else:
            there.add(id_)
    return [id_ for id_ in index.ids if id_ in there], list(new.values())


def _embed(index: Index, passages: Sequence[Passage]) -> None:
    keys = [text_key(passage.title, passage.text) for passage in passages]
    context = Context(index, index.config, passages, index.read)
    context.embedded("embeddings", keys, passages, lambda n: None)


def collect_garbage(root: Path | str, spare: Collection[int] = ()) -> list[str]:
    """Delete artefacts of earlier passages or settings; returns the names of what was deleted.

    `spare` are versions of the passages whose artefacts readers may still hold open.
    """
    index = Index(root)
    keep = index.file_names()
    for version in spare:
        with suppress(ArtefactError):  # Lance has deleted it
            keep |= Index(root, version=version).file_names()
    gone = []
    for path in index.local.iterdir():
        if (
            path.name.rpartition("-")[0] in STAGES
            and path.is_dir()
            and path.name not in keep
            and path.suffix != ".lance"
        ):
            shutil.rmtree(path)
            gone.append(path.name)
    return sorted(gone)


def collect_tables(root: Path | str) -> list[str]:
    """Delete tables that no artefact rests on, values of passages that are gone, and old versions; returns names.

    Readers of earlier versions must be closed.
    """
    index = Index(root)
    keep = {f"{table}.lance" for name in index.fingerprint for table in index.record(name)["tables"]}
    replaced = {name.rpartition("-")[0] for name in keep}  # other tables may be of artefacts that are still to be made
    gone = []
    for path in index.local.glob("*-*.lance"):
        if path.name in keep and path.name.startswith(("text-", "embeddings-")):
            ValueTable(str(path)).keep(index.table.keys.to_pylist())
            if path.name.startswith("embeddings-") and len(index.ids) > FLAT_UP_TO:
                index_vectors(str(path))
        elif path.name not in keep and path.name.rpartition("-")[0] in replaced:
            shutil.rmtree(path)
            gone.append(path.name)
    for path in index.local.glob("*.lance"):
        lance.dataset(str(path)).cleanup_old_versions(older_than=timedelta(0))
    return sorted(gone)


def stored_ids(root: Path | str) -> Sequence[str]:
    """Return the ids of the passages that an index holds, none where there is no index."""
    return Index(root).ids if exists(root) else []


def is_empty(root: Path | str) -> bool:
    """Tell whether there is no index, or one without passages."""
    return not exists(root) or not len(Index(root).table.row_ids)


# -------------------------------------------------------------------------------------------------------------- checks
def named(index: Index, names: Sequence[str]) -> list[int]:
    """Return positions: of passages with these ids, else of those cut from these documents; DataError without any."""
    positions = [index.position[name] for name in names if name in index.position]
    documents = dict.fromkeys((name for name in names if name not in index.position), 0)
    rows = zip(index.ids, _sources(index), strict=True) if documents else ()
    for position, (id_, source) in enumerate(rows):
        if (document := cut_from(id_, documents, source)) is not None:
            documents[document] += 1
            positions.append(position)
    for name in (name for name, count in documents.items() if not count):
        files = dict.fromkeys(document_of(passage.id) for passage in index.passages if passage.place)
        hint = nearest(name, list(index.ids if "#" in name or not files else files)[:2000])[:200]
        problem = f"passage {name!r} is not in the index{', nor a document' if files else ''}. {hint}"
        raise DataError(index.place, problem)
    return positions


def _sources(index: Index) -> list[str | None]:
    """Return the file of each passage, as its metadata has it; None where there is none."""
    rows = index.table.rows
    return rows["source"].to_pylist() if "source" in rows.column_names else [None] * len(rows)  # type: ignore[no-any-return]


def is_cut_from(id_: str, documents: Collection[str]) -> bool:
    """Tell whether an id was cut from one of these documents or records; see `cut_from`."""
    return cut_from(id_, documents) is not None


def cut_from(id_: str, documents: Collection[str], source: object = None) -> str | None:
    """Return which of these documents or records an id (`notes/a.md#3`, `faq.jsonl:42#1`) was cut from.

    `source` is its file, where that is known: a file may be called `faq.jsonl:42.txt`.
    """
    stem, _, number = id_.rpartition("#")
    if not number.isdecimal():
        return None
    if isinstance(source, str) and (stem == source or stem.startswith(f"{source}:")):
        return next((name for name in (stem, source) if name in documents), None)
    files = (stem[: m.end() - 1] for m in re.finditer(r"\.jsonl:", stem, re.I))
    return next((name for name in (stem, *files) if name in documents), None)
