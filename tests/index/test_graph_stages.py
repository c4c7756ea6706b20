from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gnnrag.config import ExtractConfig
from gnnrag.extract.offline import OfflineExtractor
from gnnrag.extract.types import Extraction
from gnnrag.index.build import update_index
from gnnrag.index.index import Index
from gnnrag.index.store import Store
from gnnrag.types import Passage
from tests.helpers.indexes import CORPUS, HASH, artefacts, build

RECORDS = {
    "p1": [["Ada Lovelace", "born in", "London"], ["Ada Lovelace", "child of", "Lord Byron"]],
    "p2": [["Lord Byron", "died in", "Missolonghi"]],
    "p4": [["Missolonghi", "lies in", "Greece"], ["Mesolóngi", "is"]],
    "elsewhere": [["a", "b", "c"]],
}


@pytest.fixture
def precomputed(tmp_path):
    path = tmp_path / "openie.jsonl"
    rows = [{"id": i, "entities": [], "triples": triples} for i, triples in RECORDS.items()]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return replace(HASH, extract=ExtractConfig("precomputed", str(path)))


class TestExtraction:
    def test_precomputed_records_are_counted(self, tmp_path, precomputed):
        build(tmp_path / "i", settings=precomputed)
        info = Store(tmp_path / "i").info("extraction")
        counts = {k: v for k, v in info.items() if k != "seconds"}
        assert counts == {"entities": 0, "triples": 4, "malformed triples": 1, "passages without a record": 3}
        found = Index(tmp_path / "i", precomputed).read("extraction")
        assert found[0].triples == tuple(map(tuple, RECORDS["p1"])) and found[2] == Extraction()

    def test_a_renamed_passage_has_the_record_of_its_new_id(self, tmp_path, precomputed):
        root = tmp_path / "i"
        build(root, settings=precomputed)
        renamed = [replace(CORPUS[0], id="p9"), *CORPUS[1:]]
        build(root, renamed, settings=precomputed)
        assert Index(root).read("extraction")[0] == Extraction()

    def test_offline_work_is_done_for_changed_passages_only(self, tmp_path, monkeypatch):
        root, new = tmp_path / "i", Passage("p9", "Rome", "Rome lies on the Tiber.")
        build(root)
        seen, plain = [], OfflineExtractor.extract

        def counted(self, passages, texts):
            seen.extend(p.id for p in passages)
            return plain(self, passages, texts)

        monkeypatch.setattr(OfflineExtractor, "extract", counted)
        update_index(root, add=[new], remove=["p1"])
        assert seen == ["p9"]
        build(tmp_path / "fresh", [*CORPUS[1:], new])
        assert artefacts(root) == artefacts(tmp_path / "fresh")

    def test_a_killed_build_goes_on(self, tmp_path, monkeypatch):
        root, plain = tmp_path / "i", OfflineExtractor.extract
        build(root, stages=["text"])
        from gnnrag.index import graph_stages

        whole = graph_stages.map_passages

        def in_ones(*a):
            return whole(*a[:6], 1, *a[7:])

        calls = []

        def dies(self, passages, texts):
            if len(calls) == 2:
                raise KeyboardInterrupt
            calls.append(passages[0].id)
            return plain(self, passages, texts)

        monkeypatch.setattr(graph_stages, "map_passages", in_ones)
        with monkeypatch.context() as patch:
            patch.setattr(OfflineExtractor, "extract", dies)
            with pytest.raises(KeyboardInterrupt):
                build(root, stages=["extraction"])
            assert calls == ["p1", "p2"]
        later = []
        monkeypatch.setattr(
            OfflineExtractor, "extract", lambda s, p, t: later.append(p[0].id) or plain(s, p, t)  # type: ignore[func-returns-value]
        )  # fmt: skip
        build(root, stages=["extraction"])
        assert later == ["p3", "p4", "p6"]  # p5 is p2's text again

    def test_an_index_from_before_there_were_triples_is_read(self, tmp_path):
        build(tmp_path, stages=["lexical"])
        store = Store(tmp_path)
        del store.manifest["settings"]["extract"]
        store.save()
        assert Index(tmp_path).config.extract == ExtractConfig()
