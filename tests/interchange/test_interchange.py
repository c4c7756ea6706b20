"""Files of other tools: their own programs read ours and measure the same; what is damaged is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import networkx as nx
import numpy as np
import pytest

from gnnrag import Index
from gnnrag.cli import app
from gnnrag.datasets.base import load_dataset
from gnnrag.interchange import to_networkx, write_graphml, write_trec
from gnnrag.metrics.retrieval import ndcg_at
from gnnrag.types import Prediction, Question
from tests.helpers.indexes import REPOSITORY

SETTINGS = {"index.embedder.model": "hash", "index.text.language": "blank:en"}
ODD = ("my file.txt#1", "100%", "a\tb", "é 1", "x")


def predicted(id_: str, ranking: tuple[str, ...], error: str | None = None) -> Prediction:
    return Prediction(id_, "", ranking, (), 0, {}, 0.0, error)


def test_ndcg_by_hand() -> None:
    assert ndcg_at(["a", "b"], {"a", "b"}, 10) == 1.0
    assert ndcg_at(["x", "a"], {"a"}, 10) == pytest.approx(1 / np.log2(3))
    assert ndcg_at(["x", "a", "b"], {"a", "b"}, 2) == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3)))
    assert ndcg_at(["x"], {"a"}, 1) == ndcg_at(["x"], set(), 1) == 0.0


def test_a_run_keeps_its_order_whatever_its_ids(tmp_path: Path) -> None:
    ir = pytest.importorskip("ir_measures")
    predictions = [predicted("q 1", (*ODD, "x")), predicted("q2", ("x",), "failed")]
    write_trec(tmp_path, predictions, [Question("q 1", "?", gold=("100%", "x")), Question("q2", "?")], "a tag")
    rows = sorted(ir.read_trec_run(str(tmp_path / "run.trec")), key=lambda row: -row.score)
    assert [unquote(row.doc_id) for row in rows] == list(ODD) and {row.query_id for row in rows} == {"q%201"}
    assert {(q.query_id, unquote(q.doc_id), q.relevance) for q in ir.read_trec_qrels(str(tmp_path / "qrels.trec"))} == {
        ("q%201", "100%", 1), ("q%201", "x", 1),
    }  # fmt: skip


def agree(run: Path, out: Path) -> None:
    """Compare Recall@k, MRR and nDCG@10 of a scored run with those of ir-measures on its exported files."""
    ir = pytest.importorskip("ir_measures")
    ours = json.loads((run / "metrics.json").read_text())
    measures = {ir.R @ k: f"retrieval/recall@{k}" for k in (1, 2, 5, 10, 20, 100)}
    measures |= {ir.RR: "retrieval/mrr", ir.nDCG @ 10: "retrieval/ndcg@10"}
    qrels = list(ir.read_trec_qrels(str(out / "qrels.trec")))
    theirs = ir.calc_aggregate(list(measures), qrels, list(ir.read_trec_run(str(out / "run.trec"))))
    rows = [json.loads(line) for line in (run / "scores.jsonl").read_text().splitlines()]
    for measure, name in measures.items():
        mean = np.mean([row[name] for row in rows if row["has_gold"]])  # metrics.json rounds to 4 digits
        assert abs(mean - theirs[measure]) < 1e-9, name
        assert abs(ours[name] - theirs[measure]) < 1e-4, name


def export(dots: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["evaluate", *dots, f"run.root={tmp_path / 'runs'}"]) == 0
    run = Path(capsys.readouterr().out.splitlines()[-1])
    assert app.run(["exchange", "trec", str(run), str(tmp_path / "out")]) == 0
    agree(run, tmp_path / "out")


def test_ir_measures_agrees_on_the_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = [f"data.path={REPOSITORY / 'data/sample'}", f"index.path={tmp_path / 'index'}", "index.embedder.model=hash"]
    for how in (["method=single", "retriever=bm25"], ["method=bdtr", "retriever=dense"]):
        export([*place, "index.text.language=blank:en", "data.limit=20", "roles=oracle", *how], tmp_path, capsys)


def test_a_beir_folder(tmp_path: Path) -> None:
    sample = REPOSITORY / "data/sample"
    assert app.run(["exchange", "beir", str(sample), str(tmp_path / "beir")]) == 0
    data = load_dataset(sample)
    corpus = [json.loads(line) for line in (tmp_path / "beir/corpus.jsonl").open()]
    assert corpus[0] == {"_id": data.passages[0].id, "title": data.passages[0].title, "text": data.passages[0].text}
    assert len(corpus) == len(data.passages)
    head, *rows = (tmp_path / "beir/qrels/dev.tsv").read_text().splitlines()
    assert head == "query-id\tcorpus-id\tscore"
    assert rows == [f"{q.id}\t{gold}\t1" for q in data.questions for gold in q.gold]
    queries = [json.loads(line) for line in (tmp_path / "beir/queries.jsonl").open()]
    assert {q["_id"]: q["metadata"]["answers"] for q in queries} == {q.id: list(q.answers) for q in data.questions}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "a.txt").write_text("Solaris was directed by Andrei Tarkovsky. Andrei Tarkovsky was born in Zavrazhye.")
    (papers / "b.txt").write_text("Andrei Tarkovsky died in Paris. Stalker was directed by Andrei Tarkovsky.")
    with Index.build(papers, tmp_path / "index", settings=SETTINGS, retriever="lightrag") as built:
        yield built


def test_the_graph_in_networkx_and_graphml(index: Index, tmp_path: Path) -> None:
    from gnnrag.index.index import Index as Stored

    stored = Stored(index.path)
    made = to_networkx(stored)
    assert "Andrei Tarkovsky" in made and made.number_of_edges() == stored.knowledge.num_relations > 0
    write_graphml(tmp_path / "graph.graphml", stored)
    read = nx.read_graphml(tmp_path / "graph.graphml", force_multigraph=True)
    assert set(read.nodes) == set(made.nodes) and read.number_of_edges() == made.number_of_edges()
    assert read.nodes["Andrei Tarkovsky"] == made.nodes["Andrei Tarkovsky"]
