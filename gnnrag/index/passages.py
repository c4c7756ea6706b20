"""The passages of an index: few in memory, many read one by one from the file that holds them; edits, and digests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from gnnrag.common.files import open_regular
from gnnrag.common.tables import Keys, Lazy, Texts, map_array
from gnnrag.common.untrusted import parse_json
from gnnrag.errors import ArtefactError
from gnnrag.types import Passage

READ_AT_ONCE = 20_000  # passages: fewer are kept in memory
_KEPT = 1 << 15  # passages that are kept of more


DIGESTS = "contents"  # where an artefact has the digests of its passages
CONTENT = 16  # bytes of a digest that are of title and text; as many are of the id and the place


def digests_of(passages: Sequence[Passage]) -> np.ndarray:
    """Return what tells passages apart: (n, 32) uint8, of which `CONTENT` are of what they say."""
    if isinstance(passages, EditedPassages | StoredPassages) and passages.digests is not None:
        return passages.digests
    rows = bytearray()
    for passage in passages:
        for first, second in ((passage.title, passage.text), (passage.id, passage.place)):
            said = f"{len(first)} {first}{second}".encode("utf-8", "surrogatepass")
            rows += blake2b(said, digest_size=CONTENT).digest()
    return np.frombuffer(rows, dtype=np.uint8).reshape(-1, 2 * CONTENT)


def positions_of(passages: Sequence[Passage]) -> Mapping[str, int]:
    """Return the position of each id."""
    return passages.ids if isinstance(passages, StoredPassages) else {p.id: i for i, p in enumerate(passages)}


class EditedPassages(Lazy[Passage]):
    """A corpus in terms of an earlier one: passage i is `before[rows[i]]`, or from `len(before)` on one of `others`.

    `is_other` tells whether any passage differs.
    """

    def __init__(self, before: Sequence[Passage], others: Sequence[Passage], rows: np.ndarray) -> None:
        count, at = len(before), memoryview(np.ascontiguousarray(rows))
        earlier = digests_of(before)
        self.digests = np.concatenate([earlier, digests_of(others)])[rows]
        self.is_other = not np.array_equal(self.digests, earlier)
        super().__init__(len(rows), lambda i: before[at[i]] if at[i] < count else others[at[i] - count])


def load_passages(folder: Path) -> Sequence[Passage]:
    """Return the passages of an artefact: a list of few, and of many what reads them where they are asked for."""
    path = folder / "passages.jsonl"
    if (folder / "starts.npy").exists():
        starts = map_array(folder, "starts")
        if len(starts) > READ_AT_ONCE:
            digests = map_array(folder, DIGESTS) if (folder / f"{DIGESTS}.npy").exists() else None
            return StoredPassages(path, starts, Keys.load(folder, "ids"), digests)
    with open_regular(path) as lines:
        return [_passage(line, path) for line in lines]


class StoredPassages(Lazy[Passage]):
    """Passages in corpus order; the last ones read are kept. ArtefactError when one is read that is damaged."""

    def __init__(self, path: Path, starts: np.ndarray, ids: Keys, digests: np.ndarray | None) -> None:
        with open_regular(path) as file:
            data = np.memmap(file, dtype=np.uint8, mode="r").view(np.ndarray)
        lines, self.ids, self.digests = Texts(data, starts, str(path)), ids, digests
        form = (np.uint8, (len(ids), 2 * CONTENT))
        if len(ids) != len(lines) or (digests is not None and (digests.dtype, digests.shape) != form):
            raise ValueError("there are not as many passages as ids or digests")
        self._lines, self._path = lines, path
        super().__init__(len(lines), lru_cache(_KEPT)(lambda position: _passage(lines[position], path)))

    def __iter__(self) -> Iterator[Passage]:
        return (_passage(line, self._path) for line in self._lines)  # what is gone through once is not worth keeping


def _passage(line: str | bytes, path: Path) -> Passage:
    try:
        passage = Passage(**parse_json(line))
        parts = (passage.id, passage.title, passage.text, passage.place)
        if not all(isinstance(part, str) for part in parts):
            raise ValueError("something stands where a text is needed")
    except (ValueError, TypeError) as error:
        problem = " ".join(str(error).split())[:200]
        raise ArtefactError(f"{path} is damaged or forged ({problem}); build the index again") from error
    return passage
