"""kill -9 of workers and writers at random moments while documents come and go: none is lost, none is there twice."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import pytest

from gnnrag.api import Index
from tests.helpers.serving import PLAIN, QUESTION, Client, build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
KILLS = 20


def processes(folder: Path) -> dict[str, list[int]]:
    """Return the workers and writers of the server of a folder."""
    found: dict[str, list[int]] = {"worker": [], "writer": []}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and str(folder).encode() in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes()
                if b"serve.writer" in command:
                    found["writer"].append(int(entry.name))
                elif b"spawn_main" in command:
                    found["worker"].append(int(entry.name))
    return found


@contextmanager
def served(tmp_path: Path, workers: int) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    index = build(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gnnrag.cli.command", "serve", str(index), *PLAIN]
    server = subprocess.Popen([*command, f"serve.port={port}", f"serve.workers={workers}"])
    try:
        yield Client(port), server
    finally:
        server.terminate()
        server.wait(60)
        for pid in chain.from_iterable(processes(tmp_path).values()):
            os.kill(pid, signal.SIGKILL)


def insist(client: Client, method: str, path: str, body: bytes | None = None) -> dict[str, str]:
    """Ask until it is answered: a worker that dies takes the line with it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError, EOFError):
            status, told, _ = client(method, path, body)
            if status in (200, 202):
                return dict(told)
        time.sleep(0.1)
    raise AssertionError(path)


def test_one_worker_is_started_again_and_ends_with_what_watches_over_it(tmp_path: Path) -> None:
    with served(tmp_path, 1) as (client, server):
        insist(client, "GET", "/api/health")
        (first,) = processes(tmp_path)["worker"]
        os.kill(first, signal.SIGKILL)
        insist(client, "GET", "/api/health")
        (second,) = processes(tmp_path)["worker"]
        assert second != first
        server.kill()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and processes(tmp_path)["worker"]:
            time.sleep(0.1)
        assert not processes(tmp_path)["worker"]
        socket.create_server(("127.0.0.1", client.port)).close()


def test_twenty_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(tmp_path, 2) as (client, _):
        kill_twenty(client, tmp_path, capsys)


def kill_twenty(served: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, wanted, killed = random.Random(3), {"solaris.txt", "tarkovsky.txt", "paris.txt"}, Counter[str]()
    insist(served, "GET", "/api/indexes/index/documents")
    number = 0
    while killed.total() < KILLS:
        name = f"d{number}.txt"
        insist(
            served, "PUT", f"/api/indexes/index/documents/{name}", f"Tower {number} was built by Ada {number}.".encode()
        )
        wanted.add(name)
        if number % 3 == 2:
            gone = f"d{rng.randrange(number)}.txt"
            if gone in wanted:
                insist(served, "DELETE", f"/api/indexes/index/documents/{gone}")
                wanted.remove(gone)
        number += 1
        time.sleep(rng.uniform(0.2, 2.5))
        there = processes(tmp_path)
        kind = rng.choice([kind for kind, pids in there.items() if pids] or ["worker"])
        if there[kind]:
            os.kill(rng.choice(there[kind]), signal.SIGKILL)
            killed[kind] += 1
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        jobs = insist(served, "GET", "/api/indexes/index/jobs")["jobs"]
        if all(job["ended"] for job in jobs):  # type: ignore[index]
            break
        time.sleep(0.3)
    assert [job for job in jobs if job["state"] != "done"] == []  # type: ignore[index]
    listed = insist(served, "GET", "/api/indexes/index/documents")["documents"]
    assert {row["name"]: row["passages"] for row in listed} == dict.fromkeys(wanted, 1)  # type: ignore[index]
    assert served("POST", "/api/indexes/index/ask", {"question": QUESTION})[1]["text"] == "Zavrazhye"
    with Index.open(tmp_path / "index") as index:
        assert {passage.id for passage in index.passages} == {f"{name}#1" for name in wanted}
        assert len(index) == len(wanted) and index.inspect().complete
    with capsys.disabled():
        sys.stdout.write(f"\nkilled {dict(killed)} while {number} documents came and {number + 3 - len(wanted)} went\n")
