"""The child process that reads documents: a bomb, a quadratic parser or a crash costs one file, with the reason.

The parent (`DocumentReader`) sends a path a line and gets a JSON object a line. A child that takes too long or yields
too much is killed, one that has grown is replaced, and the next file gets a new one.
"""

from __future__ import annotations

import json
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnnrag.datasets.chunk import Chunking
from gnnrag.errors import DataError
from gnnrag.types import Passage

CPU_SECONDS, WALL_SECONDS = 60, 120  # of a file
MEMORY = 2_000_000_000  # bytes of the child's address space
GROWN = 600_000_000  # bytes in memory from which on a child is replaced after its file
MAX_YIELD = 60_000_000  # bytes that the passages of a file may take


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What became of a file: its passages, still without ids, by the key of the record (else ""), or a problem."""

    records: tuple[tuple[str, tuple[Passage, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""


class DocumentReader:
    """Reads documents in a child process, one after the other; a context manager, which ends it."""

    def __init__(self, chunking: Chunking) -> None:
        self.chunking = chunking
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DocumentReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def stop(self) -> None:
        """End the reading of a file from another thread; the next one gets a new child."""
        if (child := self._child) is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)

    def read(self, path: Path) -> ReadResult:
        """Read a file and cut it into passages. Raises nothing: whatever is wrong is the result's `problem`."""
        if self._child is None or self._child.poll() is not None:
            self._child = self._start()
        request = json.dumps([os.fspath(path.absolute()), asdict(self.chunking)]).encode() + b"\n"
        try:
            self._child.stdin.write(request)  # type: ignore[union-attr]
            self._child.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            pass  # its end is found out below
        reply = self._reply()
        if isinstance(reply, str):
            return ReadResult(problem=reply)
        records = tuple((key, tuple(Passage("", *cut) for cut in cuts)) for key, cuts in reply["records"])
        if reply["is_last"]:
            self._end()
        return ReadResult(records, tuple(reply["notes"]), reply["problem"])

    def _reply(self) -> dict[str, Any] | str:
        """Return what the child says of a file, or how it ended."""
        child, parts, size = self._child, list[bytes](), 0
        assert child is not None and child.stdout is not None
        deadline = time.monotonic() + WALL_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while size <= MAX_YIELD:
                if not selector.select(deadline - time.monotonic()):
                    self._end()
                    return f"takes more than {WALL_SECONDS} s to read; split it"
                data = os.read(child.stdout.fileno(), 1 << 20)
                if not data:
                    return _ended(child.wait())
                parts.append(data)
                size += len(data)
                if data.endswith(b"\n"):
                    return json.loads(b"".join(parts))  # type: ignore[no-any-return]
        self._end()
        return f"yields more than {MAX_YIELD:,} bytes of passages; split it"

    def _start(self) -> subprocess.Popen[bytes]:
        # What this process can import its child can, too; the folder of the user's script, which may hold a types.py,
        # comes last. One thread and arena: each takes address space.
        path = os.pathsep.join(filter(None, [*sys.path[1:], *sys.path[:1]]))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-c", "from gnnrag.datasets.documents.child import main; main()"]
        return subprocess.Popen(
            command,
            env={**environment, "MALLOC_ARENA_MAX": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
        )

    def _end(self) -> None:
        if self._child is not None:
            if self._child.poll() is None:
                with suppress(ProcessLookupError, PermissionError):  # it has just ended by itself
                    os.killpg(self._child.pid, signal.SIGKILL)
            self._child.communicate()
            self._child = None


def _ended(code: int) -> str:
    if code == -signal.SIGXCPU:
        return f"takes more than {CPU_SECONDS} s of processor time to read; split it"
    cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"cannot be read within {MEMORY / 1e9:g} GB, or crashes its reader ({cause}); split it, or save it again"


def main() -> None:
    """Be the child: read the files that standard input names until it ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no reply
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_AS, MEMORY)
    for line in sys.stdin.buffer:
        _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + CPU_SECONDS)
        path, chunking = json.loads(line)
        reply = _answer(Path(path), Chunking(**chunking))
        reply["is_last"] = _resident() > GROWN
        # Not as ASCII: escapes would make a Russian text three times as long. File names and texts may hold surrogates.
        output.write(json.dumps(reply, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        output.flush()


def _limit(kind: int, value: int) -> None:
    """Set a soft limit of this process, as far as its hard limit allows."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _resident() -> int:
    """Return how many bytes this process has in memory; without /proc (macOS), the most that it ever had."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except FileNotFoundError:
        # Not so on Linux, where this counts in kilobytes and begins with what the parent had.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _answer(path: Path, chunking: Chunking) -> dict[str, Any]:
    from gnnrag.datasets.documents.passages import cut_document
    from gnnrag.datasets.documents.readers import read_document

    records, notes, problem = [], dict[str, None](), ""
    try:
        for document in read_document(path):
            passages = cut_document(document, chunking, path.stem)
            records.append((document.key, [(p.title, p.text, p.place, p.metadata) for p in passages]))
            notes |= dict.fromkeys(document.notes)
    except DataError as error:
        problem = str(error).removeprefix(str(path)).lstrip(":, ")
    except MemoryError:
        raise  # ends the child; the parent then says why (`_ended`)
    except BaseException as error:  # noqa: BLE001 - parsers of strangers' bytes raise anything, Rust's panics too
        if re.search(r"password|encrypt", str(error), re.IGNORECASE):
            problem = "is protected by a password; save it without one"
        name = type(error).__name__
        why = f"{name}: {str(error).removeprefix(f'{name}: ')[:200]}"
        problem = problem or f"is a damaged or unsupported {path.suffix.lower()} ({why})"
    return {"records": [] if problem else records, "notes": list(notes), "problem": problem}
