"""Triples and mentions that an extractor finds in passages, and the protocol of extractors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, FiniteFloat, TypeAdapter

from gnnrag.datasets.jsonl import Filled
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage

Triple = tuple[str, str, str]  # head, relation, tail


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """What a passage says of an entity beyond its name."""

    name: Filled
    type: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class RelationRecord:
    """A described relation (LightRAG's format); `weight` is its strength."""

    head: Filled
    tail: Filled
    description: str = ""
    keywords: tuple[str, ...] = ()
    weight: FiniteFloat = 1.0


# An entity of an n-ary fact with its importance, 50 where none is given, as HyperGraphRAG sets it.
Member = Annotated[
    tuple[Filled, FiniteFloat], BeforeValidator(lambda member: [member, 50.0] if isinstance(member, str) else member)
]


@dataclass(frozen=True, slots=True)
class HyperedgeRecord:
    """An n-ary fact (HyperGraphRAG): a sentence, how complete it is (0-10), its entities with importance (0-100)."""

    text: Filled
    score: FiniteFloat = 1.0
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """Entities and facts that one passage states, as they are spelt there."""

    entities: tuple[str, ...] = ()  # distinct, in order
    triples: tuple[Triple, ...] = ()  # distinct, in order
    malformed: int = 0  # records left out because they lack parts
    details: tuple[EntityRecord, ...] = ()  # types and descriptions of entities
    relations: tuple[RelationRecord, ...] = ()  # described relations, where they are written instead of triples
    hyperedges: tuple[HyperedgeRecord, ...] = ()  # n-ary facts
    is_sentences: bool = False  # relations of triples are the sentences that join head and tail, not predicates
    names_are_ids: bool = False  # equal names are one thing, different ones are not (a curated knowledge base)
    weights: tuple[float, ...] = ()  # of each triple, how strong it is; or empty: 1 each

    def as_triples(self) -> tuple[Triple, ...]:
        """Return the triples; where there are only described relations, their keywords are the predicates."""
        if self.triples:
            return self.triples
        rows = ((r.head, ", ".join(r.keywords) or r.description, r.tail) for r in self.relations)
        return tuple(dict.fromkeys(rows))

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads; fields at their defaults are left out, but for the first three."""
        row = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        return {"entities": [], "triples": [], "malformed": 0} | row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Extraction:
        """Read `to_json` back. Raises ValueError where the row is none."""
        extraction = _adapter().validate_python(row)
        if extraction.weights and len(extraction.weights) != len(extraction.triples):
            raise ValueError("there are not as many weights as triples")
        return extraction


@cache
def _adapter() -> TypeAdapter[Extraction]:
    return TypeAdapter(Extraction)


class Extractor:
    """Passages to entities and triples."""

    def read_corpus(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> None:
        """See all passages before any is extracted from, where the result for one depends on the others."""

    @property
    def identity(self) -> Any:
        """JSON data that changes whenever results would."""
        raise NotImplementedError

    def key(self, passage: Passage, text: PassageText) -> Any:
        """Return JSON data that decides a passage's result; an index does the work again only where it changes."""
        raise NotImplementedError

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        """Return one result per passage, in order; None where nothing is known of it.

        It depends on that passage and what `read_corpus` saw; what that changes is in the passage's `key`.
        """
        raise NotImplementedError
