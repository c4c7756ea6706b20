"""DotRAG through the whole program on a small knowledge base: no model, no weights, only the stages it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnnrag.cli.app import run
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.kb import RELATIONS
from gnnrag.errors import DataError
from gnnrag.index.index import Index
from gnnrag.methods.dotrag import search
from gnnrag.run.evaluate import evaluate, needed_stages
from tests.helpers.indexes import REPOSITORY

KB = """Solaris|directed_by|Andrei T
Mirror|directed_by|Andrei T
Mirror|written_by|Arseny M
Stalker|directed_by|Andrei T
Stalker|starred_actors|Nina K
Mirror|starred_actors|Oleg J
Solaris|starred_actors|Donatas B
Solaris|release_year|1972
Mirror|release_year|1975
Stalker|release_year|1979
Other|release_year|1979
Other|directed_by|Vera L
Other|has_genre|Drama
"""
QUESTIONS = [
    ("1-a", "what movies did Nina K act in", "Nina K", ["Stalker"], "actor_to_movie"),
    ("2-a", "which movies share the director with Solaris", "Solaris", ["Mirror", "Stalker"],
     "movie_to_director_to_movie"),
    ("3-a", "when were the movies directed by the director of Solaris released", "Solaris", ["1975", "1979"],
     "movie_to_director_to_movie_to_year"),
]  # fmt: skip


@pytest.fixture
def dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(search, "MIN_COSINE", -1.0)  # the hash embedder knows no meaning
    folder = tmp_path / "films"
    folder.mkdir()
    (folder / "kb.txt").write_text(KB, "utf-8")
    keys = ("id", "question", "anchor", "answers", "type")
    rows = [json.dumps(dict(zip(keys, row, strict=True))) for row in QUESTIONS]
    (folder / "questions.dev.jsonl").write_text("".join(f"{row}\n" for row in rows), "utf-8")
    return [
        f"data.path={folder}", f"index.extract.path={folder / 'kb.txt'}", f"index.path={tmp_path / 'index'}",
        f"run.root={tmp_path / 'runs'}", "index.embedder.model=hash", "method.schema_file=null", "data.limit=null",
    ]  # fmt: skip


def load(dots: list[str], *more: str) -> Any:
    return load_config(EvaluateConfig, REPOSITORY / "configs/evaluate/metaqa_dotrag.yaml", [*dots, *more])


def answered(dots: list[str], *more: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run the questions; returns the rows and the metrics."""
    path, metrics = evaluate(load(dots, "roles.reader=oracle", *more))
    return [json.loads(line) for line in (path / "predictions.jsonl").read_text("utf-8").splitlines()], metrics


def test_a_knowledge_base_from_end_to_end(dots: list[str], tmp_path: Path) -> None:
    rows, metrics = answered(dots, "roles=oracle")
    assert not metrics["failed"]
    assert {row["question_id"]: set(row["nodes"]) for row in rows} == {row[0]: set(row[3]) for row in QUESTIONS}
    rows, metrics = answered(dots, "roles=offline")  # without a schema file nothing tells that "act" is starred_actors
    assert not metrics["failed"] and len(rows) == 3
    found = {row["question_id"]: set(row["nodes"]) for row in rows}
    assert {id_: found[id_] for id_ in ("2-a", "3-a")} == {r[0]: set(r[3]) for r in QUESTIONS[1:]}
    rows, metrics = answered(dots, "roles=oracle", "index.knowledge.resolve=true", f"index.path={tmp_path / 'other'}")
    assert not metrics["failed"] and {row["question_id"]: set(row["nodes"]) for row in rows} == {
        row[0]: set(row[3]) for row in QUESTIONS
    }, "no two names are variants of each other"
    stages = Index(Path(dict(dot.split("=", 1) for dot in dots)["index.path"])).fingerprint.keys()
    assert stages == {"lexical", "extraction", "knowledge", "knowledge_vectors"}


def test_vectors_of_passages_only_where_they_are_used(dots: list[str]) -> None:
    assert "embeddings" not in needed_stages(load(dots))
    assert "embeddings" in needed_stages(load(dots, "method.passage_score=cosine"))
    assert "hierarchy" in needed_stages(load(dots, "method=bdtr"))


def test_the_schema_of_an_index_is_drafted_and_read_back(dots: list[str], tmp_path: Path, capsys: Any) -> None:
    answered(dots)
    capsys.readouterr()
    assert run(["index", "draft-schema", str(tmp_path / "index")]) == 0
    text = capsys.readouterr().out
    assert "name: starred_actors\n  definition: ''" in text and "- name: movie" in text
    file = tmp_path / "schema.yaml"
    text = text.replace("name: starred_actors\n  definition: ''", "name: starred_actors\n  definition: act acted actor")
    file.write_text(text, "utf-8")
    rows, _ = answered(dots, f"method.schema_file={file}", "run.name=edited")
    assert next(r for r in rows if r["question_id"] == "1-a")["nodes"] == ["Stalker"]


def test_a_schema_may_name_more_than_the_graph_has(
    dots: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A corpus of some of the entities need not have every type; a file for another graph is still refused."""
    file = tmp_path / "schema.yaml"
    file.write_text("types: [{name: movie}, {name: person}, {name: rating}]\nrelations: [{name: starred_actors}]\n")
    rows, metrics = answered(dots, f"method.schema_file={file}", "run.name=more")
    assert not metrics["failed"] and {row["usage"]["flags"]["schema_lacks"] for row in rows} == {1}
    assert caplog.text.count("the graph has no rating; these are not offered") == 1
    file.write_text("types: [{name: planet}]\n")
    with pytest.raises(DataError, match="types: the graph has no 'planet'"):
        answered(dots, f"method.schema_file={file}", "run.name=other")


def test_the_schema_of_metaqa_names_what_its_knowledge_base_has() -> None:
    schema = yaml.safe_load((REPOSITORY / "configs/schemas/metaqa.yaml").read_text("utf-8"))
    assert {r["name"] for r in schema["relations"]} == set(RELATIONS)
    types = {"movie", *(r.tail_type for r in RELATIONS.values())}
    assert {t["name"] for t in schema["types"]} == types
