"""The stages behind entity graphs: what was extracted from each passage, and the graph of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from gnnrag.extract.base import make_extractor
from gnnrag.extract.types import Extraction
from gnnrag.files import digest
from gnnrag.index.stage_base import Context, Writer, known_records, read_records, write_records
from gnnrag.index.store import map_passages


class ExtractionStage:
    """Entities and triples of each passage."""

    name: ClassVar[str] = "extraction"
    needs: ClassVar[tuple[str, ...]] = ("passages", "text")

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return make_extractor(context.config.extract).identity

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        extractor, texts = make_extractor(context.config.extract), context.read("text")
        hashes = [digest(extractor.key(p, text)) for p, text in zip(context.passages, texts, strict=True)]

        def compute(positions: list[int]) -> list[Any]:
            found = extractor.extract([context.passages[i] for i in positions], [texts[i] for i in positions])
            return [None if e is None else e.to_json() for e in found]

        known = known_records(context.store, self.name, settings)
        values = map_passages(context.store, self.name, settings, hashes, known, compute, 1000, context.progress)

        def write(folder: Path) -> dict[str, Any]:
            write_records(folder, hashes, values, settings)
            found = [v for v in values if v is not None]
            return {
                "entities": sum(len(v["entities"]) for v in found),
                "triples": sum(len(v["triples"]) for v in found),
                "malformed triples": sum(v["malformed"] for v in found),
                "passages without a record": len(values) - len(found),
            }

        return write

    def load(self, folder: Path) -> list[Extraction]:
        """Return one Extraction per passage; an empty one where nothing is known."""
        return [Extraction() if v is None else Extraction.from_json(v) for _, v in read_records(folder)]
