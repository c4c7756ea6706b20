"""A server under load on the loopback: errors, latencies, memory; and while documents come and go.

    python tests/benchmarks/bench_serve.py INDEX --questions data/sample/questions.dev.jsonl [--seconds 60]
    python tests/benchmarks/bench_serve.py INDEX --questions FILE --changing      documents are added and removed

Every client asks one question after the other, the questions of the file in turn, each of them once before the clock
starts. Memory is that of the server's processes together, without the
one that writes documents. INDEX is copied: nothing is added to yours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np


async def call(port: int, method: str, path: str, body: bytes = b"", streams: Any = None) -> tuple[int, bytes, Any]:
    """Send a request on a connection that is kept; returns status, body, connection."""
    reader, writer = streams or await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    )
    writer.write(head.encode() + b"\r\n\r\n" + body)
    told = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(told.split("content-length:")[1].split("\r\n")[0])
    return int(told.split()[1]), await reader.readexactly(length), (reader, writer)


def memory(pid: int) -> float:
    """Return the resident MB of a process and those that it started, without the one that writes."""
    if b"gnnrag.serve.writer" in Path(f"/proc/{pid}/cmdline").read_bytes():
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(memory(int(child)) for child in children)


def processor(pid: int) -> float:
    """Return the seconds of a processor that a process and those that it started have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(processor(int(one)) for one in children)


class Load:
    """What the clients of one run saw."""

    def __init__(self, port: int, index: str, asked: list[str], how: dict[str, str], is_distinct: bool = False) -> None:
        self.is_distinct = is_distinct
        self.port, self.path, self.asked, self.how = port, f"/api/indexes/{index}/ask", asked, how
        self.seconds: list[float] = []
        self.errors: Counter[str] = Counter()
        self.told: dict[tuple[str, str], str] = {}
        self.mixed = 0
        self.next = 0

    async def once(self, streams: Any = None) -> Any:
        self.next += 1
        question = self.asked[self.next % len(self.asked)] + (f" ({self.next})" if self.is_distinct else "")
        started = time.perf_counter()
        status, told, streams = await call(
            self.port, "POST", self.path, json.dumps({"question": question, **self.how}).encode(), streams
        )
        self.seconds.append(time.perf_counter() - started)
        answer = json.loads(told)
        if status != 200 or answer["error"]:
            self.errors[f"{status} {str(answer.get('error'))[:120]}"] += 1
        else:  # of one state a question has one answer
            key = (answer["generation"], question)
            self.mixed += self.told.setdefault(key, answer["text"]) != answer["text"]
        return streams

    async def client(self, until: float) -> None:
        streams = None
        while time.monotonic() < until:
            try:
                streams = await self.once(streams)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.errors[type(error).__name__] += 1
                streams = None


async def load(port: int, pid: int, index: str, asked: list[str], how: dict[str, str], args: Any) -> None:
    run = Load(port, index, asked, how, args.distinct)
    for first in range(0, len(asked), 32):
        await asyncio.gather(*(run.once() for _ in asked[first : first + 32]))
    run.seconds.clear()
    until = time.monotonic() + args.seconds
    clients = [asyncio.create_task(run.client(until)) for _ in range(args.clients)]
    changes = asyncio.create_task(change(port, index, until)) if args.changing else None
    await asyncio.sleep(min(5, args.seconds / 2))
    early = memory(pid)
    await asyncio.gather(*clients)
    late, ms = memory(pid), np.array(run.seconds) * 1000
    print(
        f"{'/'.join(how.values())}: {len(ms)} answers, {len(ms) / args.seconds:.1f} a second, "
        f"errors {dict(run.errors) or 0}, mixed {run.mixed}, p50 {np.percentile(ms, 50):.0f} ms, "
        f"p95 {np.percentile(ms, 95):.0f} ms, memory after 5 s {early:.0f} MB, at the end {late:.0f} MB "
        f"({late / early - 1:+.1%})"
        + (", changes and searches with two states: {}, {}".format(*await changes) if changes else ""),
        flush=True,
    )


async def change(port: int, index: str, until: float) -> tuple[int, int]:
    """Replace a document of several passages and remove it, again and again; returns how often, and mixtures found.

    All of its passages name the same number: a search that finds two numbers has seen two states.
    """
    count, mixed, streams = 0, 0, None
    document = f"/api/indexes/{index}/documents/light.txt"
    query = json.dumps({"query": "lighthouse keeper logbook", "k": 20, "retriever": "bm25"}).encode()
    while time.monotonic() < until:
        rows = [f"The lighthouse keeper wrote into logbook {count}: " + "the sea was calm and grey. " * 40] * 6
        method, body = ("DELETE", b"") if count % 4 == 3 else ("PUT", "\n\n".join(rows).encode())
        _, told, streams = await call(port, method, document, body, streams)
        job = json.loads(told)["job"]
        while True:
            _, told, streams = await call(port, "GET", f"/api/indexes/{index}/jobs/{job}", b"", streams)
            _, found, streams = await call(port, "POST", f"/api/indexes/{index}/search", query, streams)
            texts = [row["text"] for row in json.loads(found)["passages"] if row["passage"].startswith("light.txt#")]
            mixed += len({re.findall(r"logbook (\d+)", text)[0] for text in texts if "logbook" in text}) > 1
            if (state := json.loads(told))["ended"]:
                break
            await asyncio.sleep(0.05)
        assert state["state"] == "done", state
        count += 1
    return count, mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--methods", default="single,bdtr")
    parser.add_argument("--changing", action="store_true", help="add, replace and remove a document meanwhile")
    parser.add_argument("--distinct", action="store_true", help="no question twice: nothing is remembered")
    args = parser.parse_args()
    asked = [json.loads(line)["question"] for line in args.questions.read_text("utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "served"
        shutil.copytree(args.index, index)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "gnnrag.cli.command",
            "serve",
            str(index),
            f"serve.port={port}",
            "serve.log=off",
        ]
        server = subprocess.Popen([*command, f"serve.workers={args.workers}"])
        try:
            asyncio.run(measure(port, server.pid, asked, args, started))
        finally:
            server.terminate()
            server.wait(30)


async def measure(port: int, pid: int, asked: list[str], args: Any, started: float) -> None:
    while True:
        try:
            await call(port, "GET", "/api/health")
            break
        except OSError:
            await asyncio.sleep(0.05)
    up = time.monotonic() - started
    await Load(port, "served", asked, {"method": "bdtr", "retriever": "chg"}).once()
    print(
        f"listens after {up:.1f} s, first answer after {time.monotonic() - started:.1f} s, {memory(pid):.0f} MB",
        flush=True,
    )
    await asyncio.sleep(2)
    used = processor(pid)
    await asyncio.sleep(10)
    print(f"idle: {(processor(pid) - used) / 10:.2%} of a core", flush=True)
    for method in args.methods.split(","):
        await load(port, pid, "served", asked, {"method": method, "retriever": "chg"}, args)


if __name__ == "__main__":
    main()
