"""Trainings, cross-validated runs and builds of an index, as read back from what Weights & Biases wrote offline."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gnnrag.cli import index as index_script
from gnnrag.cli.console import run_script
from gnnrag.cluster import tracker as tracker_module
from gnnrag.cluster.tracker import Tracker, WandbRun
from gnnrag.cluster.tracking import flattened, send_checkpoint
from gnnrag.config import EvaluateConfig, RunConfig, load_config
from gnnrag.index.index import Index
from gnnrag.registry import ROLES
from gnnrag.reports.cross import cross_evaluate, read_part
from gnnrag.run.evaluation import load_questions_for
from tests.helpers.indexes import HASH_DOTS, REPOSITORY
from tests.helpers.toy_tuned import REGISTERED, toy_training
from tests.helpers.toy_verifier import make_encoder, make_rows, write_rows
from tests.helpers.wandb_offline import artifacts, exit_code, history, run_files, run_record, settings, summary, table
from training import train_gnn, train_verifier

SAMPLE = REPOSITORY / "data" / "sample"
VERIFIER = [
    "network.train_layers=1", "network.hidden=8", "network.max_tokens=32", "ranking.feature_steps=5",
    "ranking.max_pairs=4", "selecting.read=4", "folds.count=2", "folds.validation=0.5", "fit.steps=4",
    "fit.batch_size=2", "fit.eval_every=2", "fit.log_every=1", "run.tracking=offline", "run.group=grid",
]  # fmt: skip
GNN = [
    "sets.sample.index.embedder.model=hash", "sets.sample.index.text.language=blank:en", "sets.sample.data.limit=12",
    f"sets.sample.data.path={SAMPLE}", "gnn.dim=4", "gnn.layers=1", "prune.passages=12", "folds.count=2",
    "folds.validation=0.3", "fit.steps=4", "fit.batch_size=2", "fit.eval_every=2", "run.tracking=offline",
]  # fmt: skip


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def jsonl(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def same_curves(run: Path, file: Path) -> bool:
    """Whether the run's own rows of metrics, those of a step put together, are the rows that W&B has."""
    wanted: dict[int, dict[str, float]] = {}
    for row in jsonl(run / "metrics.jsonl"):
        mine = {k: v for k, v in row.items() if k.startswith(("train/", "validation/"))}
        if mine:
            wanted.setdefault(row["step"], {}).update(mine)
    found = {row["_step"]: {k: v for k, v in row.items() if k.startswith(("train/", "validation/"))}
             for row in history(file)}  # fmt: skip
    return wanted == found


def test_what_cannot_be_sent_fails_no_training_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: Path) -> str:
        raise OSError(f"{path.name}: stale file handle")

    monkeypatch.setattr(tracker_module, "content_digest", unreadable)
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "model.safetensors").write_bytes(b"1")
    notes: list[str] = []
    for tracking in ("off", "online"):
        config = RunConfig(tracking=tracking)
        plan = SimpleNamespace(settings={}, inputs={}, run=config, indexes=())
        tracker = Tracker(RunConfig(), tmp_path, WandbRun("train", "v"), pytest.fail)
        send_checkpoint(tracker, tmp_path, plan, {"toy": {"f1": 1.0}}, 4, notes.append)
    failed = "Weights & Biases failed (model.safetensors: stale file handle); the run directory has all of it"
    assert notes == [failed], "where nothing is sent, nothing is read"


def optimised(name: str) -> str:
    return str(yaml.safe_load((REPOSITORY / f"configs/sweeps/{name}.yaml").read_text("utf-8"))["metric"]["name"])


def inputs_of(file: Path) -> dict[str, Any]:
    return {row.name: row for row in artifacts(file) if row.use_after_commit}


@pytest.mark.slow
def test_the_curves_the_report_and_the_checkpoint_of_a_verifier(tmp_path: Path) -> None:
    make_encoder(tmp_path / "encoder")
    write_rows(tmp_path / "a.jsonl", make_rows(12, mined=1))
    places = [f"sets.toy.rows=[{tmp_path / 'a.jsonl'}]", f"run.root={tmp_path / 'runs'}", "run.name=v"]
    dots = [*VERIFIER, *places, f"network.base={tmp_path / 'encoder'}", "cross=true"]
    assert run_script(train_verifier.main, dots, "") == 0
    whole = tmp_path / "runs" / "v"
    for fold in ("fold0", "fold1"):
        (file,) = run_files(whole / fold)
        assert same_curves(whole / fold, file) and exit_code(file) == 0
        assert any(optimised("verifier") in row for row in history(file)), "what a sweep optimises is logged"
        expected = flattened(read(whole / fold / "metrics.json"))
        found = summary(file)
        assert expected and {name: found.get(name) for name in expected} == expected
        last = history(file)[-1]
        shown = table(file, last["tables/report"])
        assert [row[0] for row in shown["data"]] == ["toy"] and last["curves"]["_type"] == "image-file"
        (made,) = (row for row in artifacts(file) if row.type == "checkpoint")
        assert made.name == f"checkpoint-v-{fold}" and not made.use_after_commit
        assert {"model.safetensors", "README.md"} <= {one.path for one in made.manifest.contents}
        assert list(inputs_of(file)) == ["data-training-toy"]
        assert (run_record(file).run_group, run_record(file).display_name) == ("grid", f"v-{fold}")
        assert settings(file)["fold"] == int(fold[-1]) and settings(file)["inputs"]["toy"]
    (file,) = run_files(whole)
    expected, found = flattened(read(whole / "metrics.json")), summary(file)
    assert {name: found.get(name) for name in expected} == expected and run_record(file).job_type == "train"


