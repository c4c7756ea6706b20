"""Against a real SLURM: a grid in shards, killed and merged; a training, interrupted; servers of language models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.slurm.cluster import ROOT, Cluster, lines, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]
SAMPLE = str(ROOT / "configs/evaluate/sample.yaml")
T = TypeVar("T")
TRAINING = str(ROOT / "configs/train/gnn_sample.yaml")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find(rows: list[dict[str, Any]], kind: str, *words: str) -> dict[str, Any]:
    (row,) = [r for r in rows if r["kind"] == kind and all(word in r["name"] for word in words)]
    return row


def statuses(rows: list[dict[str, Any]]) -> set[str]:
    return {row["status"] for row in rows}


def training_arguments(folder: Path, name: str) -> list[str]:
    own = [f"cache={folder / 'cache'}", f"run.root={folder / 'runs'}", f"run.name={name}"]
    index = f"sets.sample.index.path={folder / 'index'}"
    return [TRAINING, f"sets.sample.data.path={ROOT / 'data/sample'}", index, *own, *FIT]


FIT = ["fit.steps=300", "fit.batch_size=4", "fit.eval_every=150", "fit.log_every=4", "fit.save_every=150"]


def test_a_training_of_two_processes_is_interrupted_twice_and_ends_with_the_same_weights(cluster: Cluster) -> None:
    """By the time-limit signal first, then by a job that needs its place."""
    folder = cluster.folder / "train"
    undisturbed = training_arguments(folder, "undisturbed")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    cluster.environment["ACCELERATE_USE_CPU"] = "true"
    cluster.python(*launch, "training/train_gnn.py", *undisturbed)
    del cluster.environment["ACCELERATE_USE_CPU"]

    (row,) = cluster.submit("train", *training_arguments(folder, "interrupted"), signal_s=110)
    run, id_ = Path(row["run"]), cluster.id_of(row["name"])
    log = Path(row["folder"]) / "log.txt"
    wait_for(lambda: lines(run / "metrics.jsonl") >= 3, "steps before the signal", 400)
    with cluster.paused(id_, Path(row["folder"]) / "stop-0"):  # however fast it is, the signal comes in its middle
        # SLURM sends the signal 110 s before the limit, which is 60 to 120 s from now; it looks twice a minute.
        elapsed = cluster.run("squeue", "-h", "-j", id_, "-o", "%M").strip().split(":")
        minutes = int(elapsed[-2]) + 60 * int(elapsed[0] if len(elapsed) > 2 else 0)
        cluster.run("scontrol", "update", f"JobId={id_}", f"TimeLimit={minutes + 2}")
    wait_for(lambda: cluster.state(id_) == "PENDING", "the queue", 200)
    cluster.run("scontrol", "update", f"JobId={id_}", "TimeLimit=20")  # before it starts again, within seconds
    assert "queued again (start 1)" in log.read_text()
    stopped_at = lines(run / "metrics.jsonl")
    (row,) = cluster.submit("train", *training_arguments(folder, "interrupted"), signal_s=110)
    assert row["status"] in ("waiting", "running")
    assert cluster.id_of(row["name"]) == id_, "what is in the queue must not be submitted again"

    wait_for(lambda: lines(run / "metrics.jsonl") > stopped_at + 1, "steps after the first start", 400)
    with cluster.paused(id_, Path(row["folder"]) / "stop-0"):
        urgent = ("--partition=urgent", "--exclusive", "--mem=100M", "--output=/dev/null", "--wrap=true")
        other = cluster.run("sbatch", "--parsable", *urgent).strip()
    assert cluster.end(other) == "COMPLETED"
    assert "queued again (start 2)" in log.read_text()

    assert cluster.end(id_) == "COMPLETED"
    assert cluster.restarts(id_) == 2
    assert "2 process(es) each" in log.read_text()
    assert (run / "metrics.json").exists()
    same = digest(folder / "runs/undisturbed/best/model.safetensors")
    assert digest(run / "best/model.safetensors") == same
    (row,) = cluster.submit("train", *training_arguments(folder, "interrupted"), signal_s=110)
    assert (row["status"], row["left"]) == ("done", [])


async def with_slurm(cluster: Cluster, wait: Coroutine[Any, Any, T]) -> T:
    """Await something while SLURM's commands find their cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        return await wait


