"""Mode `entity` on a corpus with triples: from training to the retriever, on a toy world of films."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.gnn.checkpoint import load_checkpoint
from gnnrag.index.index import Index
from gnnrag.parts import set_up
from gnnrag.retrievers.gfm import GFMRetriever
from gnnrag.types import Query

FILMS, PEOPLE, TOWNS = 24, 8, 4
SMALL = [
    *("gnn.mode=entity", "gnn.dim=8", "gnn.layers=3", "gnn.fusion=none", "gnn.node_text=false"),
    *(
        "folds.count=2",
        "folds.validation=0.2",
        "trainer.max_steps=24",
        "trainer.per_device_train_batch_size=4",
        "trainer.learning_rate=0.02",
        "trainer.eval_steps=24",
    ),
]


def make_world(folder: Path) -> list[str]:
    """Films with directors, who were born in towns. Questions join the two; their words are in no other passage."""
    rows = [(f"f{i}", f"Film{i:02}", "directed by", f"Person{i % PEOPLE}") for i in range(FILMS)]
    rows += [(f"p{i}", f"Person{i}", "was born in", f"Town{i % TOWNS}") for i in range(PEOPLE)]
    passages = [{"id": id_, "title": head, "text": f"{head} {link} {tail}."} for id_, head, link, tail in rows]
    passages += [{"id": f"n{i}", "title": "", "text": f"The director was born, note {i}."} for i in range(6)]
    triples = [{"id": id_, "triples": [row], "entities": []} for id_, *row in rows]
    questions = [
        {
            "id": f"q{i}",
            "question": f"Where was the director of Film{i:02} born?",
            "answers": [f"Town{i % PEOPLE % TOWNS}"],
            "gold": [f"f{i}", f"p{i % PEOPLE}"],
        }
        for i in range(FILMS)
    ]
    questions.append({"id": "q-none", "question": "Who wrote this note?", "answers": ["nobody"], "gold": ["n3"]})
    folder.mkdir(exist_ok=True)
    for name, held in (("corpus", passages), ("questions.dev", questions), ("triples", triples)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held))
    extract = [f"sets.toy.index.extract.{k}" for k in ("method=precomputed", f"path={folder / 'triples.jsonl'}")]
    return [f"sets.toy.data.path={folder}", "sets.toy.index.embedder.model=hash", *extract,
            "sets.toy.index.text.language=blank:en"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("entities")
    assert call(root, "idf", "ranker.name=idf") == 0
    return root


def call(folder: Path, name: str, *more: str) -> int:
    places = [f"sets.toy.index.path={folder / 'index'}", f"run.root={folder / 'runs'}"]
    return run(["train", "gnn", *SMALL, *make_world(folder / "data"), *places, f"run.name={name}", *more])


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("ranker", ["idf", "idf_topk"])
def test_passages_are_found_by_the_entities_that_support_them(folder: Path, ranker: str) -> None:
    if ranker != "idf":
        assert call(folder, ranker, f"ranker.name={ranker}", "ranker.top_k=3") == 0
    run = folder / "runs" / ranker
    rows = [json.loads(line) for line in (run / "report.jsonl").read_text().splitlines()]
    parts = read(run / "folds.json")["toy"]
    assert sorted(row["id"] for row in rows) == sorted(parts["report"])
    assert read(run / "metrics.json")["toy"]["recall@2"] > 0.8, "dense search has about half"
    checkpoint = load_checkpoint(run / "best")
    assert checkpoint.ranker is not None and checkpoint.ranker.name == ranker
    assert checkpoint.facts["fallback"] == "dense" and checkpoint.facts["neighbourhood"]["hops"] == 3
    index = Index(folder / "index")
    config = GFMRetriever(str(run))
    assert config.reads == ("message_graph", "relation_vectors", "embeddings")
    texts = {row["id"]: row["question"] for row in map(json.loads, (folder / "data/questions.dev.jsonl").open())}
    retriever = set_up(config, index=index)
    for row in rows:
        (ranking,) = retriever.retrieve([Query(texts[row["id"]], top_k=10)])
        assert list(ranking.ids) == [index.ids[p] for p in row["ranking"]], "training ranks as the retriever does"
        assert (ranking.branch == "dense_fallback") == (not row["has_start"])