@pytest.mark.slow
def test_a_network_is_made_from_an_index_and_a_checkpoint(tmp_path: Path) -> None:
    places = [
        f"sets.sample.index.path={tmp_path / 'index'}",
        f"run.root={tmp_path / 'runs'}",
        f"cache={tmp_path / 'c'}",
    ]
    assert run_script(train_gnn.main, [*GNN, *places, "run.name=a"], "") == 0
    start = f"start={tmp_path / 'runs' / 'a' / 'best'}"
    assert run_script(train_gnn.main, [*GNN, *places, start, "run.name=b", "fit.lr=1e-5"], "") == 0
    (first,), (second,) = (run_files(tmp_path / "runs" / name) for name in "ab")
    assert same_curves(tmp_path / "runs" / "a", first)
    assert any(optimised("gnn") in row for row in history(first)), "what a sweep optimises is logged"
    used = inputs_of(second)
    assert set(used) == {"data-sample", "index-index", "checkpoint-a"}
    (made,) = (row for row in artifacts(first) if row.name == "checkpoint-a")
    assert made.digest == used["checkpoint-a"].digest and made.aliases[0] in used["checkpoint-a"].aliases
    assert used["index-index"].digest == inputs_of(first)["index-index"].digest


@pytest.mark.slow
def test_the_builds_of_an_index_are_the_steps_of_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dots = [f"data.path={SAMPLE}", f"index.path={tmp_path / 'mine'}", f"run.root={tmp_path / 'runs'}", *HASH_DOTS]
    for stages in ("passages,text", "lexical", "lexical"):  # the last one builds nothing
        code = run_script(
            index_script.main, ["build", *dots, f"index.stages={stages}", "run.tracking=offline"], index_script.__doc__
        )
        assert code == 0
    assert "Biases" not in capsys.readouterr().err
    first, second = sorted(run_files(tmp_path / "runs" / "index-mine"), key=lambda file: file.stat().st_mtime)
    assert run_record(first).run_id == run_record(second).run_id and run_record(first).job_type == "index"
    assert [row["_step"] for file in (first, second) for row in history(file)] == [1, 2]
    manifest = read(tmp_path / "mine" / "manifest.json")["stages"]
    shown = table(second, history(second)[0]["tables/stages"])
    rows = {row[0]: dict(zip(shown["columns"], row, strict=True)) for row in shown["data"]}
    assert {name: row["built"] for name, row in rows.items()} == {name: name == "lexical" for name in manifest}
    assert (
        rows["passages"]["passages"] == manifest["passages"]["info"]["passages"] == summary(second)["passages/passages"]
    )
    (made,) = (row for row in artifacts(second) if row.type == "index")
    index = Index(tmp_path / "mine")
    path, _ = cross_evaluate(load_config(EvaluateConfig, None, [*dots, "method=single", "run.tracking=offline"]), [])
    grown = inputs_of(run_files(path)[0])["index-mine"]
    assert made.name == "index-mine" and not made.use_after_commit
    assert (made.digest == grown.digest) == (index.fingerprint == Index(tmp_path / "mine").fingerprint)


@pytest.mark.slow
def test_a_cross_validated_run_is_shown_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for role, target in REGISTERED.items():
        monkeypatch.setitem(ROLES[role], "tuned", target)
    dots = [f"data.path={SAMPLE}", "data.limit=12", "llm_cache=null", f"run.root={tmp_path / 'runs'}", *HASH_DOTS]
    config = load_config(EvaluateConfig, None, [*dots, f"index.root={tmp_path / 'indexes'}", "run.tracking=offline"])
    data = load_questions_for(config)
    part = read_part("verifier", toy_training(tmp_path / "v", "verifier", [q.id for q in data.questions], 2), data)
    path, metrics = cross_evaluate(config, [part])
    (file,) = tmp_path.rglob("run-*.wandb")
    assert file == run_files(path)[0], "of the groups of questions nothing is sent"
    expected, found = flattened(read(path / "metrics.json")), summary(file)
    assert metrics["questions"] == 12 and {name: found.get(name) for name in expected} == expected
    assert sum(row.type == "checkpoint" for row in artifacts(file)) == 2, "one of each fold"
