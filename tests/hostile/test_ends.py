"""However a script ends, it is one line and an exit code, and the same command goes on: signals, disks, memory."""

from __future__ import annotations

import ast
import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnnrag.cli import evaluate, index, judge
from gnnrag.cli.console import run_script
from gnnrag.common.files import Journal, read_journal
from gnnrag.errors import ConfigError
from gnnrag.llm.base import Message, Request
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.scripted import ScriptedBackend
from tests.helpers.each import each
from tests.helpers.indexes import REPOSITORY, artefacts, environment

SCRIPTS = sorted(
    path
    for folder in ("inference", "training", "slurm")
    for path in (REPOSITORY / folder).glob("*.py")
    if "__main__" in path.read_text("utf-8") and path.name != "start.py"
)
SMALL = ["index.text.language=blank:en", "index.embedder.model=hash", "retriever=dense", "method=bdtr"]
SMALL += [f"data.path={REPOSITORY / 'data/sample'}", "data.limit=12"]
KINDS = {"INT": 130, "TERM": 75}
LOADED = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIG{kind})
    time.sleep(9)
except BaseException:
    raise OSError
"""


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, lines
    return lines[0]


# ------------------------------------------------------------------------------------------------- while loading
@each("path", SCRIPTS)
def test_scripts_load_nothing_before_they_can_be_interrupted(path: Path) -> None:
    body = ast.parse(path.read_text("utf-8")).body
    (at,) = [n for n, node in enumerate(body) if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
    module = f"{'gnnrag.cli' if path.parent.name == 'inference' else path.parent.name}.{path.stem}"
    assert ast.unparse(body[at].body[0]).startswith(f"start('{module}'")
    before = {node.module for node in body[:at] if isinstance(node, ast.ImportFrom)}
    before |= {alias.name for node in body[:at] if isinstance(node, ast.Import) for alias in node.names}
    assert before <= {"__future__", "sys", "pathlib", "gnnrag.cli.start"}


@each("script, kind", [("inference/ask.py", "INT"), ("training/train_reader.py", "TERM")])
def test_a_signal_while_a_script_is_loaded(tmp_path: Path, script: str, kind: str) -> None:
    # As libraries do: what is raised meanwhile becomes another error.
    code = (
        f"try:\n    os.kill(os.getpid(), signal.SIG{kind})\n    time.sleep(9)\nexcept BaseException:\n    raise OSError"
    )
    for name in ("omegaconf", "torch"):
        (tmp_path / f"{name}.py").write_text(f"import os, signal, time\n{code}\n")
    done = subprocess.run(
        [sys.executable, script], cwd=REPOSITORY, env=environment(PYTHONPATH=str(tmp_path)),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == KINDS[kind], done.stderr
    said = {"INT": "interrupted", "TERM": "told to stop by SIGTERM"}[kind]
    assert done.stderr == f"{said}; the same command continues where this one stopped\n" and not done.stdout


# ------------------------------------------------------------------------------------------ what the system refuses
def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device", "/runs/x")


def hidden(*_: object) -> int:
    try:
        return full()
    finally:
        raise RuntimeError("unexpected pos 64 vs 0")  # what torch.save makes of it


def wrapped(*_: object) -> int:
    raise RuntimeError('SafetensorError: IoError(Os { code: 28, message: "No space left on device" })')


def grouped(*_: object) -> int:
    raise ExceptionGroup("tasks", [OSError(errno.EROFS, "Read-only file system", "x")])


def denied(*_: object) -> int:
    raise PermissionError(errno.EACCES, "Permission denied", "/root/x")


def short(*_: object) -> int:
    raise OSError("4096 requested and 512 written")  # of numpy


def endless(*_: object) -> int:
    return endless()


FAILURES: list[tuple[Callable[..., int], str]] = [
    (full, "error: No space left on device: /runs/x; free some space; what was written is kept"),
    (hidden, "error: No space left on device: /runs/x; free some space"),
    (wrapped, "error: No space left on device; free some space"),
    (grouped, "error: Read-only file system: x; give a place that can be written"),
    (denied, "error: Permission denied: /root/x; give a place that you may use"),
    (short, "error: 4096 requested and 512 written; what was written is kept"),
    (lambda _: len(bytearray(1 << 62)), "error: out of memory; "),
    (endless, "error: something that was read is nested too deeply ("),
]


@each("main, says", FAILURES)
def test_what_the_system_refuses_is_one_line(
    main: Callable[..., int], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(main, [], "") == 1
    assert one_line(capsys).startswith(says)


def test_errors_of_tasks_that_run_at_once_keep_their_code(capsys: pytest.CaptureFixture[str]) -> None:
    def main(_: object) -> int:
        raise ExceptionGroup("tasks", [ExceptionGroup("inner", [ConfigError("x=1: give 2")])])

    assert run_script(main, [], "") == 2
    assert one_line(capsys) == "error: x=1: give 2"


def test_what_nobody_foresaw_is_shown_and_to_be_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def main(_: object) -> int:
        raise KeyError("nobody")

    assert run_script(main, [], "") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback") and "please report it" in lines[-1]


@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as nowhere:
        done = subprocess.run(
            [sys.executable, "inference/fetch.py", "list"], cwd=REPOSITORY, env=environment(), stdout=nowhere,
            stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("error: No space left on device")


# ------------------------------------------------------------------------------------------- nothing that was is lost
@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """What a full disk is to a program, without one: writes come back short, and then fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_row_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "rows.jsonl")
    journal.append({"n": 1})
    with no_file_larger_than(20), pytest.raises(OSError, match="too large"):
        journal.append({"n": "x" * 100})
    assert (tmp_path / "rows.jsonl").read_bytes() == b'{"n": 1}\n'
    journal.append({"n": 2})
    journal.close()
    assert read_journal(tmp_path / "rows.jsonl") == [{"n": 1}, {"n": 2}]


