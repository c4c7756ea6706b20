"""A training ends with its launcher, and with nothing else that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.each import each
from tests.helpers.indexes import REPOSITORY

CHILD = """
import os, signal, time
from pathlib import Path
from gnnrag.cli.training import follow_launcher
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
asked = follow_launcher()
Path("ready.new").write_text(f"{os.getpid()} {asked}")
os.rename("ready.new", "ready")
end = time.monotonic() + 20
while not told and not Path("stop").exists() and time.monotonic() < end:
    time.sleep(0.01)
Path("ended").write_text("told" if told else "not told")
"""
# A shell's background jobs ignore SIGINT, and so would what they start.
LAUNCHER = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
subprocess.Popen([sys.executable, "child.py"]).wait()
"""


def wait_for(path: Path) -> str:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
@each(
    "name, number, ends",
    [("accelerate", signal.SIGINT, True), ("torchrun", signal.SIGKILL, True), ("nohup", signal.SIGKILL, False)],
)
def test_a_training_is_told_when_its_launcher_ends(
    tmp_path: Path, name: str, number: signal.Signals, ends: bool
) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / name).write_text(LAUNCHER)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    launcher = subprocess.Popen(
        [sys.executable, name], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    _, asked = wait_for(tmp_path / "ready").split()
    assert (asked == "True") is ends
    launcher.send_signal(number)  # to it alone, as `kill PID` does
    launcher.wait(60)
    if not ends:
        time.sleep(0.2)
        assert not (tmp_path / "ended").exists()
        (tmp_path / "stop").touch()
    assert wait_for(tmp_path / "ended") == ("told" if ends else "not told")
