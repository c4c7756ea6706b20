from __future__ import annotations

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from gnnrag.errors import ArtefactError
from gnnrag.index.index import Index
from gnnrag.index_config import ExtractConfig
from gnnrag.pages.inspection import inspect_index, summarise_graph
from tests.helpers.indexes import HASH, build


def numbered(node):
    return f"n{node}", "entity"


def hub(name, degree):
    return {"name": name, "kind": "entity", "degree": degree}


class TestGraphs:
    @pytest.mark.parametrize("seed", range(4))
    def test_against_networkx(self, seed):
        rng = np.random.default_rng(seed)
        edges = rng.integers(0, 60, size=(50, 2))
        found = summarise_graph("g", 60, edges, numbered)
        graph = nx.Graph()
        graph.add_nodes_from(range(60))
        graph.add_edges_from((a, b) for a, b in edges.tolist() if a != b)
        assert found["edges"] == graph.number_of_edges() and found["isolated"] == nx.number_of_isolates(graph)
        assert found["components"] == nx.number_connected_components(graph)
        assert found["hubs"][0]["degree"] == max(dict(graph.degree).values())


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
        by_name = {graph["name"]: graph for graph in found["graphs"]}
        assert list(by_name) == ["knowledge", "entity_graph", "hierarchy"]
        assert by_name["knowledge"]["hubs"][0] == hub("Ada", 2)
        assert by_name["entity_graph"]["edges"] == 2
        hierarchy = Index(root).hierarchy
        assert (by_name["hierarchy"]["nodes"], by_name["hierarchy"]["edges"]) == (
            hierarchy.num_nodes,
            len(hierarchy.edges),
        )
        assert {hub["kind"] for hub in by_name["hierarchy"]["hubs"]} <= {"passage", "sentence", "phrase"}
        json.dumps(found)

    def test_no_index_and_damage(self, tmp_path):
        with pytest.raises(ArtefactError, match="index"):
            inspect_index(tmp_path)
