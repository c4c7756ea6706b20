"""The retriever on networks with random weights: what it promises does not depend on training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnrag.config import EvaluateConfig, IndexConfig, load_config
from gnnrag.datasets.base import load_passages
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.gnn import ENTITY_STAGES, NODE_STAGES, GNNConfig
from gnnrag.gnn.checkpoint import Checkpoint, save_checkpoint
from gnnrag.gnn.features import NODE_FEATURES
from gnnrag.gnn.model import QueryGNN
from gnnrag.index.embedder import HashEmbedder, encoder_record
from gnnrag.index.index import Index
from gnnrag.index_config import EmbedderConfig, ExtractConfig, MessageConfig, TextConfig
from gnnrag.parts import set_up
from gnnrag.retrievers.gfm import GFMRetriever
from gnnrag.types import Query
from tests.helpers.indexes import CORPUS, build

KB = "Alien|directed_by|Ridley Scott\nAlien|starred_actors|Sigourney Weaver\nBlade|directed_by|Ridley Scott\n"
KB += "Blade|release_year|1998\nAlien|release_year|1979\n"
QUERIES = [Query("Where was the father of Ada Lovelace born?"), Query("who died in missolonghi"), Query("")]


def checkpoint(folder: Path, encoder: dict | None = None, facts: dict | None = None, **changes: object) -> str:
    torch.manual_seed(1)
    settings: dict = {"dim": 8, "layers": 3, "features": list(NODE_FEATURES)}
    model = QueryGNN(GNNConfig(**settings | changes), HashEmbedder.dim)
    encoder = encoder_record(HashEmbedder()) if encoder is None else encoder
    save_checkpoint(folder, Checkpoint(model, None, encoder, facts or {}))
    return str(folder)


def of_entities(folder: Path, **facts: object) -> str:
    plain: dict = {"features": [], "fusion": "none", "node_text": False}
    return checkpoint(folder, facts=facts, mode="entity", **plain)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    root = tmp_path_factory.mktemp("gfm") / "index"
    build(root, names=NODE_STAGES)
    return Index(root)


def kb_index(folder: Path, triples: str) -> Index:
    (folder / "kb.txt").write_text(triples)
    config = IndexConfig(
        embedder=EmbedderConfig(model="hash"), text=TextConfig(language="blank:en"),
        extract=ExtractConfig(method="kb", path=str(folder / "kb.txt")),
    )  # fmt: skip
    build(folder / "index", load_passages(folder).passages, config, names=ENTITY_STAGES)
    return Index(folder / "index")


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return kb_index(tmp_path_factory.mktemp("kb"), KB)


def test_passages_outside_the_subgraph_follow_by_search(index: Index, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, facts={"prune": {"passages": 2}})
    retriever = set_up(GFMRetriever(folder), index=index)
    (ranking,) = retriever.retrieve(QUERIES[:1])
    (part,) = retriever.scorer.graphs.prepare([QUERIES[0].text])  # type: ignore[union-attr]
    inside = {index.ids[p] for p in part.passages[part.candidates]}
    assert len(inside) == 2 and set(ranking.ids[:2]) == inside
    rest = [index.position[i] for i in ranking.ids[2:]]
    assert rest == sorted(rest, key=lambda p: (-part.prior[p], p))


def test_entities_answer_questions_of_a_knowledge_base(kb: Index, tmp_path: Path) -> None:
    retriever = set_up(GFMRetriever(of_entities(tmp_path, threshold=0.0)), index=kb)
    query = Query("who directed Alien", "graph", 1000)
    assert retriever.channels == {"text", "graph"}
    (ranking,) = retriever.retrieve([query])
    assert set(ranking.ids) == {"Blade", "Ridley Scott", "Sigourney Weaver", "1998", "1979"}, "all but what it names"
    assert ranking.kind == "entity" and ranking.sources[0] == (ranking.ids[0],)
    strict = set_up(GFMRetriever(of_entities(tmp_path), threshold=1.0), index=kb).retrieve([query])[0]
    assert strict.ids == ranking.ids[:1], "there is always an answer"
    middle = float(np.median(ranking.scores))
    some = set_up(GFMRetriever(of_entities(tmp_path, threshold=middle)), index=kb).retrieve([query])[0]
    assert some.ids == ranking.ids[:3], "the threshold is the checkpoint's"
    (articles,) = retriever.retrieve([Query(query.text)])
    assert articles.ids[:5] == ranking.ids and articles.ids[-1] == "Alien"


def test_mass_is_of_a_softmax_without_what_the_question_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = kb_index(tmp_path, "".join(f"Alien|has_tags|tag{i}\n" for i in range(2002)))
    retriever = set_up(GFMRetriever(of_entities(tmp_path / "ck"), mass=0.95), index=index)
    position, score = index.read("message_graph").graph.position, retriever.scorer.score

    def scored(text: str, *more: object) -> tuple:
        logits, question, subgraph = score(text, *more)
        logits[:] = -5.0  # sigmoids of two thousand weak entities would sum to 13
        logits[[position["tag7"], position["tag8"], position["Alien"]]] = 10.0, 10.0, 50.0
        return logits, question, subgraph

    monkeypatch.setattr(retriever.scorer, "score", scored)
    (ranking,) = retriever.retrieve([Query("what is Alien tagged with", "graph", 5000)])
    assert ranking.ids == ("tag7", "tag8")


def test_a_question_that_names_nothing_is_told_apart(kb: Index, tmp_path: Path) -> None:
    retriever = set_up(GFMRetriever(of_entities(tmp_path)), index=kb)
    nodes, articles = retriever.retrieve([Query("who directed it", "graph"), Query("who directed it")])
    assert nodes.branch == articles.branch == "gnn_none_fallback", "the loop counts what ends so"
    assert not nodes.ids and articles.high == 0.0


def test_triples_of_text_reach_passages_by_the_ranker(tmp_path: Path) -> None:
    rows = [{"id": "p1", "triples": [["Ada Lovelace", "child of", "Lord Byron"]], "entities": []},
            {"id": "p2", "triples": [["Lord Byron", "died in", "Missolonghi"]], "entities": []}]  # fmt: skip
    path = tmp_path / "triples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    extract = ExtractConfig(method="precomputed", path=str(path))
    for structure in (True, False):
        config = IndexConfig(embedder=EmbedderConfig(model="hash"), text=TextConfig(language="blank:en"),
                             extract=extract, gnn=MessageConfig(structure=structure))  # fmt: skip
        root = tmp_path / f"index-{structure}"
        build(root, CORPUS, config, names=ENTITY_STAGES)
        retriever = set_up(GFMRetriever(of_entities(tmp_path / "ck")), index=Index(root))
        (ranking,) = retriever.retrieve([Query("Where did Lord Byron die?")])
        assert {"p1", "p2"} <= set(ranking.ids[:4]) and ranking.branch == "gnn_exact"
    with pytest.raises(ConfigError, match="index holds facts alone"):
        set_up(GFMRetriever(checkpoint(tmp_path / "node")), index=Index(root))


@pytest.mark.parametrize("dots", [["retriever=gfm", "gnn.checkpoint=x"], ["gnn.checkpoint=x", "retriever=gfm"]])
def test_the_checkpoint_is_a_setting_of_the_retriever(dots: list[str]) -> None:
    assert load_config(EvaluateConfig, None, dots).retriever.part.checkpoint == "x"
    with pytest.raises(ConfigError, match=r"retriever"):
        load_config(EvaluateConfig, None, ["retriever=chg", "gnn.checkpoint=x"])


def test_another_encoder_is_refused(index: Index, tmp_path: Path) -> None:
    other = checkpoint(tmp_path / "other", {"weights": "0" * 64, "normalised": True})
    with pytest.raises(ArtefactError, match=r"encoder\.weights"):
        set_up(GFMRetriever(other), index=index)


def test_without_a_checkpoint_it_says_what_needs_none(index: Index) -> None:
    assert GFMRetriever().channels == {"text"}, "it can be listed"
    with pytest.raises(ConfigError, match=r"gnn\.checkpoint=DIR.*gnnrag train gnn.*retriever=walk"):
        set_up(GFMRetriever(), index=index)
    with pytest.raises(ConfigError, match=r"gnn\.checkpoint"):
        assert GFMRetriever().reads
