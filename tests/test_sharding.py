"""A run in parts, in any division, order and number of restarts, is byte for byte the run of one process."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnrag.common.files import lock_run, read_journal, write_jsonl
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.index.index import Index
from gnnrag.llm.cache import CachedBackend
from gnnrag.parts import ready
from gnnrag.run.evaluation import Observer, evaluate, load_questions_for
from gnnrag.run.pipeline import open_index
from gnnrag.run.rundir import read_predictions, trained_note
from gnnrag.run.sharding import Shard, parts_of, read_shard
from gnnrag.types import Prediction
from tests.helpers.each import each
from tests.helpers.every_method import SETTINGS
from tests.helpers.indexes import REPOSITORY

SAME = ("predictions.jsonl", "traces.jsonl", "scores.jsonl")
SAMPLE = REPOSITORY / "data" / "sample"
TOY = ["method=single", "retriever=bm25", "data.limit=7", "concurrency=1"]
BASE = [f"data.path={SAMPLE}", "index.embedder.model=hash", "index.text.language=blank:en", "run.name=run"]


class Bench:
    """Runs over the sample, on one index that is opened once."""

    def __init__(self, folder: Path, index: Path, *dots: str) -> None:
        self.folder = folder
        self.config = load_config(EvaluateConfig, None, [*BASE, f"index.path={index}", *dots])
        self.data: Dataset = load_questions_for(self.config)
        self.index: Index = open_index(self.config, self.data.name, self.data.passages)
        self.order = [q.id for q in self.data.questions]

    def run(self, where: str, shard: str | None = None, stop_after: int | None = None, **more: Any) -> Path:
        """Answer a part, all or none of the questions; `stop_after` so many answers it is cut off."""
        run = replace(self.config.run, root=str(self.folder / where), **more)
        config = replace(self.config, run=run, shard=shard)
        left = [stop_after]

        def ended(prediction: Prediction) -> None:
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError("cut off")

        return evaluate(config, Observer(on_question=ended), index=self.index, data=self.data)[0]

    def cut(self, where: str, shard: str | None, moments: random.Random) -> None:
        """Die somewhere in the midst of a part, and leave half a line, as `kill -9` does."""
        asked = len(self.order) if shard is None else len(read_shard(shard).of(self.order))  # type: ignore[union-attr]
        try:
            self.run(where, shard, moments.randrange(asked) if asked else None)
        except ExceptionGroup:
            path = self.folder / where / "run" / (read_shard(shard).folder if shard else "")  # type: ignore[union-attr]
            for name in moments.sample(["predictions.jsonl", "traces.jsonl", "log.jsonl"], 2):
                with (path / name).open("a") as out:
                    out.write('{"question_id": "sam')


def same(one: Path, two: Path) -> None:
    for name in SAME:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    assert untimed(one) == untimed(two)
    assert "\nshard: null\n" in (one / "config.yaml").read_text()


def untimed(run: Path) -> str:
    """The bytes of `metrics.json` but for the figures in seconds."""
    lines = (run / "metrics.json").read_text().splitlines()
    return "\n".join(line for line in lines if "seconds" not in line)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index") / "i"


@pytest.fixture
def bench(tmp_path: Path, index: Path) -> Callable[..., Bench]:
    return lambda *dots: Bench(tmp_path, index, *dots)


@pytest.fixture
def toy(bench: Any) -> Bench:
    """A run that takes no time."""
    return bench(*TOY)


def disturb(bench: Bench, seed: int, divisions: Sequence[int], cuts: int) -> None:
    """Compare one process with parts of some divisions, in any order, cut off here and there, and merged twice."""
    moments = random.Random(seed)
    want = bench.run("whole")
    parts = [f"{number}/{count}" for count in divisions for number in range(1, count + 1)]
    calls = parts + moments.choices(parts, k=cuts)
    moments.shuffle(calls)
    for call in calls:  # a part that comes twice is cut off the first time, or finds that nothing is left to do
        if moments.random() < 0.5 and cuts:
            bench.cut("parts", call, moments)
    for call in moments.sample(parts, len(parts)):
        bench.run("parts", call)
    for _ in range(2):
        same(bench.run("parts", "merge"), want)
    log = read_journal(bench.folder / "parts" / "run" / "log.jsonl")
    assert {row["id"] for row in log if row["event"] == "question" and "part" in row} == set(bench.order)


# ----------------------------------------------------------------------------------------- byte for byte
METHODS = {
    "bdtr": ["method=bdtr", "retriever=chg"],
    "routed": ["method=routed", "retriever=hybrid"],
    "graphsearch": ["method=graphsearch", *SETTINGS["graphsearch"][0]],
    "dotrag": ["method=dotrag", *SETTINGS["dotrag"][0]],
    "mgranrag": ["method=mgranrag", *SETTINGS["mgranrag"][0]],
}


def test_parts_leave_what_one_process_leaves(bench: Any) -> None:
    disturb(bench(*METHODS["bdtr"], "data.limit=9"), seed=4, divisions=[3], cuts=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@each("name", list(METHODS))
def test_many_parts_leave_what_one_process_leaves(tmp_path: Path, index: Path, name: str) -> None:
    disturb(Bench(tmp_path, index, *METHODS[name]), seed=len(name), divisions=[16], cuts=12)


@pytest.mark.slow
@each("seed", range(12))
def test_any_division_order_and_number_of_restarts(tmp_path: Path, index: Path, seed: int) -> None:
    divisions = random.Random(seed).sample([1, 2, 3, 5, 8, 13, 20], 2) if seed else [1, 4]
    bench = Bench(tmp_path, index, "method=multihop", "retriever=hybrid", "data.limit=13")
    disturb(bench, seed, divisions, cuts=3 * (seed + 1))


@pytest.mark.slow
def test_replies_from_the_cache_are_nobodys_concern(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks first fills the cache for the others; what it holds decides neither rows nor figures."""

    def opened(where: str, name: str, settings: Any, cache: str | None) -> CachedBackend:
        return CachedBackend(ready(settings), cache or tmp_path / "third.sqlite")

    monkeypatch.setattr("gnnrag.roles.registry.open_backend", opened)  # which caches no scripted model
    rules = "[{match: 'Question: W', reply: 'Answer: one'}, {match: '.', reply: 'Answer: two'}]"
    dots = ["method=bdtr", "retriever=bm25", "roles=prompted", "llm=scripted", f"llm.rules={rules}", "data.limit=8"]
    caches = {name: f"llm_cache={tmp_path / name}.sqlite" for name in ("one", "two")}
    one, two = (bench(*dots, cache) for cache in caches.values())
    want = one.run("whole")
    for number in (2, 1, 3):
        one.run("warm", f"{number}/3")
        two.run("cold", f"{number}/3")
    same(one.run("warm", "merge"), want)
    same(two.run("cold", "merge"), want)
    same(bench(*dots, "llm_cache=null").run("none"), want)
    cached = [
        sum(row.get("cached_calls", 0) for row in read_journal(run / "log.jsonl"))
        for run in (want, one.folder / "warm" / "run")
    ]
    usage = [prediction.usage for prediction in read_predictions(want)]
    assert cached[1] == sum(row["llm_calls"] for row in usage) > cached[0] and usage[0]["llm_calls"] > 2


