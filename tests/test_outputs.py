"""Folders of different kinds under one name: none is written into, or deleted, as if it were another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ConfigError
from gnnrag.judge.answers import JudgeConfig
from gnnrag.judge.folder import JudgementDir
from gnnrag.run.rundir import RunDir
from gnnrag.session import Session
from gnnrag.training.collect import mark
from gnnrag.training.rundir import TrainingRun
from gnnrag.types import Prediction

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


def judgement(path: Path, fresh: bool = False) -> None:
    JudgementDir(path, JudgeConfig(), ["a"], {}).close()


MAKERS: dict[str, Callable[..., None]] = {
    "an evaluation": evaluation,
    "a training run": training,
    "an evaluation over folds": merged,
    "rows of collect_traces.py": rows,
    "an audit": audit,
    "judgements": judgement,
}
OPENERS = {
    name: MAKERS[name] for name in ("an evaluation", "a training run", "rows of collect_traces.py", "judgements")
}


def content(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("what, mine", [(what, mine) for what in MAKERS for mine in OPENERS if what != mine])
def test_a_folder_of_another_kind_is_refused_and_left_alone(tmp_path: Path, what: str, mine: str) -> None:
    MAKERS[what](tmp_path / "x")
    before = content(tmp_path)
    for fresh in (False, True):
        with pytest.raises(ConfigError, match=what):
            OPENERS[mine](tmp_path / "x", fresh)
    assert content(tmp_path) == before


@pytest.mark.parametrize("maker", [evaluation, training])
def test_fresh_deletes_no_file_that_the_run_did_not_write(tmp_path: Path, maker: Callable[..., None]) -> None:
    maker(tmp_path / "x")
    for name in "abcd":
        (tmp_path / "x" / f"{name}.html").write_text("a page")
    before = content(tmp_path)
    with pytest.raises(ConfigError, match=r"not of an? .*: a\.html, b\.html, c\.html and 1 more; move them away"):
        maker(tmp_path / "x", fresh=True)
    assert content(tmp_path) == before
    maker(tmp_path / "x")  # goes on beside them
