"""A scheduler's signal, or its stop file, ends work as Ctrl-C does, and is told apart from it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnrag.cli.console import run_script
from gnnrag.cluster import stopping
from gnnrag.cluster.stopping import STOP_FILE, STOPPED, listening, remember
from tests.helpers.each import each
from tests.helpers.indexes import REPOSITORY, environment

CHILD = """
import asyncio, sys, time
from pathlib import Path
from gnnrag.cli.console import run_script

def ready(): Path("ready").touch()

async def wait():
    try:
        ready()
        await asyncio.sleep(60)
    finally:
        Path("ended").write_text("cancelled")

def main(arguments):
    if arguments == ["async"]:
        asyncio.run(wait())
    else:
        ready()
        time.sleep(60)
    return 0

sys.exit(run_script(main, sys.argv[1:], ""))
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Leave the handlers of this process as they were, and let Ctrl-C interrupt."""
    numbers = (signal.SIGINT, *stopping.SIGNALS)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.slow
@each(
    "kind, by, code, said",
    [
        ("async", signal.SIGTERM, STOPPED, "told to stop by SIGTERM"),
        ("sync", "file", STOPPED, "told to stop by the file "),
    ],
)
def test_a_process_in_the_background_is_stopped(
    tmp_path: Path, kind: str, by: signal.Signals | str, code: int, said: str
) -> None:
    """As a batch script has it: with `&`, hence with Ctrl-C ignored."""
    (tmp_path / "child.py").write_text(CHILD)
    env = environment(PYTHONPATH=str(REPOSITORY), **{STOP_FILE: str(tmp_path / "stop")})
    child = subprocess.Popen(
        ["sh", "-c", f'trap "" INT; exec {sys.executable} child.py {kind}'],
        cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 20
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < end and child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert child.poll() is None, "Ctrl-C on the terminal is for what is in the foreground"
        if isinstance(by, str):
            (tmp_path / "stop").touch()
        else:
            child.send_signal(by)
        _, errors = child.communicate(timeout=10)
    finally:
        child.kill()
    assert child.returncode == code
    assert errors.splitlines() == [line for line in errors.splitlines() if line.startswith(said)] and errors
    assert (tmp_path / "ended").exists() is (kind == "async")


def test_a_signal_while_the_first_is_obeyed_does_not_interrupt() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            signal.raise_signal(signal.SIGTERM)  # SLURM sends a second one while the first is being obeyed
            await asyncio.sleep(0.01)
            ended.append("cleaned up")

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.01, signal.raise_signal, signal.SIGUSR1)
        await work()

    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), listening(told):
        asyncio.run(main())
    assert ended == ["cleaned up"] and told == ["SIGUSR1", "SIGTERM"]


@each("by", ["signal", "file"])
def test_who_swallowed_the_first_interrupt_is_interrupted_again(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STOP_FILE, str(tmp_path / "stop"))
    monkeypatch.setattr(stopping, "POLL_S", 0.01)
    monkeypatch.setattr(stopping, "AGAIN_S", 0.1)
    told: list[str] = []
    swallowed = False
    with pytest.raises(KeyboardInterrupt), listening(told):
        try:
            (tmp_path / "stop").touch() if by == "file" else signal.raise_signal(signal.SIGUSR1)
            time.sleep(10)
        except KeyboardInterrupt:
            swallowed = True
        if by == "signal":
            signal.raise_signal(signal.SIGTERM)  # too early
            time.sleep(0.15)
            signal.raise_signal(signal.SIGTERM)
        time.sleep(10)
        pytest.fail("was not interrupted again")
    named = f"the file {tmp_path / 'stop'}"
    assert swallowed and told == ([named, named] if by == "file" else ["SIGUSR1", "SIGTERM", "SIGTERM"])


def test_ctrl_c_stays_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    def main(arguments: object) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    assert run_script(main, [], "") == 130
    assert capsys.readouterr().err == "interrupted; the same command continues where this one stopped\n"


def test_everything_is_as_before_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STOP_FILE, str(tmp_path / "stop"))
    numbers = (signal.SIGINT, *stopping.SIGNALS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    before, threads = [signal.getsignal(number) for number in numbers], threading.active_count()
    told: list[str] = []
    with listening(told):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert threading.active_count() == threads + 1
    assert not told and [signal.getsignal(number) for number in numbers] == before
    assert threading.active_count() == threads and not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_training_only_remembers_also_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STOP_FILE, str(tmp_path / "stop"))
    monkeypatch.setattr(stopping, "POLL_S", 0.01)
    with listening([]):
        told = remember()
        signal.raise_signal(signal.SIGTERM)
        assert told == ["SIGTERM"]
        (tmp_path / "stop").touch()
        end = time.monotonic() + 10
        while len(told) < 2 and time.monotonic() < end:
            time.sleep(0.005)
        assert told == ["SIGTERM", "SIGUSR1"]


def test_a_stop_file_that_was_left_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stop").touch()
    monkeypatch.setenv(STOP_FILE, str(tmp_path / "stop"))
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), listening(told):
        time.sleep(10)
    assert told == [f"the file {tmp_path / 'stop'}"]
