"""Which passages an index can hold, and which of them a name stands for."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gnnrag.errors import DataError, nearest
from gnnrag.types import Passage


def check_passages(root: Path, passages: Sequence[Passage]) -> None:
    """Refuse passages that no index could serve."""
    seen: dict[str, int] = {}
    for number, passage in enumerate(passages, start=1):
        if passage.id in seen:
            first = seen[passage.id]
            raise DataError(root, f"passages {first} and {number} share the id {passage.id!r}; ids must differ")
        seen[passage.id] = number
        if not passage.text.strip() and not passage.title.strip():
            raise DataError(root, f"passage {passage.id!r} has neither title nor text; remove it")


def named(root: Path, name: str, passages: Mapping[str, Passage]) -> list[str]:
    """Return the ids that a name stands for: itself, else those of the passages that were cut from that document.

    Raises:
        DataError: there are none.
    """
    found = [name] if name in passages else [id_ for id_ in passages if is_cut_from(id_, {name})]
    if not found:
        hint = nearest(name, list(passages)[:2000])[:200]
        raise DataError(root, f"passage {name!r} is not in the index. {hint}")
    return found


def is_cut_from(id_: str, documents: Collection[str]) -> bool:
    """Tell whether a passage bears the name of one of these documents, or of a record of one of them.

    Ids are made in `gnnrag.datasets.folder`: `notes/a.md#3`, `faq.jsonl:42#1`.
    """
    stem, _, number = id_.rpartition("#")
    if not number.isdecimal():
        return False
    return stem in documents or any(stem[: m.end() - 1] in documents for m in re.finditer(r"\.jsonl:", stem, re.I))