GRID = ["method=single,multihop", "retriever=bm25,dense"]
EMBEDDER = ["index.embedder.model=hash", "index.text.language=blank:en"]  # starts in no time
FILES = ("predictions.jsonl", "traces.jsonl", "scores.jsonl")


def timeless(value: Any) -> Any:
    """Return metrics without what a clock decides."""
    if not isinstance(value, dict):
        return value
    return {key: timeless(inner) for key, inner in value.items() if "seconds" not in key}


def test_a_grid_in_eight_shards_survives_kills_and_equals_single_processes(cluster: Cluster) -> None:
    folder = cluster.folder / "grid"
    common = [f"data.path={ROOT / 'data/sample'}", "data.limit=16", f"index.path={folder / 'index'}", *EMBEDDER]
    arguments = [SAMPLE, *GRID, f"run.root={folder / 'runs'}", *common, "--shards", "8"]
    rows = cluster.submit("grid", *arguments)
    assert [row["kind"] for row in rows] == ["index", *["evaluate", "merge"] * 4]
    assert statuses(rows) <= {"waiting", "running"}

    requeued, killed = (find(rows, "evaluate", *words)["name"] for words in (("single", "bm25"), ("single", "dense")))
    one = wait_for(lambda: running_task(cluster, requeued), "a task that runs", 300)
    cluster.run("scontrol", "requeue", one)  # as SLURM does when a node is lost
    two = wait_for(lambda: running_task(cluster, killed), "a second one", 400)
    cluster.run("scancel", "--full", "--signal=KILL", two)
    wait_for(lambda: cluster.restarts(one) == 1, "its second start")
    wait_for(lambda: not cluster.run("squeue", "-h", "-t", "PD,R,CG", "-o", "%i").strip(), "the end of the grid", 900)

    rows = cluster.submit("grid", *arguments, "--status", expect=1)
    shard = int(two.rpartition("_")[2])
    assert (find(rows, "evaluate", killed)["status"], find(rows, "evaluate", killed)["left"]) == ("failed", [shard])
    assert [row["status"] for row in rows if row["kind"] == "merge"].count("done") == 3
    submitted = cluster.submit("grid", *arguments)
    assert sum(row["status"] != "done" for row in submitted) == 2  # that shard's job and its merge, nothing else
    assert cluster.run("squeue", "-h", "-r", "-t", "PD,R,CG", "-o", "%i").count("\n") == 2
    cluster.end(cluster.id_of(find(rows, "merge", "single", "dense")["name"]))
    rows = cluster.submit("grid", *arguments)
    assert statuses(rows) == {"done"}
    assert not cluster.run("squeue", "-h", "-t", "PD,R,CG", "-o", "%i").strip()

    for method in ("single", "multihop"):
        for retriever in ("bm25", "dense"):
            merged = Path(find(rows, "merge", method, retriever)["run"])
            own = [f"method={method}", f"retriever={retriever}", f"run.root={folder / 'whole'}", *common]
            whole = Path(cluster.python("inference/evaluate.py", SAMPLE, *own).splitlines()[-1])
            assert merged.name == whole.name
            assert [digest(merged / name) for name in FILES] == [digest(whole / name) for name in FILES]
            metrics = [json.loads((run / "metrics.json").read_text()) for run in (merged, whole)]
            assert timeless(metrics[0]) == timeless(metrics[1])
            assert metrics[0]["questions"] == 16


def running_task(cluster: Cluster, job: str) -> str:
    """Return the number of a task of an array that runs, if any."""
    lines = cluster.run("squeue", "-h", "-r", "-t", "R", "-o", "%i|%j").splitlines()
    return next((id_ for id_, name in (line.split("|") for line in lines) if name == job), "")
