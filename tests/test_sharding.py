"""A run in parts has the rows and figures of the run of one process, in any division and order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnrag.common.files import read_journal, write_jsonl
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.run.evaluation import Observer, evaluate, load_questions_for
from gnnrag.run.pipeline import open_index
from gnnrag.run.rundir import read_predictions, trained_note
from gnnrag.run.sharding import Shard, read_shard
from tests.helpers.every_method import SETTINGS
from tests.helpers.indexes import REPOSITORY

SAMPLE = REPOSITORY / "data" / "sample"
TOY = ["method=single", "retriever=bm25", "data.limit=7", "concurrency=1"]
BASE = [f"data.path={SAMPLE}", "index.embedder.model=hash", "index.text.language=blank:en", "run.name=run"]


class Bench:
    """Runs over the sample, on one index that is opened once."""

    def __init__(self, folder: Path, index: Path, *dots: str) -> None:
        self.folder = folder
        self.config = load_config(EvaluateConfig, None, [*BASE, f"index.path={index}", *dots])
        self.data = load_questions_for(self.config)
        self.index = open_index(self.config, self.data.name, self.data.passages)
        self.order = [q.id for q in self.data.questions]

    def run(self, where: str, shard: str | None = None, stop_after: int | None = None, **more: Any) -> Path:
        """Answer a part, all or none of the questions; cut off after `stop_after` answers."""
        config = replace(self.config, run=replace(self.config.run, root=str(self.folder / where), **more), shard=shard)
        answered = 0

        def count(_: object) -> None:
            nonlocal answered
            answered += 1
            if stop_after is not None and answered > stop_after:
                raise OSError("cut off")

        return evaluate(config, Observer(on_question=count), index=self.index, data=self.data)[0]


def outcome(run: Path) -> Any:
    """Return rows, traces and figures of a run without what depends on time."""
    rows = [row | {"seconds": 0} for row in read_journal(run / "predictions.jsonl")]
    figures = untimed(json.loads((run / "metrics.json").read_text()))
    return rows, [row["question_id"] for row in read_journal(run / "traces.jsonl")], figures


def untimed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: untimed(inner) for name, inner in value.items() if "seconds" not in name}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index") / "i"


@pytest.fixture
def bench(tmp_path: Path, index: Path) -> Callable[..., Bench]:
    return lambda *dots: Bench(tmp_path, index, *dots)


@pytest.fixture
def toy(bench: Any) -> Bench:
    return bench(*TOY)


@pytest.mark.parametrize(
    "dots",
    [
        ["method=bdtr", "retriever=chg", "data.limit=9"],
        *(
            pytest.param([f"method={name}", *SETTINGS[name][0]], marks=pytest.mark.slow)
            for name in ("dotrag", "mgranrag")
        ),
    ],
    ids=lambda dots: dots[0],
)
def test_parts_equal_one_process_also_when_one_was_cut_off(bench: Any, dots: list[str]) -> None:
    runs = bench(*dots)
    with pytest.raises(ExceptionGroup):
        runs.run("parts", "2/3", stop_after=1)
    with (runs.folder / "parts/run/shards/2-of-3/predictions.jsonl").open("a") as file:
        file.write('{"question_id": "sam')
    for shard in ("3/3", "2/3", "1/3"):
        runs.run("parts", shard)
    assert outcome(runs.run("parts", "merge")) == outcome(runs.run("whole"))


@pytest.mark.parametrize("divisions", [(1,), (9,), (2, 5)])
def test_any_division(toy: Bench, divisions: tuple[int, ...]) -> None:
    for count in divisions:
        for number in range(count, 0, -1):
            toy.run("r", f"{number}/{count}")
    assert outcome(toy.run("r", "merge")) == outcome(toy.run("whole"))


def test_parts_are_every_so_manyth_question() -> None:
    shard = read_shard("3/16")
    assert shard == Shard(16, 3) and list(shard.of(range(40))) == [2, 18, 34]
    assert read_shard(None) is None and read_shard("merge") is None


@pytest.mark.parametrize("text", ["0/16", "17/16", "3/0", "3-16", "", "a/b", "-1/4", "1.5/4"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"shard=.*3/16.*merge"):
        read_shard(text)


def test_what_is_missing_is_named(toy: Bench) -> None:
    with pytest.raises(GnnragError, match="7"):
        toy.run("r", "merge")
    toy.run("r", "1/3")
    toy.run("r", "3/3")
    with pytest.raises(GnnragError, match="shard=2/3"):
        toy.run("r", "merge")
    assert not (toy.folder / "r" / "run" / "metrics.json").exists()


def test_an_answer_takes_the_place_of_a_failure(toy: Bench) -> None:
    want, one = toy.run("whole"), toy.run("r", "1/1")
    toy.run("r", "2/2")
    rows = read_journal(one / "predictions.jsonl")
    write_jsonl(one / "predictions.jsonl", [*rows[:3], rows[3] | {"error": "down", "answer": ""}, *rows[4:]])
    assert outcome(toy.run("r", "merge", retry_failed=False)) == outcome(want)


def test_a_run_takes_what_its_parts_hold_and_answers_the_rest(toy: Bench) -> None:
    toy.run("r", "2/3")
    asked: list[str] = []
    config = replace(toy.config, run=replace(toy.config.run, root=str(toy.folder / "r")))
    path, _ = evaluate(config, Observer(on_question=lambda p: asked.append(p.question_id)))
    assert sorted(asked) == sorted(set(toy.order) - set(toy.order[1::3]))
    assert outcome(path) == outcome(toy.run("whole"))


def test_parts_of_other_settings_are_refused(toy: Bench, bench: Any) -> None:
    toy.run("r", "1/2")
    other = bench("method=single", "retriever=bm25", "data.limit=7", "budget.max_rounds=3")
    for shard in ("1/2", "2/2"):
        with pytest.raises(ConfigError, match=r"budget\.max_rounds"):
            other.run("r", shard)


def test_a_merged_run_says_which_of_all_questions_had_trained_its_parts(
    toy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gnnrag.run.evaluation.trained_on", lambda config, asked: {"roles.reader": f"1 of {len(asked)}"}
    )
    notes = [trained_note(toy.run("r", shard)) for shard in ("1/2", "2/2", "merge")]
    assert [f"1 of {count}" in str(note) for note, count in zip(notes, (4, 3, 7), strict=True)] == [True] * 3


def test_more_parts_than_questions_leave_empty_ones(toy: Bench) -> None:
    assert [len(read_predictions(toy.run("r", f"{number}/9"))) for number in (7, 8)] == [1, 0]
