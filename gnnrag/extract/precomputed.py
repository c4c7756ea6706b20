"""Take triples from a file, or from a knowledge base."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gnnrag.common.files import file_digest
from gnnrag.common.untrusted import counted_repairs
from gnnrag.config import ExtractConfig
from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.datasets.kb import Part, parts_of, read_triples
from gnnrag.datasets.metaqa_text import ENTITIES, FACTS, NODES, Text, read_text, text_digest
from gnnrag.errors import ConfigError, DataError, NotGivenError
from gnnrag.extract.base import EntityRecord, Extraction, Extractor, HyperedgeRecord, RelationRecord, Triple
from gnnrag.extract.entity_types import opening, type_names
from gnnrag.index_config import A_FILE
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage

logger = logging.getLogger(__name__)
_RECORDS: Any = {
    "details": (EntityRecord, ("name",)),
    "relations": (RelationRecord, ("head", "tail")),
    "hyperedges": (HyperedgeRecord, ("text",)),
}


class PrecomputedExtractor(Extractor):
    """Looks passages up by id in the JSON Lines file `config.path`; each row is an object with fields of these names.

    - `id`: the passage; the only one that every row must have, with at least one of the others
    - `entities`: [name]
    - `triples`: [[head, relation, tail]]
    - `details`: [{"name", "type", "description"}] of entities; else types come from triples, names and first sentence
    - `relations`: [{"head", "tail", "description", "keywords": [...], "weight"}], as LightRAG has them
    - `hyperedges`: [{"text", "score", "members": [[name, importance]]}], n-ary facts, as HyperGraphRAG has them

    A passage that got a new text under its old id keeps its record. Raises ConfigError without a path, NotGivenError
    where an index has one and does not say which.
    """

    def __init__(self, config: ExtractConfig) -> None:
        if config.path == A_FILE:
            raise NotGivenError("the triples are those of a file: give index.extract.path=FILE")
        if not config.path:
            raise ConfigError("index.extract.method=precomputed needs index.extract.path: a JSONL file of triples")
        self.path = Path(config.path)

    @property
    def identity(self) -> Any:
        """See `Extractor`."""
        try:
            return ["precomputed", 2, file_digest(self.path)]
        except OSError as error:
            raise DataError(self.path, f"index.extract.path cannot be read: {error.strerror or error}") from error

    @cached_property
    def records(self) -> dict[str, Extraction]:
        """Passage id to what the file says of it."""
        return read_extractions(self.path)

    def key(self, passage: Passage, text: PassageText) -> Any:
        """See `Extractor`."""
        return [passage.id, passage.title, opening(passage, text)]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        """See `Extractor`."""
        rows = zip(passages, texts, strict=True)
        return [_with_types(self.records[p.id], p, text) if p.id in self.records else None for p, text in rows]


def _with_types(found: Extraction, passage: Passage, text: PassageText) -> Extraction:
    """Add the types of names, and of the title in the spelling that the record has for it, unless it gives its own."""
    if found.details:
        return found
    names = list(dict.fromkeys([*found.entities, *(n for h, _, t in found.triples for n in (h, t))]))
    title = next((n for n in names if n.casefold() == passage.title.strip().casefold()), passage.title.strip())
    return replace(found, details=tuple(type_names(names, title, opening(passage, text), found.triples)))


def read_extractions(path: Path) -> dict[str, Extraction]:
    """Read extraction records by passage id; malformed triples are left out and counted, other faults DataError."""
    records: dict[str, Extraction] = {}
    with counted_repairs() as repairs:
        for line, row in read_jsonl(path):
            id_ = row.get("id")
            if not isinstance(id_, str) or not id_:
                raise DataError(path, f"needs an 'id', the id of a passage as a string, not {id_!r}", line)
            if id_ in records:
                raise DataError(path, f"passage {id_!r} has a record already; give each passage one", line)
            records[id_] = _extraction(path, line, row)
    if repairs.count:
        logger.warning("%s: %s", path, repairs.remark)
    return records


def _extraction(path: Path, line: int, row: Mapping[str, Any]) -> Extraction:
    described = [field for field in ("details", "relations", "hyperedges") if field in row]
    entities = _list(path, line, row, "entities", bool(described))
    if wrong := [e for e in entities if not isinstance(e, str)]:
        raise DataError(path, f"'entities' must be a list of strings, but holds {wrong[0]!r}", line)
    rows = _list(path, line, row, "triples", bool(described))
    triples = [_triple(path, line, t) for t in rows]
    kept = dict.fromkeys(t for t in triples if t)
    more: dict[str, Any] = {}
    for field in described:
        values = _list(path, line, row, field)
        more[field] = tuple(_record(path, line, field, value) for value in values)
    return Extraction(tuple(dict.fromkeys(entities)), tuple(kept), triples.count(None), **more)


def _record(path: Path, line: int, field: str, value: Any) -> Any:
    """Return one described record; every part but names and texts may be missing."""
    cls, must = _RECORDS[field]
    known = {f.name: f for f in fields(cls)}
    if not isinstance(value, Mapping) or not value.keys() <= known.keys():
        raise DataError(path, f"each of {field!r} must be an object with {', '.join(known)}, not {value!r:.80}", line)
    if missing := [name for name in must if not isinstance(value.get(name), str) or not value[name].strip()]:
        raise DataError(path, f"one of {field!r} needs {missing[0]!r}, a text that is not empty: {value!r:.80}", line)
    parts = dict(value)
    for name in parts.keys() & {"description", "type"}:
        if not isinstance(parts[name], str):
            raise DataError(path, f"{name!r} of one of {field!r} must be a text, not {parts[name]!r:.80}", line)
    for name in parts.keys() & {"weight", "score"}:
        if not _is_number(parts[name]):
            raise DataError(path, f"{name!r} of one of {field!r} must be a number, not {parts[name]!r:.80}", line)
    if "keywords" in parts:
        if not isinstance(parts["keywords"], list) or not all(isinstance(k, str) for k in parts["keywords"]):
            raise DataError(path, f"'keywords' must be a list of strings, not {parts['keywords']!r:.80}", line)
        parts["keywords"] = tuple(parts["keywords"])
    if "members" in parts:
        parts["members"] = tuple(_member(path, line, member) for member in _list(path, line, parts, "members"))
    return cls(**parts)


def _member(path: Path, line: int, value: Any) -> tuple[str, float]:
    """Return a name with its importance; a bare name has 50, as HyperGraphRAG sets it."""
    if isinstance(value, str) and value.strip():
        return value, 50.0
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str) or not _is_number(value[1]):
        raise DataError(path, f"a member of a hyperedge must be [name, importance], not {value!r:.80}", line)
    return value[0], float(value[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _list(path: Path, line: int, row: Mapping[str, Any], field: str, optional: bool = False) -> list[Any]:
    value = row.get(field, [] if optional else None)
    if not isinstance(value, list):
        raise DataError(path, f"needs {field!r}, a list (it may be empty), not {value!r:.80}", line)
    return value


def _triple(path: Path, line: int, value: Any) -> Triple | None:
    if not isinstance(value, list) or not all(isinstance(part, str | int | float) for part in value):
        raise DataError(path, f"a triple must be a list [head, relation, tail] of strings, not {value!r:.80}", line)
    return (str(value[0]), str(value[1]), str(value[2])) if len(value) == 3 else None


class KnowledgeBaseExtractor(Extractor):
    """Gives each article of a knowledge base (`gnnrag.datasets.kb`) its triples, and its entity's type.

    `config.path` is the `kb.txt`, or a folder that `gnnrag.datasets.metaqa_text` wrote, which adds descriptions.
    Names are kept: equal ones are one entity, all others differ. An entity of two roles has both, joined by "|".
    Raises ConfigError without a path, NotGivenError where an index has one and does not say which.
    """

    def __init__(self, config: ExtractConfig) -> None:
        if config.path == A_FILE:
            raise NotGivenError("the triples are those of a knowledge base: give index.extract.path=FILE")
        if not config.path:
            raise ConfigError("index.extract.method=kb needs index.extract.path: the kb.txt that data.path holds")
        self.path = Path(config.path)

    @property
    def identity(self) -> Any:
        """See `Extractor`."""
        try:
            if not self.path.is_dir():
                return ["kb", 2, file_digest(self.path)]
            files = ("kb.txt", NODES, ENTITIES, FACTS)
            return ["kb", "textualised", *(file_digest(self.path / name) for name in files)]
        except OSError as error:
            problem = f"index.extract.path cannot be read: {error.strerror or error}; give a kb.txt, or a folder that "
            raise DataError(self.path, f"{problem}gnnrag.datasets.metaqa_text wrote") from error

    @cached_property
    def articles(self) -> dict[str, Part]:
        """Passage id to what the knowledge base says there."""
        return {part.id: part for part in parts_of(read_triples(self.path))}

    @cached_property
    def textualised(self) -> Text:
        """What the folder says of its passages."""
        return read_text(self.path)

    def key(self, passage: Passage, text: PassageText) -> Any:
        """See `Extractor`."""
        return [passage.id, passage.title, passage.text]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        """See `Extractor`. A passage whose text is not the article's, such as one that was edited, has no record."""
        read = self._described if self.path.is_dir() else self._extract
        return [read(passage) for passage in passages]

    def _extract(self, passage: Passage) -> Extraction | None:
        article = self.articles.get(passage.id)
        if article is None or article.passage != passage:
            return None
        names = dict.fromkeys([passage.title, *(name for h, _, t in article.triples for name in (h, t))])
        about = EntityRecord(passage.title, article.type)
        return Extraction(tuple(names), article.triples, details=(about,), names_are_ids=True)

    def _described(self, passage: Passage) -> Extraction | None:
        there = self.textualised
        row = there.nodes.get(passage.id)
        if row is None or row.text != text_digest(passage.text):
            return None
        part = there.parts[passage.id]
        about = EntityRecord(part.name, *there.entities.get(part.name, (part.type, "")))
        statements = tuple(there.relations.get(triple, "") for triple in part.triples)
        return Extraction(row.all, part.triples, details=(about,), statements=statements, names_are_ids=True)
