"""vLLM, in this process and as a server, with every method. In an environment of its own: `make test-vllm`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnrag.prompts import load_prompt
from tests.helpers.real_models import ON, EveryMethod, check, prompt_counter
from tests.helpers.tiny_model import ServedModel, make_tiny_model, serve_vllm

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCH_COMPILE_DISABLE": "1",
}
needs_vllm = [pytest.mark.llm, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def platform() -> Iterator[None]:
    """Skip where there is no vLLM that can run here; else set what it reads from the environment."""
    vllm = pytest.importorskip("vllm", reason="vLLM is not installed; `make test-vllm` makes an environment with it")
    from vllm.platforms import current_platform

    if current_platform.device_type not in ("cpu", "cuda"):
        pytest.skip(f"vLLM {vllm.__version__} finds no device that it was built for")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def folder(platform: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("vllm"), lively=True)


def check_schemas(calls: list[dict[str, Any]]) -> int:
    """Assert that complete replies to prompts with a schema follow it; returns how many there were."""
    complete = 0
    for call in calls:
        schema = load_prompt(call["prompt"]).schema
        if schema is None or call["finish_reason"] != "stop":
            continue
        data = json.loads(call["reply"], strict=False)
        assert set(schema.get("required", ())) <= data.keys() <= schema["properties"].keys()
        complete += 1
    return complete


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    compact = '{"backend": "xgrammar", "disable_any_whitespace": true}'
    with serve_vllm(folder, tmp_path_factory.mktemp("server"), "--structured-outputs-config", compact) as served:
        yield served


class TestServer:
    pytestmark = needs_vllm

    @pytest.mark.parametrize("method", ON)
    def test_every_method(self, server: ServedModel, method: str, folder: Path, tmp_path: Path) -> None:
        dots = ["llm=vllm", f"llm.base_url={server.base_url}", "llm.model=tiny"]
        outcome = EveryMethod(tmp_path, dots, max_tokens=48).run(method)
        check(outcome, prompt_counter(folder))
        check_schemas(outcome.calls)
