"""SmolLM2, a real if small language model, by `hf` and by `openvino`: every bad reply is counted. `make test-llm`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.real_models import EveryMethod, check

MODEL = Path(__file__).resolve().parents[2] / "models/smollm2"
pytestmark = [
    pytest.mark.llm,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (MODEL / "model.safetensors").is_file(), reason="there is no SmolLM2 here; run: make smollm"
    ),
]


@pytest.fixture(scope="module", params=["openvino", "hf"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EveryMethod:
    if request.param == "openvino":
        pytest.importorskip("openvino_genai", reason="run: pip install 'gnnrag[openvino]'")
    dots = [f"llm={request.param}", f"llm.model={MODEL}", "llm.prompts=small"]
    return EveryMethod(tmp_path_factory.mktemp(request.param), dots, max_tokens=32)


@pytest.mark.parametrize("method", ["bdtr", "mgranrag", "graphsearch", "dotrag", "react", "search_r1"])
def test_every_question_is_a_row_and_every_bad_reply_is_counted(runs: EveryMethod, method: str) -> None:
    outcome = runs.run(method)
    check(outcome)
    replies = outcome.metrics["replies"]
    assert {role: row["asked"] for role, row in replies.items()} == Counter(call["role"] for call in outcome.calls)
    failed = Counter(call["role"] for call in outcome.calls if call["problem"])
    assert {role: row.get("malformed", 0) for role, row in replies.items()} == {role: failed[role] for role in replies}
    cut = [call for call in outcome.calls if call["finish_reason"] == "length"]
    assert all(call["problem"] for call in cut), "what is cut off has failed"
