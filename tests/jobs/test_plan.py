from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cluster.grid import script_for
from gnnrag.cluster.plan import make_plan
from gnnrag.config import EvaluateConfig, load_config, to_plain
from gnnrag.errors import ConfigError
from gnnrag.registry import TRAININGS
from gnnrag.run.rundir import fingerprint_fields
from tests.helpers.each import each

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = str(ROOT / "configs/evaluate/sample.yaml")
DATA = f"data.path={ROOT / 'data/sample'}"

TABLE = """
title: a table
paper: none
used: {all: nothing}
base: {data: {path: %s, limit: 3}, method: single, roles: offline}
rows:
  flat: {retriever: bm25}
  elsewhere: {retriever: bm25, data.path: /no/such/set}
  not yet: {missing: no code}
columns: [em]
"""


def test_a_grid_shares_one_index_with_the_stages_of_all(tmp_path: Path) -> None:
    settings = [DATA, "method=single,multihop", "retriever=bm25,dense", f"index.root={tmp_path / 'i'}"]
    plan = make_plan([SAMPLE, *settings], tmp_path / "jobs", shards=3)
    kinds = [job.kind for job in plan.jobs.values()]
    assert kinds == ["index", *["evaluate", "merge"] * 4]
    index, first, merge, *_ = plan.jobs.values()
    stages = index.arguments[1].removeprefix("index.stages=").split(",")
    assert {"passages", "lexical", "embeddings"} <= set(stages)
    assert "tree" not in stages
    assert first.needs == (index.name,)
    assert merge.needs == (first.name,)
    assert first.command(2)[-1] == "shard=2/3"
    assert merge.command(0)[-1] == "shard=merge"
    assert list(first.numbers) == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"--shards 0: must be at least 1"):
        make_plan([SAMPLE, *settings], tmp_path / "jobs", shards=0)


def test_the_frozen_settings_are_those_that_were_asked_for(tmp_path: Path) -> None:
    settings = [DATA, "method=bdtr", "retriever=chg", "roles.verifier=oracle", "data.limit=2", "method.max_rounds=1"]
    plan = make_plan([SAMPLE, *settings], tmp_path / "jobs")
    job = plan.jobs[list(plan.jobs)[-1]]
    job.write()
    asked = to_plain(load_config(EvaluateConfig, SAMPLE, settings))
    frozen = to_plain(load_config(EvaluateConfig, Path(job.folder) / "config.yaml"))
    assert frozen == asked
    assert job.target.settings == fingerprint_fields(asked)
    assert len((Path(job.folder) / "config.yaml").read_text().splitlines()) < 80  # what differs, not all defaults


