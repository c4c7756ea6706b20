"""What is done is read off run directories; what happened to the rest off how its tasks ended."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from gnnrag.cluster.job import Job, JobMonitor, State, Target, progress
from gnnrag.common.files import digest
from tests.helpers.each import each
from tests.helpers.jobs import graph, job, leave_run

DECISIVE = {"method": {"name": "single"}, "ks": (1, 2)}


def evaluation(folder: Path, tasks: int = 0, **target: object) -> Job:
    made = Target(str(folder / "runs"), settings=DECISIVE, data=("here", ""), index=str(folder / "index"), **target)  # type: ignore[arg-type]
    return job(folder, "evaluate", kind="evaluate", tasks=tasks, target=made)


def state(one: Job, queue: dict[tuple[str, int], str] | None = None) -> State:
    return JobMonitor(graph(one), queue or {}).state(one)


def end(one: Job, task: int, text: str) -> None:
    path = one.file("ended", task)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_run_is_found_by_its_settings_and_is_done_when_it_is_scored(tmp_path: Path) -> None:
    one = evaluation(tmp_path)
    assert (state(one).status, state(one).left) == ("to do", (0,))
    leave_run(tmp_path / "runs/other", {"method": {"name": "bdtr"}}, ["a", "b"], 2, scored=True)
    assert state(one).status == "to do"
    leave_run(tmp_path / "runs/mine", DECISIVE, ["a"], 2)
    found = state(one)
    assert (found.status, found.questions, found.of, found.run) == ("to do", 1, 2, str(tmp_path / "runs/mine"))
    assert progress(one, 0) == "1"
    leave_run(tmp_path / "runs/mine", DECISIVE, ["a", "b"], 2, scored=True)
    found = state(one)
    assert (found.status, found.left, found.questions, found.seconds) == ("done", (), 2, 1.5)


def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    one, other = evaluation(tmp_path), job(tmp_path, "other", kind="merge")
    leave_run(tmp_path / "runs/mine", DECISIVE, ["a"], 1, scored=True)
    (tmp_path / "runs/mine/log.jsonl").write_text('broken\n{"event": "predicted", "seconds": 1.5}\n')
    found, unharmed = JobMonitor(graph(one, other), {}).states()
    assert (found.status, found.left) == ("failed", ()) and "log.jsonl, line 1 is damaged" in found.detail
    assert unharmed.status == "to do"


def test_a_run_on_other_data_or_another_state_of_the_index_is_another_run(tmp_path: Path) -> None:
    one = evaluation(tmp_path)
    leave_run(tmp_path / "runs/mine", DECISIVE, ["a"], 1, scored=True)
    assert state(one).status == "done"
    (tmp_path / "runs/mine/config.yaml").write_text("data: {path: there, questions: null}\n")
    assert state(one).status == "to do"
    leave_run(tmp_path / "runs/mine", DECISIVE, ["a"], 1, scored=True)
    meta = json.loads((tmp_path / "runs/mine/meta.json").read_text())
    meta["inputs"]["index"] = {"passages": "old"}
    (tmp_path / "runs/mine/meta.json").write_text(json.dumps(meta))
    assert state(one).status == "done"  # there is no index any more, and nothing that contradicts it
    from gnnrag.index.store import Store

    store = Store(tmp_path / "index")
    store.root.mkdir()
    store.commit("passages", digest("new"), lambda folder: {})
    assert state(one).status == "to do"


def test_shards_are_told_one_by_one(tmp_path: Path) -> None:
    one = evaluation(tmp_path, tasks=4)
    shards = tmp_path / "runs/mine/shards"
    leave_run(shards / "1-of-4", DECISIVE, ["a", "e"], 2)
    leave_run(shards / "2-of-4", DECISIVE, ["b"], 2)
    leave_run(shards / "3-of-4", DECISIVE, ["c", "c"], 2)  # one question, tried twice
    leave_run(shards / "4-of-4", DECISIVE, ["d"], 2)
    end(one, 2, "75 queued again\n")
    end(one, 3, "2 failed\n")
    found = state(one, {("evaluate", 4): "running"})
    assert (found.status, found.left, found.questions, found.of) == ("running", (2, 3), 6, 8)
    found = state(one)
    assert (found.status, found.left, found.detail) == ("failed", (2, 3, 4), "shard 3: exit code 2")
    end(one, 3, "75 queued again\n")
    assert state(one).status == "stopped"
    leave_run(tmp_path / "runs/mine", DECISIVE, ["a", "b"], 2, scored=True)
    shutil.rmtree(shards)
    assert state(one).status == "done"  # merged: the parts are not needed any more


def test_what_slurm_says_counts_where_the_task_itself_wrote_nothing(tmp_path: Path) -> None:
    one = evaluation(tmp_path)
    assert state(one, {("evaluate", 0): "waiting"}).status == "waiting"
    found = state(one, {("evaluate", 0): "out of memory"})
    assert (found.status, found.detail, found.left) == ("failed", "out of memory", (0,))


def test_a_task_that_started_and_never_ended_was_cut_off(tmp_path: Path) -> None:
    one = evaluation(tmp_path)
    end(one, 0, "0 done\n")
    started = Path(one.folder) / "started-0"
    started.write_text("")
    later = one.file("ended", 0).stat().st_mtime + 5
    os.utime(started, (later, later))
    assert state(one).status == "stopped"
    assert state(one, {("evaluate", 0): "node fail"}).status == "failed"


def test_a_training_is_done_when_its_metrics_are_there(tmp_path: Path) -> None:
    run = tmp_path / "run"
    one = job(tmp_path, "train", kind="train", target=Target(str(run)))
    assert state(one).status == "to do"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 20, "seconds": 3.0}\n{"step": 40, "seconds": 6.0}\n{"step": 6')
    found = state(one)
    assert (found.status, found.questions, found.seconds) == ("to do", 40, 6.0)
    assert progress(one, 0) == "2"
    for text in ("", "{}", '{"em": 0.'):
        (run / "metrics.json").write_text(text)
        assert state(one).status == "to do"
    (run / "metrics.json").write_text('{"folds": [0]}')
    assert state(one).status == "done"


def test_a_training_with_other_settings_is_not_the_one_that_is_wanted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    one = job(tmp_path, "train", kind="train", target=Target(str(run), settings={"seed": 1, "fit": {"sizes": (2, 3)}}))
    (run / "fold1").mkdir(parents=True)
    (run / "metrics.json").write_text('{"folds": [0, 1]}')
    for folder in (run, run / "fold1"):
        held = {"seed": 1, "fit": {"sizes": [2, 3]}, "fold": 1}
        (folder / "meta.json").write_text(json.dumps({"settings": held}))
    assert state(one).status == "done"
    held["fit"] = {"sizes": [2, 4]}
    (run / "fold1/meta.json").write_text(json.dumps({"settings": held}))
    found = state(one)
    assert (found.status, found.left, found.detail) == ("to do", (0,), f"{run} has another value of fit.sizes")


def test_an_index_with_other_settings_is_done_only_if_its_job_was_the_last_to_build(tmp_path: Path) -> None:
    from gnnrag.index.store import Store

    store = Store(tmp_path / "index")
    store.root.mkdir()
    store.commit("passages", digest("key"), lambda folder: {})
    store.manifest |= {"complete": True, "settings": {"text": {"language": "de"}}}
    store.save()
    target = Target(str(store.root), ("passages",), {"text": {"language": "en"}})
    one = job(tmp_path, "index", kind="index", target=target)
    assert state(one).status == "to do"
    end(one, 0, "0 done\n")
    built = (store.root / "manifest.json").stat().st_mtime
    os.utime(one.file("ended", 0), (built + 5, built + 5))
    assert state(one).status == "done"  # its stages do not read that section, so it keeps its value
    os.utime(one.file("ended", 0), (built - 5, built - 5))
    assert state(one).status == "to do"
    store.manifest["settings"] = {"text": {"language": "en"}}
    store.save()
    assert state(one).status == "done"
    writers = {"default": "offline", "report": {"impl": None}}
    target = Target(str(store.root), ("passages",), {"text": {"language": "en"}, "writers": writers})
    one = job(tmp_path, "index", kind="index", target=target)
    for impl, status in (("prompted", "to do"), ("offline", "done")):  # what was built says who wrote
        store.manifest["settings"]["writers"] = {"default": "offline", "report": {"impl": impl}}
        store.save()
        assert state(one).status == status


def test_a_report_is_made_again_when_a_run_that_it_shows_is_newer(tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text("")
    row = evaluation(tmp_path)
    report = job(tmp_path, "report", kind="report", needs=("evaluate",))
    report = Job(**{**{n: getattr(report, n) for n in Job.__dataclass_fields__}, "arguments": (str(table),)})
    desk = JobMonitor(graph(row, report), {})
    assert desk.state(report).status == "to do"
    end(row, 0, "0 done\n")
    end(report, 0, "0 done\n")
    now = report.file("ended", 0).stat().st_mtime
    os.utime(row.file("ended", 0), (now - 5, now - 5))
    os.utime(table, (now - 5, now - 5))
    assert desk.state(report).status == "done"
    os.utime(row.file("ended", 0), (now + 5, now + 5))
    assert desk.state(report).status == "to do"
    end(report, 0, "1 failed\n")
    assert desk.state(report).status == "failed"


@each("reason", ["data not here", "no code"])
def test_what_cannot_run_here_is_missing_and_never_left(tmp_path: Path, reason: str) -> None:
    found = state(job(tmp_path, "x", missing=reason))
    assert (found.status, found.left, found.detail) == ("missing", (), reason)
