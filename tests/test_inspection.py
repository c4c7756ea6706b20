from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gnnrag.errors import ArtefactError
from gnnrag.index.index import Index
from gnnrag.index_config import ExtractConfig
from gnnrag.pages.inspection import inspect_index
from tests.helpers.indexes import HASH, build


@pytest.fixture
def triples(tmp_path):
    path = tmp_path / "openie.jsonl"
    rows = [
        {"id": "p1", "entities": [], "triples": [["Ada", "born in", "London"], ["Ada", "child of", "Byron"]]},
        {"id": "p2", "entities": [], "triples": [["Byron", "died in"]]},
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return replace(HASH, extract=ExtractConfig("precomputed", str(path)))


class TestIndexes:
    def test_counts_sizes_and_gaps(self, tmp_path, triples):
        root = tmp_path / "i"
        build(root, settings=triples, source={"path": "here"})
        found = inspect_index(root)
        assert {stage["name"] for stage in found["stages"]} == Index(root).fingerprint.keys()
        assert sum(part["bytes"] for part in [*found["stages"], *found["tables"]]) == sum(
            p.stat().st_size for folder in root.iterdir() if folder.is_dir() for p in folder.rglob("*") if p.is_file()
        )
        assert found["extraction"] == {"passages": 6, "malformed": 1, "without_record": 4, "without_triples": 5}
        json.dumps(found)

    def test_no_index_and_damage(self, tmp_path):
        with pytest.raises(ArtefactError, match="index"):
            inspect_index(tmp_path)