def test_rows_that_tables_share_are_run_once_and_absent_data_are_no_failure(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(TABLE % (ROOT / "data/sample"))
    plan = make_plan([str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml"), "roles=offline"], tmp_path / "jobs")
    run = [job for job in plan.jobs.values() if not job.missing]
    assert [job.kind for job in run] == ["index", "evaluate", "report", "report"]
    assert [job.needs for job in run[2:]] == [(run[1].name,)] * 2
    assert all(job.ends_anyway and job.alone for job in run[2:])
    missing = sorted({job.missing for job in plan.jobs.values() if job.missing})
    assert missing == ["data not here: /no/such/set; data/README.md says where to get it", "no code"]


def test_tables_of_one_name_have_reports_of_their_own(tmp_path: Path) -> None:
    tables = [tmp_path / place / "paper" / "table.yaml" for place in ("a", "b")]
    for table in tables:
        table.parent.mkdir(parents=True)
        table.write_text(TABLE % (ROOT / "data/sample"))

    def reports(*sources: Path) -> dict[str, str]:
        plan = make_plan([*map(str, sources), "roles=offline"], tmp_path / "jobs")
        return {job.arguments[0]: job.name for job in plan.jobs.values() if job.kind == "report"}

    both = reports(*tables)
    assert len(set(both.values())) == 2
    assert reports(tables[0]) == {str(tables[0]): both[str(tables[0])]}  # whatever stands beside it


def test_other_settings_of_an_index_are_another_job(tmp_path: Path) -> None:
    common = [SAMPLE, DATA, "retriever=bm25", f"index.root={tmp_path}"]
    names = [
        next(iter(make_plan([*common, f"index.text.title_mode={mode}"], tmp_path / "jobs").jobs))
        for mode in ("merge", "own", "merge")
    ]
    assert names[0] == names[2] != names[1]
    assert all(name.startswith("index-") for name in names)


def test_a_model_that_is_not_here_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = [DATA, "retriever=dense", "index.embedder.model=hash,nobody/no-such-model", f"index.root={tmp_path}"]
    plan = make_plan([SAMPLE, *settings], tmp_path / "jobs")
    assert [job.kind for job in plan.jobs.values()] == ["index", "evaluate", "evaluate"]
    assert [job.missing for job in plan.jobs.values()][:2] == ["", ""]
    assert "model not here: nobody/no-such-model" in [job.missing for job in plan.jobs.values()][2]


def test_what_is_resolved_is_kept_until_a_config_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "one.yaml"
    table.write_text(TABLE % (ROOT / "data/sample"))
    first = make_plan([str(table), "roles=offline"], tmp_path / "jobs")

    def refuse(*_: object) -> None:
        raise AssertionError("resolved again")

    monkeypatch.setattr("gnnrag.cluster.grid.evaluations", refuse)
    assert make_plan([str(table), "roles=offline"], tmp_path / "jobs") == first
    table.write_text(table.read_text().replace("limit: 3", "limit: 4"))
    with pytest.raises(AssertionError, match="resolved again"):
        make_plan([str(table), "roles=offline"], tmp_path / "jobs")


def test_one_folder_is_not_built_in_two_ways(tmp_path: Path) -> None:
    settings = [DATA, "retriever=bm25", "index.text.title_mode=merge,own", f"index.root={tmp_path}"]
    with pytest.raises(ConfigError, match=r"with another index\.text"):
        make_plan([SAMPLE, *settings], tmp_path / "jobs")


@each(
    "settings, says",
    [
        (["retreiver=bm25"], "retriever"),
        (["method=single,nope"], r"sample\.yaml, nope"),
        (["run.fresh=true"], "delete the run"),
        (["verifier=runs/x"], "tables of papers"),
    ],
)
def test_wrong_settings_name_the_point(tmp_path: Path, settings: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_plan([SAMPLE, DATA, *settings], tmp_path / "jobs")


def test_trained_parts_make_one_job_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(TABLE % (ROOT / "data/sample"))
    plan = make_plan([str(tmp_path / "one.yaml"), "roles=offline", "verifier=runs/v"], tmp_path / "jobs")
    index, report = (job for job in plan.jobs.values() if not job.missing)
    assert (index.kind, report.kind, report.needs) == ("index", "report", (index.name,))
    assert report.command(0)[-1] == "verifier=runs/v"
    plan = make_plan([str(tmp_path / "one.yaml"), "roles=offline"], tmp_path / "jobs")
    assert list(plan.jobs.values())[-1].command(0)[-1] == "--finished"  # rows have jobs of their own


@pytest.mark.slow
def test_seeds_of_a_training_are_runs_of_their_own(tmp_path: Path) -> None:
    plan = make_plan([str(ROOT / "configs/train/gnn_sample.yaml"), "seed=0,1"], tmp_path / "jobs")
    commands = [job.command(0) for job in plan.jobs.values()]
    assert [command[0] for command in commands] == ["training/train_gnn.py"] * 2
    names = [command[-1] for command in commands]
    assert len(set(names)) == 2
    assert all(name.startswith("run.name=gnn_sample-") for name in names)
    again = make_plan([str(ROOT / "configs/train/gnn_sample.yaml"), "seed=1,2"], tmp_path / "jobs")
    assert len(plan.jobs.keys() & again.jobs.keys()) == 1  # seed 1 is the same run whatever stands beside it


def test_a_training_knows_the_settings_that_its_run_will_have(tmp_path: Path) -> None:
    def settings(source: Path) -> Mapping[str, Any]:
        (job,) = make_plan([str(source)], tmp_path / "jobs").jobs.values()
        return job.target.settings

    path = tmp_path / "gnn_mine.yaml"
    shutil.copy(ROOT / "configs/train/gnn_sample.yaml", path)
    first = settings(path)
    assert "run" not in first
    assert first["gnn"]["features"], "those that the script writes out where none are named"
    path.write_text(path.read_text().replace("seed:", "# seed:") + "\nseed: 77\n")
    changed = {key for key, value in settings(path).items() if value != first[key]}
    assert changed == {"seed"}


@pytest.mark.slow
@each("path", sorted((ROOT / "configs/train").glob("*.yaml")))
def test_every_training_config_has_one_script(path: Path) -> None:
    assert script_for(path, ()) == f"training/train_{path.stem.split('_')[0]}.py"


def test_a_config_that_several_scripts_read_needs_a_name_that_says_which(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("kind: seq2seq\n")
    assert script_for(path, ()) == "training/train_thoughts.py"  # kind=seq2seq is of one script alone
    path.write_text("fit: {steps: 1}\n")
    with pytest.raises(ConfigError, match=r"train_gnn\.py, .* can all read it"):
        script_for(path, ())
    path.write_text("fit: {steps: 1}\nfits: 2\n")
    with pytest.raises(ConfigError, match="no training script can read it"):
        script_for(path, ())


def test_kinds_are_those_of_the_scripts() -> None:
    assert {f"{p.stem}.py" for p in (ROOT / "training").glob("train_*.py")} == set(TRAININGS)


def test_a_job_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    from gnnrag.cluster.job import read_job

    plan = make_plan([SAMPLE, DATA, "retriever=bm25"], tmp_path / "jobs", shards=2)
    for job in plan.jobs.values():
        job.write()
        back = read_job(job.folder)
        assert json.loads(json.dumps(back.target.settings)) == json.loads(json.dumps(job.target.settings))
        assert (back.name, back.argv, back.needs, back.tasks) == (job.name, job.argv, job.needs, job.tasks)


def test_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run.name=clash is given to several runs"):
        make_plan([SAMPLE, DATA, "run.name=clash", "method=single,closed_book"], tmp_path / "jobs")
    for folder, method in (("a", "single"), ("b", "closed_book")):  # of one label
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.yaml").write_text(f"data: {{path: data/sample}}\nmethod: {method}\n", "utf-8")
    with pytest.raises(ConfigError, match=r"run.name=clash is given to several runs"):
        make_plan([str(tmp_path / f / "x.yaml") for f in "ab"] + ["run.name=clash"], tmp_path / "jobs")
