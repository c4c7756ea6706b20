"""Parts by name: found, checked, built; those of other packages."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gnnrag import parts
from gnnrag.errors import ConfigError
from gnnrag.parts import build, find_class, from_settings
from gnnrag.types import Query
from tests.helpers.parts import small_index


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return small_index(tmp_path_factory.mktemp("index"))


MODULE = """
from gnnrag.retrievers.base import Retriever, rank_passages

class Longest(Retriever):
    least: int = 0

    def setup(self):
        self.lengths = [len(p.text) for p in self.index.passages]

    def retrieve(self, queries):
        import numpy as np
        return [rank_passages(np.array(self.lengths, float), self.index.ids, q.top_k, "length") for q in queries]
"""


def test_a_part_of_another_package(tmp_path, monkeypatch, index):
    (tmp_path / "mypackage_parts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    built = build("retriever", {"name": "mypackage_parts:Longest", "least": 3}, index=index)
    ranking = built.retrieve([Query("x", top_k=2)])[0]
    longest = max(index.passages, key=lambda p: len(p.text))
    assert (ranking.ids[0], built.least) == (longest.id, 3)
    with pytest.raises(ConfigError, match="least"):
        build("retriever", {"name": "mypackage_parts:Longest", "most": 3}, index=index)


@pytest.mark.parametrize("place", ["nowhere:Part", "gnnrag.types:Nothing"])
def test_a_place_that_cannot_be_imported(place):
    with pytest.raises(ConfigError, match=place.split(":")[0]):
        find_class("retriever", place)


def test_a_copy_is_built(index):
    settings = from_settings(find_class("retriever", "dense"), {}, "retriever")
    built = build("retriever", settings, index=index)
    assert built is not settings and dataclasses.asdict(built) == dataclasses.asdict(settings)
    assert not hasattr(settings, "searcher")


@pytest.mark.parametrize("kind", ["retriever", "method"])
def test_every_part_has_defaults_and_a_docstring(kind):
    for name in parts.names(kind):
        cls = find_class(kind, name)
        assert cls.__doc__, name
        for layer in parts.presets(cls):
            from_settings(cls, {"preset": layer}, kind)
        from_settings(cls, {}, kind)


# What papers and releases state, kept as the defaults.
PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("retriever", "lightrag"): {"cosine_floor": 0.2, "top_k": 40, "chunk_top_k": 20, "entity_tokens": 6000,
                                "relation_tokens": 8000, "total_tokens": 30000},
    ("retriever", "pathrag"): {"cosine_floor": 0.2, "top_k": 40, "decay": 0.8, "max_paths": 15, "passage_tokens": 4000,
                               "relation_tokens": 3000, "entity_tokens": 5000},
    ("retriever", "minirag"): {"cosine_floor": 0.2, "top_k": 60, "max_mentions": 5, "short_share": 0.2,
                               "per_candidate": 3, "passages_k": 30, "entity_tokens": 500},
    ("retriever", "hypergraphrag"): {"cosine_floor": 0.2, "top_k": 60, "entity_tokens": 4000, "fact_tokens": 4000,
                                     "passage_tokens": 4000},
    ("retriever", "graphrag_local"): {"entities": 10, "max_tokens": 12000, "community_share": 0.15, "text_share": 0.5,
                                      "out_relations": 10},
    ("retriever", "graphrag_global"): {"seed": 86, "batch_tokens": 12000, "reduce_tokens": 12000, "reduce_words": 2000},
    ("retriever", "hipporag"): {"damping": 0.5},
    ("retriever", "hipporag2"): {"damping": 0.5, "passage_weight": 0.05},
    ("retriever", "raptor"): {"nodes": 20, "tokens": 2000, "per_layer": 5},
    ("role", "fact_filter.prompted"): {"max_tokens": 512, "max_facts": 4},
    ("method", "bdtr"): {"max_rounds": 2, "top_k": 200, "floor": 5},
    ("method", "tog_graph"): {"depth": 3, "width": 3},
}  # fmt: skip


@pytest.mark.parametrize("kind, name", PUBLISHED)
def test_a_part_has_the_published_settings_by_default(kind: str, name: str) -> None:
    fields = {field.name: field.default for field in dataclasses.fields(find_class(kind, name))}
    assert {setting: fields[setting] for setting in PUBLISHED[kind, name]} == PUBLISHED[kind, name]
