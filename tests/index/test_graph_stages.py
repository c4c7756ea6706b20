from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gnnrag.extract.base import Extraction
from gnnrag.extract.rules import OfflineExtractor
from gnnrag.index.embedder import HashEmbedder
from gnnrag.index.index import Index
from gnnrag.index.update import update_index
from gnnrag.index_config import ExtractConfig
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
        info = Index(tmp_path / "i").record("extraction")["counts"]
        parts = ("entities", "triples", "relations", "malformed triples", "passages without a record")
        assert [info[part] for part in parts] == [0, 4, 0, 1, 3]
        found = Index(tmp_path / "i", precomputed).read("extraction")
        assert found[0].triples == tuple(map(tuple, RECORDS["p1"])) and found[2] == Extraction()
        build(tmp_path / "i", [replace(CORPUS[0], id="p9"), *CORPUS[1:]], settings=precomputed)
        assert Index(tmp_path / "i").read("extraction")[0] == Extraction(), "a new id has another record, or none"

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


class TestEntityGraph:
    def test_it_is_read_back_as_it_was_built(self, tmp_path, precomputed):
        build(tmp_path / "i", settings=precomputed)
        found = Index(tmp_path / "i").entity_graph
        graph = found.graph
        assert graph.entities == ["ada lovelace", "greece", "london", "lord byron", "missolonghi"]
        assert graph.facts[0] == ["ada lovelace", "born in", "london"]
        assert graph.slots.toarray().sum(axis=1).tolist() == [4, 2, 0, 2, 0, 0]
        assert found.entity_vectors == pytest.approx(HashEmbedder().encode(list(graph.entities)), abs=1e-3)
        statements = HashEmbedder().encode([str(tuple(fact)) for fact in graph.facts])
        assert found.statement_vectors == pytest.approx(statements, abs=1e-3)
        assert [row.tolist() for row in found.statement_facts] == [[i] for i in range(len(graph.facts))]

    def test_the_facts_of_a_sentence_share_a_vector(self, tmp_path):
        build(tmp_path / "i", names=["entity_graph"])
        found = Index(tmp_path / "i").entity_graph
        facts = found.graph.facts
        head = "lord byron", "he died in missolonghi in 1824"
        rows = [[tuple(facts[f]) for f in row.tolist()] for row in found.statement_facts]
        assert [(*head, "1824"), (*head, "missolonghi")] in rows and sum(map(len, rows)) == len(facts) > len(rows)
        row = rows.index([(*head, "1824"), (*head, "missolonghi")])
        expected = HashEmbedder().encode(["lord byron: he died in missolonghi in 1824"])[0]
        assert found.statement_vectors[row] == pytest.approx(expected, abs=1e-3)

    def test_names_that_are_alike_are_joined_from_both_sides(self, tmp_path):
        (tmp_path / "t.jsonl").write_text(
            json.dumps({"id": "p1", "entities": [], "triples": [["the old mill", "of", "old mill the"]]})
        )
        settings = replace(HASH, extract=ExtractConfig("precomputed", str(tmp_path / "t.jsonl")))
        build(tmp_path / "i", settings=settings)
        graph = Index(tmp_path / "i").entity_graph.graph
        assert graph.synonyms.tolist() == [[0, 1], [1, 0]]
        assert graph.similarities == pytest.approx([1, 1])

    def test_only_new_strings_are_embedded(self, tmp_path, monkeypatch):
        root, new = tmp_path / "i", Passage("p9", "Ada Lovelace", "Ada Lovelace was born in London. She knew Babbage.")
        build(root, names=["entity_graph"])
        seen, plain = [], HashEmbedder.encode
        monkeypatch.setattr(HashEmbedder, "encode", lambda s, t, is_query=False: seen.extend(t) or plain(s, t))
        update_index(root, add=[new])
        assert seen == ["babbage", "ada lovelace: she knew babbage"]
        seen.clear()
        settings = replace(HASH, graph=replace(HASH.graph, synonym_threshold=0.9))
        assert build(root, [*CORPUS, new], settings, names=["entity_graph"]) == ["entity_graph"]
        assert seen == []


@pytest.mark.parametrize(
    "names", [("李明", "杭州"), ("Мария", "Киев"), ("علي", "بغداد"), ("राम", "दिल्ली"), ("소라", "서울")]
)
def test_names_without_a_normal_form_are_counted_and_named_with_the_setting_that_helps(tmp_path, names, caplog):
    path = tmp_path / "triples.jsonl"
    path.write_text(json.dumps({"id": "p", "entities": [], "triples": [[names[0], "in", names[1]]]}) + "\n", "utf-8")
    settings = replace(HASH, extract=ExtractConfig("precomputed", str(path)))
    passages = [Passage("p", "", " ".join(names))]
    build(tmp_path / "i", passages, settings, names=["entity_graph"])
    index = Index(tmp_path / "i", settings)
    assert index.record("entity_graph")["counts"]["names without a normal form"] == 2
    assert "index.graph.norm=unicode" in caplog.text
    caplog.clear()
    settings = replace(settings, graph=replace(HASH.graph, norm="unicode"))
    build(tmp_path / "u", passages, settings, names=["entity_graph"])
    assert Index(tmp_path / "u", settings).entity_graph.graph.num_entities == 2 and not caplog.text
