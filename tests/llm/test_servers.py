"""Servers whose addresses are in a file: waited for, asked in turn, left out when they are gone."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm import servers
from gnnrag.llm.base import Message, Request
from gnnrag.llm.openai import OpenAIBackend, OpenAIConfig
from gnnrag.llm.servers import Server, is_healthy, job_state, read_servers, wait_for_servers
from tests.helpers.each import each
from tests.helpers.http_stub import Behaviour, Handler, ok, status, stub

ASK = Request((Message("user", "hello"),))


def answer_health(self: Handler) -> None:
    self.send(200 if self.path == "/health" else 404, b"{}")


@pytest.fixture(autouse=True)
def health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "do_GET", answer_health, raising=False)
    monkeypatch.setattr(servers, "PAUSE_S", 0.05)


def backend(path: Path, **settings: Any) -> OpenAIBackend:
    return OpenAIBackend(
        OpenAIConfig(model="m", server_file=str(path), backoff_s=0.01, **{"server_wait_s": 5.0, **settings})
    )


def asked(llm: OpenAIBackend, count: int) -> list[str]:
    async def run() -> list[str]:
        return [(await llm.generate(ASK)).text for _ in range(count)]

    return asyncio.run(run())


def test_lines_are_addresses_and_facts(tmp_path: Path) -> None:
    path = tmp_path / "servers.txt"
    assert read_servers(path) == []
    path.write_text("http://a:1/v1 job=7 key=x=y\n\nhttps://b:2/v1/\n")
    assert read_servers(path) == [Server("http://a:1/v1", "7", "x=y"), Server("https://b:2/v1")]
    path.write_text("http://a:1/v1\nb:2 job=7\n")
    with pytest.raises(LLMError, match="line 2"):
        read_servers(path)


def test_servers_are_asked_in_turn_with_their_own_keys(tmp_path: Path) -> None:
    path = tmp_path / "servers.txt"
    with stub(default=ok("one")) as one, stub(default=ok("two")) as two:
        path.write_text(f"{one.url} job=1 key=first\n{two.url} job=2 key=second\n")
        assert asked(backend(path), 4) == ["one", "two", "one", "two"]
        assert {h["authorization"] for h in one.headers} == {"Bearer first"}
        assert {h["authorization"] for h in two.headers} == {"Bearer second"}


def test_a_server_that_is_gone_is_left_out_and_one_that_comes_is_found(tmp_path: Path) -> None:
    path = tmp_path / "servers.txt"
    with stub(default=ok("two")) as two:
        with stub(default=ok("one")) as one:
            path.write_text(f"{one.url} job=1\n{two.url} job=2\n")
            llm = backend(path, max_retries=3)
            assert asked(llm, 2) == ["one", "two"]
        assert asked(llm, 3) == ["two"] * 3
    with stub(default=ok("three")) as three:
        path.write_text(f"{three.url} job=3\n")
        assert asked(llm, 1) == ["three"]


def wants(key: str) -> Behaviour:
    def behave(handler: Handler, body: dict[str, Any]) -> None:
        is_right = handler.headers["Authorization"] == f"Bearer {key}"
        (ok(f"took {key}") if is_right else status(401, "wrong key"))(handler, body)

    return behave


def test_a_server_that_comes_back_with_a_new_key_is_asked_with_it(tmp_path: Path) -> None:
    """Its job keeps its number, so the address is the old one."""
    path = tmp_path / "servers.txt"
    with stub(default=wants("first")) as server:
        path.write_text(f"{server.url} job=1 key=first\n")
        llm = backend(path)

        async def run() -> list[str]:
            before = (await llm.generate(ASK)).text
            server.default = wants("second")
            path.write_text(f"{server.url} job=1 key=second\n")
            return [before, *[(await llm.generate(ASK)).text for _ in range(2)]]

        assert asyncio.run(run()) == ["took first", "took second", "took second"]
    assert [h["authorization"] for h in server.headers] == ["Bearer first", "Bearer first", *["Bearer second"] * 2]


def test_a_key_that_stays_wrong_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "servers.txt"
    with stub(default=wants("right")) as server:
        path.write_text(f"{server.url} job=1 key=other\n")
        with pytest.raises(LLMError, match="status 401: wrong key"):
            asked(backend(path, max_retries=2), 1)
        assert len(server.headers) == 3
        one = OpenAIBackend(OpenAIConfig(model="m", base_url=server.url, backoff_s=0.01))
        with pytest.raises(LLMError, match="status 401"):  # no file could bring another key: asked once
            asked(one, 1)
        assert len(server.headers) == 4


def test_a_run_waits_for_the_file_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "servers.txt"
    with stub(default=ok("late")) as late:

        def write() -> None:
            time.sleep(0.3)
            path.write_text(f"{late.url} job=1\n")

        threading.Thread(target=write).start()
        assert asked(backend(path), 1) == ["late"]
    assert [r.message.partition(";")[0] for r in caplog.records] == [f"there is no {path} yet"]


def fake_squeue(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "bin").mkdir()
    command = folder / "bin" / "squeue"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


@each(
    "script, says",
    [
        (
            "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
            "job 4711 has ended: this line is stale",
        ),
        ("exit 0", "job 4711 has ended: this line is stale"),
        ("echo PENDING", "job 4711 is pending"),
        ("exit 1", "does not answer; start one"),
    ],
)
def test_the_line_of_a_dead_job_is_called_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    fake_squeue(tmp_path, monkeypatch, script)
    path = tmp_path / "servers.txt"
    with stub() as dead:
        path.write_text(f"{dead.url} job=4711\n")
    told: list[str] = []
    with pytest.raises(LLMError, match=r"no language-model server within 0\.1 s") as error:
        asyncio.run(wait_for_servers(path, 0.1, told.append))
    assert says in str(error.value)
    assert len(told) == 1  # the same again only after a minute


def test_without_slurm_nothing_is_said_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert job_state("4711") == ""


def test_health_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with stub() as server:
        assert is_healthy(Server(server.url))
    assert not is_healthy(Server(server.url))


def test_addresses_have_no_part_in_the_key_of_the_cache(tmp_path: Path) -> None:
    one, two = backend(tmp_path / "a"), backend(tmp_path / "b")
    assert one.identity == two.identity
    assert one.identity != OpenAIBackend(OpenAIConfig(model="m", base_url="http://127.0.0.1:1/v1")).identity
