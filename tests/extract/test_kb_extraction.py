"""A knowledge base's triples through an index, and what is served from it."""

from dataclasses import replace

import pytest

from gnnrag.datasets.base import load_passages
from gnnrag.index.index import Index, build_index
from gnnrag.index.update import update_index
from gnnrag.index_config import ExtractConfig
from gnnrag.types import Passage
from tests.helpers.indexes import HASH

KB = """Oliver|directed_by|Ana Li
Oliver|written_by|Ana Li
oliver|release_year|12
Oliver|has_tags|oliver
"""


@pytest.fixture
def kb(tmp_path):
    folder = tmp_path / "films"
    folder.mkdir()
    (folder / "kb.txt").write_text(KB, "utf-8")
    return folder / "kb.txt"


def of(kb):
    return replace(HASH, extract=ExtractConfig("kb", str(kb)))


def build(root, kb):
    build_index(root, load_passages(kb).passages, of(kb), ["knowledge"])
    return Index(root)


def facts(graph):
    names = graph.names
    rows = zip(graph.ends.tolist(), graph.labels, strict=True)
    return {(names[h], label, names[t]) for (h, t), label in rows}


def test_the_graph_has_the_triples_the_names_and_the_types_as_they_are(tmp_path, kb):
    index = build(tmp_path / "index", kb)
    graph = index.knowledge
    assert facts(graph) == {tuple(line.split("|")) for line in KB.splitlines()}
    assert graph.num_relations == 4
    # Case tells a film from a tag; a short number is a name.
    assert dict(zip(graph.names, graph.types, strict=True)) == {
        "Oliver": "movie", "oliver": "movie|tag", "Ana Li": "person", "12": "year",
    }  # fmt: skip
    at = graph.position
    both = graph.edges.relations_between(at["Oliver"], at["Ana Li"])
    assert [graph.labels[i] for i in both] == ["directed_by", "written_by"]
    passage = [p.id for p in index.passages].index("12")
    assert [graph.names[i] for i in graph.passage_entities[passage]] == ["12", "oliver"]
    assert "text" not in index.fingerprint  # neither sentences nor vectors were needed


def test_what_is_not_an_article_has_no_triples(tmp_path, kb):
    build(tmp_path / "index", kb)
    added = [Passage("note", "note", "Ana Li is busy."), Passage("12", "12", "edited")]
    update_index(tmp_path / "index", added, ["oliver"], caller=of(kb))
    graph = Index(tmp_path / "index").knowledge
    # `oliver` is gone with its article; what Oliver's own article says of it stays.
    assert facts(graph) == {tuple(line.split("|")) for line in KB.splitlines() if not line.startswith("oliver")}
    assert graph.types[graph.position["oliver"]] == ""
