"""`training/train_encoder.py` as a person starts it, on the sample with a tiny base; composed questions; chains."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gnnrag.cli.app import run
from gnnrag.io import WEIGHTS, load_tensors, read_json, write_json
from gnnrag.training.base import newest_checkpoint
from gnnrag.training.composing import PER_FACT, Fact, compose, facts_of, worded
from gnnrag.training.encoder import draw_chain
from gnnrag.types import GoldHop, Passage, Question
from tests.helpers.tiny_encoder import make_tiny_encoder
from tests.helpers.trainings import read, reported, rows_of
from tests.test_kill import finish, kill_when, lines

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"
SMALL = [
    "sets.sample.index.embedder.backend=torch", "sets.sample.index.text.language=blank:en",
    f"sets.sample.data.path={SAMPLE}", "sets.sample.data.limit=12", "network.rank=2",
    "folds.count=2", "folds.validation=0.3", "trainer.max_steps=8", "trainer.per_device_train_batch_size=4",
    "trainer.eval_steps=4",
    "network.max_tokens=48", "network.question_tokens=24",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    rows = (SAMPLE / "corpus.jsonl").read_text("utf-8").splitlines()
    make_tiny_encoder(folder / "base", [json.loads(row)["text"] for row in rows], layers=1)
    return folder


def command(folder: Path, *more: str) -> list[str]:
    base = folder / "base"
    places = [f"sets.sample.index.path={folder / 'index'}", f"run.root={folder / 'runs'}", f"network.base={base}"]
    return ["train", "encoder", *SMALL, *places, f"sets.sample.index.embedder.model={base}", *more]


def losses(path: Path) -> dict[int, float]:
    return {row["step"]: row["train/loss"] for row in rows_of(path / "metrics.jsonl") if "train/loss" in row}


@pytest.mark.slow
def test_a_training_reports_on_unseen_questions(folder: Path) -> None:
    assert run(command(folder, "run.name=a", "run.notes=[a small one]")) == 0
    path = folder / "runs" / "a"
    rows = reported(path, "sample", "a small one")
    assert all({"recall@5", "all@5"} <= row["metrics"].keys() for row in rows)
    record = read(path / "best" / "gnnrag.json")
    assert (record["role"], record["kind"]) == ("thoughts", "encoder") and record["base"]["weights"]
    weights = load_tensors(path / "best" / "model.safetensors")
    assert not any(name.endswith("word_embeddings.weight") for name in weights)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_training_skips_half_a_state_and_ends_with_the_same_losses(folder: Path) -> None:
    more = ["trainer.max_steps=40", "trainer.eval_steps=20", "trainer.save_steps=3", "trainer.logging_steps=1"]
    more += ["trainer.load_best_model_at_end=false"]
    assert run(command(folder, "run.name=whole", *more)) == 0
    start = ["-m", "gnnrag.cli.app", *command(folder, "run.name=killed", *more)]
    path = folder / "runs" / "killed"
    kill_when(start, lambda: lines(path / "metrics.jsonl") >= 8)
    assert lines(path / "metrics.jsonl") < 40
    begun = (path / "metrics.jsonl").read_text("utf-8").splitlines()[:3]
    half = path / "checkpoints" / "checkpoint-38"
    shutil.copytree(newest_checkpoint(half.parent) or "none", half)
    write_json(half / "trainer_state.json", read_json(half / "trainer_state.json") | {"global_step": 38})
    weights = half / WEIGHTS
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    finish(start)
    assert rows_of(path / "metrics.jsonl")[:3] == list(map(json.loads, begun)), "it did not begin anew"
    whole = losses(folder / "runs" / "whole")
    assert list(whole) == list(range(1, 41)) and len({round(loss, 3) for loss in whole.values()}) > 20
    assert losses(path) == pytest.approx(whole, abs=1e-3)


# ------------------------------------------------------------------------------------------------- composed questions
def test_questions_become_phrases() -> None:
    assert worded("Who wrote Emma?") == "the one who wrote Emma"
    assert worded("What is the capital of Peru?") == "the capital of Peru"
    assert worded("Which river did Clark cross?") == "the river that did Clark cross"
    assert worded("In what city was Ada born?") == "the city In which was Ada born"
    assert worded("When was Ada born?") is None


PASSAGES = {id_: Passage(id_, title, "") for id_, title in (("a", "Emma (novel)"), ("b", "Jane Austen"), ("c", "Bath"))}
FIRST = Question("1", "Who wrote Emma?", ("Jane Austen",), gold=("a",))
SECOND = Question("2", "Where did Jane Austen live?", ("Bath",), gold=("b",))


def test_a_name_gives_way_to_the_question_that_it_answers() -> None:
    facts = facts_of(FIRST, PASSAGES)
    (made,) = compose(facts, [FIRST, SECOND], 0)
    assert made.text == "Where did the one who wrote Emma live?"
    assert (made.gold, made.extra["sources"]) == (("a", "b"), ("1", "2"))
    assert compose(facts, [Question("3", "Did Jane Austen Smith ski?", ("no",), gold=("c",))], 0) == []
    assert compose(facts, [Question("4", "Is it Jane Austen?", ("x",), gold=("a",))], 0) == []


def test_triples_are_first_hops_and_limits_are_kept() -> None:
    triple = Question("5", "?", ("x",), gold=("a", "b"), evidence=(("Emma", "author", "Jane Austen"),))
    hop = GoldHop("What is the author of Emma?", "Jane Austen", "a")
    assert facts_of(triple, PASSAGES) == [Fact("the author of Emma", "Jane Austen", "a", "5", (hop,))]
    asked = [Question(f"q{n}", f"Did Jane Austen eat {n}?", ("no",), gold=("c",)) for n in range(9)]
    two = compose(facts_of(triple, PASSAGES), asked, 0)
    assert len(two) == PER_FACT == len({made.text for made in two})


# --------------------------------------------------------------------------------------------------------------- chains
def test_chains_hold_some_gold_or_a_wrong_one_and_what_is_missing_is_right() -> None:
    seen = Counter[str]()
    for seed in range(400):
        chain = draw_chain((4, 7, 9), (1, 2), np.random.default_rng(seed))
        assert {4, 7, 9} - {*chain} and {*chain} <= {4, 7, 9, 1, 2}
        seen["none" if not chain else "wrong" if {*chain} & {1, 2} else "gold"] += 1
    assert 0.2 < seen["none"] / 400 < 0.4 and seen["wrong"] > 60 and seen["gold"] > 120
    assert not any(draw_chain((4,), (1, 2), np.random.default_rng(s)) for s in range(20))
