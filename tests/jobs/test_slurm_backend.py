"""What `sbatch` is told, and what is made of `squeue`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gnnrag.cluster.job import State
from gnnrag.cluster.slurm import SiteConfig, SizeConfig, SizesConfig, Slurm, array_tasks, call, ranges, read_queue
from gnnrag.errors import GnnragError
from tests.helpers.batches import NOTE, SKIP_FLAGS, batch
from tests.helpers.each import each
from tests.helpers.jobs import job

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "slurm").glob("*.sbatch"))


def test_ranges_and_ids() -> None:
    assert ranges([1, 2, 3, 7, 9, 10]) == "1-3,7,9-10"
    assert array_tasks("12") == (12, [0])
    assert array_tasks("12_3") == (12, [3])
    assert array_tasks("12_[3]") == (12, [3])
    assert array_tasks("12_[1-3,7,9-11%2]") == (12, [1, 2, 3, 7, 9, 10, 11])
    assert array_tasks("12_[1-9:4]") == (12, [1, 5, 9])
    for text in ("12_[1,3,5,...]", "12_[1,3,4...", "12_[1,3,", "12+1", ""):  # cut, or of another kind
        with pytest.raises(GnnragError, match="expected a form"):
            array_tasks(text)


def test_squeue_is_asked_for_whole_arrays(tmp_path: Path) -> None:
    tool = tmp_path / "squeue"
    tool.write_text('#!/bin/sh\necho "length $SLURM_BITSTR_LEN"\n')
    tool.chmod(0o755)
    assert call([str(tool)]) == "length 0\n"


def test_where_no_controller_answers_the_way_without_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("squeue", "sbatch"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho 'fatal: Could not establish a configuration source' >&2\nexit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(GnnragError) as told:
        read_queue({})
    assert str(told.value).splitlines()[0] == (
        "squeue refused: fatal: Could not establish a configuration source; where there is no cluster, --local runs "
        "the jobs on this machine"
    )
    with pytest.raises(GnnragError, match=r"sbatch refused: .* configuration source\n"):
        call(["sbatch"])
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(GnnragError, match="--local runs the jobs on this machine"):
        call(["sbatch"])


def test_the_queue_is_read_by_the_folder_of_a_job(tmp_path: Path) -> None:
    mine = f"gnnrag:{tmp_path / 'a'}"
    lines = [
        f"7_[3,47%2]|PENDING|JobArrayTaskLimit|{mine}",
        f"7_1|RUNNING|None|{mine}",
        f"7_2|COMPLETED|None|{mine}",
        f"5_1|FAILED|NonZeroExitCode|{mine}",  # an earlier submission of it
        f"5_5|OUT_OF_MEMORY|OutOfMemory|{mine}",
        f"5_6|RUNNING|None|{mine}",
        f"9|PENDING|DependencyNeverSatisfied|gnnrag:{tmp_path / 'b'}",
        "8|RUNNING|None|gnnrag:/elsewhere/a",
        "10|RUNNING|None|(null)",
    ]
    found = read_queue({"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}, lambda command: "\n".join(lines))
    assert found.tasks == {
        ("a", 1): "running", ("a", 3): "waiting", ("a", 47): "waiting", ("a", 5): "out of memory", ("a", 6): "running",
        ("b", 0): "cancelled: DependencyNeverSatisfied",
    }  # fmt: skip
    assert found.live == {"a": {"7_3": "waiting", "7_47": "waiting", "7_1": "running", "5_6": "running"}}


class Cluster:
    """Notes what it is told; `scontrol update` of the ids in `refused` fails, and `squeue` says `state` of them."""

    def __init__(self, refused: Sequence[str] = (), state: str = "CANCELLED|DependencyNeverSatisfied") -> None:
        self.refused, self.state = refused, state
        self.calls: list[str] = []
        self.number = 100

    def __call__(self, command: Sequence[str]) -> str:
        self.calls.append(" ".join(command))
        if command[0] == "scontrol" and command[2].partition("=")[2] in self.refused:
            raise GnnragError("Job is no longer pending execution")
        if command[0] == "squeue":
            return f"{self.state}\n"
        self.number += command[0] == "sbatch"
        return f"{self.number};cluster\n"


def test_only_what_is_left_is_submitted_after_what_is_there(tmp_path: Path) -> None:
    index = job(tmp_path, "index", kind="index", alone="gnnrag-index")
    parts = job(tmp_path, "parts", kind="evaluate", tasks=8, needs=("index",))
    merge = job(tmp_path, "merge", needs=("parts",))
    report = job(tmp_path, "report", kind="report", needs=("merge",), ends_anyway=True)
    gone = job(tmp_path, "gone", missing="data not here")
    states = [State(index, "running"), State(parts, "failed", (2, 3, 7)), State(merge, "to do", (0,)),
              State(report, "to do", (0,)), State(gone, "missing")]  # fmt: skip
    cluster = Cluster()
    size = SizesConfig(evaluate=SizeConfig(time="30", mem="500M"))
    slurm = Slurm(SiteConfig(max_running=4, jobs=size), ROOT, cluster)
    live = {"index": {"42": "running"}, "parts": {"43_4": "running", "41_8": "waiting"}}
    assert slurm.submit(states, live) == {"parts": "101", "merge": "102", "report": "103"}
    one, two, three = cluster.calls
    folder = tmp_path / "jobs/parts"
    for flag in (
        *("--array=2-3,7%4", "--dependency=afterok:42", "--time=30", "--mem=500M", "--requeue", "--signal=B:USR1@120"),
        *(f"--output={folder}/log-%a.txt", f"GNNRAG_SETUP={folder}/setup.sh", "GNNRAG_SHARDS=8", f"GNNRAG_HOME={ROOT}"),
        *("--kill-on-invalid-dep=yes", f"--comment=gnnrag:{folder}"),
    ):
        assert flag in one
    assert "--dependency=afterok:43_4:41_8:101 " in two  # tasks that still run, and those that were submitted again
    assert "--array" not in two
    assert "--dependency=afterany:102" in three
    assert (folder / "setup.sh").is_file()
    assert (folder / "job.json").is_file()
    alone = slurm.command(index, [0], [])
    assert "--dependency=singleton" in alone
    assert "--job-name=gnnrag-index" in alone


def test_what_waits_for_tasks_that_were_submitted_again_waits_for_the_new_ones(tmp_path: Path) -> None:
    parts = job(tmp_path, "parts", kind="evaluate", tasks=3)
    merge = job(tmp_path, "merge", needs=("parts",))
    report = job(tmp_path, "report", kind="report", needs=("merge",), ends_anyway=True, alone="one")
    states = [State(parts, "running", (2,)), State(merge, "waiting"), State(report, "waiting")]
    live = {"parts": {"7_1": "running"}, "merge": {"8": "waiting"}, "report": {"9": "waiting"}}
    cluster = Cluster()
    assert Slurm(SiteConfig(), ROOT, cluster).submit(states, live) == {"parts": "101"}
    assert cluster.calls[1:] == ["scontrol update JobId=8 Dependency=afterok:7_1:101"]

    # SLURM has just ended the merge, as what it waited for had failed: another one, for which the report waits.
    cluster = Cluster(refused=["8"])
    assert Slurm(SiteConfig(), ROOT, cluster).submit(states, live) == {"parts": "101", "merge": "102"}
    assert "--dependency=afterok:7_1:101 " in cluster.calls[3]
    assert cluster.calls[4] == "scontrol update JobId=9 Dependency=afterany:102,singleton"

    cluster = Cluster(refused=["8"], state="PENDING|DependencyNeverSatisfied")
    assert Slurm(SiteConfig(), ROOT, cluster).submit(states, live) == {"parts": "101", "merge": "102"}

    for state in ("RUNNING|None", "CONFIGURING|None"):  # it begins
        cluster = Cluster(refused=["8"], state=state)
        assert Slurm(SiteConfig(), ROOT, cluster).submit(states, live) == {"parts": "101"}

    cluster = Cluster(refused=["8"], state="PENDING|Dependency")  # a controller that is too busy to reply
    with pytest.raises(GnnragError, match="job 8 still waits for what failed"):
        Slurm(SiteConfig(), ROOT, cluster).submit(states, live)
    assert len(cluster.calls) == 3, "it is not submitted a second time"

    cluster = Cluster()  # nothing was submitted again: nothing is touched
    assert Slurm(SiteConfig(), ROOT, cluster).submit([State(parts, "running"), *states[1:]], live) == {}
    assert cluster.calls == []


# ------------------------------------------------------------------------------------------------- batch scripts
@each("path", [*SCRIPTS, ROOT / "slurm/common.sh"])
def test_batch_scripts_are_bash(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", "-s", "bash", str(path)], check=True, cwd=ROOT)


@each(
    "name, environment, runs",
    [
        ("index.sbatch", {}, "python inference/index.py build a b=1"),
        ("evaluate.sbatch", {}, "python inference/evaluate.py a b=1"),
        (
            "evaluate.sbatch",
            {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_JOB_ID": "6", "GNNRAG_SHARDS": "8"},
            "python inference/evaluate.py a b=1 shard=3/8",
        ),
        ("merge.sbatch", {}, "python inference/evaluate.py a b=1 shard=merge"),
        ("report.sbatch", {}, "python inference/reproduce.py a b=1"),
    ],
)
def test_a_batch_script_starts_its_script_and_writes_down_how_it_ended(
    tmp_path: Path, name: str, environment: dict[str, str], runs: str
) -> None:
    done = batch(tmp_path, name, ["a", "b=1"], NOTE, **environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ran").read_text().splitlines() == [runs]
    task = environment.get("SLURM_ARRAY_TASK_ID", "0")
    assert (tmp_path / "job" / f"ended-{task}").read_text() == "0 done\n"
    assert (tmp_path / "job" / f"started-{task}").exists()


def test_a_failure_is_no_reason_to_go_back_into_the_queue(tmp_path: Path) -> None:
    done = batch(tmp_path, "index.sbatch", ["a"], "exit 2")
    assert done.returncode == 2
    assert (tmp_path / "job/ended-0").read_text() == "2 failed\n"
    assert not (tmp_path / "requeued").exists()


def test_what_was_stopped_goes_back_into_the_queue_but_not_for_ever(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/job.json").write_text("{}")
    stuck = 'case "$1" in slurm/progress.py) echo 5 ;; *) exit 75 ;; esac'
    array = {"SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": "2", "GNNRAG_SHARDS": "4"}
    for start in ("0", "1"):
        done = batch(tmp_path, "evaluate.sbatch", ["a"], stuck, SLURM_RESTART_COUNT=start, **array)
        assert done.returncode == 75
        assert (tmp_path / "job/ended-2").read_text() == "75 queued again\n"
    assert (tmp_path / "requeued").read_text() == "requeue 6_2\nrequeue 6_2\n"
    done = batch(tmp_path, "evaluate.sbatch", ["a"], stuck, SLURM_RESTART_COUNT="2", **array)
    assert done.returncode == 1
    assert (tmp_path / "job/ended-2").read_text() == "1 no progress between two starts\n"
    moving = f'case "$1" in slurm/progress.py) echo $RANDOM$RANDOM ;; *) exit 75 ;; esac; {NOTE}'
    done = batch(tmp_path, "evaluate.sbatch", ["a"], moving, SLURM_RESTART_COUNT="49", **array)
    assert done.returncode == 75
    done = batch(tmp_path, "evaluate.sbatch", ["a"], moving, SLURM_RESTART_COUNT="50", **array)
    assert (done.returncode, "started 51 times" in done.stderr) == (1, True)
    assert (tmp_path / "job/ended-2").read_text() == "1 stopped after too many starts\n"


def test_the_site_says_how_often_a_job_is_started(tmp_path: Path) -> None:
    """Here of a job that submit.py does not know, of which nobody can tell how far it is."""
    for start, code in (("0", 75), ("1", 75), ("2", 1)):
        restarts = {"SLURM_RESTART_COUNT": start, "GNNRAG_MAX_RESTARTS": "2"}
        assert batch(tmp_path, "index.sbatch", ["a"], "exit 75", **restarts).returncode == code
    assert (tmp_path / "requeued").read_text() == "requeue 7\n" * 2
    assert (tmp_path / "job/ended-0").read_text() == "1 stopped after too many starts\n"


@each("name", ["merge.sbatch", "report.sbatch"])
def test_what_begins_anew_with_every_start_gets_nowhere_when_it_is_stopped(tmp_path: Path, name: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/job.json").write_text("{}")
    silent = 'case "$1" in slurm/progress.py) echo ;; *) exit 75 ;; esac'
    assert [batch(tmp_path, name, ["a"], silent).returncode for _ in range(3)] == [75, 75, 1]
    assert (tmp_path / "job/ended-0").read_text() == "1 no progress between two starts\n"


def test_progress_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/job.json").write_text("{}")
    broken = 'case "$1" in slurm/progress.py) echo "no package" >&2; exit 1 ;; *) exit 75 ;; esac'
    for _ in range(4):
        done = batch(tmp_path, "index.sbatch", ["a"], broken)
        assert (done.returncode, "no package" in done.stderr) == (75, True)


def test_progress_is_asked_where_the_jobs_python_is(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/job.json").write_text("{}")
    inside = '[ -n "${INSIDE:-}" ] || exit 9; case "$1" in slurm/progress.py) echo 5 ;; *) exit 75 ;; esac'
    step = {"srun": f'{SKIP_FLAGS}; INSIDE=1 "$@"'}
    flags = {"FLAGS": "--container-image=x"}
    codes = [batch(tmp_path, "index.sbatch", ["a"], inside, step, **flags).returncode for _ in range(3)]
    assert codes == [75, 75, 1]
    assert (tmp_path / "job/progress-0").read_text() == "5\n"


@each(
    "state, comes_back",
    [
        ("RUNNING Reason=None", True),
        ("COMPLETING Reason=TimeLimit", True),
        ("COMPLETING Reason=None", False),  # what `scontrol` shows of a job that is being cancelled
        ("CANCELLED Reason=None", False),
    ],
)
def test_what_a_person_cancels_does_not_come_back(tmp_path: Path, state: str, comes_back: bool) -> None:
    done = batch(tmp_path, "index.sbatch", ["a"], "exit 75", STATE=state)
    assert done.returncode == (75 if comes_back else 143)
    assert (tmp_path / "job/ended-0").read_text() == ("75 queued again\n" if comes_back else "75 ended by SLURM\n")
    assert (tmp_path / "requeued").exists() == comes_back


def test_a_training_on_two_nodes_meets_on_the_first(tmp_path: Path) -> None:
    environment = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_GPUS_ON_NODE": "4",
                   "SLURM_CPUS_PER_TASK": "8"}  # fmt: skip
    arguments = [str(ROOT / "training/train_gnn.py"), "c.yaml", "seed=1"]
    assert batch(tmp_path, "train.sbatch", arguments, NOTE, **environment).returncode == 0
    (ran,) = (tmp_path / "ran").read_text().splitlines()
    assert ran.startswith("srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 ")
    for part in (
        "--nnodes 2 --nproc_per_node 4",
        "--rdzv_backend static --rdzv_id 7-0 --master_addr node1 --master_port 20007 --node_rank",
        "c.yaml seed=1",
    ):
        assert part in ran
    (tmp_path / "ran").unlink()
    assert batch(tmp_path, "train.sbatch", arguments, NOTE, GNNRAG_LAUNCHER="accelerate", **environment).returncode == 0
    ran = (tmp_path / "ran").read_text()
    for part in ("--num_machines 2 --num_processes 8", "--main_process_ip node1", "--multi_gpu"):
        assert part in ran


@each(
    "arguments, launcher, says",
    [(["training/train_gnn.py", "c.yaml"], "accelerate", "single process"), (["missing.py"], "torchrun", "usage:")],
)
def test_a_training_that_cannot_start_is_written_down_as_failed(
    tmp_path: Path, arguments: list[str], launcher: str, says: str
) -> None:
    done = batch(tmp_path, "train.sbatch", arguments, NOTE, GNNRAG_LAUNCHER=launcher)
    assert (done.returncode, says in done.stderr) == (2, True)
    assert (tmp_path / "job/ended-0").read_text() == "2 failed\n"


def test_a_server_without_a_model_is_written_down_as_failed(tmp_path: Path) -> None:
    assert batch(tmp_path, "vllm_server.sbatch", [], NOTE).returncode == 2
    assert (tmp_path / "job/ended-0").read_text() == "2 failed\n"


@pytest.mark.slurm
def test_slurm_takes_the_batch_scripts(tmp_path: Path) -> None:
    from tests.slurm.local_slurm import LocalSlurm, why_not

    if problem := why_not():
        pytest.skip(problem)
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="gnnrag-slurm-"))
    folder.chmod(0o755)
    slurm = LocalSlurm(folder)
    try:
        environment = {**os.environ, **slurm.start()}
        for path in SCRIPTS:
            ask = ["sbatch", "--test-only", "--mem=100M", str(path)]
            subprocess.run(ask, env=environment, check=True, cwd=tmp_path)
    finally:
        slurm.stop()
        shutil.rmtree(folder, ignore_errors=True)
