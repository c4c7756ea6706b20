"""`training/train_thoughts.py` with a language model, as a person starts it: supervised, preferences, rewards."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.config import load_config
from gnnrag.errors import ConfigError
from gnnrag.llm.base import Message, Request
from gnnrag.parts import build
from gnnrag.roles.tuned.checkpoint import read_tuned
from gnnrag.training.base import RunCallback, newest_checkpoint, train
from gnnrag.training.language import ThoughtsCausalTraining
from gnnrag.training.language_rows import TrainLanguageConfig
from tests.helpers.language_rows import settings, thoughts_training
from tests.helpers.tiny_model import make_tiny_model
from tests.helpers.trainings import reported, rows_of
from tests.test_kill import finish


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"), lively=True)


@pytest.fixture(scope="module")
def sft(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a supervised training."""
    folder = tmp_path_factory.mktemp("sft")
    assert call(settings(folder, "thoughts", base, "run.name=a", "run.notes=[a toy]")) == 0
    return folder / "runs" / "a"


def call(dots: list[str]) -> int:
    return run(["train", "thoughts", *dots])


async def says(folder: Path, **more: Any) -> list[str]:
    backend = build("llm", {"name": "hf", "model": str(folder), "device": "cpu", **more})
    requests = [Request((Message("user", text),), max_tokens=12) for text in ("Who?", "Where was she born?")]
    found = [(await backend.generate(request)).text for request in requests]
    await backend.close()
    return found


@pytest.mark.slow
def test_a_run_reports_on_unseen_questions_and_describes_itself(sft: Path) -> None:
    report = reported(sft, "toy", "a toy", "question_id")
    assert {"complete", "parse_failure"} <= report[0]["metrics"].keys()
    record = read_tuned(sft, "thoughts", ["causal"])
    assert record.facts["prompts"].keys() == {"thoughts_short"}
    assert Path(record.base["name"]).is_absolute() and record.facts["report"]["toy"]["questions"] == len(report)
    assert record.facts["validation"]["loss"] > 0


def test_a_start_of_another_base_is_refused(sft: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = make_tiny_model(tmp_path / "other", seed=5, lively=True)
    assert call(settings(tmp_path, "thoughts", other, f"start={sft}")) == 2
    assert "was trained on other weights" in capsys.readouterr().err


# --------------------------------------------------------------------------------- stages, and what stops a training
MORE = {
    "sft": ["lora.lora_dropout=0.1"],
    "dpo": ["margin=0.04"],
    "grpo": ["trainer.num_generations=4", "reply_tokens=12", "trainer.beta=0.02"],
}


def opened(folder: Path, base: Path, stage: str, *more: str) -> ThoughtsCausalTraining:
    known = [f"stage={stage}", "corpora.toy.data.path=x", "folds.report=null", "validation=0", *MORE[stage]]
    config = load_config(TrainLanguageConfig, None, settings(folder, "thoughts", base, *known, *more))
    return thoughts_training(config, None)


def curve(path: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["train/loss"]) for row in rows_of(path / "metrics.jsonl")]


def same(one: list[tuple[int, float]], other: list[tuple[int, float]]) -> bool:
    return [step for step, _ in one] == [step for step, _ in other] and all(
        math.isclose(a, b, abs_tol=1e-3) for (_, a), (_, b) in zip(one, other, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["sft", "dpo", "grpo"])
def test_a_training_that_died_and_lost_half_a_checkpoint_ends_as_an_undisturbed_one(
    stage: str, base: Path, sft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["trainer.max_steps=8"] if stage == "sft" else ["trainer.max_steps=8", f"start={sft}"]
    train(tmp_path / "whole", opened(tmp_path, base, stage, *more))

    def die(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunCallback, "on_step_end", die)
        train(tmp_path / "cut", opened(tmp_path, base, stage, *more))
    newest = tmp_path / "cut" / "checkpoints" / "checkpoint-6"
    assert newest_checkpoint(newest.parent) == str(newest)
    state = (newest / "optimizer.pt").read_bytes()
    (newest / "optimizer.pt").write_bytes(state[: len(state) // 2])
    assert newest_checkpoint(newest.parent) == str(newest.with_name("checkpoint-4"))
    with pytest.raises(ConfigError, match=r"other settings \(reply_tokens\)"):
        train(tmp_path / "cut", opened(tmp_path, base, stage, *more, "reply_tokens=5"))
    train(tmp_path / "cut", opened(tmp_path, base, stage, *more))
    whole = curve(tmp_path / "whole")
    assert len(whole) == 8 and len({loss for _, loss in whole}) > 4
    assert same(whole, curve(tmp_path / "cut"))


@pytest.mark.slow
def test_a_training_that_is_told_to_stop_saves_and_goes_on(base: Path, tmp_path: Path) -> None:
    whole, cut = (opened(tmp_path, base, "sft") for _ in range(2))
    train(tmp_path / "whole", whole)
    asked_for = iter(range(9))
    cut.context.stop = lambda: next(asked_for) == 2
    assert train(tmp_path / "cut", cut) is None
    assert newest_checkpoint(tmp_path / "cut" / "checkpoints") == str(tmp_path / "cut" / "checkpoints" / "checkpoint-3")
    assert train(tmp_path / "cut", opened(tmp_path, base, "sft")) is not None
    assert same(curve(tmp_path / "whole"), curve(tmp_path / "cut"))
    weights = tmp_path / "cut" / "best" / "adapter_model.safetensors"
    before = weights.read_bytes()
    assert train(tmp_path / "cut", opened(tmp_path, base, "sft")) is not None, "what has ended is not trained again"
    assert weights.read_bytes() == before and len(curve(tmp_path / "cut")) == 4


@pytest.mark.slow
def test_the_chosen_reply_rises_over_the_rejected_one_on_unseen_rows(base: Path, sft: Path, tmp_path: Path) -> None:
    more = [f"start={sft}", "model.base=''", "folds.validation=0.3", "validation=null", "patience=9"]
    train(tmp_path / "b", opened(tmp_path, base, "dpo", *more, "trainer.max_steps=20"))
    rows = rows_of(tmp_path / "b" / "metrics.jsonl")
    margins = [row["validation/rewards/margins"] for row in rows if "validation/rewards/margins" in row]
    assert margins[-1] > margins[0] and margins[-1] > 0.1
    assert {"dpo"} == {read_tuned(tmp_path / "b", "thoughts", ["causal"]).facts["stage"]}


@pytest.mark.slow
def test_two_processes_share_a_training_and_its_report(base: Path, tmp_path: Path) -> None:
    dots = settings(tmp_path, "thoughts", base, "trainer.per_device_train_batch_size=2", "run.name=two")
    finish(["-m", "torch.distributed.run", "--nproc_per_node", "2", "training/train_thoughts.py", *dots])
    run = tmp_path / "runs" / "two"
    steps = [row["step"] for row in rows_of(run / "metrics.jsonl") if "train/loss" in row]
    assert steps == [1, 2, 3, 4] and len({*(run / "checkpoints" / "checkpoint-4").glob("rng_state_*.pth")}) == 2
    parts = json.loads((run / "folds.json").read_text())["toy"]
    assert [row["question_id"] for row in rows_of(run / "report.jsonl")] == sorted(parts["report"])
    assert len(asyncio.run(says(run / "best"))) == 2
