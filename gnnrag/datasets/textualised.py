"""A knowledge base that was turned into text (`gnnrag.datasets.metaqa_text`): what lies beside its `corpus.jsonl`.

Entities of passages (`nodes.jsonl`), what they are (`entities.jsonl`), `relations.jsonl`, and triples (`kb.txt`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnrag.common.files import digest
from gnnrag.datasets.articles import Part, Triple, parts_of
from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.datasets.kb import FILE, read_triples
from gnnrag.errors import DataError

NODES, ENTITIES, RELATIONS, SOURCE = "nodes.jsonl", "entities.jsonl", "relations.jsonl", "SOURCE.json"


@dataclass(frozen=True, slots=True)
class PassageNodes:
    """A passage's entity and neighbours mentioned; `text` is a digest, to show edits; `flags`: what went wrong."""

    entity: str
    mentions: tuple[str, ...]
    text: str = ""
    flags: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """The entity and its neighbours, each once."""
        return tuple(dict.fromkeys((self.entity, *self.mentions)))


def text_digest(text: str) -> str:
    """Return what `PassageNodes.text` holds of a text."""
    return digest(text)[:16]


def read_nodes(path: Path) -> dict[str, PassageNodes]:
    """Return the side table: passage id to its entities, in file order; DataError: unreadable, or another shape."""
    found: dict[str, PassageNodes] = {}
    for line, row in read_jsonl(path):
        id_, entity, text = (_text(path, line, row, key) for key in ("id", "entity", "text"))
        mentions, flags = (_texts(path, line, row, key) for key in ("mentions", "flags"))
        if id_ in found:
            raise DataError(path, f"passage {id_!r} has a row already", line)
        found[id_] = PassageNodes(entity, mentions, text, flags)
    return found


def read_entities(path: Path) -> dict[str, tuple[str, str]]:
    """Return name to (type, description). Raises DataError as `read_nodes` does."""
    rows = ((_text(path, n, r, "name"), _text(path, n, r, "type"), _text(path, n, r, "description"))
            for n, r in read_jsonl(path))  # fmt: skip
    return {name: (kind, description) for name, kind, description in rows}


def read_relations(path: Path) -> dict[Triple, str]:
    """Return triple to its description. Raises DataError as `read_nodes` does."""
    found: dict[Triple, str] = {}
    for line, row in read_jsonl(path):
        head, relation, tail = (_text(path, line, row, key) for key in ("head", "relation", "tail"))
        found[head, relation, tail] = _text(path, line, row, "description")
    return found


@dataclass(frozen=True)
class Textualised:
    """A folder that `metaqa_text` wrote: `entities` are (type, description), `relations` descriptions."""

    nodes: Mapping[str, PassageNodes]
    parts: Mapping[str, Part]
    entities: Mapping[str, tuple[str, str]]
    relations: Mapping[Triple, str]


def read_textualised(folder: Path) -> Textualised:
    """Read a folder back. Raises DataError as `read_nodes` does, or for a passage that `kb.txt` does not state."""
    nodes = read_nodes(folder / NODES)
    parts = {part.id: part for part in parts_of(read_triples(folder / FILE), {row.entity for row in nodes.values()})}
    if strange := next((id_ for id_ in nodes if id_ not in parts), None):
        raise DataError(folder / NODES, f"passage {strange!r} has no triples in {FILE}; convert the folder again")
    return Textualised(nodes, parts, read_entities(folder / ENTITIES), read_relations(folder / RELATIONS))


def _text(path: Path, line: int, row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise DataError(path, f"needs {key!r}, a text, not {value!r:.80}", line)
    return value


def _texts(path: Path, line: int, row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = row.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(path, f"{key!r} must be a list of texts, not {values!r:.80}", line)
    return tuple(values)
