"""`training/train_thoughts.py` with a language model, as a person starts it: supervised, then by preferences."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.llm.base import Message, Request
from gnnrag.parts import build
from gnnrag.roles.tuned.checkpoint import read_tuned
from tests.helpers.language_rows import settings
from tests.helpers.tiny_model import make_tiny_model, make_tiny_seq2seq
from tests.helpers.trainings import reported, rows_of


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"), lively=True)


@pytest.fixture(scope="module")
def sft(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a supervised training, exported in both forms."""
    folder = tmp_path_factory.mktemp("sft")
    assert call(settings(folder, "thoughts", base, "run.name=a", "run.export=both", "run.notes=[a toy]")) == 0
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
    assert {"complete", "agrees", "parse_failure", "likelihood"} <= report[0]["metrics"].keys()
    record = read_tuned(sft, "thoughts", ["causal"])
    assert record.settings["form"] == "adapter" and record.facts["prompts"].keys() == {"thoughts_short"}
    assert Path(record.base["name"]).is_absolute() and record.facts["report"]["toy"]["questions"] == len(report)


def test_the_adapter_and_the_merged_model_say_the_same(sft: Path) -> None:
    found = read_tuned(sft / "merged", "thoughts", ["causal"])
    assert found.settings["form"] == "merged"
    assert found.facts["report"] == read_tuned(sft / "best", "thoughts", ["causal"]).facts["report"] != {}
    tables = [
        (sft / name / "README.md").read_text("utf-8").partition("## Evaluation")[2] for name in ("best", "merged")
    ]
    assert tables[0] == tables[1] and "| toy | report | likelihood |" in tables[1]
    assert not (sft / "merged" / "adapter_config.json").exists()
    adapter, merged = (asyncio.run(says(sft / name)) for name in ("best", "merged"))
    assert adapter == merged


@pytest.mark.slow
def test_preferences_are_a_second_stage(sft: Path, base: Path, tmp_path: Path) -> None:
    more = ["stage=dpo", f"start={sft}", "model.base=''", "preference.margin=0.04", "fit.lr=0.0003", "run.name=b"]
    assert call(settings(tmp_path, "thoughts", base, *more, "folds.validation=0.3", "judging.tokens=8")) == 0
    rows = rows_of(tmp_path / "runs" / "b" / "metrics.jsonl")
    validated = [row for row in rows if "validation/order" in row]
    assert validated and {"validation/reward", "validation/likelihood"} <= validated[0].keys()


@pytest.mark.slow
@pytest.mark.parametrize("more", [["kind=seq2seq"], ["lora.targets=[q_proj]"]])
def test_other_forms_train_and_load(more: list[str], base: Path, tmp_path: Path) -> None:
    is_seq2seq = more == ["kind=seq2seq"]
    model = make_tiny_seq2seq(base, tmp_path / "t5") if is_seq2seq else base
    assert call(settings(tmp_path, "thoughts", model, "run.name=c", "judging.rows=0", "fit.steps=2", *more)) == 0
    assert len(asyncio.run(says(tmp_path / "runs" / "c" / "best"))) == 2


def test_a_start_of_another_base_is_refused(sft: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = make_tiny_model(tmp_path / "other", seed=5, lively=True)
    assert call(settings(tmp_path, "thoughts", other, "stage=dpo", f"start={sft}")) == 2
    assert "was trained on other weights" in capsys.readouterr().err


def test_an_unknown_kind_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["kind=diffusion"]) == 2
    assert "kind='diffusion' is unknown. Allowed: causal, seq2seq." in capsys.readouterr().err
