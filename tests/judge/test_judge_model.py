"""A judge that is a real model, in this process: what it says is noise, and every reply is read or counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.config import load_config
from gnnrag.judge.config import JudgeConfig
from gnnrag.judge.run import judge
from tests.helpers.judged import question, write_data, write_run
from tests.helpers.tiny_model import make_tiny_model


@pytest.mark.slow
def test_noise_is_counted(tmp_path: Path) -> None:
    digits = [" ".join(str(n) for n in range(11))] * 20
    model = make_tiny_model(tmp_path / "model", digits, lively=True, vocabulary=300)
    data = write_data(tmp_path / "data", [question(n) for n in range(4)])
    run = write_run(tmp_path / "a", data, {f"q{n}": f"answer {n}" for n in range(4)})
    dots = [f"runs=[{run}]", "llm=hf", f"llm.model={model}", f"llm_cache={tmp_path / 'c.sqlite'}", "ask.max_tokens=4"]
    (report,) = judge(load_config(JudgeConfig, None, dots))["judgements"]
    missing = sum(of["malformed"] for of in report["criteria"].values())
    assert report["asked"] == 24 and report["read"] + missing == 24
    spent = report["spent"]
    assert spent["malformed"] == spent["calls"] - report["read"] and spent["calls"] <= 72
    assert report["judge"]["model"] and spent["prompt_tokens"] > 0 and spent["completion_tokens"] > 0
