"""What an extractor found in one passage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Triple = tuple[str, str, str]  # head, relation, tail


@dataclass(frozen=True, slots=True)
class Extraction:
    """Entities and triples of one passage, as they are spelt there.

    Attributes:
        entities: distinct names, in order; a graph takes its nodes from the triples, not from these.
        triples: distinct (head, relation, tail), in order.
        malformed: how many triples were left out because they had not three parts.
    """

    entities: tuple[str, ...] = ()
    triples: tuple[Triple, ...] = ()
    malformed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {"entities": self.entities, "triples": self.triples, "malformed": self.malformed}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Extraction:
        """Read `to_json` back."""
        return cls(tuple(row["entities"]), tuple((h, r, t) for h, r, t in row["triples"]), row["malformed"])
