from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator

from gnnrag.errors import ConfigError
from gnnrag.run.rundir import seen_hash
from gnnrag.training.base import RunContext, train
from gnnrag.training.config import Parts
from gnnrag.training.report import means


def test_a_question_that_shaped_the_start_is_not_reported_on(tmp_path: Path) -> None:
    plan: Any = types.SimpleNamespace(
        context=RunContext(Accelerator(cpu=True)),
        parts={"toy": Parts(("a",), (), ("b", "c"))},
        seen=frozenset({seen_hash("a"), seen_hash("c")}),
    )
    with pytest.raises(ConfigError, match="set toy: 1 questions to report on, such as 'c'"):
        train(tmp_path / "run", plan)
    assert not (tmp_path / "run").exists()


def test_means_are_over_the_questions_that_have_a_metric() -> None:
    assert means([{"x": 1.0, "y": 4.0}, {"x": 2.0}]) == {"x": 1.5, "y": 4.0}
