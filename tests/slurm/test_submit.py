"""`slurm/submit.py` without a cluster: grids, what is left, what is handed to `sbatch`, runs of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ConfigError, GnnragError
from slurm import submit

SAMPLE = "configs/evaluate/sample.yaml"


@pytest.mark.parametrize("overrides", [["a=1,"], ["a=1,1"], ["a=1", "a=2"]])
def test_a_value_that_is_empty_or_twice_is_refused(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match="twice"):
        submit.expand(overrides)


def test_the_last_key_changes_fastest() -> None:
    assert submit.expand(["a=1,2", "b=x", "c=3,4"]) == [
        ("a=1", "b=x", "c=3"), ("a=1", "b=x", "c=4"), ("a=2", "b=x", "c=3"), ("a=2", "b=x", "c=4"),
    ]  # fmt: skip
    assert submit.expand([]) == [()]


def tasks(*overrides: str, source: str = SAMPLE, shards: int = 1) -> list[submit.Task]:
    return list(submit.tasks_of(Path(source), submit.expand(list(overrides)), shards))


def test_each_point_is_a_run_of_its_own() -> None:
    found = tasks("method=single,bdtr", "retriever=bm25", "run.root=r")
    runs = {task.run for task in found}
    assert [task.kind for task in found] == ["index", "evaluate"] * 2
    assert len(runs) == 2 and {run.parent for run in runs if run} == {Path("r")}
    for task in found:
        if task.kind == "evaluate":
            assert {"run.root=r", f"run.name={task.run.name}"} <= set(task.command)  # type: ignore[union-attr]


def test_runs_that_differ_in_what_no_index_reads_share_its_build() -> None:
    assert len({task.command for task in tasks("seed=0,1") if task.kind == "index"}) == 1
    assert len({task.command for task in tasks("seed=0,1") if task.kind == "evaluate"}) == 2


def test_shards_are_merged() -> None:
    kinds = [task.kind for task in tasks(shards=3)]
    assert kinds == ["index", "evaluate", "evaluate", "evaluate", "merge"]
    *parts, merge = (task.command for task in tasks(shards=2)[1:])
    assert [part[-1] for part in parts] == ["shard=1/2", "shard=2/2"] and all(part[:-1] == merge for part in parts)


def test_a_misspelt_setting_is_refused_before_anything_waits() -> None:
    with pytest.raises(ConfigError, match="retreiver"):
        tasks("retreiver=dense")


def test_trainings_and_tables_are_known_by_what_their_files_say(tmp_path: Path) -> None:
    (training,) = tasks("seed=1", source="configs/train/gnn_sample.yaml")
    assert (training.kind, training.command[0]) == ("train", "training/train_gnn.py")
    (table,) = tasks(source="configs/papers/bdtr/table5.yaml")
    assert (table.kind, table.command[0], table.is_done) == ("table", "inference/reproduce.py", False)
    (tmp_path / "what_x.yaml").write_text("sets: {}")
    with pytest.raises(ConfigError, match="train_what"):
        tasks(source=str(tmp_path / "what_x.yaml"))


def test_metrics_say_that_a_run_or_a_shard_is_done(tmp_path: Path) -> None:
    _, first, second, merge = tasks(f"run.root={tmp_path}", "run.name=r", shards=2)
    (tmp_path / "r" / "shards" / "2-of-2").mkdir(parents=True)
    (tmp_path / "r" / "shards" / "2-of-2" / "metrics.json").write_text("{}")
    assert [task.is_done for task in (first, second, merge)] == [False, True, False]
    (tmp_path / "r" / "metrics.json").write_text("{}")
    assert all(task.is_done for task in (first, second, merge))


class FakeSlurm:
    """Takes the place of SLURM's commands; `queue` is what `squeue` prints."""

    def __init__(self, queue: str = "") -> None:
        self.queue, self.submitted = queue, list[list[str]]()

    def __call__(self, command: Any) -> str:
        if command[0] == "squeue":
            return self.queue
        self.submitted.append(list(command))
        return str(100 + len(self.submitted))


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["submit.py", *arguments])
    return submit.main()


def test_arrays_wait_for_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm()
    monkeypatch.setattr(submit, "call", slurm)
    site = "setup: module load x\nmax_running: 3\nsbatch: {all: [--account=me], index: [--mem=1G]}\n"
    (tmp_path / "site.yaml").write_text(site)
    arguments = [SAMPLE, "retriever=bm25,dense", f"run.root={tmp_path}", "--folder", str(tmp_path / "jobs")]
    assert run_main(monkeypatch, *arguments, "--shards", "2", "--site", str(tmp_path / "site.yaml")) == 0
    index, evaluate, merge = slurm.submitted
    assert "--array=1-2%1" in index and "--mem=1G" in index and not any("dependency" in word for word in index)
    assert "--array=1-4%3" in evaluate and "--dependency=afterok:101" in evaluate
    assert "--dependency=afterany:102" in merge and "--account=me" in merge
    assert len(Path(merge[-1]).read_text().splitlines()) == 2 and "shard=" not in Path(merge[-1]).read_text()
    assert (Path(merge[-1]).parent / "setup.sh").read_text() == "module load x"
    slurm.queue = f"{Path(merge[-1]).parent.name}-evaluate RUNNING"
    with pytest.raises(GnnragError, match="in the queue"):
        run_main(monkeypatch, *arguments, "--shards", "2")


def test_one_directory_for_several_runs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"run\.name"):
        run_main(monkeypatch, SAMPLE, "seed=1,2", "run.name=x", "--local")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_grid_runs_here_and_only_what_is_left_runs_again(tmp_path: Path) -> None:
    places = [f"run.root={tmp_path}", f"index.root={tmp_path}/i", "--folder", f"{tmp_path}/jobs"]
    settings = ["method=single", "retriever=bm25,dense", "data.limit=4", "index.embedder.model=hash"]
    command = [sys.executable, "slurm/submit.py", SAMPLE, *settings, *places, "--shards", "2", "--local", "--jobs", "2"]

    def call(*more: str) -> str:
        done = subprocess.run([*command, *more], cwd=submit.HOME, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert call().count("inference/evaluate.py") == 6
    runs = sorted(path.parent for path in tmp_path.glob("*/metrics.json"))
    assert [json.loads((run / "metrics.json").read_text())["questions"] for run in runs] == [4, 4]
    again = call()
    assert again.startswith(call("--status")) and again.count("done, 4 questions, 0 failed") == 2
    (runs[0] / "metrics.json").unlink()
    assert call().count("inference/evaluate.py") == 1, "the shards are done; only the merge is left"
