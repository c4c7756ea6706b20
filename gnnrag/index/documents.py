"""Adding documents to an index and removing them, under the names that it has for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from gnnrag.config import IndexConfig, read_plain
from gnnrag.datasets.base import Dataset
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents.blocks import Progress, silent
from gnnrag.datasets.documents.merging import given_back
from gnnrag.datasets.documents.report import write_report
from gnnrag.errors import ArtefactError
from gnnrag.index.build import is_cut_from, stored_passages, update_index
from gnnrag.index.passages import positions_of
from gnnrag.index.store import Store


def cut_as(store: Store) -> Chunking:
    """Return how the documents of an index were cut."""
    cut = store.manifest["source"].get("chunking", {})
    if not isinstance(cut, dict) or not all(type(value) is int for value in cut.values()):
        raise ArtefactError(f"index {store.root} says not how its documents were cut; build it again")
    return read_plain(Chunking, cut, "chunking")


def add_documents(
    root: Path, data: Dataset, progress: Progress = silent, caller: IndexConfig | None = None
) -> list[str]:
    """Add what was loaded, or replace what has its names; returns the stages that were built, errors: `update_index`.

    `data` is cut as the index is (`cut_as`).
    """
    before = stored_passages(Store(root, is_held=True))
    at, ids, documents = positions_of(before), {passage.id for passage in data.passages}, frozenset(data.documents)
    leaving = [before[i] for i, id_ in enumerate(at) if id_ in ids or is_cut_from(id_, documents)]
    back = tuple(given_back(leaving, at.keys() | ids, data.passages))
    built = update_index(root, (*data.passages, *back), (), progress, data.documents, caller)
    write_report(root, data.report, ())
    return built


def remove_documents(
    root: Path,
    names: Sequence[str],
    progress: Progress = silent,
    caller: IndexConfig | None = None,
    may_empty: bool = False,
) -> list[str]:
    """Remove passages by id, or all that were cut from a document, named as the index does or by its path.

    `may_empty`: those that are left, too; see `update_index`.
    """
    store = Store(root, is_held=True)
    before = stored_passages(store) if store.key("passages") else []
    at = positions_of(before)
    gone = [_known_as(name, at, store) for name in names]
    wanted = frozenset(gone)
    leaving = {id_: before[i] for i, id_ in enumerate(at) if id_ in wanted or is_cut_from(id_, wanted)}
    back = tuple(given_back(leaving.values(), at.keys() - leaving.keys(), ()))
    built = update_index(root, back, gone, progress, (), caller, may_empty)
    write_report(root, (), set(gone))
    return built


def _known_as(name: str, ids: Collection[str], store: Store) -> str:
    """Return the name that an index has for a file: its path within the folder that was read; else the name given."""
    folder = store.manifest["source"].get("path")
    if name in ids or not isinstance(folder, str) or any(is_cut_from(id_, {name}) for id_ in ids):
        return name
    try:
        own = Path(name).resolve().relative_to(Path(folder).resolve()).as_posix()
    except (OSError, RuntimeError, ValueError):  # elsewhere, or a link that leads back to itself
        return name
    return own if any(is_cut_from(id_, {own}) for id_ in ids) else name
