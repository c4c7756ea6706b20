"""vLLM, in this process and as a server, with every method. In an environment of its own: `make test-vllm`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import ContextLengthError, Reply
from gnnrag.llm.vllm_engine import VLLMEngine
from gnnrag.parts import build
from gnnrag.prompts import load_prompt
from tests.helpers.local_backends import ask, request
from tests.helpers.real_models import ON, EveryMethod, check, prompt_counter
from tests.helpers.tiny_model import ServedModel, make_tiny_adapter, make_tiny_model, serve_vllm

TEXTS = ["Where was the author born?", "Who wrote it?", "Name the river. " * 12, "1 + 1 ="]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 6}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
ENGINE = {"dtype": "float32", "context": 8192, "engine": {"enforce_eager": True}}
DOTS = ["llm.dtype=float32", "llm.context=8192", "llm.engine.enforce_eager=true"]
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCH_COMPILE_DISABLE": "1",
}
needs_vllm = [pytest.mark.llm, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_missing_vllm_is_named_with_its_fix(tmp_path: Path) -> None:
    if find_spec("vllm"):
        pytest.skip("it is installed")
    with pytest.raises(ConfigError, match="pip install vllm"):
        vllm_engine(make_tiny_model(tmp_path / "model"))


def test_parts_of_one_base_share_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.llm.local.find_spec", lambda name: object())
    folder = make_tiny_model(tmp_path / "model")
    for name in ("dtype", "load_format"):  # a pickle beside the weights could run code
        with pytest.raises(ConfigError, match=name):
            vllm_engine(folder, engine={name: "auto"})
    first, second = (vllm_engine(folder, temperature=t) for t in (0.0, 1.0))
    assert first.thread is second.thread and first.identity != second.identity
    assert "vllm" not in sys.modules or find_spec("vllm") is not None, "nothing was imported"


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


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_adapter(folder, tmp_path_factory.mktemp("vllm-adapter"))


@pytest.fixture(scope="module")
def backend(folder: Path, adapter: Path) -> VLLMEngine:
    """Kept for all tests, so that they share its engine, which has room for the adapter."""
    backend = vllm_engine(folder, lora_rank=8, **ENGINE)
    return backend


def vllm_engine(folder: Path, **settings: Any) -> VLLMEngine:
    return build("llm", {"name": "vllm_engine", "model": str(folder), **settings})


def texts(replies: list[Reply]) -> list[str]:
    """Return the texts without a character that was cut in its middle: vLLM leaves it out, transformers shows it."""
    return [reply.text.rstrip("\ufffd") for reply in replies]


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


class TestInProcess:
    pytestmark = needs_vllm

    def test_it_says_what_transformers_says(self, backend: VLLMEngine, folder: Path) -> None:
        requests = [request(t, max_tokens=n) for t, n in zip(TEXTS, (12, 20, 1, 7), strict=True)]
        replies = ask(backend, *requests)
        expected = ask(build("llm", {"name": "hf", "model": str(folder), "device": "cpu"}), *requests)
        assert texts(replies) == texts(expected)
        for mine, theirs in zip(replies, expected, strict=True):
            assert mine.prompt_tokens == theirs.prompt_tokens and mine.completion_tokens == theirs.completion_tokens
            assert mine.finish_reason == theirs.finish_reason and not mine.is_estimated

    def test_an_adapter_shares_the_engine(self, backend: VLLMEngine, folder: Path, adapter: Path) -> None:
        adapted = vllm_engine(folder, adapter=str(adapter), lora_rank=8, **ENGINE)
        assert adapted.thread is backend.thread
        requests = [request(t) for t in TEXTS]
        bare, with_adapter = texts(ask(backend, *requests)), texts(ask(adapted, *requests))
        expected = ask(build("llm", {"name": "hf", "model": str(adapter), "device": "cpu"}), *requests)
        assert with_adapter == texts(expected) and with_adapter != bare

    def test_replies_are_held_to_a_schema(self, backend: VLLMEngine) -> None:
        hot = [request(t, schema=SCHEMA, temperature=1.0, max_tokens=60, seed=s) for t in TEXTS for s in (1, 2)]
        for reply in ask(backend, *hot):
            data = json.loads(reply.text, strict=False)  # xgrammar lets bare control characters pass
            assert data.keys() == {"answer", "sure"} and len(data["answer"]) <= 6 and reply.finish_reason == "stop"

    def test_seeds_and_stops(self, backend: VLLMEngine) -> None:
        hot = [request("a", temperature=1.0, seed=s) for s in (1, 2, 1)]
        one, two, again = texts(ask(backend, *hot))
        assert one == again != two
        (whole,) = ask(backend, request(TEXTS[0], max_tokens=30))
        stop = whole.text[6:8]
        (cut,) = ask(backend, request(TEXTS[0], max_tokens=30, stop=(stop,)))
        assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")

    def test_what_does_not_fit_is_refused_alone(self, backend: VLLMEngine) -> None:
        long, foreign, good = ask(backend, request("a", max_tokens=8190), request("a", model="other"), request("a"))
        assert isinstance(long, ContextLengthError) and "do not fit into 8192" in str(long)
        assert isinstance(foreign, LLMError) and isinstance(good, Reply)

    @pytest.mark.parametrize("method", ON)
    def test_every_method(self, backend: VLLMEngine, method: str, folder: Path, tmp_path: Path) -> None:
        outcome = EveryMethod(tmp_path, ["llm=vllm_engine", f"llm.model={folder}", *DOTS], max_tokens=48).run(method)
        check(outcome, prompt_counter(folder))
        check_schemas(outcome.calls)


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
