"""Fixtures for all tests. The default run must need no network, so sockets beyond this machine are refused."""

from __future__ import annotations

import gc
import ipaddress
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gnnrag.datasets.documents.child import DocumentReader

# Pytest keeps what it makes of asserts, also under PYTHONDONTWRITEBYTECODE: to make it is half of a collection.
sys.dont_write_bytecode = False
# What is imported stays: to look through it for garbage again and again is a tenth of a collection.
gc.disable()
# Every client reads the certificates of the machine, also one that asks a server of the tests without TLS.
ssl.create_default_context = cache(ssl.create_default_context)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # the default took a tenth of the tests' time
    gc.enable()


# What the first of the two processes of `make test` runs; the second one has programs, servers and data.
OF_THE_FIRST = "extract fit gnn goldens graphs index judge llm methods metrics reports retrievers roles training tuned"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Let each of two processes under `--dist each` collect its own half: to import all the tests takes 15 s."""
    worker, tests = getattr(config, "workerinput", {}), Path(__file__).parent
    if "each" not in worker.get("mainargv", ()) or worker["workercount"] != 2 or tests not in collection_path.parents:
        return None
    is_of_the_first = collection_path.relative_to(tests).parts[0] in OF_THE_FIRST.split()
    return None if is_of_the_first == (worker["workerid"] == "gw0") else True


def _is_local(host: Any) -> bool:
    if host in (None, "", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    def connect(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
            raise RuntimeError(f"a default test must not open a connection to {address[0]}")
        return method(self, address)

    return connect


def _guarded_lookup(host: Any, *arguments: Any, **options: Any) -> Any:
    if not _is_local(host):
        raise RuntimeError(f"a default test must not look up {host}")
    return _LOOKUP(host, *arguments, **options)


_LOOKUP = socket.getaddrinfo


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections and name look-ups beyond the loopback, unless the test is marked `llm` or `slow`."""
    if request.node.get_closest_marker("llm") or request.node.get_closest_marker("slow"):
        return
    monkeypatch.setattr(socket.socket, "connect", _guarded(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "connect_ex", _guarded(socket.socket.connect_ex))
    monkeypatch.setattr(socket, "getaddrinfo", _guarded_lookup)


@pytest.fixture(autouse=True)
def no_tracking(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Weights & Biases find no account, no server and no home, in any test and in any process that it starts."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_PROJECT", "WANDB_SERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "NETRC"):
        monkeypatch.setenv(name, str(tmp_path_factory.getbasetemp() / "wandb-home"))


@pytest.fixture(scope="session", autouse=True)
def own_reader_children() -> Iterator[dict[str, Any]]:
    """Read the documents of all tests in one child process: to start one takes longer than to read a test's files.

    Gives the methods of `DocumentReader` that start a child for each reader and end it.
    """
    own = {"_start": DocumentReader._start, "__exit__": DocumentReader.__exit__}
    idle: list[subprocess.Popen[bytes]] = []

    def take(reader: DocumentReader) -> subprocess.Popen[bytes]:
        while idle:
            if (child := idle.pop()).poll() is None:
                return child
        return own["_start"](reader)  # type: ignore[no-any-return]

    def keep(reader: DocumentReader, *error: object) -> None:
        if reader._child is not None and reader._child.poll() is None:
            idle.append(reader._child)
            reader._child = None
        own["__exit__"](reader, *error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentReader, "_start", take)
        patch.setattr(DocumentReader, "__exit__", keep)
        yield own
    for child in idle:
        child.communicate()
