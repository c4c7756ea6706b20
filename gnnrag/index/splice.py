"""What of an earlier artefact stays when the corpus changes, so that a stage works on what is new alone.

An artefact that is spliced is, byte for byte, what building it from the whole corpus gives. Whatever is kept in order
of first appearance (sentences, phrases, names) is numbered anew over arrays of numbers, never over texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from gnnrag.common.splicing import Kept
from gnnrag.common.tables import map_array, put_arrays_apart
from gnnrag.index.passages import DIGESTS
from gnnrag.index.stage import Context, get_json, put_json
from gnnrag.index.store import read_artefact

T = TypeVar("T")
_OF = "of.json"


@dataclass(frozen=True)
class Earlier(Kept):
    """An artefact of an earlier corpus, and which of its passages stay."""

    folder: Path

    def read(self, load: Callable[[Path], T]) -> T:
        """Return what `load` makes of it. Raises ArtefactError where it is damaged."""
        return read_artefact(self.folder, load)


def earlier(context: Context, stage: str, by_id: bool = False) -> Earlier | None:
    """Return the artefact that a stage has from before, where it is of the same settings and a part of it stays.

    `by_id`: a passage is the same only under the same id and from the same place.
    """
    store, contents = context.store, context.digests if by_id else context.contents
    if store.key(stage) is None:
        return None

    def read(folder: Path) -> Earlier | None:
        if not (folder / _OF).exists() or get_json(folder / _OF) != context.made_with:
            return None
        before = map_array(folder, DIGESTS)
        if before.dtype != np.uint8 or before.shape[1:] != contents.shape[1:]:
            raise ValueError("its digests are of another form")
        old = matched(before, contents)
        return Earlier(old, len(before), folder) if (old >= 0).any() else None

    return store.load(stage, read)


def remember(folder: Path, context: Context, by_id: bool = False) -> None:
    """Write beside an artefact what `earlier` asks of it."""
    put_arrays_apart(folder, **{DIGESTS: context.digests if by_id else context.contents})
    put_json(folder / _OF, context.made_with)


def matched(before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return for each row of `now` a row of `before` that is equal, the k-th of several to the k-th; -1 where none is.

    Both are (n, width) uint8 digests, of which eight bytes tell apart all but equal ones. Shape (len(now),), int64.
    """
    one, two = (np.ascontiguousarray(rows[:, :8]).view(np.uint64).ravel() for rows in (before, now))
    by_one, by_two = np.argsort(one, kind="stable"), np.argsort(two, kind="stable")
    one, two = one[by_one], two[by_two]
    places = np.searchsorted(one, two) + np.arange(len(two)) - np.searchsorted(two, two)
    found = np.flatnonzero(places < np.searchsorted(one, two, side="right"))
    old = np.full(len(now), -1, dtype=np.int64)
    old[by_two[found]] = by_one[places[found]]
    there = np.flatnonzero(old >= 0)
    old[there[(before[old[there]] != now[there]).any(axis=1)]] = -1
    return old
