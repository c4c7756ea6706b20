"""The mirror in Weights & Biases, which may fail in every way that there is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cluster import tracker, wandb_process
from gnnrag.cluster.tracker import Artefact, Tracker, WandbRun, artefact_name, run_state, without_secrets
from gnnrag.config import EvaluateConfig, RunConfig, TrackedRun, check_tracking, load_config
from gnnrag.errors import ConfigError
from tests.helpers.each import each
from tests.helpers.indexes import environment
from tests.helpers.tracking import FakeWandb
from tests.helpers.wandb_offline import artifacts, exit_code, history, run_files, run_record, settings, summary, table

ROOT = Path(__file__).resolve().parents[2]
SHOWN = WandbRun("train", "mine", {"fit": {"lr": 0.1}, "llm": {"base_url": "https://me:secret@host/v1"}}, "grid")


def offline(**more: Any) -> TrackedRun:
    return TrackedRun(tracking="offline", **{"tracking_wait": 30.0, **more})


@pytest.mark.slow
def test_what_is_sent_offline_is_read_back(tmp_path: Path) -> None:
    notes: list[str] = []
    (tmp_path / "weights").write_bytes(b"1234")
    one = Tracker(offline(project="p", tags=["a"]), tmp_path, SHOWN, notes.append)
    one.define("by_round/*", "round")
    for step in (1, 2):
        one.log({"train/loss": 0.1 / step, "text": "é"}, step)
    one.table("tables/x", ["name", "value"], [["a", 0.1], ["b", None], ["c", 2]], 3)
    made = Artefact("check point/1", "checkpoint", {"f.json": "{}"}, {"w": tmp_path / "weights"}, {"n": 1}, ("v-1",))
    one.artefact(made, is_input=True)
    one.artefact(made)
    one.finish({"best": 1 / 3, "low_ci": [0.1, 0.2], "none": None})
    one.finish({"best": 0})
    assert notes == [] and one.has_succeeded
    (path,) = run_files(tmp_path)
    rows = history(path)
    assert [(row["_step"], row["train/loss"], row["text"]) for row in rows[:2]] == [(1, 0.1, "é"), (2, 0.05, "é")]
    assert table(path, rows[2]["tables/x"])["data"] == [["a", 0.1], ["b", None], ["c", 2]]
    found = summary(path)
    assert found["best"] == 1 / 3 and found["low_ci"] == [0.1, 0.2] and found["none"] is None
    run = run_record(path)
    assert (run.project, run.run_group, run.job_type, run.display_name, list(run.tags)) == (
        *("p", "grid", "train", "mine"), ["a"],
    )  # fmt: skip
    assert settings(path)["fit"] == {"lr": 0.1} and settings(path)["llm"]["base_url"] == "https://***@host/v1"
    used, logged = (row for row in artifacts(path) if row.type == "checkpoint")
    assert used.use_after_commit and not logged.use_after_commit
    assert used.name == logged.name == "check-point-1" and "v-1" in logged.aliases and used.digest == logged.digest
    assert [(file.path, file.size) for file in logged.manifest.contents] == [("f.json", 2), ("w", 4)]
    assert exit_code(path) == 0
    assert run.run_id == json.loads((tmp_path / "wandb.json").read_text())["id"]


@pytest.mark.slow
def test_the_run_loads_no_wandb(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gnnrag.config import TrackedRun\n"
        "from gnnrag.cluster.tracker import Tracker, WandbRun\n"
        f"t = Tracker(TrackedRun(tracking='offline'), Path({str(tmp_path)!r}), WandbRun('train', 'a'), print)\n"
        "t.log({'a': 1}, 1); t.finish()\nassert t.has_succeeded and 'wandb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(PYTHONPATH=str(ROOT)), timeout=60)


def test_off_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker.subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    one = Tracker(TrackedRun(), tmp_path, SHOWN, lambda note: pytest.fail(note))
    one.log({"a": 1}, 1)
    one.finish({"a": 1})
    assert list(tmp_path.iterdir()) == []


FAILURES = [
    ("absent", "ImportError: No module named 'wandb'", 1),
    ("init", "OSError: no server", 1),
    ("init hangs", "it took more than 1 s to end, see run.tracking_wait", 1),
    ("log", "log: ValueError: no such step; the run directory has all of it", 0),
    ("slow", "it took more than 1 s to end, see run.tracking_wait", 1),
    ("dies", "its process ended with exit code 9", 1),
    ("hangs", "it took more than 1 s to end, see run.tracking_wait", 1),
]


@pytest.mark.slow
@pytest.mark.timeout(120)  # of the 600 s and more for which some of them would hold up who waits for them
@each("how, problem, ends", FAILURES)
def test_no_failure_stops_a_run_or_holds_it_up_for_long(
    how: str, problem: str, ends: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb(tmp_path / "fake", monkeypatch, how)
    notes: list[str] = []
    one = Tracker(TrackedRun(tracking="online", tracking_wait=1.0), tmp_path / "run", SHOWN, notes.append)
    child: Any = one._process
    for step in range(1, 300):
        one.log({"a": step}, step)
    one.finish({"a": 1})
    one.log({"a": 1}, 300)
    one.finish()
    assert len(notes) == 1 and problem in notes[0] and notes[0].startswith("Weights & Biases failed (")
    assert one.has_succeeded == (not ends)
    if how == "hangs":  # it is ended with all that it has started
        assert child.returncode == -signal.SIGKILL
    if how == "log":  # what else there is arrives
        assert [row["step"] for row in fake.calls("log")] == list(range(2, 300)) and fake.calls("summary")


def test_a_disk_that_is_full_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    notes: list[str] = []
    one = Tracker(offline(), tmp_path / "run", SHOWN, notes.append)
    one.log({"a": 1}, 1)
    one.finish({"a": 1})
    assert len(notes) == 1 and "the run goes on without it" in notes[0]


@pytest.mark.slow
def test_a_value_that_cannot_be_sent_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb(tmp_path / "fake", monkeypatch)
    notes: list[str] = []
    one = Tracker(TrackedRun(tracking="online"), tmp_path / "run", SHOWN, notes.append)
    one.log({"a": tmp_path}, 1)
    one.log({"a": 2}, 2)
    one.finish()
    assert one.has_succeeded and [row["step"] for row in fake.calls("log")] == [2]
    assert len(notes) == 1 and "is not JSON serializable; the run directory has all of it" in notes[0]


@pytest.mark.slow
def test_a_full_disk_while_it_runs_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeWandb(tmp_path / "fake", monkeypatch)
    notes: list[str] = []
    one = Tracker(TrackedRun(tracking="online"), tmp_path / "run", SHOWN, notes.append)
    process: Any = one._process

    def refuse(text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one._messages, "write", refuse)
    for step in (1, 2):
        one.log({"a": step}, step)
    one.finish()
    process.kill()
    assert len(notes) == 1 and "No space left" in notes[0] and "the run goes on without it" in notes[0]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_no_server_is_a_note_within_the_time_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "INIT_S", 1.0)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    notes: list[str] = []
    one = Tracker(TrackedRun(tracking="online"), tmp_path, SHOWN, notes.append)
    one.log({"a": 1}, 1)
    one.finish()
    assert len(notes) == 1 and "CommError" in notes[0]


@pytest.mark.slow
def test_a_resumed_run_goes_on_under_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb(tmp_path / "fake", monkeypatch)
    for name in ("a", "a", "b"):
        Tracker(TrackedRun(tracking="online"), tmp_path / name, SHOWN, pytest.fail).finish(code=0)
    first, again, other = fake.calls("init")
    assert first["id"] == again["id"] != other["id"] and first["resume"] == "allow"
    assert first["settings"] == {"silent": True, "console": "off", "init_timeout": 30.0}, "those of this release"
    assert run_state(tmp_path / "a", step=3) == {"id": first["id"], "step": 3} == run_state(tmp_path / "a")


@pytest.mark.slow
def test_under_an_agent_the_sweep_says_which_run_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb(tmp_path / "fake", monkeypatch)
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    Tracker(TrackedRun(tracking="online"), tmp_path / "a", SHOWN, pytest.fail).finish()
    (start,) = fake.calls("init")
    assert not {"id", "project", "entity", "resume"} & start.keys() and start["config"]["fit"] == {"lr": 0.1}


@pytest.mark.slow
def test_online_an_input_is_used_and_a_stop_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb(tmp_path / "fake", monkeypatch)
    one = Tracker(TrackedRun(tracking="online"), tmp_path / "a", SHOWN, pytest.fail)
    one.artefact(Artefact("index-x", "index", {"f.json": "{}"}, aliases=("v",)), is_input=True)
    one.finish(code=wandb_process.STOPPED)
    (used,) = fake.calls("use_artifact")
    assert used["name"] == "index-x" and used["aliases"] == ["v"] and not fake.calls("log_artifact")
    assert fake.calls("preempting") and fake.calls("finish")[0]["code"] == 75


@pytest.mark.slow
def test_a_signal_to_a_whole_step_leaves_the_mirror_to_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb(tmp_path / "fake", monkeypatch)
    one = Tracker(TrackedRun(tracking="online"), tmp_path / "a", SHOWN, pytest.fail)
    child: Any = one._process
    deadline = time.monotonic() + 30
    while not fake.calls("init") and time.monotonic() < deadline:
        time.sleep(0.02)
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        child.send_signal(number)
    one.log({"a": 1}, 1)
    one.finish(code=wandb_process.STOPPED)
    assert one.has_succeeded and fake.calls("log") and fake.calls("finish")[0]["code"] == 75


@pytest.mark.slow
def test_what_a_killed_run_had_sent_is_kept(tmp_path: Path) -> None:
    code = (
        "import os, signal, time; from pathlib import Path; from gnnrag.config import TrackedRun\n"
        "from gnnrag.cluster.tracker import Tracker, WandbRun\n"
        f"t = Tracker(TrackedRun(tracking='offline'), Path({str(tmp_path)!r}), WandbRun('train', 'a'), print)\n"
        "[t.log({'a': n}, n) for n in range(50)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, env=environment(PYTHONPATH=str(ROOT)), timeout=60)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        files = run_files(tmp_path)
        if files and len(history(files[0])) == 50:
            break
        time.sleep(0.1)
    assert [row["a"] for row in history(files[0])] == list(range(50))


def test_settings_are_checked() -> None:
    assert load_config(EvaluateConfig, None, []).run.tracking == "off"
    for said in ("off", "false"):
        assert load_config(EvaluateConfig, None, [f"run.tracking={said}"]).run.tracking == "off"
    for wrong in ("run.tracking=on", "run.tracking=wandb", "run.upload=everything"):
        with pytest.raises(ConfigError, match=r"run\.\w+=.*allowed are"):
            load_config(EvaluateConfig, None, [wrong])
    with pytest.raises(ConfigError, match=r"run\.tracking_wait=0: must be above 0"):
        check_tracking(RunConfig(tracking_wait=0))


def test_names_and_addresses_are_made_fit_to_send() -> None:
    assert artefact_name("a/b c:d" + "x" * 200) == ("a-b-c-d" + "x" * 200)[:128]
    assert without_secrets({"a": ["http://u:p@h/x", 1], "b": "a@b"}) == {"a": ["http://***@h/x", 1], "b": "a@b"}
    assert without_secrets("http://me:pw@h/v1?key=SEKRET") == "http://***@h/v1"
    assert without_secrets("https://h?key=SEKRET, a/b?c") == "https://h, a/b?c", "of several addresses, and of no other"
