"""The launchers' commands of `train.sbatch`, run: "nodes" are groups of processes of this machine, on its CPU."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.batches import FAKES, batch
from tests.helpers.each import each

pytestmark = pytest.mark.slow
LAUNCHERS = ("torchrun", "accelerate")
NODES = {
    "scontrol": FAKES["scontrol"].replace("node1\\nnode2", "127.0.0.1\\n127.0.0.1"),
    "srun": """
while [[ "$1" == --* ]]; do case "$1" in --nodes=*) nodes="${1#*=}" ;; esac; shift; done
for ((node = 0; node < nodes; node++)); do SLURM_NODEID="$node" "$@" & pids+=($!); done
rc=0; for pid in "${pids[@]}"; do wait "$pid" || rc=$?; done; exit "$rc" """,
}
TRAINING = """
import json, os, pathlib, sys
import torch
from accelerate import Accelerator

from gnnrag.training.base import shut_down

accelerator = Accelerator(cpu=True)
met = accelerator.gather(torch.tensor([int(sys.argv[1])])).tolist()
told = {"node": int(os.environ["SLURM_NODEID"]), "group": int(os.environ["GROUP_RANK"]), "met": met,
        "port": os.environ["MASTER_PORT"]}
path = pathlib.Path(os.environ["OUT"], f"rank-{accelerator.process_index}.json")
path.write_text(json.dumps(told))
shut_down(accelerator)
"""


def train(folder: Path, launcher: str, job: int, nodes: int, processes: int) -> list[dict[str, Any]]:
    """Run a job; returns what each of its processes saw, by rank."""
    folder.mkdir()
    (folder / "training.py").write_text(TRAINING)
    environment = {"SLURM_JOB_ID": str(job), "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": "x",
                   "SLURM_GPUS_ON_NODE": str(processes if launcher == "accelerate" else 0), "OMP_NUM_THREADS": "1",
                   "GNNRAG_PROCESSES": str(processes), "GNNRAG_LAUNCHER": launcher}  # fmt: skip
    arguments = [str(folder / "training.py"), str(job)]
    done = batch(folder, "train.sbatch", arguments, f'exec {sys.executable} "$@"', NODES, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.json"))]


@each("launcher", LAUNCHERS)
def test_two_nodes_meet_and_have_the_numbers_that_slurm_gives_them(tmp_path: Path, launcher: str) -> None:
    port = str(20000 + 9107)
    assert train(tmp_path / "job7", launcher, 9107, nodes=2, processes=1) == [
        {"node": node, "group": node, "met": [9107, 9107], "port": port} for node in (0, 1)
    ]


@each("launcher", LAUNCHERS)
def test_two_trainings_on_a_node_do_not_meet(tmp_path: Path, launcher: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda job: train(tmp_path / f"job{job}", launcher, job, 1, 2), (9108, 9109)))
    for job, told in zip((9108, 9109), ended, strict=True):
        assert told == [{"node": 0, "group": 0, "met": [job, job], "port": str(20000 + job)}] * 2


def test_accelerate_starts_a_single_process_too(tmp_path: Path) -> None:
    """It refuses `--multi_gpu` for one."""
    note = "import os; open(os.environ['OUT'] + '/ran', 'w').write(os.environ['SLURM_NODEID'])"
    (tmp_path / "one.py").write_text(note)
    gpu = {"SLURM_GPUS_ON_NODE": "1", "GNNRAG_LAUNCHER": "accelerate"}
    done = batch(tmp_path, "train.sbatch", [str(tmp_path / "one.py")], f'exec {sys.executable} "$@"', NODES, **gpu)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "ran").read_text() == "0"
