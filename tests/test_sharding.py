"""A run in shards gives the rows and figures of an undivided one."""

from __future__ import annotations

import json

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError
from gnnrag.run.evaluate import Observer, evaluate
from gnnrag.run.rundir import questions_of, read_predictions, read_shard, shards_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("shards")
    parts = ["method=single", "retriever=bm25", "roles=oracle"]
    base = [*parts, "data.limit=7", f"run.root={root}", f"index.root={root}/index"]

    def start(name, *more, observer=None):
        return evaluate(load_config(EvaluateConfig, None, [*base, f"run.name={name}", *more]), observer)

    return start


def figures(metrics):
    return {k: v for k, v in metrics.items() if k.startswith(("retrieval/", "answer/", "questions", "failed"))}


def test_shards_merge_into_the_rows_and_figures_of_one_run(run):
    whole, wanted = run("whole")
    for number in (2, 3, 1):
        path, counts = run("parts", f"shard={number}/3")
        assert counts["failed"] == 0 and (path / "metrics.json").is_file()
    merged, metrics = run("parts")
    rows = [[(p.question_id, p.answer, p.ranking) for p in read_predictions(one)] for one in (whole, merged)]
    assert rows[0] == rows[1] and figures(metrics) == figures(wanted)
    assert [folder.name for folder in shards_of(merged)] == ["1-of-3", "2-of-3", "3-of-3"]
    assert figures(run("parts")[1]) == figures(wanted)  # again changes nothing


@pytest.mark.slow
@pytest.mark.parametrize("name", ["processes", pytest.param("ray", marks=pytest.mark.timeout(600))])
def test_workers_give_the_rows_and_figures_of_one_process(run, name, monkeypatch, request):
    if name == "ray":
        ray = pytest.importorskip("ray")
        ray.shutdown()
        request.addfinalizer(ray.shutdown)
        monkeypatch.setenv("RAY_ADDRESS", "local")
    whole, wanted = run("alone")
    settings = ("executor.workers=2", "executor.shards=3")
    path, metrics = run(name, f"executor={name}", *settings)
    rows = [[(p.question_id, p.answer, p.ranking, p.usage) for p in read_predictions(one)] for one in (whole, path)]
    assert rows[0] == rows[1] and figures(metrics) == figures(wanted)
    assert [folder.name for folder in shards_of(path)] == ["1-of-3", "2-of-3", "3-of-3"]
    logged = (path / "log.jsonl").read_text().count('"predicted"')
    assert run(name, f"executor={name}") and run(name)  # nothing is left: no worker starts
    assert (path / "log.jsonl").read_text().count('"predicted"') == logged == 3


def test_workers_divide_as_before_and_tell_what_they_answer(run):
    path, _ = run("begun", "shard=2/4")
    asked = []
    observer = Observer(on_question=lambda prediction: asked.append(prediction.question_id), on_start=asked.append)
    path, _ = run("begun", "executor=processes", "executor.workers=1", observer=observer)
    assert [folder.name for folder in shards_of(path)] == [f"{number}-of-4" for number in range(1, 5)]
    assert asked[0] == 5 and sorted(asked[1:]) == sorted(
        p.question_id for n in (1, 3, 4) for p in read_predictions(path / "shards" / f"{n}-of-4")
    )


def test_an_undivided_run_answers_what_shards_have_left(run):
    run("torn", "shard=1/2")
    _, metrics = run("torn")
    assert metrics["questions"] == 7


def test_an_answer_replaces_a_failure(run):
    path, _ = run("failed", "shard=1/1")
    file = path / "predictions.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    other = path.with_name("1-of-2")
    other.mkdir()
    for name in ("meta.json", "log.jsonl", "config.yaml"):
        (other / name).write_text((path / name).read_text())
    (other / "predictions.jsonl").write_text(json.dumps({**rows[0], "error": "down", "answer": ""}) + "\n")
    _, metrics = run("failed")
    assert metrics["failed"] == 0


def test_a_shard_of_other_settings_is_refused(run):
    run("mixed", "shard=1/2")
    with pytest.raises(ConfigError, match=r"retriever\.name"):
        run("mixed", "retriever=dense", "index.embedder.model=hash")


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "-1/2"])
def test_what_is_no_shard(text):
    with pytest.raises(ConfigError, match="shard="):
        read_shard(text)


def test_every_question_is_in_one_shard():
    rows = list(range(11))
    parts = [questions_of(read_shard(f"{n}/4"), rows) for n in range(1, 5)]
    assert sorted(number for part in parts for number in part) == rows and questions_of(None, rows) == rows
