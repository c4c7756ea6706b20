"""Folders of different kinds under one name: none is written into, or deleted, as if it were another."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli import evaluate as evaluate_script
from gnnrag.cli.console import run_script
from gnnrag.errors import ConfigError
from gnnrag.index.build import build_index
from gnnrag.index.store import Store
from gnnrag.index_config import IndexConfig
from gnnrag.run.rundir import RunDir
from gnnrag.session import Session
from gnnrag.training.collect import mark
from gnnrag.training.rundir import TrainingRun
from gnnrag.types import Passage, Prediction
from tests.helpers.each import each
from training import train_gnn

ROOT = Path(__file__).resolve().parents[1]
CONFIG: dict[str, Any] = {"method": {"name": "bdtr"}, "data": {"path": "data/sample", "questions": None}}
SAMPLE = ["embedder.model=hash", "text.language=blank:en"]


def evaluation(path: Path, fresh: bool = False, config: Any = None) -> None:
    with closing(RunDir(path.parent, path.name, config or CONFIG, {"data": "aa"}, fresh)) as run:
        run.add(Prediction("q", "x", ("p",), ("p",), 1, {}, 0.5, None), Session("q"))


def training(path: Path, fresh: bool = False, config: Any = None) -> None:
    with closing(TrainingRun(path, config or {"fit": {"lr": 1}}, {"toy": "aa"}, fresh)) as run:
        run.save_state({"progress": {"step": 1}})
        run.save_folder("best", lambda folder: (folder / "weights").write_text("hours of work"))


def merged(path: Path, fresh: bool = False) -> None:
    path.mkdir(parents=True)
    (path / "meta.json").write_text('{"merged": ["a"], "commit": ""}')
    (path / "predictions.jsonl").write_text('{"question_id": "q"}\n')


def rows(path: Path, fresh: bool = False) -> None:
    mark(path, {"candidates": None})
    (path / "verifier.jsonl").write_text('{"a": 1}\n')


def audit(path: Path, fresh: bool = False) -> None:
    path.mkdir(parents=True)
    (path / "audit.json").write_text("{}")


def shard(path: Path, fresh: bool = False) -> None:
    evaluation(path / "shards" / "1-of-2")


def audit_under_way(path: Path, fresh: bool = False) -> None:
    evaluation(path / "flat")


def index(path: Path, fresh: bool = False) -> None:
    Store(path).commit("passages", "a" * 64, lambda folder: {})


MAKERS: dict[str, Callable[..., None]] = {
    "an evaluation": evaluation,
    "a training run": training,
    "an evaluation over folds": merged,
    "rows of collect_traces.py": rows,
    "an audit": audit,
}
OPENERS = {
    name: MAKERS[name] for name in ("an evaluation", "a training run", "rows of collect_traces.py")
}


def content(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@each("fresh", [False, True])
@each("what, mine", [(what, mine) for what in MAKERS for mine in OPENERS if what != mine])
def test_a_folder_of_another_kind_is_refused_and_left_alone(tmp_path: Path, what: str, mine: str, fresh: bool) -> None:
    MAKERS[what](tmp_path / "x")
    before = content(tmp_path)
    with pytest.raises(ConfigError, match=rf"x holds {what}.*, not {mine}; give another [a-z.]+$") as caught:
        OPENERS[mine](tmp_path / "x", fresh)
    assert "fresh" not in str(caught.value) and content(tmp_path) == before


@each("maker, what", [(shard, "an evaluation"), (audit_under_way, "an audit"), (index, "an index")])
def test_what_has_no_record_of_its_own_is_known_as_well(tmp_path: Path, maker: Callable[..., None], what: str) -> None:
    maker(tmp_path / "x")
    for fresh in (False, True):
        with pytest.raises(ConfigError, match=f"x holds {what}, not a training run; give another run.name"):
            training(tmp_path / "x", fresh)


@each("maker", [evaluation, training])
def test_no_index_is_built_in_a_run(tmp_path: Path, maker: Callable[..., None]) -> None:
    maker(tmp_path / "x")
    before = content(tmp_path)
    passage = Passage("a", "Kalmar", "Kalmar is a town.")
    with pytest.raises(ConfigError, match=r"x holds .*, not an index; give another index\.path"):
        build_index(tmp_path / "x", [passage], IndexConfig(), ["lexical"])
    assert content(tmp_path) == before
    index(tmp_path / "x")  # as earlier versions did
    with pytest.raises(ConfigError, match=r"x holds an index beside .*; move what does not belong there away, or"):
        maker(tmp_path / "x")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(ConfigError, match=r"x is a file; give another run.name"):
            evaluation(tmp_path / "x", fresh)


@each("opener", [evaluation, training])
def test_a_folder_that_was_mixed_before_is_not_deleted(tmp_path: Path, opener: Callable[..., None]) -> None:
    rows(tmp_path / "x")
    (tmp_path / "x" / "meta.json").write_text('{"decisive": {}, "inputs": {}}')
    (tmp_path / "x" / "best").mkdir()
    for fresh in (False, True):
        with pytest.raises(ConfigError, match=r"x holds .* and rows of collect_traces.py(, not| beside)"):
            opener(tmp_path / "x", fresh)
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "meta.json").write_text('{"title": "a web page"}')
    with pytest.raises(ConfigError, match=r"holds a meta\.json of something else"):
        opener(tmp_path / "y")


def test_the_folds_of_a_training_are_one(tmp_path: Path) -> None:
    training(tmp_path / "x" / "fold0")
    for fresh in (False, True):
        with pytest.raises(ConfigError, match="x holds a training run, not an evaluation"):
            evaluation(tmp_path / "x", fresh)


@each("maker", [evaluation, training])
def test_fresh_deletes_no_file_that_the_run_did_not_write(tmp_path: Path, maker: Callable[..., None]) -> None:
    maker(tmp_path / "x")
    for name in "abcd":
        (tmp_path / "x" / f"{name}.html").write_text("a page")
    before = content(tmp_path)
    with pytest.raises(ConfigError, match=r"not of an? .*: a\.html, b\.html, c\.html and 1 more; move them away"):
        maker(tmp_path / "x", fresh=True)
    assert content(tmp_path) == before
    maker(tmp_path / "x")  # goes on beside them


def test_fresh_deletes_all_that_a_run_may_leave(tmp_path: Path) -> None:
    """What tracking, a judge, parts and a kill leave in a run is the run's."""
    own = {
        evaluation: ("wandb/mirror.log", "wandb.json", "judgements/j/replies.jsonl", "shards/1-of-2/meta.json",
                     ".meta.json.x1", "scores.jsonl", "metrics.json", ".nfs01"),
        training: ("wandb/mirror.log", "wandb.json", "merged/m", ".best.new/m", ".state.pt.x", "folds.json",
                   "report.jsonl", "metrics.json", "curves.png", "calibration.png"),
    }  # fmt: skip
    for maker, names in own.items():
        folder = tmp_path / maker.__name__
        maker(folder)
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("{}")
        maker(folder, fresh=True)
        assert not set(names) & content(folder).keys()


