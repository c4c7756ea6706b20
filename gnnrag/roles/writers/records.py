"""Records of entities and relations in delimited replies.

`("entity"<|>NAME<|>TYPE<|>DESCRIPTION)` and
`("relationship"<|>HEAD<|>TAIL<|>DESCRIPTION<|>KEYWORDS<|>STRENGTH)`, joined by `##`, with `<|COMPLETE|>` at the end.
HyperGraphRAG has a record for each n-ary fact before the records of its entities.

Nothing here raises: records that cannot be used are counted by reason.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gnnrag.extract.base import EntityRecord, RelationRecord
from gnnrag.roles.parsing import in_parentheses, plain

MAX_CHARACTERS, MAX_BYTES = 256, 512  # of a name
MAX_STRENGTH = 10.0
_END = re.compile(r"<\s*\|\s*complete\s*\|\s*>", re.IGNORECASE)
# Blanks are bounded: a reply of nothing but blanks must not cost quadratic time.
_OPENING = re.compile(r"\( {0,3}[\"'“`]?[a-z][a-z_ -]{0,30}[\"'”`]? {0,3}< {0,3}\| {0,3}>", re.IGNORECASE)
_SEPARATOR = re.compile(r"<\s*\|\s*>")
_BORDER = re.compile(r"##|\n(?=[ \t]{0,8}[(\"'])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("«", "»"), ("`", "`"))
_TAGS = {"entity": "entity", "relationship": "relation", "relation": "relation"}
_TAGS |= {f"hyper{joint}{word}": "hyper" for joint in ("", "-", "_", " ") for word in ("relation", "edge")}
_IGNORED = {"content_keywords", "content keywords"}  # asked for by the originals, read by nobody


@dataclass
class Records:
    """The records of one reply; tags are `entity`, `relation` or `hyper`."""

    rows: list[tuple[str, list[str]]] = field(default_factory=list)  # (tag, fields)
    counts: Counter[str] = field(default_factory=Counter)  # `seen`, `repaired`, `dropped_...` by reason
    is_complete: bool = False  # the end marker was there

    @property
    def flags(self) -> tuple[str, ...]:
        """What is counted, each as often as it happened."""
        named = Counter({f"records_{name}": n for name, n in self.counts.items()})
        return (*sorted(named.elements()), *(() if self.is_complete else ("no_end_marker",)))


def dropped(counts: Counter[str]) -> int:
    return sum(n for name, n in counts.items() if name.startswith("dropped"))


def split_records(reply: str) -> Records:
    """Split a reply into records and clean their fields; text between records is passed over."""
    text = plain(reply)
    records = Records(is_complete=bool(_END.search(text)))
    counts, text = records.counts, _END.sub("##", text)
    for piece in _BORDER.split(text):
        if not _SEPARATOR.search(piece):
            continue
        fields = [_clean(part) for part in _SEPARATOR.split(_body(piece, counts))]
        tag = fields[0].strip("\"'`()[]<>{}*-• ").casefold()
        if len(fields) < 2 or tag in _IGNORED:
            continue
        counts["seen"] += 1
        if tag in _TAGS:
            records.rows.append((_TAGS[tag], fields[1:]))
        else:
            counts["dropped_tag"] += 1
    return records


def _body(piece: str, counts: Counter[str]) -> str:
    """Return what stands in parentheses; a record without them is taken as it is, mended."""
    start = _OPENING.search(piece)
    body = in_parentheses(piece[start.start() :]) if start else None
    if body is not None:
        return body
    counts["repaired"] += 1
    return piece[start.start() + 1 :] if start else piece.strip().strip("()")


def _clean(text: str) -> str:
    """Return one field: no entities of HTML, no control characters, no quotes around it, single spaces."""
    text = " ".join(_CONTROL.sub(" ", html.unescape(text.strip())).split())
    for opening, closing in _QUOTES:
        inner = text[1:-1]
        if len(text) > 1 and text[0] == opening and text[-1] == closing and opening not in inner:
            return inner.strip()
    return text


def clean_name(text: str) -> str:
    """Return a name of at most 256 characters and 512 bytes."""
    return text[:MAX_CHARACTERS].encode("utf-8")[:MAX_BYTES].decode("utf-8", "ignore").strip()


def clean_type(text: str) -> str | None:
    """Return the first of several types in lower case without spaces; None where it cannot be one."""
    kind = "".join(next((part for part in text.split(",") if part.strip()), "").lower().split())
    return None if set("'()<>|/\\") & set(kind) else kind


def number(text: str, high: float) -> float | None:
    """Return a finite number, cut to [0, high]; None where the text is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return min(max(value, 0.0), high) if math.isfinite(value) else None


def read_entity(fields: list[str], counts: Counter[str]) -> EntityRecord | None:
    """Read name, type and description; None, and a reason in `counts`, where it cannot be used."""
    if len(fields) != 3:
        counts["dropped_fields"] += 1
        return None
    name, kind, description = clean_name(fields[0]), clean_type(fields[1]), fields[2]
    if kind is not None and name and description:
        return EntityRecord(name, kind, description)
    counts["dropped_type" if kind is None else "dropped_empty"] += 1
    return None


def read_relation(fields: list[str], counts: Counter[str]) -> RelationRecord | None:
    """Read a relation, with or without keywords; None, and a reason, where it cannot be used."""
    if len(fields) not in (4, 5):
        counts["dropped_fields"] += 1
        return None
    strength = number(fields[-1], MAX_STRENGTH)
    keywords = fields[3] if len(fields) == 5 or strength is None else ""
    head, tail, text = clean_name(fields[0]), clean_name(fields[1]), fields[2]
    if not (head and tail and text):
        counts["dropped_empty"] += 1
    elif head.casefold() == tail.casefold():
        counts["dropped_loop"] += 1
    else:
        words = dict.fromkeys(word for part in re.split(r"[,;，、]", keywords) if (word := part.strip(" \"'.")))
        return RelationRecord(head, tail, text, tuple(words), 1.0 if strength is None else strength)
    return None


def longest(records: Iterable[EntityRecord]) -> tuple[EntityRecord, ...]:
    """Return one record per name in order of first mention: that with the longest description, the first of equals."""
    best: dict[str, EntityRecord] = {}
    for record in records:
        if record.name not in best or len(record.description) > len(best[record.name].description):
            best[record.name] = record
    return tuple(best.values())
