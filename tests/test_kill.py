"""`kill -9` in an evaluation, an index build and a training: the same command goes on and ends as if undisturbed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
HASH = ["index.embedder.model=hash", "index.text.language=blank:en"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def finish(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def kill_when(arguments: list[str], is_time: Callable[[], bool], of: Callable[[], int] | None = None) -> None:
    """Start a command and kill it, or the process `of()`, as soon as `is_time`; fail where it ends before that."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not is_time():
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    if of is not None:
        os.kill(of(), signal.SIGKILL)
        assert process.wait(600) == 0
        return
    process.kill()
    assert process.wait() == -9


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def evaluate(root: Path) -> list[str]:
    dots = ["method=bdtr", "retriever=dense", "roles=offline", "data.path=data/sample", *HASH]
    return ["inference/evaluate.py", *dots, f"index.path={root}/index", f"run.root={root}", "run.name=run"]


def untimed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: untimed(inner) for name, inner in value.items() if "seconds" not in name}


def results(root: Path) -> tuple[list[Any], Any]:
    rows = [json.loads(line) for line in (root / "run/predictions.jsonl").read_text("utf-8").splitlines()]
    kept = [(row["question_id"], row["answer"], row["ranking"]) for row in rows]
    return kept, untimed(json.loads((root / "run/metrics.json").read_text("utf-8")))


@pytest.mark.parametrize("rows", [1, 40])
def test_an_evaluation_goes_on(tmp_path: Path, rows: int) -> None:
    finish(evaluate(tmp_path / "plain"))
    killed = tmp_path / "killed"
    kill_when(evaluate(killed), lambda: lines(killed / "run/predictions.jsonl") >= rows)
    with (killed / "run/predictions.jsonl").open("ab") as file:
        file.write(b'{"question_id": "torn')  # the row that was being written
    finish(evaluate(killed))
    assert results(killed) == results(tmp_path / "plain")


def writer(run: Path) -> int:
    """Return the process that has the predictions of a shard of this run open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            file = link.readlink()
            if file.name == "predictions.jsonl" and file.is_relative_to(run / "shards"):
                return int(link.parts[2])
    raise AssertionError("no worker writes a shard")


@pytest.mark.parametrize("name", ["processes", "ray"])
@pytest.mark.parametrize("killed", ["worker", "driver"])
def test_an_evaluation_by_workers_goes_on(
    tmp_path: Path, name: str, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "ray":
        pytest.importorskip("ray")
        monkeypatch.setitem(ENVIRONMENT, "RAY_ADDRESS", "local")
    finish(evaluate(tmp_path / "plain"))
    here = tmp_path / name
    command = [*evaluate(here), f"executor={name}", "executor.workers=2", "executor.shards=4"]
    run = here / "run"
    has_begun = lambda: sum(lines(file) for file in run.glob("shards/*/predictions.jsonl")) >= 3  # noqa: E731
    kill_when(command, has_begun, (lambda: writer(run)) if killed == "worker" else None)
    if killed == "driver":
        assert not (run / "metrics.json").exists()
        finish(command)
    assert results(here) == results(tmp_path / "plain")


@pytest.mark.parametrize("files", [1, 4, 8])
def test_an_index_build_goes_on(tmp_path: Path, files: int) -> None:
    finish(evaluate(tmp_path / "plain"))
    killed = tmp_path / "killed"
    build = ["inference/index.py", "build", f"index.path={killed}/index", "retriever=dense", "data.path=data/sample"]
    kill_when([*build, *HASH], lambda: sum(len(names) for *_, names in os.walk(killed)) >= files)
    finish([*build, *HASH])
    finish(evaluate(killed))
    assert results(killed) == results(tmp_path / "plain")


def test_a_training_goes_on(tmp_path: Path) -> None:
    train = ["training/train_gnn.py", "configs/train/gnn_sample.yaml", f"run.root={tmp_path}", "run.name=run"]
    train += [f"sets.sample.index.root={tmp_path}/indexes", "trainer.max_steps=60"]
    train += ["trainer.save_steps=5", "trainer.load_best_model_at_end=false"]
    kill_when(train, lambda: any("checkpoint-" in str(entries) for entries in os.walk(tmp_path / "run")))
    finish(train)
    assert list((tmp_path / "run").rglob("*.safetensors"))
