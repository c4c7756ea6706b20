"""`slurm/submit.py` as a person calls it, without SLURM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.common.files import exclusive_lock
from gnnrag.errors import ConfigError, GnnragError
from slurm.progress import main as show_progress
from slurm.submit import main
from tests.helpers.each import each
from tests.helpers.jobs import leave_run

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "configs/evaluate/sample.yaml"


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def settings(folder: Path, *more: str) -> list[str]:
    return [
        SAMPLE,
        f"run.root={folder / 'runs'}",
        f"index.root={folder / 'i'}",
        *more,
        "--folder",
        str(folder / "jobs"),
    ]


def test_a_dry_run_shows_what_would_be_submitted_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text("partition: cpu\njobs: {merge: {time: '5'}}\n")
    site = ["--site", str(tmp_path / "site.yaml")]
    assert (
        main([*settings(tmp_path, "retriever=bm25,dense", "method=single"), "--shards", "2", *site, "--dry-run"]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    index, bm25, merge, dense, _ = lines  # and the merge of the last
    assert all("--partition=cpu" in line for line in lines)
    assert "index.sbatch" in index
    assert "--array=1-2%16" in bm25
    assert "--dependency=afterok:${index-sample-" in bm25
    assert "--time=5" in merge
    assert "--dependency=afterok:${evaluate-sample-dev-single-bm25-offline-" in merge
    assert "single-dense-offline" in dense
    assert not (tmp_path / "jobs").exists()


def test_status_as_data_tells_what_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*settings(tmp_path, "retriever=bm25", "method=single"), "--local"]
    assert main([*arguments, "--status", "--json"]) == 0
    index, run = json.loads(capsys.readouterr().out)
    assert (index["status"], run["status"], run["left"]) == ("to do", "to do", [0])
    from gnnrag.cluster.plan import make_plan

    plan = make_plan(arguments[:5], tmp_path / "jobs")
    target = plan.jobs[run["name"]].target
    done = tmp_path / "runs" / "any"
    leave_run(done, json.loads(json.dumps(target.settings)), ["a", "b"], 2, scored=True)
    (done / "config.yaml").write_text(f"data: {{path: {target.data[0]}, questions: null}}\n")
    assert main([*arguments, "--status"]) == 0
    assert "1 done, 1 to do of 2 jobs" in capsys.readouterr().out
    plan.jobs[run["name"]].write()
    assert show_progress([run["folder"], "0"]) == 0
    assert capsys.readouterr().out == "2\n"


def test_tables_whose_data_are_not_here_are_told_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.yaml"
    table.write_text(
        "title: t\npaper: p\nused: {x: y}\ncolumns: [em]\nbase: {data: {path: /no/set}}\nrows: {a: {method: single}}\n"
    )
    assert main([str(table), "roles=offline", "--local", "--folder", str(tmp_path / "jobs")]) == 0
    out = capsys.readouterr().out
    assert "2 cannot run here: data not here: /no/set; data/README.md says where to get it" in out


def test_it_works_from_another_directory_and_data_that_are_not_here_are_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("method: single\nretriever: bm25\n")
    arguments = ["mine.yaml", f"run.root={tmp_path / 'runs'}", "--folder", str(tmp_path / "jobs")]
    assert main([*arguments, "--local", "--dry-run"]) == 0
    assert "inference/evaluate.py" in capsys.readouterr().out
    assert Path.cwd() == ROOT
    monkeypatch.chdir(tmp_path)
    assert main([*arguments[:-1], "own", "--local", "--status", "--json"]) == 0
    assert {Path(row["folder"]).parent for row in json.loads(capsys.readouterr().out)} == {tmp_path / "own"}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "absent.yaml").write_text("method: single\nretriever: bm25\ndata: {path: /no/set}\n")
    assert main(["absent.yaml", "--local", "--dry-run", "--folder", "jobs"]) == 0
    assert "cannot run here: data not here" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main(["absent.yaml", "--local", "--folder", "jobs"]) == 1, "jobs are run from there, too"


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, squeue: str) -> None:
    tools = folder / "tools"
    tools.mkdir()
    for name, code in {"squeue": squeue, "sbatch": f"echo called >>{folder}/called; echo 12"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{code}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")


def test_a_dry_run_leaves_out_what_is_queued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*settings(tmp_path, "retriever=bm25", "method=single"), "--dry-run"]
    assert main([*arguments, "--json", "--local"]) == 0
    from gnnrag.cluster.plan import make_plan

    index = next(iter(make_plan(arguments[:5], tmp_path / "jobs").jobs))
    fake_slurm(tmp_path, monkeypatch, f"echo '31|PENDING|Resources|gnnrag:{tmp_path}/jobs/{index}'")
    capsys.readouterr()
    assert main(arguments) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "--dependency=afterok:31 " in line
    (tmp_path / "tools/squeue").write_text("#!/bin/sh\necho 'squeue: error: no controller' >&2; exit 1\n")
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "no queue is read" in told.err


def test_nobody_reads_the_queue_while_another_submits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = settings(tmp_path, "retriever=bm25", "method=single")
    fake_slurm(tmp_path, monkeypatch, "exit 0")
    with exclusive_lock(tmp_path / "jobs/.submit.lock", "x"), pytest.raises(GnnragError, match="another process"):
        main(arguments)
    assert not (tmp_path / "called").exists()
    assert main(arguments) == 0
    assert (tmp_path / "called").read_text().count("called") == 2


@each(
    "more, error, says",
    [
        (["--budget", "2h"], GnnragError, "--budget is for --local"),
        (["--local", "--budget", "soon"], ConfigError, "90m, 2h"),
        (["--local", "--jobs", "0"], GnnragError, "at least 1"),
        (["--site", "nowhere.yaml"], ConfigError, "nowhere.yaml"),
        (["--shards", "-1"], ConfigError, "--shards -1"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, more: list[str], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        main([*settings(tmp_path, "method=single", "retriever=bm25"), *more])
