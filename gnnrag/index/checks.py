"""Which passages an index can hold, and which of them a name stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    records = "(:.+)?" if name.endswith(".jsonl") else ""
    pattern = re.compile(re.escape(name) + records + r"#\d+")
    found = [name] if name in passages else [id_ for id_ in passages if pattern.fullmatch(id_)]
    if not found:
        hint = nearest(name, list(passages)[:2000])[:200]
        raise DataError(root, f"passage {name!r} is not in the index. {hint}")
    return found
