"""Passages of several documents with the same words: kept once, with all their places; given back when one goes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from gnnrag.datasets.chunk import count_words
from gnnrag.datasets.documents.passages import normalised
from gnnrag.datasets.documents.report import FileReport
from gnnrag.types import Passage

LEAST = 20  # words; shorter passages may be alike by chance
_SAME = "; the same in "
# The name of a sheet or of a chapter may have brackets of its own.
_OTHER = re.compile(r"(?P<id>\S.*?#\d+)(?: \((?P<place>(?:[^()]|\([^()]*\))*)\))?")
_SHOWN = 3  # other places that a person is told


def merge_repeated(
    documents: Mapping[str, list[Passage]], reports: Mapping[str, FileReport]
) -> dict[str, list[Passage]]:
    """Return documents without passages that an earlier one has; its place then names theirs.

    Numbers are not given anew: what stands elsewhere changes no id. Records keep all of theirs.
    """
    first: dict[str, tuple[str, int]] = {}
    merged = {name: list(own) for name, own in documents.items()}
    gone: set[str] = set()
    others: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for name, own in documents.items():
        for position, passage in enumerate(own):
            if not passage.id.startswith(f"{name}#") or count_words(passage.text) < LEAST:
                continue
            where, at = first.setdefault(normalised(passage.text), (name, position))
            if (where, at) != (name, position):
                others[where, at].append(f"{passage.id} ({passage.place})" if passage.place else passage.id)
                gone.add(passage.id)
                reports[name].dropped["passages that stand elsewhere, too"] += 1
    for (where, at), places in others.items():
        kept = merged[where][at]
        merged[where][at] = replace(kept, place=_SAME.join([kept.place, *places]))
    for name, own in merged.items():
        merged[name] = [passage for passage in own if passage.id not in gone]
        reports[name].passages = len(merged[name])
    return merged


def brief(place: str) -> str:
    """Return the place of a passage as a person is told it: of many others where it stands, the first few."""
    own, *others = place.split(_SAME)
    more = f" and in {len(others) - _SHOWN:,} more places" if len(others) > _SHOWN else ""
    return _SAME.join([own, *others[:_SHOWN]]) + more


def given_back(leaving: Iterable[Passage], staying: Collection[str], coming: Iterable[Passage]) -> Iterator[Passage]:
    """Yield passages under the id of another document that holds them, where the one that stood for both leaves.

    Args:
        leaving: passages that an index is to lose.
        staying: ids that it keeps; what comes back has none of these.
        coming: passages that it is to get; a text among them is not lost.
    """
    known = {normalised(passage.text) for passage in coming}
    for passage in leaving:
        others = passage.place.partition(_SAME)[2]
        if not others or normalised(passage.text) in known:
            continue
        found = [match for other in others.split(_SAME) if (match := _OTHER.fullmatch(other))]
        free = [match for match in found if match["id"] not in staying]
        if free:
            rest = "".join(f"{_SAME}{match[0]}" for match in free[1:])
            yield Passage(free[0]["id"], passage.title, passage.text, (free[0]["place"] or "") + rest)
