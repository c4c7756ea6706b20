"""Judgements, pages, rows, conversions, jobs, trackings and downloads that strangers have touched."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gnnrag.audit import read_labels
from gnnrag.cluster.job import JobMonitor, asked, last_rows, rows
from gnnrag.cluster.plan import make_plan
from gnnrag.cluster.tracker import Tracker, WandbRun, checkpoint_artefact
from gnnrag.common.files import file_digest
from gnnrag.config import RunConfig, load_config
from gnnrag.errors import ArtefactError, DataError, GnnragError
from gnnrag.judge import judge
from gnnrag.judge.folder import judged_figures
from gnnrag.metrics.comparison import load_runs
from gnnrag.pages.comparison import build_model
from gnnrag.textualise import textualise
from gnnrag.textualise.prompted import TextualiseConfig
from gnnrag.training.collect import join, write_folder
from gnnrag.training.rows import TracesConfig
from gnnrag.types import Question
from slurm.showing import state_table
from tests.helpers.batches import batch
from tests.helpers.each import each
from tests.helpers.explorer_runs import invented_data, invented_run
from tests.helpers.jobs import graph, job, leave_run
from tests.helpers.judged import question, scripted, settings, write_data, write_run
from tests.helpers.traces import verifier_row

Runs = tuple[Path, Path]


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody has named: it stays as it is."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept")
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"kept.txt": "kept"}


# ---------------------------------------------------------------------------------------------------- judgements
@pytest.fixture
def judged(tmp_path: Path) -> Runs:
    data = write_data(tmp_path / "data", [question(n) for n in range(3)])
    first, second = (write_run(tmp_path / "runs" / x, data, {f"q{n}": x for n in range(3)}) for x in "ab")
    judge(settings("scores", first, dots=["count.least=1"]), backend=scripted(lambda request: "7"))
    return first, second


def copied(runs: Sequence[Path], tmp_path: Path) -> list[Path]:
    return [Path(shutil.copytree(run, tmp_path / run.name)) for run in runs]


def test_a_judgement_is_not_written_through_a_link(judged: Runs, victim: Path) -> None:
    (judged[1] / "judgements").symlink_to(victim)
    with pytest.raises(ArtefactError, match="judgements is a link"):
        judge(settings("scores", judged[1]), backend=scripted(lambda request: "7"))


@each(
    "change",
    [{"usage": None}, {"question_id": ["q0"]}, {"value": "high"}, {"value": 11}, {"repeat": "0"}, {"problem": "\x1b"}],
)
def test_forged_replies_are_refused_by_name(judged: Runs, tmp_path: Path, change: dict[str, Any]) -> None:
    run, _ = copied(judged, tmp_path)
    path = run / "judgements" / "scores" / "replies.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(lines[0]) | change), *lines[1:]]) + "\n")
    with pytest.raises(ArtefactError, match=r"replies\.jsonl is damaged or forged"):
        judge(settings("scores", run, dots=["count.least=1"]), backend=scripted(lambda request: "7"))


@each("name", ["../victim/b", "/etc", "..", "b/../../victim"])
def test_a_judgement_names_no_run_elsewhere(judged: Runs, tmp_path: Path, name: str) -> None:
    run, _ = copied(judged, tmp_path)
    path = run / "judgements" / "scores" / "metrics.json"
    report = json.loads(path.read_text())
    report["judged_runs"][name] = {"predictions": "0" * 64, "path": "/etc"}
    path.write_text(json.dumps(report))
    with pytest.raises(ArtefactError, match="no name of anything in it"):
        judged_figures(run)


def test_where_a_judgement_says_that_a_run_is_nothing_is_opened(judged: Runs, tmp_path: Path) -> None:
    first, second = judged
    path = first / "judgements" / "scores" / "metrics.json"
    report = json.loads(path.read_text())
    elsewhere = tmp_path / "elsewhere"
    second.rename(elsewhere)
    report["judged_runs"]["b"] = {"predictions": file_digest(elsewhere / "predictions.jsonl"), "path": str(elsewhere)}
    path.write_text(json.dumps(report))
    assert judged_figures(first) == {}


@each("value", ["7", [7], {"a": 7}])
def test_forged_figures_are_refused_by_name(judged: Runs, tmp_path: Path, value: Any) -> None:
    run, _ = copied(judged, tmp_path)
    path = run / "judgements" / "scores" / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"judge/a_score": value}))
    with pytest.raises(ArtefactError, match=r"metrics\.json is damaged or forged"):
        judged_figures(run)


def test_a_run_makes_a_judge_evaluate_nothing(judged: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNRAG_CANARY_KEY", "a-key-that-nobody-may-see")
    (judged[1] / "config.yaml").write_text("data: {path: '${oc.env:GNNRAG_CANARY_KEY}'}\n")
    with pytest.raises(GnnragError) as told:
        judge(settings("scores", judged[1]), backend=scripted(lambda request: "7"))
    assert "a-key" not in str(told.value)


# ------------------------------------------------------------------------------------------- pages and comparisons
@pytest.fixture
def compared(tmp_path: Path) -> list[Path]:
    data = invented_data(tmp_path / "data", 8)
    return [invented_run(data, tmp_path / "one", 1, 3, "single"), invented_run(data, tmp_path / "two", 2, 2)]


def test_a_run_puts_no_texts_of_others_on_a_page(compared: list[Path], tmp_path: Path) -> None:
    private = invented_data(tmp_path / "private", 8)
    (private / "corpus.jsonl").write_text((private / "corpus.jsonl").read_text().replace("Text of", "Secret of"))
    for inputs in ({"data": {}}, {}, "none", {"data": {"passages": "0" * 64, "questions": "0" * 64}}):
        for path in compared:
            (path / "config.yaml").write_text(json.dumps({"data": {"path": str(private), "split": "dev"}}))
            (path / "meta.json").write_text(json.dumps({"inputs": inputs}))
        model = build_model(compared, load_runs(compared))
        assert "Secret" not in json.dumps([model.head, model.questions, model.passages])
        assert any("--data" in note for note in model.head["notes"])


@each(
    "file, text",
    [
        ("scores.jsonl", '{"question_id": "q0"}\n'),
        ("scores.jsonl", ""),
        ("scores.jsonl", '{"question_id": ["q0"], "type": "", "has_gold": true, "answer/em": 1.0}\n'),
        ("scores.jsonl", '{"question_id": "q0", "type": "", "has_gold": true, "answer/em": "x"}\n'),
        ("metrics.json", "[]"),
        ("metrics.json", '{"answer/em": "much"}'),
        ("metrics.json", '{"by_type": [1]}'),
        ("metrics.json", "[" * 100_000),
        ("config.yaml", "roles: [1]\n"),
        ("config.yaml", "[" * 100_000),
        ("config.yaml", "a: &a [*a]\n"),
        ("predictions.jsonl", '{"question_id": "q0"}\n'),
        ("traces.jsonl", '{"question_id": "q0", "events": 5}\n'),
    ],
)
def test_forged_files_of_runs_are_refused_by_name(compared: list[Path], tmp_path: Path, file: str, text: str) -> None:
    runs = copied(compared, tmp_path)
    (runs[0] / file).write_text(text)
    with pytest.raises(GnnragError, match=file.replace(".", r"\.")):
        build_model(runs, load_runs(runs))


# ------------------------------------------------------------------------------------------------ rows and labels
@each("name", ["../victim/kept.txt", "/etc/passwd", "recording.json", "verifier.jsonl/x"])
def test_a_folder_of_rows_names_its_own_files_alone(tmp_path: Path, victim: Path, name: str) -> None:
    for folder in ("a", "b"):
        facts = {"teachers": {"verifier": ["oracle"]}, "prompts": {}, "licences": {}, "recording": {}, "counts": {}}
        write_folder(tmp_path / folder, {"verifier": [verifier_row(folder, folder)]}, facts)
    meta = json.loads((tmp_path / "b" / "meta.json").read_text())
    named = tmp_path / "b" / name
    meta["files"][name] = file_digest(named) if named.is_file() else "0" * 64
    (tmp_path / "b" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ArtefactError, match="no name of anything in it"):
        join([tmp_path / "a", tmp_path / "b"], TracesConfig(out=str(tmp_path / "out")))


def test_labels_with_ids_of_other_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text('{"id": ["q1"], "labels": ["multi_hop"]}\n')
    with pytest.raises(DataError, match="is none of the questions"):
        read_labels(tmp_path / "labels.jsonl", [Question("q1", "Who?")])


# ---------------------------------------------------------------------------------------------------- conversions
KB = "Night Harbour|directed_by|Mara Vey\nNight Harbour|starred_actors|Ola Fenn\nQuiet Glass|directed_by|Mara Vey\n"


def converted(tmp_path: Path, *more: str) -> TextualiseConfig:
    (tmp_path / "kb").mkdir(exist_ok=True)
    (tmp_path / "kb" / "kb.txt").write_text(KB)
    return load_config(TextualiseConfig, None, [f"path={tmp_path / 'kb'}", f"out={tmp_path / 'out'}", *more])


@each("name", ["made", "journal.jsonl", "folder", ".lock", ""])
def test_a_conversion_writes_and_deletes_through_no_link(tmp_path: Path, victim: Path, name: str) -> None:
    config = converted(tmp_path)
    if name:
        (tmp_path / "out.work").mkdir()
    (tmp_path / "out.work" / name).symlink_to(victim / "kept.txt" if name in ("made", "journal.jsonl") else victim)
    with pytest.raises(ArtefactError, match="is a link"):
        textualise(config)
    assert not (tmp_path / "out").exists()


@each("row", ['{"stage": "article"}', "[]", '{"stage": "entity", "key": "x", "usage": 5}'])
def test_a_forged_journal_is_refused_by_name(tmp_path: Path, row: str) -> None:
    config = converted(tmp_path)
    (tmp_path / "out.work").mkdir()
    (tmp_path / "out.work" / "journal.jsonl").write_text(row + "\n")
    with pytest.raises(ArtefactError, match=r"journal\.jsonl is damaged or forged"):
        textualise(config)


# ----------------------------------------------------------------------------------------------------------- jobs
@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.cluster.grid.CACHE", tmp_path / "cache", raising=False)


@pytest.mark.usefixtures("own_cache")
def test_a_folder_of_jobs_does_not_say_what_is_run(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    asked_ = [str(root / "configs/evaluate/sample.yaml"), f"data.path={root / 'data/sample'}", "method=single"]
    honest = make_plan(asked_, tmp_path / "jobs")
    for path in (tmp_path / "jobs").rglob("*.json"):
        forged = json.loads(path.read_text())
        for row in forged:
            row["config"] |= {"llm": {"name": "openai", "base_url": "http://127.0.0.1:9/v1"}}
        path.write_text(json.dumps(forged))
    assert make_plan(asked_, tmp_path / "jobs") == honest


def test_a_job_is_not_written_through_a_link(tmp_path: Path, victim: Path) -> None:
    one, two = job(tmp_path, "one"), job(tmp_path, "two")
    (tmp_path / "jobs").mkdir()
    Path(one.folder).symlink_to(victim)
    Path(two.folder).mkdir()
    (Path(two.folder) / "log.txt").symlink_to(victim / "kept.txt")
    for this in (one, two):
        with pytest.raises(ArtefactError, match="is a link"):
            this.write()


def test_a_batch_script_counts_and_runs_nothing_that_it_reads(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for name, text in (("job.json", "{}"), ("progress-0", "5\n"), ("idle-0", f"a[$(touch {tmp_path}/ran-it)]\n")):
        (tmp_path / "job" / name).write_text(text)
    stuck = 'case "$1" in slurm/progress.py) echo 5 ;; *) exit 75 ;; esac'
    assert batch(tmp_path, "index.sbatch", ["a"], stuck).returncode == 75
    assert not (tmp_path / "ran-it").exists()
    assert (tmp_path / "job" / "idle-0").read_text() == "1\n"


def test_names_of_jobs_cannot_split_what_sbatch_is_told(tmp_path: Path, own_cache: None) -> None:
    data = tmp_path / "set,GNNRAG_SETUP=evil.sh"
    shutil.copytree(Path(__file__).resolve().parents[2] / "data/sample", data)
    config = {"method": "single", "retriever": "bm25", "data": {"path": str(data)}}
    (tmp_path / "one.yaml").write_text(json.dumps(config))
    plan = make_plan([str(tmp_path / "one.yaml")], tmp_path / "jobs")
    assert not [one for one in plan.jobs.values() if "," in one.name or "," in one.folder]


def test_what_a_job_has_left_is_read_as_data(tmp_path: Path) -> None:
    one, run = job(tmp_path, "one", tasks=2), tmp_path / "run"
    Path(one.folder).mkdir(parents=True)
    run.mkdir()
    for path in (Path(one.folder) / "ended-1", Path(one.folder) / "log-1.txt", run / "predictions.jsonl"):
        os.mkfifo(path)  # nobody writes: who opens it waits for ever
    (Path(one.folder) / "ended-2").write_text("1 \x1b]0;owned\x07")
    (run / "meta.json").write_text('{"questions": [3]}')
    (run / "metrics.jsonl").write_text('{"step": 1}\n[5]\n7\n')
    assert (one.ended(1), one.log_tail(1), rows(run), asked(run)) == ((None, ""), [], 0, 0)
    assert last_rows(run) == [{"step": 1}]
    states = JobMonitor(graph(one), {}).states()
    assert "\x1b" not in state_table(states, {})


@each("text", ["[" * 100_000, "data: [1]\n", "- 1\n", "data: {path: !!python/name:os.system }\n"])
def test_a_forged_run_costs_its_job_alone(tmp_path: Path, text: str) -> None:
    one, other = job(tmp_path, "one", kind="evaluate"), job(tmp_path, "two", kind="evaluate")
    leave_run(tmp_path / "runs/mine", {"name": "one"}, ["a"], 1, scored=True)
    (tmp_path / "runs/mine/config.yaml").write_text(text)
    found, unharmed = JobMonitor(graph(one, other), {}).states()
    assert (found.status, unharmed.status) == ("failed", "to do") and "config.yaml is damaged" in found.detail


# ------------------------------------------------------------------------------------------ trackings and downloads
@each("text", ['{"id": "../../../victim"}', '{"id": 5}', "[]", '{"id": "0123456789ab", "step": ""}'])
def test_a_forged_id_reaches_no_client(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("started")

    monkeypatch.setattr("gnnrag.cluster.tracker.subprocess.Popen", refuse)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "wandb.json").write_text(text)
    notes: list[str] = []
    Tracker(RunConfig(tracking="offline"), tmp_path / "run", WandbRun("evaluate", "x"), notes.append).finish()
    assert len(notes) == 1 and "names no run" in notes[0]


@each("name", ["mirror.log", "artifacts", "latest-run"])
def test_nothing_is_tracked_through_a_link(tmp_path: Path, victim: Path, name: str) -> None:
    (tmp_path / "run" / "wandb").mkdir(parents=True)
    (tmp_path / "run" / "wandb" / name).symlink_to(victim / "kept.txt" if name.endswith("log") else victim)
    notes: list[str] = []
    Tracker(RunConfig(tracking="offline"), tmp_path / "run", WandbRun("evaluate", "x"), notes.append).finish()
    assert len(notes) == 1 and "is a link" in notes[0]


def test_what_a_link_leads_to_is_not_sent(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "weights.bin").write_text("w")
    (folder / "more.txt").symlink_to(victim / "kept.txt")
    for upload in ("results", "all"):
        assert set(checkpoint_artefact(folder, upload).files) == {"weights.bin"}
