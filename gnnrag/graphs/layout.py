"""Where passages stand in the documents that they were cut from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnrag.common.tables import check_below, map_array, put_arrays_apart
from gnnrag.datasets.chunk import document_of
from gnnrag.text.subjects import PATH
from gnnrag.types import Passage


@dataclass(frozen=True)
class Layout:
    """Parts and sections of documents, for each passage."""

    following: np.ndarray  # (num_passages,) int32, the next part of its document; -1: there is none
    sections: np.ndarray  # (num_passages,) int32, from 1: the first heading of its document; 0: there is none

    def save(self, folder: Path) -> None:
        """Write into a folder."""
        put_arrays_apart(folder, following=self.following, sections=self.sections)

    @classmethod
    def load(cls, folder: Path) -> Layout:
        """Map what `save` wrote; ValueError where it does not fit."""
        following, sections = map_array(folder, "following"), map_array(folder, "sections")
        check_below(following + 1, len(following) + 1)
        check_below(sections, len(sections) + 1)
        if following.shape != sections.shape:
            raise ValueError("following and sections do not fit each other")
        return cls(following, sections)


def layout_of(passages: Sequence[Passage]) -> Layout:
    """Find parts by their ids (`DOCUMENT#3` follows `DOCUMENT#2`) and sections by their titles."""
    parts = {p.id: i for i, p in enumerate(passages) if "#" in p.id}
    following, sections = (np.full(len(passages), value, dtype=np.int32) for value in (-1, 0))
    numbers: dict[tuple[str, str], int] = {}
    for id_, position in parts.items():
        document, _, number = id_.rpartition("#")
        after = f"{document}#{int(number) + 1}" if number.isdecimal() and len(number) < 10 else ""
        following[position] = parts.get(after, -1)
    for position, passage in enumerate(passages):
        heading, is_path, _ = passage.title.partition(PATH)
        if is_path:
            sections[position] = numbers.setdefault((document_of(passage.id), heading), len(numbers) + 1)
    return Layout(following, sections)
