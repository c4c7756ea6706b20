"""Adding documents to an index and removing them, under the names that it has for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from gnnrag.config import IndexConfig
from gnnrag.datasets.base import Dataset
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.folder import write_report
from gnnrag.index.index import Index
from gnnrag.index.tables import local_folder
from gnnrag.index.update import is_cut_from, stored_ids, update_index
from gnnrag.parts import from_settings
from gnnrag.types import OnProgress, no_progress


def cut_as(root: Path | str) -> Chunking:
    """Return how the documents of an index were cut."""
    return from_settings(Chunking, Index(root).source.get("chunking", {}), "chunking")


def has_titles(root: Path | str) -> bool:
    """Tell whether the passages of an index have titles: false where it was built with `data.titles=false`."""
    return Index(root).source.get("titles", True) is not False


def change_documents(
    root: Path | str,
    data: Dataset,
    remove: Sequence[str] = (),
    progress: OnProgress = no_progress,
    caller: IndexConfig | None = None,
    may_empty: bool = False,
) -> list[str]:
    """Add what was loaded, or replace what has its names, and remove; returns the stages made, errors: `update_index`.

    `data` is cut as the index is (`cut_as`), with titles or without (`has_titles`). `remove` are ids of passages, or
    documents, named as the index does or by their paths. `may_empty`: those that are left, too.
    """
    ids, source = (set(stored_ids(root)), Index(root).source.get("path")) if remove else (set(), None)
    gone = [_known_as(name, ids, source) for name in remove]
    built = update_index(root, data.passages, gone, progress, data.documents, caller, may_empty)
    write_report(local_folder(root), data.report, set(gone))
    return built


def _known_as(name: str, ids: Collection[str], folder: Any) -> str:
    """Return the name that an index of `folder` has for a file: its path in there; else the name given."""
    name = name if name in ids else normalize("NFC", name)
    if name in ids or not isinstance(folder, str) or any(is_cut_from(id_, {name}) for id_ in ids):
        return name
    try:
        own = normalize("NFC", Path(name).resolve().relative_to(Path(folder).resolve()).as_posix())
    except (OSError, RuntimeError, ValueError):  # elsewhere, or a link that leads back to itself
        return name
    return own if any(is_cut_from(id_, {own}) for id_ in ids) else name