def test_fresh_deletes_nothing_that_the_new_run_is_to_read(tmp_path: Path) -> None:
    evaluation(tmp_path / "x")
    training(tmp_path / "t")
    before = content(tmp_path)
    inside = str(tmp_path / "x" / "predictions.jsonl")
    for data in ({"questions": inside, "path": "elsewhere"}, {"path": str(tmp_path / "x"), "questions": None}):
        with pytest.raises(ConfigError, match=r"delete .*x, where data\.(questions|path)=.* lies; move that away"):
            evaluation(tmp_path / "x", fresh=True, config=CONFIG | {"data": data})
    with pytest.raises(ConfigError, match=r"where sets\.toy\.start=.* lies"):
        training(tmp_path / "t", fresh=True, config={"sets": {"toy": {"start": [str(tmp_path / "t" / "best")]}}})
    assert content(tmp_path) == before


def test_a_part_is_not_begun_in_a_folder_of_another_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training(tmp_path / "r" / "x")
    before = content(tmp_path / "r")
    places = [f"data.path={ROOT / 'data' / 'sample'}", f"index.path={tmp_path / 'i'}", f"run.root={tmp_path / 'r'}"]
    plain = [*places, *(f"index.{one}" for one in SAMPLE), "retriever=bm25", "data.limit=4", "run.name=x"]
    for more in ([], ["run.fresh=true"], ["shard=1/2"], ["shard=1/2", "run.fresh=true"]):
        assert run_script(evaluate_script.main, [*plain, *more], "") == 2
        err = capsys.readouterr().err
        assert "x holds a training run, not an evaluation; give another run.name" in err and "fresh" not in err
    assert content(tmp_path / "r") == before


@pytest.mark.slow
@each("cross", ["false", "true"])
def test_a_training_is_not_begun_in_an_evaluation(
    tmp_path: Path, cross: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation(tmp_path / "r" / "x")
    before = content(tmp_path / "r")
    places = [f"sets.sample.data.path={ROOT / 'data' / 'sample'}", f"run.root={tmp_path / 'r'}", "run.name=x"]
    places += [f"sets.sample.index.path={tmp_path / 'i'}", f"cache={tmp_path / 'c'}", "sets.sample.data.limit=12"]
    plain = [*places, *(f"sets.sample.index.{one}" for one in SAMPLE), "gnn.dim=4", f"cross={cross}"]
    for more in ([], ["run.fresh=true"]):
        assert run_script(train_gnn.main, [*plain, *more], "") == 2
        err = capsys.readouterr().err
        assert "x holds an evaluation, not a training run; give another run.name" in err and "fresh" not in err
    assert content(tmp_path / "r") == before
    assert "decisive" in json.loads((tmp_path / "r" / "x" / "meta.json").read_text())
