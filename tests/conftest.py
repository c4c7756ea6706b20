"""Fixtures for all tests. The default run must need no network, so sockets beyond this machine are refused."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

# Pytest keeps what it makes of asserts, also under PYTHONDONTWRITEBYTECODE: to make it is half of a collection.
sys.dont_write_bytecode = False


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
