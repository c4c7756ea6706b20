"""Take triples from a file, or from a knowledge base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gnnrag.datasets.jsonl import Filled, parse_row, read_jsonl_by_id
from gnnrag.datasets.kb import Part, parts_of, read_triples
from gnnrag.datasets.kgqa import facts_in, nodes_of
from gnnrag.errors import ConfigError, DataError
from gnnrag.extract.base import EntityRecord, Extraction, Extractor, HyperedgeRecord, RelationRecord
from gnnrag.index_config import ExtractConfig
from gnnrag.io import file_digest
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage


def _path(config: ExtractConfig, what: str) -> Path:
    """Return the file of an extractor. ConfigError: there is none."""
    if not config.path:
        raise ConfigError(f"index.extract.method={config.method} needs index.extract.path: {what}")
    return Path(config.path)


class _Row(BaseModel):
    id: Filled
    entities: list[str] | None = None
    triples: list[list[str | int | float]] | None = None
    details: tuple[EntityRecord, ...] = ()
    relations: tuple[RelationRecord, ...] = ()
    hyperedges: tuple[HyperedgeRecord, ...] = ()


class PrecomputedExtractor(Extractor):
    """Looks passages up by id in the JSON Lines file `config.path`; each row is an object with fields of these names.

    - `id`: the passage; the only one that every row must have
    - `entities`: [name], and `triples`: [[head, relation, tail]]; both or none
    - `details`: [{"name", "type", "description"}] of entities
    - `relations`: [{"head", "tail", "description", "keywords": [...], "weight"}], as LightRAG has them
    - `hyperedges`: [{"text", "score", "members": [[name, importance]]}], n-ary facts, as HyperGraphRAG has them

    A passage that got a new text under its old id keeps its record.
    """

    def __init__(self, config: ExtractConfig) -> None:
        self.path = _path(config, "a JSONL file of triples")

    @property
    def identity(self) -> Any:
        return ["precomputed", 3, _digest(self.path)]

    @cached_property
    def records(self) -> dict[str, Extraction]:
        """Passage id to what the file says of it."""
        return read_extractions(self.path)

    def key(self, passage: Passage, text: PassageText) -> Any:
        return passage.id

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        return [self.records.get(passage.id) for passage in passages]


def _digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise DataError(path, f"index.extract.path cannot be read: {error.strerror or error}") from error


def read_extractions(path: Path) -> dict[str, Extraction]:
    """Read extraction records by passage id; triples without three parts are counted, other faults are a DataError."""
    records: dict[str, Extraction] = {}
    for line, _, row in read_jsonl_by_id(path):
        fields = parse_row(_Row, path, row, line=line)
        if not (fields.details or fields.relations or fields.hyperedges):
            for name in ("entities", "triples"):
                if getattr(fields, name) is None:
                    raise DataError(path, f"needs {name!r}, a list (it may be empty)", line)
        triples = [tuple(map(str, parts)) for parts in fields.triples or ()]
        records[fields.id] = Extraction(
            tuple(dict.fromkeys(fields.entities or ())),
            tuple(dict.fromkeys((t[0], t[1], t[2]) for t in triples if len(t) == 3)),
            sum(len(triple) != 3 for triple in triples),
            fields.details,
            fields.relations,
            fields.hyperedges,
        )
    return records


class KnowledgeBaseExtractor(Extractor):
    """Gives each article of a knowledge base (`gnnrag.datasets.kb`) its triples, and its entity's type.

    `config.path` is the `kb.txt`. Names are kept: equal ones are one entity, all others differ. An entity of two types
    has both, joined by "|".
    """

    def __init__(self, config: ExtractConfig) -> None:
        self.path = _path(config, "the kb.txt that data.path holds")

    @property
    def identity(self) -> Any:
        return ["kb", 2, _digest(self.path)]

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """Passage id to what the knowledge base says there."""
        return {part.id: part for part in parts_of(read_triples(self.path))}

    def key(self, passage: Passage, text: PassageText) -> Any:
        return [passage.id, passage.title, passage.text]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        # A passage whose text is not the article's, such as one that was edited, has no record.
        return [self._extract(passage) for passage in passages]

    def _extract(self, passage: Passage) -> Extraction | None:
        part = self.parts.get(passage.id)
        if part is None or passage.title != part.name or passage.text != part.passage.text:
            return None
        names = dict.fromkeys([part.name, *(name for h, _, t in part.triples for name in (h, t))])
        return Extraction(tuple(names), part.triples, details=(EntityRecord(part.name, part.type),), names_are_ids=True)


class FactsExtractor(Extractor):
    """Reads the facts that a passage of `gnnrag.datasets.kgqa` states, a line each. Names are kept as in `kb`."""

    identity = ("facts", 1)

    def key(self, passage: Passage, text: PassageText) -> Any:
        return passage.text

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        rows = ((nodes_of(passage), tuple(facts_in(passage.text))) for passage in passages)
        return [Extraction(names, facts, names_are_ids=True) if facts else None for names, facts in rows]
