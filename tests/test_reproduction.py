"""A table of a paper on the sample corpus: rows run, are read again, and fail alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gnnrag.cli.console import run_script
from gnnrag.cli.reproduce import main, retitled, text
from gnnrag.cluster.grid import Point, evaluations
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError
from gnnrag.graphs.hierarchy import build_hierarchy
from gnnrag.llm.base import estimate_tokens
from gnnrag.registry import ROLES
from gnnrag.reports.papers import PaperTable, load_table
from gnnrag.reports.reproduction import measured, outline, reproduce, resolved
from gnnrag.reports.results import Result, as_json, cell, draw, lines, overlaps
from gnnrag.run.rundir import read_predictions
from gnnrag.text.analyse import analyse
from tests.helpers.indexes import HASH_DOTS, REPOSITORY
from tests.helpers.toy_tuned import REGISTERED, toy_training

TABLE = """
title: A small table
paper: nobody's
used: {reader: a model}
base: {data: {path: SAMPLE, limit: 6}}
models: {roles: prompted, llm.model: none}
grid: {retriever: [bm25, dense]}
rows:
  Original: {method: single}
  IRCOT: {method: ircot}
columns: [em, f1, recall@5, search_calls, seconds]
plot: {x: row, y: recall@5}
overlap: {rows: [bm25 / Original, bm25 / IRCOT], metric: f1, least: 0.8}
published: {scale: 100, metrics: [em], rows: {bm25: {Original: [40]}}}
note: Only a test.
"""


@pytest.fixture
def table(tmp_path: Path) -> PaperTable:
    path = tmp_path / "table.yaml"
    path.write_text(TABLE.replace("SAMPLE", str(REPOSITORY / "data/sample")))
    return load_table(path)


@pytest.fixture
def overrides(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    own = [
        "roles=offline",
        f"index.root={tmp_path_factory.getbasetemp() / 'reproduction-index'}",
        f"run.root={tmp_path / 'r'}",
    ]
    return [*own, *(dot for dot in HASH_DOTS if not dot.startswith("retriever"))]


@pytest.mark.slow
def test_rows_are_runs_and_are_read_again(table: PaperTable, overrides: list[str], tmp_path: Path) -> None:
    first = reproduce(table, overrides)
    assert [r.row.name for r in first] == ["bm25 / Original", "bm25 / IRCOT", "dense / Original", "dense / IRCOT"]
    assert all(r.is_done and r.questions == 6 and not r.failed for r in first)
    assert first[0].label == "single / bm25 / offline on sample dev" and (Path(first[0].run) / "metrics.json").is_file()
    metrics = json.loads((Path(first[0].run) / "metrics.json").read_text())
    assert first[0].values["recall@5"] == metrics["retrieval/recall@5"] and first[0].values["search_calls"] == 0
    assert first[0].row.published == {"em": 0.4}

    told: list[int] = []
    again = reproduce(table, overrides, on_start=lambda row, left: told.append(left), on_question=lambda p: 1 / 0)
    assert told == [0, 0, 0, 0] and again == first, "finished rows are read"
    check_overlap_figure_and_json(table, first, tmp_path)


@pytest.mark.slow
def test_recall_after_each_sub_query_is_what_the_metrics_say(tmp_path: Path, overrides: list[str]) -> None:
    path = tmp_path / "steps.yaml"
    columns = "columns: [semantic_recall, relational_recall, "
    path.write_text(TABLE.replace("SAMPLE", str(REPOSITORY / "data/sample")).replace("columns: [", columns))
    table = load_table(path)
    (done,) = reproduce(table, overrides, lambda row: row is table.rows[0])
    assert done.steps == {} and done.values["semantic_recall"] is None, "one query is no sub-query"
    metrics = json.loads((Path(done.run) / "metrics.json").read_text())
    steps = {"semantic": [0.2, 0.7], "relational": []}
    config = resolved(table, done.row, overrides)
    result = measured(table, done.row, config, Path(done.run), metrics | {"by_step": steps})
    assert result.steps == steps
    assert result.values["semantic_recall"] == 0.7 and result.values["relational_recall"] is None


@pytest.mark.slow
def test_an_interrupted_row_goes_on(table: PaperTable, overrides: list[str]) -> None:
    def chosen(row: object) -> bool:
        return row is table.rows[0]

    (done,) = reproduce(table, overrides, chosen)
    journal = Path(done.run) / "predictions.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:4]))
    told: list[int] = []
    (again,) = reproduce(table, overrides, chosen, on_start=lambda row, left: told.append(left))
    assert told == [2] and again.values["recall@5"] == done.values["recall@5"]


def test_a_row_that_fails_costs_no_other(
    table: PaperTable, overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnnrag.retrievers.bm25 import BM25Retriever

    monkeypatch.setattr(BM25Retriever, "setup", lambda self: 1 / 0)
    heard: list[str] = []
    results = reproduce(table, overrides, on_row=lambda r: heard.append(r.error))
    assert [bool(r.error) for r in results] == [True, True, False, False] == [bool(e) for e in heard]
    assert results[0].error == "ZeroDivisionError: division by zero" and not results[0].is_done
    assert overlaps(table, results) == {}, "half a pair says nothing"


def test_wrong_settings_stop_everything(table: PaperTable, overrides: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'data\.limits'"):
        reproduce(table, [*overrides, "data.limits=3"])
    assert not (tmp_path / "r").exists()


def check_overlap_figure_and_json(table: PaperTable, results: list[Result], tmp_path: Path) -> None:
    (shares,) = overlaps(table, results).values()
    assert list(shares) == ["both", "first only", "second only", "neither"] and sum(shares.values()) == pytest.approx(
        1, abs=1e-3
    )
    first, second = lines(table, results)
    assert first[0] == "bm25" and first[1] == ["Original", "IRCOT"] and all(map(math.isnan, first[3]))
    assert second[2] == [r.values["recall@5"] for r in results[2:]]
    draw(table, results, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    data = json.loads(as_json(table, results))
    assert data["rows"][0]["published"] == {"em": 0.4} and data["used"] == {"reader": "a model"}
    em = table.columns[0]
    assert cell(results[0], em).endswith("(0.400)") and cell(Result(table.rows[1]), em) == "-"


@pytest.mark.slow
def test_split_by_type(table: PaperTable, overrides: list[str], tmp_path: Path) -> None:
    path = tmp_path / "types.yaml"
    path.write_text(table.path.read_text().replace("plot:", "by: type\nplot:"))
    split = load_table(path)
    results = reproduce(split, overrides, lambda row: row is split.rows[0])
    assert results[0].row.name == "bm25 / Original" and len(results) > 1
    assert sum(r.questions for r in results[1:]) == 6 and all(": " in r.row.name for r in results[1:])


@pytest.mark.slow
def test_the_last_group_averages_what_is_finished(table: PaperTable, overrides: list[str], tmp_path: Path) -> None:
    path = tmp_path / "averages.yaml"
    more = "average: retriever\ncolumns: [index_prompt_tokens, index_completion_tokens, "
    published = "rows: {average: {Original: [30]}, bm25: "
    path.write_text(table.path.read_text().replace("columns: [", more).replace("rows: {bm25: ", published))
    averaged = load_table(path)
    *rows, first, second = reproduce(averaged, overrides)
    assert (first.row.name, second.row.name) == ("average / Original, 2 of 2", "average / IRCOT, 2 of 2")
    recalls = [r.values["recall@5"] for r in rows if r.row.labels[1] == "Original"]
    assert len(recalls) == 2 and first.values["recall@5"] == pytest.approx(sum(recalls) / 2)
    assert first.row.published == {"em": 0.3} and {r.values["index_prompt_tokens"] for r in rows} == {0}
    *_, alone = reproduce(averaged, overrides, lambda row: row.name == "dense / Original")
    assert alone.row.name == "average / Original, 1 of 2" and alone.row.published == {}, "the paper's is of both"
    assert alone.values["em"] == rows[2].values["em"] and alone.values["seconds"] == rows[2].values["seconds"]
    assert reproduce(averaged, overrides, lambda row: False) == []


@pytest.mark.slow
def test_counted_tables_ask_nothing(tmp_path: Path, overrides: list[str]) -> None:
    path = tmp_path / "counted.yaml"
    head = TABLE.partition("grid:")[0].replace("SAMPLE", str(REPOSITORY / "data/sample")) + "rows: {a: {}, b: {}}\n"
    edges = "[passages, sentences, phrases, passage_sentence_edges, sentence_phrase_edges]"
    data = load_dataset(REPOSITORY / "data/sample", limit=6)
    here = len(data.passages)
    rows = f"rows: {{a: [{here}, 1, 2, 3, 4], b: [{here + 1}, 1, 2, 3, 4]}}"
    path.write_text(f"{head}counts: hierarchy\ncolumns: {edges}\npublished: {{metrics: {edges}, {rows}}}")
    first, second = reproduce(load_table(path), [*overrides, f"index.root={tmp_path / 'i'}"])
    analysed = analyse(data.passages)
    graph = build_hierarchy(analysed)
    assert first.values == second.values and not first.error
    assert list(first.values.values())[:3] == [here, len(graph.sentences), len(graph.phrases)]
    pairs = {(i, s) for i, text in enumerate(analysed) for s in text.sentences}
    assert first.values["passage_sentence_edges"] == len(pairs)
    assert first.values["sentence_phrase_edges"] == len(graph.edges) - len(pairs)
    assert first.row.published["phrases"] == 2 and not second.row.published, "of another corpus"
    (folder,) = (tmp_path / "i").iterdir()
    assert folder.name.startswith("sample-") and first.label == "sample, phrases by blank:en"

    columns = "[corpus_tokens, questions, types, gold_passages, gold_triples]"
    path.write_text(
        f"{head}counts: questions\ncolumns: {columns}\npublished: {{metrics: [types], rows: {{a: ['x, y']}}}}"
    )
    table = load_table(path)
    counted, _ = reproduce(table, overrides)
    sizes = sorted({len(q.gold) for q in data.questions})
    assert counted.values["gold_passages"] == ", ".join(map(str, sizes)) and counted.questions == 6
    assert counted.values["corpus_tokens"] == sum(estimate_tokens(p.content) for p in data.passages)
    assert cell(counted, table.columns[2]) == f"{counted.values['types']} (x, y)" and not (tmp_path / "r").exists()
    assert "The published figures are of" in text(table, [counted], False)
    assert ["is counted" in one.missing for one in evaluations(path, Point((), ""))] == [True, True], "no job runs it"


# ------------------------------------------------------------------------------------------------------- the script
@pytest.mark.slow
def test_the_script(
    table: PaperTable, overrides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [str(table.path), *overrides, "--only", "bm25"]
    assert main([*call, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "bm25 / Original: single / bm25 / offline on sample dev",
        "bm25 / IRCOT: ircot / bm25 / offline on sample dev",
    ]
    assert not (tmp_path / "r").exists()
    assert main([*call, "--markdown", "--plot", str(tmp_path / "f.png")]) == 0
    out = capsys.readouterr().out
    title = next(line for line in out.splitlines() if line.startswith("A small table"))
    assert "[here with data.path" not in title and f"run.root={tmp_path}" not in title
    assert all(given in title for given in overrides if given.startswith(("roles", "index.embedder", "data.limit")))
    assert retitled(table, ["run.root=x"]) is table
    assert retitled(table, ["roles=offline", "verifier=R"]).title.endswith("[here with roles=offline verifier=R]")
    assert "| row | EM | F1 | Recall@5 |" in out and "(0.400) |" in out and "Only a test." in out
    assert "The paper used reader: a model." in out and "both " in out and (tmp_path / "f.png").is_file()
    assert main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][1]["name"] == "bm25 / IRCOT"


@pytest.mark.slow
def test_the_outline_tells_rows_apart(table: PaperTable, tmp_path: Path) -> None:
    path = tmp_path / "rows.yaml"
    five = "method.bgec: false, seed: 1, concurrency: 2, llm_cache: null, data.split: dev"
    path.write_text(
        table.path.read_text().partition("grid:")[0]
        + f"""rows:
  whole: {{method: bdtr, method.thought_passages: 2}}
  BGEC: {{method: bdtr, method.thought_passages: 2, method.max_rounds: 0, method.thoughts: fast}}
  many: {{method: bdtr, method.thought_passages: 2, {five}}}
  no part: {{method: bdtr, method.thought_passages: 2, missing: nobody wrote it}}
