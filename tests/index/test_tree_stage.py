from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnrag.errors import LLMError
from gnnrag.index.embedder import HashEmbedder
from gnnrag.index.index import Index
from gnnrag.index.update import update_index
from gnnrag.index_config import IndexConfig, RoleConfig, TreeConfig
from gnnrag.roles.writers.report import OfflineSummary
from gnnrag.types import Passage
from tests.helpers.indexes import CORPUS, HASH, build

WORDS = ["river", "mill", "bridge", "poet", "castle", "ship", "bread", "engine", "comet", "island", "clock"]


def passage(i: int, version: int = 0) -> Passage:
    words = np.random.default_rng([i, version]).choice(WORDS, 8)
    return Passage(f"q{i}", f"Title {i}", f"The {' '.join(words[:4])} is old. It has a {' '.join(words[4:])}.")


MANY = [passage(i) for i in range(60)]


def config(**tree) -> IndexConfig:
    return replace(HASH, tree=TreeConfig(**tree))


def scripted(reply: str) -> IndexConfig:
    llm = {"name": "scripted", "rules": [{"match": "", "reply": reply}]}
    writers = replace(HASH.writers, summary=RoleConfig(impl="prompted"))
    return replace(HASH, writers=writers, llm=llm, llm_cache=None)


def counts(root):
    info = Index(root).record("tree")["counts"]
    return {k: info[k] for k in ("written", "kept", "embedded")}


class TestTree:
    @pytest.mark.parametrize("n", [1, 3, 12, 60])
    def test_it_is_read_back_as_it_was_built(self, tmp_path, n):
        build(tmp_path, MANY[:n], names=["tree"])
        tree = Index(tmp_path).read("tree")
        info = Index(tmp_path).record("tree")["counts"]
        assert info["layers"] == [len(layer) for layer in tree.layers] and info["summaries"] == len(tree.texts)
        assert {int(p) for node in list(tree.layers)[-1] for p in tree.leaves(int(node))} == set(range(n))
        assert (tree.vectors == HashEmbedder().encode(tree.texts).reshape(-1, 256)).all()
        for text, children in zip(tree.texts, tree.children, strict=True):
            said = " ".join(MANY[c].text if c < n else tree.texts[c - n] for c in children.tolist())
            assert all(part.strip(" .") in said for part in text.split(". ")), "a summary quotes its cluster"

    def test_passages_without_text_and_repeated_ones(self, tmp_path):
        build(tmp_path / "same", [Passage(f"s{i}", "T", "The mill is old.") for i in range(30)], names=["tree"])
        tree = Index(tmp_path / "same").read("tree")
        assert tree.texts == ["The mill is old."] and tree.leaves(30).tolist() == list(range(30))
        tmp_path /= "odd"
        odd = [Passage("e1", "Only a title", ""), Passage("e2", "", "no title"), Passage("e3", "!", "?")]
        again = [replace(p, id=f"again-{p.id}") for p in MANY[:20]]
        build(tmp_path, [*CORPUS, *odd, *MANY[:20], *again], names=["tree"])
        tree = Index(tmp_path).read("tree")
        assert {int(p) for node in list(tree.layers)[-1] for p in tree.leaves(int(node))} == set(range(49))
        for children in tree.children:  # who says the same is in the same clusters
            positions = {c for c in children.tolist() if 9 <= c < 49}
            assert {c + 20 if c < 29 else c - 20 for c in positions} == positions


class TestChanges:
    def test_only_what_changed_is_written_and_embedded(self, tmp_path, monkeypatch):
        build(tmp_path, [passage(i) for i in range(300)], names=["tree"])
        total = counts(tmp_path)["written"]
        assert counts(tmp_path)["kept"] == 0 and total > 40
        written, plain = [], OfflineSummary.__call__

        async def counted(self, task, session):
            written.append(task.texts)
            return await plain(self, task, session)

        monkeypatch.setattr(OfflineSummary, "__call__", counted)
        update_index(tmp_path, remove=["q7"])
        found = counts(tmp_path)
        assert (
            len(written) == found["written"]
            and found["written"] + found["kept"] == Index(tmp_path).record("tree")["counts"]["summaries"]
        )
        assert 1 <= found["written"] <= 0.25 * total and found["embedded"] <= found["written"]
        written.clear()
        update_index(tmp_path, add=[passage(7)])  # at the end now; the summaries it had are gone
        assert len(written) <= 0.25 * total

    def test_other_clusters_keep_the_summaries_they_can(self, tmp_path):
        build(tmp_path, MANY, config(max_layers=1), names=["tree"])
        build(tmp_path, MANY, config(max_layers=5), names=["tree"])
        assert counts(tmp_path)["kept"] > 0
        build(tmp_path, MANY, config(max_layers=5, summary_words=20), names=["tree"])
        assert counts(tmp_path)["kept"] == 0


class TestWriter:
    def test_a_model_writes(self, tmp_path):
        build(tmp_path, MANY, scripted("A summary by a model."), names=["tree"])
        tree, info = Index(tmp_path).read("tree"), Index(tmp_path).record("tree")["counts"]
        assert set(tree.texts) == {"A summary by a model."} and info["summary calls"] == info["written"] > 0

    def test_another_writer_writes_anew(self, tmp_path):
        build(tmp_path, MANY, names=["tree"])
        assert build(tmp_path, MANY, scripted("One."), names=["tree"]) == ["tree"]
        assert counts(tmp_path)["kept"] == 0
        assert build(tmp_path, MANY, scripted("Two."), names=["tree"]) == ["tree"]
        assert set(Index(tmp_path).read("tree").texts) == {"Two."}

    def test_a_dead_server_ends_the_build(self, tmp_path, monkeypatch):
        async def dead(self, request):
            raise LLMError("down")

        monkeypatch.setattr("gnnrag.llm.scripted.ScriptedBackend.generate", dead)
        with pytest.raises(LLMError, match="down"):
            build(tmp_path, MANY, scripted("x"), names=["tree"])
