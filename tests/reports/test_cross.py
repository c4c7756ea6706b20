"""Trained parts in an evaluation: no question meets a checkpoint that it shaped, and a run that does so says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.reports.cross import cross_evaluate, read_part, with_training_runs
from gnnrag.run.evaluate import Observer, evaluate, load_data_for, trained_on
from gnnrag.run.rundir import read_predictions, trained_note
from tests.helpers.indexes import HASH_DOTS, REPOSITORY
from tests.helpers.toy_tuned import register_toys, toy_checkpoint, toy_training

Make = Callable[..., EvaluateConfig]


@pytest.fixture(autouse=True)
def toy_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    register_toys(monkeypatch)


@pytest.fixture
def dots(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> list[str]:
    own = [
        f"data.path={REPOSITORY / 'data/sample'}",
        "data.limit=12",
        "llm_cache=null",
        f"run.root={tmp_path / 'runs'}",
    ]
    return [*own, *HASH_DOTS, f"index.root={tmp_path_factory.getbasetemp() / 'cross-index'}"]


@pytest.fixture
def make(dots: list[str]) -> Make:
    return lambda *more: load_config(EvaluateConfig, None, [*dots, *more])


@pytest.fixture
def data(make: Make) -> Dataset:
    return load_data_for(make())


def ids(data: Dataset) -> list[str]:
    return [question.id for question in data.questions]


def test_folds_that_differ_between_parts_are_combined(make: Make, data: Dataset, tmp_path: Path) -> None:
    verifier = read_part("verifier", toy_training(tmp_path / "v", "verifier", ids(data), 2), data)
    reader = read_part("reader", toy_training(tmp_path / "r", "reader", ids(data), 3, salt="b"), data)
    path, metrics = cross_evaluate(make("method=bdtr"), [verifier, reader])
    assert metrics["questions"] == 12 and metrics["failed"] == 0
    answers = {p.question_id: p.answer for p in read_predictions(path)}
    groups = json.loads((path / "folds.json").read_text())
    assert sorted(id_ for group in groups.values() for id_ in group["questions"]) == sorted(ids(data))
    assert len(groups) > 3, "two folds and three make more groups than either"
    for name, group in groups.items():
        for part in ("verifier", "reader"):
            run = Path(group["checkpoints"][part]).parent
            parts = json.loads((run / "folds.json").read_text())["sample"]
            assert set(group["questions"]) <= set(parts["report"])
            assert f"path: {run / 'best'}" in (path.parent / name / "config.yaml").read_text()
        assert {answers[id_] for id_ in group["questions"]} == {Path(group["checkpoints"]["reader"]).parent.name}
        assert "trained_on" not in json.loads((path.parent / name / "meta.json").read_text())
    assert list(answers) == ids(data), "in the order of the questions"
    assert len((path / "traces.jsonl").read_text().splitlines()) == 12


def test_options_go_to_the_tuned_role_alone(make: Make, data: Dataset, tmp_path: Path) -> None:
    part = read_part("reader", toy_training(tmp_path / "r", "reader", ids(data)), data)
    for more, options in (
        ([], {"answer": "x"}),
        (["roles.reader=tuned"], {"answer": "x"}),
        (["roles.reader=oracle"], {}),
    ):
        config = make("method=single", *more, "roles.reader.options.answer=x")
        assert with_training_runs(config, [part]).roles.reader.options == options  # type: ignore[attr-defined]
    path, _ = cross_evaluate(make("method=single", "roles.reader.options.answer=fixed"), [part])
    assert {p.answer for p in read_predictions(path)} == {"fixed"}


def test_a_run_on_questions_that_trained_says_so(make: Make, data: Dataset, tmp_path: Path) -> None:
    one = toy_training(tmp_path / "one", "reader", ids(data)[:9], folds=0)
    notes: list[str] = []
    config = make("method=single", "roles.reader=tuned", f"roles.reader.path={one}")
    path, _ = evaluate(config, Observer(on_note=notes.append))
    assert any("asked here: roles.reader on 9 of 12;" in note for note in notes)
    assert json.loads((path / "meta.json").read_text())["trained_on"] == {"roles.reader": "9 of 12"}
    assert trained_note(path) == "roles.reader trained on 9 of 12 of these questions"
    few = replace(data, questions=data.questions[9:])
    assert not trained_on(config, few.questions)
    path, _ = cross_evaluate(config, [read_part("reader", one / "best", few)], few)
    assert not trained_note(path)
    assert len(read_predictions(path)) == 3, "a single checkpoint may be asked what it has not seen"


def test_what_would_be_dishonest_is_refused(data: Dataset, tmp_path: Path) -> None:
    one = toy_training(tmp_path / "one", "reader", ids(data), folds=0)
    with pytest.raises(DataError, match=r"12 of 12 questions.*trained it"):
        read_part("reader", one, data)
    half = toy_training(tmp_path / "half", "reader", ids(data)[:6])
    first = {id_ for id_, path in read_part("reader", half, data).checkpoints.items() if path.parent.name == "fold0"}
    assert first >= set(ids(data)[6:]), "what no fold has seen may be asked of any"
    twice = {"sample": {"train": [], "validation": [], "report": ids(data)}}
    under = {**twice, "again": {"train": ids(data)[:1], "validation": [], "report": []}}
    toy_checkpoint(tmp_path / "under" / "fold0", "reader", under)
    with pytest.raises(DataError, match="1 of 12 questions"):
        read_part("reader", tmp_path / "under", data)
    with pytest.raises(ConfigError, match=r"chain=.*no such part is trained"):
        read_part("chain", one, data)
    with pytest.raises(GnnragError, match="is no training run"):
        read_part("reader", tmp_path, data)
    (half / "fold0" / "metrics.json").unlink()
    with pytest.raises(GnnragError, match="has not ended"):
        read_part("reader", half, data)