@pytest.mark.slow
@each("size", [3000, 12_000])
def test_an_index_goes_on_after_a_full_disk(tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]) -> None:
    def build(name: str) -> int:
        return run_script(index.main, ["build", *SMALL, f"index.path={tmp_path / name}"], "")

    with no_file_larger_than(size):
        assert build("full") == 1
    assert one_line(capsys).startswith("error: ")
    assert build("full") == 0 == build("plain")
    assert artefacts(tmp_path / "full") == artefacts(tmp_path / "plain")
    assert not list(tmp_path.glob("full/.*.new"))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    root = tmp_path_factory.mktemp("asked")
    dots = [*SMALL, f"index.path={root / 'index'}", "roles=offline"]
    assert run_script(evaluate.main, [*dots, f"run.root={root}", "run.name=run"], "") == 0
    return root / "run", dots


@pytest.mark.slow
@each("size", [2000, 20_000])
def test_a_run_goes_on_after_a_full_disk(
    tmp_path: Path, asked: tuple[Path, list[str]], size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, dots = asked
    own = [*dots, f"run.root={tmp_path}", "run.name=run"]
    with no_file_larger_than(size):
        assert run_script(evaluate.main, own, "") == 1
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: File too large")]
    done = len(read_journal(tmp_path / "run" / "predictions.jsonl"))
    assert 0 <= done < 12
    assert run_script(evaluate.main, own, "") == 0
    for name in ("predictions.jsonl", "traces.jsonl", "scores.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (plain / name).read_bytes(), name


def test_a_judgement_goes_on_after_a_full_disk(
    asked: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [f"runs=[{asked[0]}]", "judged=answer", "llm=scripted", "llm.default=7", "llm_cache=null"]
    with no_file_larger_than(4000):
        assert run_script(judge.main, [*own, f"out={tmp_path / 'full'}"], "") == 1
    assert "error: File too large" in capsys.readouterr().err
    for name in ("full", "plain"):
        assert run_script(judge.main, [*own, f"out={tmp_path / name}"], "") == 0
    files = [tmp_path / name / "run" / "scores" / "scores.jsonl" for name in ("full", "plain")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_response_cache_stays_valid_on_a_full_disk(tmp_path: Path) -> None:
    import asyncio

    path, asked = tmp_path / "llm.sqlite", []

    def reply(request: Request) -> str:
        asked.append(request)
        return "word " * 2000

    async def ask(number: int) -> str:
        cached = CachedBackend(ScriptedBackend.of((".", reply)), path)
        try:
            return (await cached.generate(Request((Message("user", f"question {number}"),)))).text
        finally:
            await cached.close()

    assert asyncio.run(ask(0)).startswith("word")
    with no_file_larger_than(path.stat().st_size):
        assert asyncio.run(ask(1)).startswith("word"), "the reply is worth more than the entry"
    assert asyncio.run(ask(0)).startswith("word") and len(asked) == 2, "what was kept is kept"
    asyncio.run(ask(1))
    asyncio.run(ask(1))
    assert len(asked) == 3


# ---------------------------------------------------------------------------------------------- folders that are links
def test_starting_over_does_not_delete_through_a_link(
    tmp_path: Path, asked: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    plain, dots = asked
    (tmp_path / "run").symlink_to(plain)
    before = {path.name: path.stat().st_mtime_ns for path in plain.iterdir()}
    assert run_script(evaluate.main, [*dots, f"run.root={tmp_path}", "run.name=run", "run.fresh=true"], "") == 2
    assert "is a link" in one_line(capsys)
    assert {path.name: path.stat().st_mtime_ns for path in plain.iterdir()} == before
    assert json.loads((plain / "metrics.json").read_text())["questions"] == 12
    assert os.path.islink(tmp_path / "run")
