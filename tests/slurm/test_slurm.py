"""Against a real SLURM: a grid in shards, killed and merged; a training, interrupted; a server of a language model."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import ROOT, Cluster, lines, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]
SAMPLE = "configs/evaluate/sample.yaml"
QUICK = ["index.embedder.model=hash", "index.text.language=blank:en", "data.limit=16"]  # starts in no time
FIT = [
    "trainer.max_steps=300",
    "trainer.per_device_train_batch_size=4",
    "trainer.eval_steps=150",
    "trainer.logging_steps=4",
    "trainer.save_steps=150",
]


def figures(run: Path) -> dict[str, Any]:
    """Return a run's metrics without what a clock decides."""
    metrics = json.loads((run / "metrics.json").read_text())
    return {key: value for key, value in metrics.items() if isinstance(value, float | int) and "seconds" not in key}


def test_a_grid_in_shards_survives_kills_and_equals_single_processes(cluster: Cluster) -> None:
    folder = cluster.folder / "grid"
    common = [*QUICK, f"index.root={folder / 'index'}"]
    grid = [SAMPLE, "method=single", "retriever=bm25,dense", *common, f"run.root={folder / 'runs'}", "--shards", "4"]
    assert [line.split(":")[0] for line in cluster.submit(*grid).splitlines()] == ["index", "evaluate", "merge"]

    first = wait_for(lambda: cluster.running("evaluate"), "a shard that runs", 400)
    cluster.run("scontrol", "requeue", first)  # as SLURM does when a node is lost
    killed = wait_for(lambda: cluster.running("evaluate"), "another one", 400)
    cluster.run("scancel", "--full", "--signal=KILL", killed)
    wait_for(lambda: cluster.restarts(first) == 1, "its second start")
    cluster.end()

    # The merge has answered what the killed shard left.
    assert cluster.submit(*grid) == ""
    runs = sorted(path.parent for path in (folder / "runs").glob("*/metrics.json"))
    assert len(runs) == 2
    for run in runs:
        retriever = "bm25" if "bm25" in run.name else "dense"
        own = ["method=single", f"retriever={retriever}", f"run.root={folder / 'whole'}", f"run.name={run.name}"]
        cluster.run(sys.executable, "inference/evaluate.py", SAMPLE, *common, *own)
        assert figures(run) == pytest.approx(figures(folder / "whole" / run.name))
        assert lines(run / "predictions.jsonl") == 16


def training_of(folder: Path, name: str) -> list[str]:
    places = [f"run.root={folder / 'runs'}", f"run.name={name}"]
    return ["configs/train/gnn_sample.yaml", f"sets.sample.index.path={folder / 'index'}", *places, *FIT]


def test_a_training_of_two_processes_is_interrupted_twice_and_ends_with_the_same_figures(cluster: Cluster) -> None:
    """By the time-limit signal first, then by a job that needs its place."""
    folder = cluster.folder / "train"
    cluster.run(sys.executable, "training/train_gnn.py", *training_of(folder, "whole"))
    cluster.submit(*training_of(folder, "cut"))
    run = folder / "runs" / "cut"
    id_ = wait_for(lambda: cluster.running("train"), "the training")
    wait_for(lambda: lines(run / "metrics.jsonl") >= 3, "steps before the signal", 400)
    with cluster.halted(id_):
        cluster.run("scancel", "--batch", "--signal=USR1", id_)  # as --signal=B:USR1@120 does before the limit
    wait_for(lambda: cluster.restarts(id_) == 1, "its second start")
    rows = lines(run / "metrics.jsonl")
    wait_for(lambda: lines(run / "metrics.jsonl") > rows + 1, "steps after the first start", 400)
    cluster.run("sbatch", "--partition=urgent", "--exclusive", "--mem=100M", "--output=/dev/null", "--wrap=true")
    wait_for(lambda: cluster.restarts(id_) == 2 or not cluster.jobs(), "its third start")
    cluster.end()
    assert cluster.restarts(id_) == 2
    whole, cut = (folder / "runs" / name for name in ("whole", "cut"))
    assert figures(cut) == pytest.approx(figures(whole), abs=1e-5)
    losses = [[json.loads(line) for line in (r / "metrics.jsonl").read_text().splitlines()] for r in (whole, cut)]
    assert [row["step"] for row in losses[0]] == [row["step"] for row in losses[1]]
    assert cluster.submit(*training_of(folder, "cut")) == ""


def test_a_server_says_where_it_is_and_comes_back_unless_a_person_cancels_it(cluster: Cluster) -> None:
    fake = f"{sys.executable} {Path(__file__).parent / 'fake_vllm.py'}"
    setup = cluster.folder / "setup.sh"
    setup.write_text(f"vllm={fake!r}\n")
    given = f"--export=ALL,GNNRAG_HOME={ROOT},GNNRAG_SETUP={setup},VLLM_API_KEY=key"
    log = cluster.folder / "server.log"
    command = ["sbatch", "--parsable", "--mem=100M", given, f"--output={log}", "slurm/vllm_server.sbatch", "some-model"]
    id_ = cluster.run(*command).strip()
    file = ROOT / "runs" / "servers" / id_

    def health() -> int:
        url = wait_for(lambda: file.exists() and file.read_text().strip(), "its address")
        port = url.rpartition(":")[2].partition("/")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as reply:
            return int(reply.status)

    assert health() == 200
    cluster.run("scancel", "--batch", "--signal=USR1", id_)
    wait_for(lambda: not file.exists(), "its leaving")
    wait_for(lambda: cluster.restarts(id_) == 1, "its return to the queue")
    assert health() == 200
    cluster.run("scancel", "--full", id_)
    cluster.end(100)
    assert not file.exists()


def test_ray_on_an_allocation_runs_a_command_that_survives_the_time_limit(cluster: Cluster) -> None:
    folder = cluster.folder / "ray"
    setup = folder / "setup.sh"
    folder.mkdir()
    setup.write_text(f"python={sys.executable}\n")
    common = [SAMPLE, "method=bdtr", "retriever=dense", "roles=offline", *QUICK, f"index.path={folder / 'index'}"]
    own = [f"run.root={folder}", "executor=ray", "executor.shards=4"]
    given = f"--export=ALL,GNNRAG_HOME={ROOT},GNNRAG_SETUP={setup},RAY_LOG={folder / 'ray.log'}"
    places = ["--cpus-per-task=2", "--mem=900M", given, f"--output={folder / 'job.log'}", "slurm/ray.sbatch"]
    id_ = cluster.run("sbatch", "--parsable", *places, "inference/evaluate.py", *common, *own, "run.name=ray").strip()
    shards = folder / "ray" / "shards"
    wait_for(lambda: any(lines(file) for file in shards.glob("*/predictions.jsonl")), "rows of a shard", 400)
    cluster.run("scancel", "--batch", "--signal=USR1", id_)
    wait_for(lambda: cluster.restarts(id_) == 1, "its second start")
    cluster.end()
    assert not Path(f"/tmp/ray-{id_}").exists(), (folder / "job.log").read_text()
    cluster.run(sys.executable, "inference/evaluate.py", *common, f"run.root={folder}", "run.name=whole")
    assert figures(folder / "ray") == pytest.approx(figures(folder / "whole"))
    assert lines(folder / "ray" / "predictions.jsonl") == 16 and len(list(shards.iterdir())) >= 4
