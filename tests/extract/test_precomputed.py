from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.config import ExtractConfig
from gnnrag.errors import ConfigError, DataError
from gnnrag.extract import make_extractor
from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord
from gnnrag.extract.precomputed import read_extractions
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage
from tests.helpers.shared_data import SHARED_DATA

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
        ({"id": "p1", "triples": []}, "'entities'"),
        ({**RECORD, "entities": ["A", 3]}, "'entities.1'"),
        ({**RECORD, "triples": ["A of B"]}, "'triples.0'"),
        ({**RECORD, "triples": [["A", None, "B"]]}, "'triples.0.1"),
        ({"id": "p", "details": [{"type": "x"}]}, "'details.0.name'"),
        ({"id": "p", "relations": [{"head": "A", "tail": " "}]}, "'relations.0.tail'"),
        ({"id": "p", "relations": [{"head": "A", "tail": "B", "weight": float("inf")}]}, "weight'"),
        ({"id": "p", "hyperedges": [{"text": "t", "members": [["A"]]}]}, "members.0"),
        ("[1]", "object"),
        ('{"id": ', "JSON"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, row, problem):
    path = written(tmp_path, {**RECORD, "id": "p0"}, row)
    with pytest.raises(DataError, match=problem) as caught:
        read_extractions(path)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("precomputed",), r"index\.extract\.path"),
        (("kb",), r"index\.extract\.path"),
        (("prompted", "x"), r"index\.extract\.path"),
    ],
)
def test_settings_that_do_not_fit(given, problem):
    with pytest.raises(ConfigError, match=problem):
        make_extractor(ExtractConfig(*given), lambda: None)


@pytest.mark.parametrize("method", ["precomputed", "kb"])
def test_a_missing_file_is_named(tmp_path, method):
    with pytest.raises(DataError, match=r"none\.jsonl"):
        _ = make_extractor(ExtractConfig(method, str(tmp_path / "none.jsonl"))).identity


def test_real_triples():
    path = SHARED_DATA / "musique" / "openie.gpt-3.5-turbo-1106.jsonl"
    if not path.is_file():
        pytest.skip(f"no benchmark data at {path}")
    records = read_extractions(path)
    assert len(records) == 1890
    assert sum(r.malformed for r in records.values()) == 185
    assert records["musique-1"].triples[0] == ("Person-centered therapy", "developed by", "Carl Rogers")


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
