"""How a script ends while a model is at work."""

from __future__ import annotations

import subprocess
import sys

import pytest

BUSY = """
import atexit, threading, time, torch
from gnnrag.cli.start import leave

def work():
    while True:
        torch.mm(torch.ones(300, 300), torch.ones(300, 300))  # takes Python's lock again from within C++

for _ in range(8):
    threading.Thread(target=work, name="gnnrag-llm", daemon=True).start()
time.sleep(0.5)
atexit.register(print, "what was to be done at the end")
leave(75)
"""


@pytest.mark.slow
def test_a_model_at_work_does_not_change_the_exit_code() -> None:
    """An interpreter that ends under it aborts: a scheduler would take that for a crash."""
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (75, "what was to be done at the end\n", "")