# ----------------------------------------------------------------------------------------- the setting
def test_parts_are_every_so_manyth_question() -> None:
    shard = read_shard("3/16")
    assert shard == Shard(16, 3) and str(shard) == "3/16" and shard.folder == "shards/3-of-16"
    assert list(shard.of(range(40))) == [2, 18, 34] and read_shard("2/2").of("x") == ""  # type: ignore[union-attr]
    assert read_shard(None) is None and read_shard("merge") is None
    every = [position for number in range(1, 8) for position in Shard(7, number).of(range(50))]
    assert sorted(every) == list(range(50))


@each("text", ["0/16", "17/16", "3/0", "3-16", "3", "", "a/b", "3/16/2", "-1/4", "1.5/4", "٣/4"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"shard=.*: give NUMBER/COUNT .* such as shard=3/16 .* or shard=merge"):
        read_shard(text)


# ----------------------------------------------------------------------------------------- merging
@pytest.mark.slow
def test_what_is_missing_is_named_with_the_command_that_makes_it(toy: Bench) -> None:
    with pytest.raises(GnnragError, match="has no parts to merge, and 7 questions without a row; start them first"):
        toy.run("r", "merge")
    toy.run("r", "1/3")
    toy.run("r", "2/5")
    with pytest.raises(GnnragError) as error:
        toy.run("r", "merge")
    # Of 1/3 there are questions 0, 3, 6, of 2/5 1 and 6: the third of three has 2 and 5, the second 4.
    asked = f"shard=3/3 (2, such as {toy.order[2]!r}), shard=2/3 (1, such as {toy.order[4]!r})"
    assert f"3 of 7 questions have no row in any part; run the same command with {asked}, then" in str(error.value)
    assert not read_predictions(toy.folder / "r" / "run") and not (toy.folder / "r" / "run" / "metrics.json").exists()
    toy.run("r", "3/3")
    toy.run("r", "2/3")
    same(toy.run("r", "merge"), toy.run("whole"))


@pytest.mark.slow
def test_more_parts_than_questions(toy: Bench) -> None:
    for number in range(9, 0, -1):
        path = toy.run("r", f"{number}/9")
        meta = json.loads((path / "meta.json").read_text())
        assert len(read_predictions(path)) == meta["questions"] == int(number <= 7)
    same(toy.run("r", "merge"), toy.run("whole"))


def change(path: Path, id_: str, **fields: Any) -> None:
    rows = read_journal(path / "predictions.jsonl")
    assert id_ in [row["question_id"] for row in rows]
    write_jsonl(path / "predictions.jsonl", [row | fields if row["question_id"] == id_ else row for row in rows])


@pytest.mark.slow
def test_parts_that_contradict_each_other(toy: Bench) -> None:
    one, two = toy.run("r", "1/1"), toy.run("r", "2/2")
    before = toy.run("r", "merge")
    rows = (before / "predictions.jsonl").read_bytes()
    id_ = toy.order[3]
    change(two, id_, answer="something else")
    with pytest.raises(GnnragError, match=f"1-of-1 and .*2-of-2 hold different rows for question {id_!r}"):
        toy.run("r", "merge")
    assert (before / "predictions.jsonl").read_bytes() == rows, "nothing was changed"
    change(one, id_, answer="something else")
    assert read_predictions(toy.run("r", "merge"))[3].answer == "something else"


@pytest.mark.slow
def test_an_answer_takes_the_place_of_a_failure(toy: Bench) -> None:
    want, one, two = toy.run("whole"), toy.run("r", "1/1"), toy.run("r", "2/2")
    failed = toy.order[3]
    change(one, failed, error="down", answer="")
    same(toy.run("r", "merge", retry_failed=False), want)
    change(two, failed, error="down again", answer="")
    merged = toy.run("r", "merge")
    assert read_predictions(merged)[3].error == "down", "of two failures the first one; a merge answers nothing"
    same(toy.run("r"), want)  # the ordinary command tries it again


@pytest.mark.slow
def test_ordinary_runs_and_parts(toy: Bench) -> None:
    """A run takes what its parts hold, answers the rest, and is finished for whoever comes after."""
    want = toy.run("whole")
    toy.run("r", "2/3")
    asked: list[str] = []
    run = replace(toy.config.run, root=str(toy.folder / "r"))
    path, _ = evaluate(replace(toy.config, run=run), Observer(on_question=lambda p: asked.append(p.question_id)))
    assert sorted(asked) == sorted(set(toy.order) - set(toy.order[1::3]))
    same(path, want)
    toy.run("r", "1/3")
    for shard in ("merge", None, "merge"):
        same(toy.run("r", shard, stop_after=0), want)
    shutil.rmtree(path / "shards")
    same(toy.run("r", stop_after=0), want)


@pytest.mark.slow
def test_a_part_started_over_gives_its_new_rows_to_the_next_merge(toy: Bench) -> None:
    for shard in ("1/2", "2/2"):
        toy.run("r", shard)
    merged = toy.run("r", "merge")
    change(merged / "shards" / "2-of-2", toy.order[1], answer="changed")
    assert read_predictions(toy.run("r", "merge"))[1].answer == "changed"
    with pytest.raises(ExceptionGroup):
        toy.run("r", "2/2", fresh=True, stop_after=0)
    assert len(read_predictions(merged / "shards" / "1-of-2")) == 4, "the other part stays"
    with pytest.raises(GnnragError, match=r"2 of 7 questions have no row .* shard=2/2 \(2, such as"):
        toy.run("r", "merge")
    toy.run("r", "2/2")
    same(toy.run("r", "merge"), toy.run("whole"))


@pytest.mark.slow
def test_parts_with_and_without_traces(toy: Bench) -> None:
    """A mean over those that have a trace would be of other questions than the rest of the figures."""
    toy.run("r", "1/2", traces=False)
    toy.run("r", "2/2")
    mixed = json.loads((toy.run("r", "merge") / "metrics.json").read_text())
    whole = json.loads((toy.run("whole") / "metrics.json").read_text())
    assert "by_round" not in mixed and whole["by_round"]
    assert mixed["retrieval/recall@5"] == whole["retrieval/recall@5"]


@pytest.mark.slow
def test_starting_over(toy: Bench) -> None:
    path = toy.run("r", "1/2")
    whole = path.parents[1]
    with pytest.raises(ConfigError, match="with shard=merge would delete the parts"):
        toy.run("r", "merge", fresh=True)
    with lock_run(path, "run"), pytest.raises(GnnragError, match="1-of-2 is being written by another process"):
        toy.run("r", fresh=True)
    assert set(parts_of(whole)) == {Shard(2, 1)}
    same(toy.run("r", fresh=True), toy.run("whole"))
    assert not parts_of(whole)


@pytest.mark.slow
def test_a_part_that_is_being_written_is_not_merged(toy: Bench) -> None:
    path = toy.run("r", "1/1")
    with lock_run(path, "run"), pytest.raises(GnnragError, match="1-of-1 is being written by another process"):
        toy.run("r", "merge")


@pytest.mark.slow
def test_parts_of_other_settings_or_inputs_are_refused(toy: Bench, bench: Any) -> None:
    path = toy.run("r", "1/2")
    other = bench("method=single", "retriever=bm25", "data.limit=7", "budget.max_rounds=3")
    for shard in ("1/2", "2/2"):
        with pytest.raises(ConfigError, match=r"1-of-2 exists with other settings \(budget.max_rounds\)"):
            other.run("r", shard)
    toy.run("r", "2/2")
    meta = json.loads((path / "meta.json").read_text())
    meta["inputs"]["index"]["lexical"] = "changed"
    (path / "meta.json").write_text(json.dumps(meta))
    for shard in ("merge", None):
        with pytest.raises(ConfigError, match=r"1-of-2 exists with other inputs \(index.lexical\)"):
            toy.run("r", shard)


@pytest.mark.slow
def test_the_record_of_a_merged_run(toy: Bench) -> None:
    parts = [toy.run("r", shard) for shard in ("1/2", "2/2")]
    path = toy.run("r", "merge")
    meta, log = json.loads((path / "meta.json").read_text()), read_journal(path / "log.jsonl")
    assert meta["parts"] == {"shards/1-of-2": 4, "shards/2-of-2": 3} and meta["questions"] == 7
    seconds = {p.question_id: p.seconds for part in parts for p in read_predictions(part)}
    assert {p.question_id: p.seconds for p in read_predictions(path)} == seconds and min(seconds.values()) > 0
    took = [row["seconds"] for part in parts for row in read_journal(part / "log.jsonl") if row["event"] == "predicted"]
    assert [row["seconds"] for row in log if row["event"] == "predicted"] == took
    for _ in range(2):  # neither the log nor what it says grows
        toy.run("r", "merge")
    again = read_journal(path / "log.jsonl")
    assert len([row for row in again if row["event"] != "start"]) == len(
        [row for row in log if row["event"] != "start"]
    )
    metrics = json.loads((path / "metrics.json").read_text())
    assert metrics["cost/seconds_per_question"] == pytest.approx(sum(seconds.values()) / 7, abs=1e-4)


@pytest.mark.slow
def test_a_merge_that_is_killed_is_done_again(toy: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies at each of the renames in turn, the first time and once there is something to replace."""
    want = toy.run("whole")
    for shard in ("1/2", "2/2"):
        toy.run("parts", shard)
    rename = os.replace
    for number, is_first in [(number, is_first) for number in range(6) for is_first in (True, False)]:
        if is_first:
            shutil.rmtree(toy.folder / "r", ignore_errors=True)
            shutil.copytree(toy.folder / "parts", toy.folder / "r")
        left = [number + 2]  # config.yaml and meta.json come first

        def die(*names: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise SystemExit(9)
            rename(*names)

        monkeypatch.setattr(os, "replace", die)
        with pytest.raises(SystemExit):
            toy.run("r", "merge")
        monkeypatch.undo()
        same(toy.run("r", "merge"), want)


def test_only_the_whole_is_judged_by_its_fallbacks(toy: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may have more than its share of them."""

    def refuse(config: Any, path: Path, predictions: Sequence[Prediction]) -> None:
        raise GnnragError(f"{len(predictions)} looked at")

    monkeypatch.setattr("gnnrag.run.evaluation.check_retriever", refuse)
    for shard in ("1/2", "2/2"):
        toy.run("r", shard)
    with pytest.raises(GnnragError, match="7 looked at"):
        toy.run("r", "merge")


def test_a_merged_run_says_which_of_all_questions_had_trained_its_parts(
    toy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gnnrag.run.evaluation.trained_on", lambda config, asked: {"roles.reader": f"1 of {len(asked)}"}
    )
    paths = [toy.run("r", shard) for shard in ("1/2", "2/2", "merge")]
    assert [trained_note(path) for path in paths] == [
        f"roles.reader trained on 1 of {count} of these questions" for count in (4, 3, 7)
    ]


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(GnnragError, match=r"\.run\.lock cannot be locked \(No locks available\): its file system has"):
        lock_run(tmp_path / "run", "run")
