"""A misbehaving OpenAI-compatible server on loopback, for tests of what a client does about it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

ServerT = TypeVar("ServerT", bound=ThreadingHTTPServer)
Behaviour = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StubServer
    disable_nagle_algorithm = True  # else a body waits 40 ms for the receipt of its head

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaviour = self.server.enter(body, {k.lower(): v for k, v in self.headers.items()}, self.path)
        try:
            time.sleep(self.server.delay)
            behaviour(self, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.server.leave()

    def send(self, status: int, content: bytes, content_type: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


class StubServer(ThreadingHTTPServer):
    """Behaves as told, once each in order, and as `default` from then on.

    Attributes:
        bodies, headers, paths: of all requests so far.
        peak: the largest number of requests served at once.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *behaviours: Behaviour, default: Behaviour | None = None, delay: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours, self.default, self.delay = list(behaviours), default or ok("fine"), delay
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.peak = self.current = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def enter(self, body: dict[str, Any], headers: dict[str, str], path: str) -> Behaviour:
        with self.lock:
            self.bodies.append(body)
            self.headers.append(headers)
            self.paths.append(path)
            self.current += 1
            self.peak = max(self.peak, self.current)
            return self.behaviours.pop(0) if self.behaviours else self.default

    def leave(self) -> None:
        with self.lock:
            self.current -= 1


@contextmanager
def stub(*behaviours: Behaviour, default: Behaviour | None = None, delay: float = 0.0) -> Iterator[StubServer]:
    """Run a StubServer in a thread."""
    with running(StubServer(*behaviours, default=default, delay=delay)) as server:
        yield server


@contextmanager
def running(server: ServerT) -> Iterator[ServerT]:
    """Have a server answer in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ok(text: str | None, usage: Any = (7, 3), finish: str | None = "stop", **message: Any) -> Behaviour:
    """Answer properly."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text, **message}}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        if usage:
            answer["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
        handler.send(200, json.dumps(answer).encode())

    return behave


def status(code: int, message: str = "no", error_code: str | None = None, **headers: str) -> Behaviour:
    """Refuse with a status, as the API words it."""
    content = json.dumps({"error": {"message": message, "type": "x", "code": error_code}}).encode()
    return lambda handler, body: handler.send(code, content, **headers)


def body_of(content: bytes, content_type: str = "application/json") -> Behaviour:
    """Send any bytes with status 200."""
    return lambda handler, body: handler.send(200, content, content_type)


def drop(handler: Handler, body: dict[str, Any]) -> None:
    """Promise 1,000 bytes, send a few and cut the connection."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id": "x", "cho')
    handler.wfile.flush()
    handler.close_connection = True


def hang(seconds: float) -> Behaviour:
    """Say nothing for a while, then cut the connection."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return behave


def drip(handler: Handler, body: dict[str, Any]) -> None:
    """Send one byte every 50 ms, so that no read ever times out."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(60):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)
    handler.close_connection = True


def refuses_formats(*formats: str) -> Behaviour:
    """A server that answers 400 to some response formats."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        kind = body.get("response_format", {}).get("type")
        (status(400, f"response_format {kind} is not supported") if kind in formats else ok("{}"))(handler, body)

    return behave
