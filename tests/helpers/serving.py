"""A server in this process, on a free port of the loopback, for tests that speak to it as clients do."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnnrag.api import Index
from gnnrag.serve.app import make_server
from gnnrag.serve.settings import read_service

PLAIN = ("index.embedder.model=hash", "index.text.language=blank:en", "roles=offline", "serve.log=false")
DOCUMENTS = {
    "solaris.txt": "Solaris is a Soviet film of 1972. Solaris was directed by Andrei Tarkovsky.",
    "tarkovsky.txt": "Andrei Tarkovsky was born in Zavrazhye. Andrei Tarkovsky died in Paris in 1986.",
    "paris.txt": "Paris is the capital of France. <b>Paris</b> lies on the Seine.",
}
QUESTION = "Where was the director of Solaris born?"


@cache
def _built() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    papers = Path(folder.name, "papers")
    papers.mkdir()
    for name, text in DOCUMENTS.items():
        (papers / name).write_text(text)
    settings = dict(dot.split("=") for dot in PLAIN[:3])
    Index.build(papers, Path(folder.name, "index"), settings=settings).close()
    return folder


def build(folder: Path) -> Path:
    """Write documents and their index, built once a process, into a folder; returns the index."""
    shutil.copytree(_built().name, folder, dirs_exist_ok=True)
    return folder / "index"


class Client:
    """Requests to the server at `base`, as JSON where it is."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port, self.base, self.token = port, f"http://127.0.0.1:{port}", token

    def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        auth = {"authorization": f"Bearer {self.token}"} if self.token else {}
        connection.request(method, path, data, auth | {"content-type": "application/json"} | (headers or {}))
        response = connection.getresponse()
        text = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        connection.close()
        return response.status, json.loads(text) if "json" in found.get("content-type", "") else text.decode(), found

    def ended(self, index: str, job: str, seconds: float = 60) -> dict[str, Any]:
        """Wait for a job."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found: dict[str, Any] = self("GET", f"/api/indexes/{index}/jobs/{job}")[1]
            if found["ended"]:
                return found
            time.sleep(0.05)
        raise AssertionError(found)

    def done(self, index: str, method: str, document: str, body: bytes | None = None) -> dict[str, Any]:
        """Add or remove a document, and wait for the job."""
        return self.ended(index, self(method, f"/api/indexes/{index}/documents/{document}", body)[1]["job"])


@contextmanager
def serving(folders: Sequence[Path], *dots: str) -> Iterator[Client]:
    """Serve indexes with plain settings and these."""
    service = read_service([*map(str, folders), *PLAIN, *dots])
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = make_server(service)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Client(sock.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)


def events(text: str) -> list[tuple[str, Any]]:
    """Return server-sent events: names and data."""
    rows = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]
    return [(row["event"], json.loads(row["data"])) for row in rows]
