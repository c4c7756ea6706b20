"""WebQSP and CWQ as RoG releases them: what is read, and gfm, dotrag and tog_graph on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from gnnrag.cli.app import run as main
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import find_source, load_dataset, load_passages
from gnnrag.errors import DataError
from gnnrag.gnn import GNNConfig
from gnnrag.gnn.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from gnnrag.gnn.entity import EntityQuestions
from gnnrag.gnn.examples import EntitySet
from gnnrag.gnn.model import QueryGNN
from gnnrag.index.embedder import HashEmbedder, encoder_record
from gnnrag.index.index import Index
from gnnrag.methods.dotrag import search
from gnnrag.run.evaluate import evaluate
from tests.helpers.indexes import REPOSITORY

SIBLING, PARENT, BORN = "people.person.sibling_s", "people.person.parents", "people.person.place_of_birth"
BIEBER = [
    ["Justin Bieber", SIBLING, "m.0gxnnwq"], ["m.0gxnnwq", "people.sibling_relationship.sibling", "Jaxon Bieber"],
    ["Justin Bieber", PARENT, "Jeremy  Bieber"], ["Jaxon Bieber", PARENT, "Jeremy  Bieber"],
    ["Justin Bieber", BORN, "London"],
]  # fmt: skip
# Another question's graph shares an entity and a fact, and has more of both.
ONTARIO = [["London", "location.location.containedby", "Ontario"], ["Justin Bieber", BORN, "London"],
           ["Alice → Munro", "book.author.lives_in", "Ontario"]]  # fmt: skip
ROG = [
    {"id": "WebQTest-0", "question": "what is the name of justin bieber brother", "answer": ["Jaxon Bieber"],
     "q_entity": ["Justin Bieber"], "a_entity": ["Jaxon Bieber"], "graph": BIEBER, "choices": []},
    {"id": "WebQTest-1's", "question": "in which province is the city london", "answer": ["Ontario", "Canada"],
     "q_entity": ["London"], "a_entity": ["Ontario", "Canada"], "graph": ONTARIO, "choices": []},
]  # fmt: skip


def write_rog(folder: Path, form: str) -> Path:
    (folder / "data").mkdir(parents=True)
    if form == "jsonl":
        (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROG), "utf-8")
    else:  # two shards, as at Hugging Face
        for i, row in enumerate(ROG):
            parquet.write_table(pa.Table.from_pylist([row]), folder / "data" / f"test-0000{i}-of-00002.parquet")
    return folder


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_all_forms_give_the_same_questions_and_graphs(tmp_path: Path, form: str) -> None:
    data = load_dataset(write_rog(tmp_path / "webqsp", form), split="test")
    first, second = data.questions
    assert (first.id, first.text, first.answers) == ("WebQTest-0", ROG[0]["question"], ("Jaxon Bieber",))
    assert first.extra["nodes"] == ["Jaxon Bieber"] and first.seeds == ("Justin Bieber",)
    assert second.scope == "graph_id = 'WebQTest-1''s'" and second.answers == ("Ontario", "Canada")
    texts = {passage.id: passage.text for passage in data.passages}
    assert texts["WebQTest-0/Justin Bieber#1"].split("\n") == [
        f"Justin Bieber → {SIBLING} → m.0gxnnwq", f"Justin Bieber → {PARENT} → Jeremy Bieber",
        f"Justin Bieber → {BORN} → London",
    ]  # fmt: skip
    assert texts["WebQTest-1's/Alice -> Munro#1"] == "Alice -> Munro → book.author.lives_in → Ontario"
    assert len(texts) == 3 + 3 and data.nodes["WebQTest-0/Jaxon Bieber#1"] == ("Jaxon Bieber", "Jeremy Bieber")
    assert data.name == "webqsp-test", "its index is that of a split"
    few = load_dataset(tmp_path / "webqsp", split="test", limit=1)
    assert {passage.metadata["graph_id"] for passage in few.passages} == {"WebQTest-0"}, "the corpus is of those asked"


@pytest.mark.parametrize(
    ("file", "content"),
    [("a.jsonl", '{"q_entity": ["a"]}'), ("test.jsonl", "{broken"), ("test.jsonl", '{"q_entity": []}'),
     ("prices.parquet", ROG), ("test-0.parquet", [{"id": 1}]), ("test-1.parquet", "no table")],
)  # fmt: skip
def test_own_documents_stay_own_documents(tmp_path: Path, file: str, content: Any) -> None:
    (tmp_path / "notes.md").write_text("Lovelace wrote notes.")
    if isinstance(content, str):
        (tmp_path / file).write_text(content)
    else:
        parquet.write_table(pa.Table.from_pylist(content), tmp_path / file)
    assert find_source(tmp_path).layout == "folder"


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    folder = write_rog(tmp_path / "rog", "jsonl")
    with pytest.raises(DataError, match="split='dev'"):
        load_dataset(folder)
    with pytest.raises(
        DataError, match=r"graph for each question.*gnnrag evaluate configs/evaluate/kgqa\.yaml data\.path="
    ):
        load_passages(folder)
    (folder / "test.jsonl").write_text(json.dumps(ROG[0]) + "\n" + json.dumps(ROG[1] | {"graph": [["a", "b"]]}) + "\n")
    with pytest.raises(DataError, match=r"line 2.*no row of RoG"):
        load_dataset(folder, split="test")


SETTINGS = GNNConfig(
    mode="entity", dim=8, layers=3, fusion="none", node_text=False, seed_weight=False, delexicalise=True
)


def run(tmp_path: Path, *dots: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    folder, network = write_rog(tmp_path / "webqsp", "parquet"), tmp_path / "network"
    torch.manual_seed(0)
    model = QueryGNN(SETTINGS, HashEmbedder.dim)
    save_checkpoint(network, Checkpoint(model, None, encoder_record(HashEmbedder()), {"threshold": 0.5}))
    config = load_config(EvaluateConfig, REPOSITORY / "configs/evaluate/kgqa.yaml", [
        f"data.path={folder}", f"index.path={tmp_path / 'index'}", f"run.root={tmp_path / 'runs'}",
        "index.embedder.model=hash", *(dots or [f"gnn.checkpoint={network}"]),
    ])  # fmt: skip
    path, metrics = evaluate(config)
    rows = map(json.loads, (path / "predictions.jsonl").read_text("utf-8").splitlines())
    return {row["question_id"]: row for row in rows}, metrics


def test_gnn_rag_answers_within_the_graph_of_the_question(tmp_path: Path) -> None:
    rows, metrics = run(tmp_path)
    assert not metrics["failed"] and {"retrieval/hits@1", "retrieval/node_f1", "answer/list_f1"} <= metrics.keys()
    first, second = rows["WebQTest-0"], rows["WebQTest-1's"]
    assert first["nodes"] and set(first["nodes"]) <= {"m.0gxnnwq", "Jaxon Bieber", "Jeremy Bieber", "London"}
    assert set(second["nodes"]) <= {"Ontario", "Justin Bieber", "Alice -> Munro"}, "its seed is no candidate"
    assert all(id_.startswith("WebQTest-0/") for id_ in first["ranking"]) and not first["context"]
    (traces,) = (tmp_path / "runs").rglob("traces.jsonl")
    events = next(row["events"] for row in map(json.loads, traces.open()) if row["question_id"] == "WebQTest-0")
    notes = next(event["notes"] for event in events if event["event"] == "evidence")
    assert first["answer"] == "; ".join(first["nodes"]), "without a model the candidates are the answer"
    both = {f"Justin Bieber → {SIBLING} → m.0gxnnwq → people.sibling_relationship.sibling → Jaxon Bieber",
            f"Justin Bieber → {PARENT} → Jeremy Bieber ← {PARENT} ← Jaxon Bieber"}  # fmt: skip
    assert both in [set(note.split("\n")) for note in notes.split("\n\n")], "the shortest paths to a candidate"
    index = Index(tmp_path / "index")
    questions = load_dataset(tmp_path / "webqsp", split="test").questions
    example = EntitySet(questions, EntityQuestions(index, SETTINGS))[0]
    assert len(example.subgraph.source) == 2 * len(BIEBER), "the facts of its own graph, both ways"
    assert example.lost == 0 and example.targets.sum() == 1


@pytest.mark.parametrize("method", ["dotrag", "tog_graph"])
def test_other_methods_stay_in_the_graph_of_the_question(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MIN_COSINE", -1.0)  # the hash embedder knows no meaning
    rows, metrics = run(tmp_path, f"method={method}", "retriever=bm25")
    assert not metrics["failed"]
    for id_, row in rows.items():
        assert row["ranking"] and all(passage.startswith(f"{id_}/") for passage in row["ranking"])
    named = {name for row in ROG[0]["graph"] for name in (row[0], row[2])}  # type: ignore[index]
    assert {" ".join(name.split()) for name in named} >= set(rows["WebQTest-0"]["nodes"])


def test_own_columns_of_these_names_change_nothing(tmp_path: Path) -> None:
    passages = [{"id": f"p{i}", "text": f"{' '.join(fact)}."} for i, fact in enumerate(ONTARIO)]
    question = {"id": "q", "question": "Where was Justin Bieber born?", "answers": ["London"]}
    for method in ("single", "dotrag", "tog_graph"):
        found = []
        for own in ({}, {"scope": "graph_id = 'none'", "seeds": ["London"]}):
            for name, rows in (("corpus", passages), ("questions.dev", [question | own])):
                (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
            config = load_config(EvaluateConfig, None, [
                f"data.path={tmp_path}", f"index.root={tmp_path}", f"run.root={tmp_path}", "index.embedder.model=hash",
                "index.text.language=blank:en", f"method={method}", "retriever=bm25", "roles=offline",
            ])  # fmt: skip
            (row,) = map(json.loads, (evaluate(config)[0] / "predictions.jsonl").read_text("utf-8").splitlines())
            found.append([row[key] for key in ("answer", "ranking", "nodes", "error")])
        assert found[0] == found[1] and found[0][1] and not found[0][3]


def test_the_network_of_the_config_learns_on_a_release(tmp_path: Path) -> None:
    folder = write_rog(tmp_path / "webqsp", "jsonl")
    for split in ("train", "validation"):
        rows = [row | {"id": f"{split}-{row['id']}", "question": f"{row['question']} {split}"} for row in ROG]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    places = {"data.path": folder, "index.root": tmp_path / "indexes", "index.embedder.model": "hash"}
    sets = [f"sets.{split}.{key}={value}" for split in ("train", "validation") for key, value in places.items()]
    small = [
        "trainer.max_steps=1",
        "trainer.per_device_train_batch_size=1",
        "trainer.eval_steps=1",
        "gnn.dim=4",
        "folds.validation=0.5",
    ]
    out = [f"run.root={tmp_path}", "run.name=run"]
    assert main(["train", "gnn", str(REPOSITORY / "configs/train/gnn_kgqa.yaml"), *sets, *small, *out]) == 0
    assert load_checkpoint(tmp_path / "run" / "best").model.config.mode == "entity"
    assert {path.name for path in (tmp_path / "indexes").iterdir()} >= {"webqsp-train", "webqsp-validation"}