columns: [em]
"""
    )
    rows = load_table(path)
    label = "bdtr / dense / offline on sample dev"
    assert list(outline(rows, rows.rows, ["roles=offline", "retriever=dense", "method.max_rounds=1"])) == [
        f"whole: {label}",
        f"BGEC: {label}, method.thoughts=fast",
        f"many: {label}, method.bgec=false, seed=1, concurrency=2, llm_cache=null, and 1 more settings",
        "no part: nobody wrote it",
    ]
    (one,) = outline(rows, rows.rows[1:2], ["roles=offline", "retriever=dense"])
    assert one == f"BGEC: {label}, method.max_rounds=0, method.thoughts=fast"
    (one,) = outline(rows, rows.rows[1:2], ["roles=offline", "retriever=dense", "data.path=/no/such"])
    assert "data not here: /no/such" in one


@pytest.mark.slow
def test_the_script_shows_what_has_ended_and_answers_nothing(
    table: PaperTable, overrides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [str(table.path), *overrides, f"index.root={tmp_path / 'i'}"]
    assert main([*call, "--finished", "--only", "bm25 / O", "--json"]) == 0
    assert "its run has not ended" in json.loads(capsys.readouterr().out)["rows"][0]["error"]
    assert not (tmp_path / "r").exists() and not (tmp_path / "i").exists()
    assert main([*call, "--only", "bm25 / O", "--json"]) == 0
    (whole,) = json.loads(capsys.readouterr().out)["rows"]
    runs = sorted((tmp_path / "r").iterdir())
    assert main([*call, "--finished", "--only", "bm25", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["rows"]
    assert first == whole and "its run has not ended" in second["error"]
    assert sorted((tmp_path / "r").iterdir()) == runs
    (Path(whole["run"]) / "metrics.json").unlink()
    assert main([*call, "--finished", "--only", "bm25 / O", "--json"]) == 0
    assert "its run has not ended" in json.loads(capsys.readouterr().out)["rows"][0]["error"]
    assert run_script(main, [*call, "--finished", "verifier=runs/v"], "") == 2
    assert "trained parts (verifier=RUN)" in capsys.readouterr().err


def test_mistakes_on_the_command_line(table: PaperTable, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([], "give a table"),
        ([str(table.path), "--only", "nothing"], "no row has that in its name"),
        ([str(table.path), "data.limits=1", "--dry-run"], "unknown setting 'data.limits'"),
    ):
        assert run_script(main, arguments, "") == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_rows_with_trained_roles_are_cross_validated(
    table: PaperTable, overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROLES["reader"], "tuned", REGISTERED["reader"])
    ids = [q.id for q in load_dataset(REPOSITORY / "data/sample", limit=6).questions]
    trained = {"reader": toy_training(tmp_path / "reader", "reader", ids)}
    results = reproduce(table, overrides, lambda row: "bm25" in row.name, trained=trained)
    by = "bm25 / offline+reader.tuned on sample dev"
    assert [r.label for r in results] == [f"single / {by}", f"ircot / {by}"]
    assert all(r.is_done and r.questions == 6 and not r.failed for r in results)
    answers = {p.question_id: p.answer for p in read_predictions(results[0].run)}
    for fold in ("fold0", "fold1"):
        parts = json.loads((trained["reader"] / fold / "folds.json").read_text())["sample"]
        assert {id_ for id_, answer in answers.items() if answer == fold} == set(parts["report"])
    assert not any(r.trained_on for r in results)
    dots = [*overrides, "roles.reader=tuned", f"roles.reader.path={trained['reader'] / 'fold0'}"]
    seen = reproduce(table, dots, lambda row: row is table.rows[0])
    assert "roles.reader trained on" in seen[0].trained_on and "these questions: no result" in text(table, seen, False)
    (one,) = reproduce(table, overrides, lambda row: row is table.rows[0], trained={"reader": tmp_path})
    assert "is no training run" in one.error
