"""Every method, every role prompted, from end to end: `transformers serve`, and the `hf` backend in this process.

The model is random and its replies are noise. What is real: protocol, batching, token accounting, fallbacks, rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.real_models import ON, EveryMethod, check, prompt_counter
from tests.helpers.tiny_model import ServedModel, make_tiny_model

Count = Callable[[dict[str, Any]], int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("lively"), lively=True)


@pytest.fixture(scope="module")
def count(tiny_model: Path) -> Count:
    return prompt_counter(tiny_model)


@pytest.fixture(scope="module")
def served(served_model: ServedModel, tmp_path_factory: pytest.TempPathFactory) -> EveryMethod:
    dots = [f"llm.base_url={served_model.base_url}", f"llm.model={served_model.model}", "llm.api_key_env=null"]
    return EveryMethod(tmp_path_factory.mktemp("served"), dots, max_tokens=16)


@pytest.fixture(scope="module")
def local(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> EveryMethod:
    return EveryMethod(tmp_path_factory.mktemp("local"), ["llm=hf", f"llm.model={folder}", "llm.device=cpu"], 16)


@pytest.mark.llm
@pytest.mark.slow
@pytest.mark.parametrize("method", ON)
def test_transformers_serve(served: EveryMethod, method: str, count: Count) -> None:
    outcome = served.run(method)
    check(outcome, count)
    assert outcome.counts["completion_tokens"] == 16 * outcome.counts["calls"], "this model never ends by itself"


@pytest.mark.llm
@pytest.mark.slow
@pytest.mark.parametrize("method", ON)
def test_hf_in_process(local: EveryMethod, method: str, folder: Path) -> None:
    first = local.run(method)
    check(first, prompt_counter(folder))
    assert first.counts["completion_tokens"] <= 16 * first.counts["calls"]
    again = local.run(method, "concurrency=1", name=f"{method}-alone")
    assert [(r.answer, r.ranking) for r in again.rows] == [(r.answer, r.ranking) for r in first.rows], "whatever batch"
