from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.config import ExtractConfig
from gnnrag.errors import ConfigError, DataError
from gnnrag.extract.base import EntityRecord, Extraction, HyperedgeRecord, RelationRecord, make_extractor
from gnnrag.extract.precomputed import PrecomputedExtractor, read_extractions
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage
from tests.helpers.each import each
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


@each(
    "row, problem",
    [
        ({**RECORD, "id": None}, "needs an 'id'"),
        ({**RECORD, "id": "p0"}, "'p0' has a record already"),
        ({"id": "p1", "triples": []}, "needs 'entities', a list"),
        ({**RECORD, "entities": ["A", 3]}, "list of strings, but holds 3"),
        ({**RECORD, "triples": "none"}, "needs 'triples', a list"),
        ({**RECORD, "triples": ["A of B"]}, "a triple must be a list"),
        ({**RECORD, "triples": [["A", None, "B"]]}, "a triple must be a list"),
        ("[1]", "object"),
        ('{"id": ', "is not JSON"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, row, problem):
    path = written(tmp_path, {**RECORD, "id": "p0"}, row)
    with pytest.raises(DataError, match=problem) as caught:
        read_extractions(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_settings_that_do_not_fit(tmp_path):
    with pytest.raises(ConfigError, match=r"needs index\.extract\.path"):
        make_extractor(ExtractConfig("precomputed"))
    with pytest.raises(ConfigError, match="is not read by method=offline"):
        make_extractor(ExtractConfig("offline", "x"))
    with pytest.raises(ConfigError, match="Did you mean 'offline'"):
        make_extractor(ExtractConfig("ofline"))
    with pytest.raises(DataError, match=r"none\.jsonl: index\.extract\.path cannot be read: No such file"):
        _ = PrecomputedExtractor(ExtractConfig("precomputed", str(tmp_path / "none.jsonl"))).identity


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


@each(
    "field, value, problem",
    [
        ("details", [{"type": "x"}], "one of 'details' needs 'name'"),
        ("details", [{"name": "A", "kind": "x"}], "must be an object with name, type, description"),
        ("details", ["A"], "must be an object with"),
        ("details", [{"name": "A", "type": 3}], "'type' of one of 'details' must be a text"),
        ("relations", [{"head": "A", "tail": " "}], "needs 'tail', a text that is not empty"),
        ("relations", [{"head": "A", "tail": "B", "weight": True}], "must be a number, not True"),
        ("relations", [{"head": "A", "tail": "B", "weight": float("inf")}], "must be a number, not inf"),
        ("relations", [{"head": "A", "tail": "B", "keywords": "k"}], "'keywords' must be a list of strings"),
        ("hyperedges", [{"text": "t", "members": [["A"]]}], r"must be \[name, importance\]"),
        ("hyperedges", "t", "needs 'hyperedges', a list"),
    ],
)
def test_described_records_that_are_wrong(tmp_path, field, value, problem):
    with pytest.raises(DataError, match=problem) as caught:
        read_extractions(written(tmp_path, {**RICH, field: value}))
    assert ", line 1: " in str(caught.value)
