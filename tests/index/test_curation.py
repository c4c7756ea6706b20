from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from gnnrag.index.embedder import HashEmbedder
from gnnrag.index.index import Index
from gnnrag.index.update import update_index
from gnnrag.index_config import ExtractConfig, RoleConfig
from gnnrag.roles.writers.entities import OfflineCurator
from gnnrag.roles.writers.report import OfflineSummary
from gnnrag.text.sentences import count_words
from gnnrag.types import Passage
from tests.helpers.indexes import HASH, build

WORDS = ("Plan", "Plans", "PLAN", "Grid Line", "Grid-Lines", "Office", "Old Office", "Offices of Rome", "Rome", "Line")


def settings(tmp_path, resolve=True, **more):
    knowledge = replace(HASH.knowledge, resolve=resolve, resolve_threshold=0.3)
    triples = tmp_path / "t.jsonl"
    if not triples.exists():
        rng = np.random.default_rng(1)
        drawn = [[[str(a), "of", str(b)] for a, b in rng.choice(WORDS, (3, 2))] for _ in range(14)]
        rows = [{"id": f"q{i}", "entities": [], "triples": triple} for i, triple in enumerate(drawn)]
        triples.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return replace(HASH, knowledge=knowledge, extract=ExtractConfig("precomputed", str(triples)), **more)


def passages(*numbers):
    return [Passage(f"q{i}", "", f"text {i}") for i in numbers]


def test_names_are_merged(tmp_path):
    build(tmp_path / "i", passages(*range(14)), settings(tmp_path), names=["knowledge"])
    graph = Index(tmp_path / "i").knowledge
    store = Index(tmp_path / "i")
    (name,) = {"Grid Line", "Grid-Lines"} & set(graph.names)
    assert {"Grid Line", "Grid-Lines"} <= {name, *graph.aliases[graph.position[name]]}
    build(tmp_path / "plain", passages(*range(14)), settings(tmp_path, False), names=["knowledge"])
    plain = Index(tmp_path / "plain").knowledge
    assert plain.num_entities == graph.num_entities + store.record("knowledge")["counts"]["merged"]


def test_what_was_decided_is_not_asked_again(tmp_path, monkeypatch):
    root, asked = tmp_path / "i", []
    build(root, passages(*range(13)), settings(tmp_path), names=["knowledge"])
    plain = OfflineCurator.__call__

    async def counted(self, task, session):
        asked.append(task)
        return await plain(self, task, session)

    monkeypatch.setattr(OfflineCurator, "__call__", counted)
    seen, encode = [], HashEmbedder.encode
    monkeypatch.setattr(HashEmbedder, "encode", lambda s, t, is_query=False: seen.extend(t) or encode(s, t))
    added = [Passage("elsewhere", "", "nothing is known of it")]
    update_index(root, add=added, caller=settings(tmp_path))
    assert asked == [] and not [text for text in seen if text in WORDS]
    assert Index(root).record("knowledge")["counts"]["decided"] == 0


def test_the_record_says_what_writers_have_spent(tmp_path):
    llm = {"name": "scripted", "default": '{"groups": [[1], [2]]}'}
    made = settings(tmp_path, llm=llm, llm_cache=None)
    made = replace(made, writers=replace(made.writers, curator=RoleConfig(impl="prompted")))
    build(tmp_path / "i", passages(*range(14)), made, names=["knowledge"])
    info = Index(tmp_path / "i").record("knowledge")["counts"]
    assert info["curator calls"] >= 1 and info["curator prompt_tokens"] > 100
    assert not [name for name in info if name.startswith("summary ")]


def described(tmp_path, count, words=60):
    """Return passages and the settings for a file in which each says another thing of Ada and of her and Byron."""
    path, said = tmp_path / "d.jsonl", [f"Ada built engine number {i} in town {i} of the north." for i in range(count)]
    relations = [{"head": "Ada", "tail": "Byron", "keywords": ["kin"], "description": text} for text in said]
    rows = [
        {"id": f"q{i}", "details": [{"name": "Ada", "description": text}], "relations": [relation]}
        for i, (text, relation) in enumerate(zip(said, relations, strict=True))
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    knowledge = replace(HASH.knowledge, description_words=words)
    return replace(HASH, knowledge=knowledge, extract=ExtractConfig("precomputed", str(path)))


def test_long_descriptions_are_summarised_once(tmp_path, monkeypatch):
    made, root, asked = described(tmp_path, 9), tmp_path / "i", []
    plain = OfflineSummary.__call__

    async def counted(self, task, session):
        asked.append(task)
        return await plain(self, task, session)

    monkeypatch.setattr(OfflineSummary, "__call__", counted)
    build(root, passages(*range(8)), made, names=["knowledge"])
    graph = Index(root).knowledge
    (relation,), ada = graph.texts, graph.descriptions[0]
    limits = [(task.subject, task.max_words, len(task.texts)) for task in asked]
    assert limits == [("Ada", 30, 8), ("Ada and Byron", 30, 8)]
    assert 0 < count_words(ada) <= 30 and count_words(relation) <= 30
    assert Index(root).record("knowledge")["counts"]["summarised"] == 2
    asked.clear()
    update_index(root, add=[Passage("elsewhere", "", "nothing is known of it")], caller=made)
    assert asked == [] and Index(root).knowledge.descriptions[0] == ada
    update_index(root, add=passages(8), caller=made)
    assert [len(task.texts) for task in asked] == [9, 9]


def test_short_descriptions_stay_and_leave_no_trace(tmp_path):
    build(tmp_path / "i", passages(*range(4)), described(tmp_path, 4), names=["knowledge"])
    graph = Index(tmp_path / "i").knowledge
    assert (
        graph.descriptions[0].count("\n") == 3
        and "summarised" not in Index(tmp_path / "i").record("knowledge")["counts"]
    )
    build(tmp_path / "all", passages(*range(9)), described(tmp_path, 9, None), names=["knowledge"])
    assert Index(tmp_path / "all").knowledge.descriptions[0].count("\n") == 8
