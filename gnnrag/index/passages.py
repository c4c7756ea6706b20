"""The passages of a large index, read one by one from the file that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from gnnrag.common.files import open_regular
from gnnrag.common.tables import Keys, Lazy, Texts, map_array, put_arrays_apart
from gnnrag.common.untrusted import parse_json
from gnnrag.errors import ArtefactError
from gnnrag.types import Passage

READ_AT_ONCE = 20_000  # passages: fewer are kept in memory
_KEPT = 1 << 15  # passages that are kept of more


def write_places(folder: Path, lines: Sequence[str], ids: Sequence[str]) -> None:
    """Write where each line of passages.jsonl begins, and a table of ids."""
    starts = np.cumsum([0, *(len(line.encode("utf-8", "surrogatepass")) + 1 for line in lines)], dtype=np.int64)
    put_arrays_apart(folder, starts=starts)
    Keys.of(ids).save(folder, "ids")


def load_passages(folder: Path) -> Sequence[Passage]:
    """Return the passages of an artefact: a list of few, and of many what reads them where they are asked for."""
    path = folder / "passages.jsonl"
    if (folder / "starts.npy").exists():
        starts = map_array(folder, "starts")
        if len(starts) > READ_AT_ONCE:
            return StoredPassages(path, starts, Keys.load(folder, "ids"))
    with open_regular(path) as lines:
        return [_passage(line, path) for line in lines]


class StoredPassages(Lazy[Passage]):
    """Passages in corpus order; the last ones read are kept. ArtefactError when one is read that is damaged."""

    def __init__(self, path: Path, starts: np.ndarray, ids: Keys) -> None:
        with open_regular(path) as file:
            data = np.memmap(file, dtype=np.uint8, mode="r").view(np.ndarray)
        lines, self.ids = Texts(data, starts, str(path)), ids
        if len(ids) != len(lines):
            raise ValueError("there are not as many passages as ids")
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
