"""Where the passages of an index came from: the same data edited are an update, other data are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.common.files import digest
from gnnrag.common.yaml_config import MARK
from gnnrag.datasets.source import find_source
from gnnrag.errors import ArtefactError, ConfigError, DataError
from gnnrag.index.stages import STAGES
from gnnrag.index.store import Store
from gnnrag.types import Passage


def place(path: str) -> str | None:
    """Return what tells the data at a path from those at another, from wherever it is named; None where none are."""
    try:
        source = find_source(Path(path))
    except (DataError, OSError, ValueError):
        return None
    return digest([str(source.path.resolve()), source.name])


def refuse_other_source(store: Store, source: Mapping[str, Any], passages: Sequence[Passage], suggested: str) -> None:
    """Refuse to put other data into an index than it was made of.

    Data that have moved, and a copy, are the same data, and so are data at another place that hold most of what the
    index does, where the place they came from is gone.

    Args:
        store: the index.
        source: where the passages come from now.
        passages: what they are now.
        suggested: another folder for an index.

    Raises:
        ConfigError: they are another source; both are named.
    """
    before = store.manifest["source"]
    known = before.get("path")
    if not isinstance(known, str) or "path" not in source or store.key("passages") is None or is_same(before, source):
        return
    there = stored_passages(store)
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
    if stored_passages(store) != list(passages):
        raise ArtefactError(
            f"index {store.root} was changed by index.py add or remove, and this would undo it. Ask it as it is with "
            f"ask.py index.path={store.root} and no config, or undo the changes with index.py build, "
            "or give another index.path"
        )


def stored_passages(store: Store) -> list[Passage]:
    """Return the passages that an index holds."""
    return store.load("passages", STAGES["passages"].load)  # type: ignore[no-any-return]
