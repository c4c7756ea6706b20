"""vLLM, in this process and as a server, with every method. In an environment of its own: `make test-vllm`."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gnnrag.errors import ConfigError, LLMError
from gnnrag.llm.base import ContextLengthError, Reply
from gnnrag.llm.hf import HFBackend, HFConfig
from gnnrag.llm.vllm import VLLMBackend, VLLMConfig, start_engine
from gnnrag.prompts import load_prompt
from tests.helpers.local_backends import ask, reply_beside_a_cancelled_one, request
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


def test_a_missing_vllm_is_named_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.llm.folders.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"llm=vllm needs the package vllm, which is not installed; run: pip install"):
        VLLMBackend(VLLMConfig(model=str(tmp_path)))


def test_an_engine_starts_beside_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """As vLLM does without Triton, where bm25s has loaded numba: every object of every module is looked into."""

    class Library:
        __slots__ = ()

        def __getattr__(self, name: str) -> object:
            return object()  # not a dictionary, even for `__dict__`

    class Engine:
        @staticmethod
        def from_engine_args(arguments: Any) -> Any:
            for module in (m for name, m in sys.modules.items() if name.startswith("llvmlite")):
                for value in vars(module).values():
                    vars(value).get("kernel")
            model = SimpleNamespace(max_model_len=arguments["max_model_len"])
            return SimpleNamespace(get_tokenizer=lambda: None, model_config=model)

    ffi, fake, config = ModuleType("llvmlite.binding.ffi"), ModuleType("vllm"), ModuleType("vllm.config")
    vars(ffi).clear()
    vars(ffi)["lib"] = Library()
    vars(fake).update(EngineArgs=dict, LLMEngine=Engine)
    vars(config).update(StructuredOutputsConfig=dict)
    for module, name in ((ffi, "llvmlite.binding.ffi"), (fake, "vllm"), (config, "vllm.config")):
        monkeypatch.setitem(sys.modules, name, module)
    for name in [n for n in sys.modules if n.startswith("llvmlite") and n != "llvmlite.binding.ffi"]:
        monkeypatch.delitem(sys.modules, name)
    assert start_engine({"model": "m", "max_model_len": 9}, {}, None).context == 9
    assert sys.modules["llvmlite.binding.ffi"] is ffi, "there again for who imports it later"


def test_settings_are_checked_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.llm.folders.find_spec", lambda name: object())
    monkeypatch.setattr("gnnrag.llm.local.find_spec", lambda name: object())
    with pytest.raises(ConfigError, match="needs a model"):
        VLLMBackend()
    folder = make_tiny_model(tmp_path / "model")
    with pytest.raises(ConfigError, match="dtype belong to model, dtype, context"):
        VLLMBackend(VLLMConfig(model=str(folder), engine={"dtype": "half"}))
    with pytest.raises(ConfigError, match="load_format belong to"):  # a pickle beside the weights could run code
        VLLMBackend(VLLMConfig(model=str(folder), engine={"load_format": "auto"}))
    one, other = (VLLMBackend(VLLMConfig(model=str(folder), temperature=t)) for t in (0.0, 1.0))
    assert one.thread is other.thread and one.identity != other.identity
    json.dumps(dict(one.identity))
    adapted = VLLMBackend(VLLMConfig(model=str(make_tiny_adapter(folder, tmp_path / "adapter", rank=4))))
    assert adapted.thread is one.thread and list(adapted.thread.ranks.values()) == [4]
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
def backend(folder: Path, adapter: Path) -> VLLMBackend:
    """Kept for all tests, so that they share its engine, which has room for the adapter."""
    backend = VLLMBackend(VLLMConfig(model=str(folder), **ENGINE))
    backend.thread.ranks[str(adapter)] = 8
    return backend


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    compact = '{"backend": "xgrammar", "disable_any_whitespace": true}'
    with serve_vllm(folder, tmp_path_factory.mktemp("server"), "--structured-outputs-config", compact) as served:
        yield served


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

    def test_it_says_what_transformers_says(self, backend: VLLMBackend, folder: Path) -> None:
        requests = [request(t, max_tokens=n) for t, n in zip(TEXTS, (12, 20, 1, 7), strict=True)]
        replies = ask(backend, *requests)
        expected = ask(HFBackend(HFConfig(model=str(folder), device="cpu")), *requests)
        assert texts(replies) == texts(expected)
        for mine, theirs in zip(replies, expected, strict=True):
            assert mine.prompt_tokens == theirs.prompt_tokens and mine.completion_tokens == theirs.completion_tokens
            assert mine.finish_reason == theirs.finish_reason and not mine.is_estimated

    def test_an_adapter_shares_the_engine(self, backend: VLLMBackend, folder: Path, adapter: Path) -> None:
        adapted = VLLMBackend(VLLMConfig(model=str(folder), adapter=str(adapter), **ENGINE))
        assert adapted.thread is backend.thread
        requests = [request(t) for t in TEXTS]
        bare, with_adapter = texts(ask(backend, *requests)), texts(ask(adapted, *requests))
        expected = ask(HFBackend(HFConfig(model=str(adapter), device="cpu")), *requests)
        assert with_adapter == texts(expected) and with_adapter != bare

    def test_replies_are_held_to_a_schema(self, backend: VLLMBackend) -> None:
        hot = [request(t, schema=SCHEMA, temperature=1.0, max_tokens=60, seed=s) for t in TEXTS for s in (1, 2)]
        for reply in ask(backend, *hot):
            data = json.loads(reply.text, strict=False)  # xgrammar lets bare control characters pass
            assert data.keys() == {"answer", "sure"} and len(data["answer"]) <= 6 and reply.finish_reason == "stop"

    def test_a_schema_that_cannot_be_enforced_is_left_out(self, backend: VLLMBackend, caplog: Any) -> None:
        odd = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 3}}}
        (reply,) = ask(backend, request("a", schema=odd))
        assert isinstance(reply, Reply) and "not enforced" in caplog.text

    def test_seeds_and_stops(self, backend: VLLMBackend) -> None:
        hot = [request("a", temperature=1.0, seed=s) for s in (1, 2, 1)]
        one, two, again = texts(ask(backend, *hot))
        assert one == again != two
        (whole,) = ask(backend, request(TEXTS[0], max_tokens=30))
        stop = whole.text[6:8]
        (cut,) = ask(backend, request(TEXTS[0], max_tokens=30, stop=(stop,)))
        assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")

    def test_what_does_not_fit_is_refused_alone(self, backend: VLLMBackend) -> None:
        long, foreign, good = ask(backend, request("a", max_tokens=8190), request("a", model="other"), request("a"))
        assert isinstance(long, ContextLengthError) and "do not fit into 8192" in str(long)
        assert isinstance(foreign, LLMError) and isinstance(good, Reply)

    def test_a_cancelled_request_leaves_the_engine(self, backend: VLLMBackend) -> None:
        assert reply_beside_a_cancelled_one(backend, 8000).completion_tokens > 0

    @pytest.mark.parametrize("method", ON)
    def test_every_method(self, backend: VLLMBackend, method: str, folder: Path, tmp_path: Path) -> None:
        outcome = EveryMethod(tmp_path, ["llm=vllm", f"llm.model={folder}", *DOTS], max_tokens=48).run(method)
        check(outcome, prompt_counter(folder))
        check_schemas(outcome.calls)


class TestServer:
    pytestmark = needs_vllm

    @staticmethod
    def counters(server: ServedModel) -> dict[str, float]:
        with urllib.request.urlopen(server.base_url.removesuffix("/v1") + "/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(r"^vllm:(prompt|generation)_tokens_total\{[^}]*\} (\S+)$", text, re.M)
        return {name: float(value) for name, value in found}

    @pytest.fixture
    def runs(self, server: ServedModel, tmp_path: Path) -> EveryMethod:
        dots = [f"llm.base_url={server.base_url}", "llm.model=tiny", "llm.api_key_env=null"]
        return EveryMethod(tmp_path, dots, max_tokens=48)

    @pytest.mark.parametrize("method", ON)
    def test_every_method(self, runs: EveryMethod, server: ServedModel, method: str, folder: Path) -> None:
        before = self.counters(server)
        outcome = runs.run(method)
        after = self.counters(server)
        check(outcome, prompt_counter(folder))
        check_schemas(outcome.calls)
        assert outcome.counts["prompt_tokens"] == after["prompt"] - before["prompt"], "by the server's own counters"
        assert outcome.counts["completion_tokens"] == after["generation"] - before["generation"]

    def test_its_schemas_are_enforced(self, runs: EveryMethod) -> None:
        """bdtr's verifier and graphsearch's keywords: what a model of noise says can be parsed, where it ends."""
        calls = runs.run("bdtr").calls + runs.run("graphsearch").calls
        assert check_schemas(calls) > 0

    def test_prompts_beyond_the_context_are_failures_with_rows(self, runs: EveryMethod) -> None:
        outcome = runs.run("bdtr", "roles.reader.options.max_tokens=9000")
        assert len(outcome.rows) == outcome.metrics["failed"] == 3
        assert all("prompt longer than the model's context" in (row.error or "") for row in outcome.rows)
