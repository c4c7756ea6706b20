from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.errors import DataError
from gnnrag.extract import make_extractor
from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord
from gnnrag.extract.precomputed import read_extractions
from gnnrag.index_config import ExtractConfig
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage

RECORD = {"id": "p1", "entities": ["A", "B", "A"], "triples": [["A", "of", "B"], ["A", "of", "B"], ["A", "is"]]}
EMPTY = PassageText((), ())


def written(path: Path, *rows: object) -> Path:
    file = path / "triples.jsonl"
    file.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), "utf-8")
    return file


def test_records_by_id(tmp_path):
    path = written(tmp_path, RECORD, {"id": "p2", "entities": [], "triples": [], "model": "ignored"})
    extractor = make_extractor(ExtractConfig("precomputed", str(path)))
    passages = [Passage(i, "T", "x") for i in ("p2", "p3", "p1")]
    found = extractor.extract(passages, [EMPTY] * 3)
    assert found == [Extraction(), None, Extraction(("A", "B"), (("A", "of", "B"),), malformed=1)]
    assert Extraction.from_json(json.loads(json.dumps(found[2].to_json()))) == found[2]
    path = written(tmp_path, {"id": "p", "entities": [], "triples": [["A", "born", 1963]]})
    assert read_extractions(path)["p"].triples == (("A", "born", "1963"),), "numbers are text"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({**RECORD, "id": None}, "'id'"),
        ({**RECORD, "id": "p0"}, "'p0'"),
        ({**RECORD, "triples": [["A", None, "B"]]}, "'triples.0.1"),
        ({"id": "p", "relations": [{"head": "A", "tail": "B", "weight": float("inf")}]}, "weight'"),
        ({"id": "p", "hyperedges": [{"text": "t", "members": [["A"]]}]}, "members.0"),
        ('{"id": ', "JSON"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, row, problem):
    path = written(tmp_path, {**RECORD, "id": "p0"}, row)
    with pytest.raises(DataError, match=problem) as caught:
        read_extractions(path)
    assert caught.value.line == 2


RICH = {
    "id": "p",
    "details": [{"name": "Ada", "type": "person", "description": "wrote programs"}, {"name": "Byron"}],
    "relations": [{"head": "Ada", "tail": "Byron", "keywords": ["kin"], "weight": 8}],
    "hyperedges": [{"text": "Ada met Byron.", "score": 7, "members": [["Ada", 90], "Byron"]}],
}


def test_described_records(tmp_path):
    found = read_extractions(written(tmp_path, RICH))["p"]
    assert found.details == (EntityRecord("Ada", "person", "wrote programs"), EntityRecord("Byron"))
    assert found.relations == (RelationRecord("Ada", "Byron", "", ("kin",), 8),)
    assert found.hyperedges == (HyperedgeRecord("Ada met Byron.", 7, (("Ada", 90.0), ("Byron", 50.0))),)
    assert found.as_triples() == (("Ada", "kin", "Byron"),) and found.entities == ()
    assert Extraction.from_json(json.loads(json.dumps(found.to_json()))) == found
