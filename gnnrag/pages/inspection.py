"""What an index holds and what is wrong with it: counts, sizes, gaps in the extraction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance

from gnnrag.extract.base import Extraction
from gnnrag.index.artefacts import ARTEFACTS
from gnnrag.index.index import Index
from gnnrag.index.tables import ValueTable


def inspect_index(root: Path | str) -> dict[str, Any]:
    """Return what an index holds, ready for JSON: `stages`, `tables`, gaps of the `extraction`, and what is `stale`.

    Stale are artefacts of earlier passages or settings alone, each with how many values of texts making it anew would
    have to compute (null: not known before).

    Raises ArtefactError where there is no index.
    """
    index, stages, gaps = Index(root), [], {}
    for name in index.fingerprint:
        record = index.record(name)
        size = sum(file.stat().st_size for file in index.folder(name).rglob("*") if file.is_file())
        stages.append({"name": name, "counts": record["counts"], "bytes": size, "seconds": record["seconds"]})
    if index.has("extraction"):
        counts = index.record("extraction")["counts"]
        extractions: list[Extraction] = index.read("extraction")
        empty = sum(not (e.triples or e.relations or e.hyperedges) for e in extractions)
        gaps = {
            "passages": len(extractions),
            "malformed": counts["malformed triples"],
            "without_record": counts["passages without a record"],
            "without_triples": empty,
        }
    return {"root": str(root), "stages": stages, "tables": _tables(index), "stale": _stale(index), "extraction": gaps}


def _tables(index: Index) -> list[dict[str, Any]]:
    tables = []
    for path in sorted(index.local.glob("*.lance")):
        dataset = lance.dataset(str(path))
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        tables.append({"name": path.stem, "rows": dataset.count_rows(), "bytes": size, "versions": dataset.version})
    return tables


def _stale(index: Index) -> list[dict[str, Any]]:
    names = {path.name.rpartition("-")[0] for path in index.local.iterdir() if path.suffix != ".lance"}
    stale = []
    for name in (name for name in ARTEFACTS if name in names and not index.has(name)):
        missing = None
        if name in ("text", "embeddings"):  # their tables are keyed by what a passage says
            tables = [ValueTable(str(path)) for path in index.local.glob(f"{name}-*.lance")]
            missing = min((len(table.missing(index.table.keys.to_pylist())) for table in tables), default=None)
        stale.append({"name": name, "values to compute": missing})
    return stale
