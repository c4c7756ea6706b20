"""Ending with the launcher: `accelerate launch` forwards no signal to the process that it starts."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_LAUNCHERS = {"accelerate", "accelerate-launch", "accelerate.commands.launch", "torchrun", "torch.distributed.run"}
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl


def follow_launcher() -> bool:
    """Ask Linux to send this process SIGTERM when its launcher ends, by whatever signal, SIGKILL included.

    Only a launcher counts as a parent whose end matters: a training that a shell started may outlive it (`nohup`).

    Returns:
        Whether it was asked. Elsewhere than on Linux, or where no launcher started this process, nothing is done.
    """
    parent = os.getppid()
    if not sys.platform.startswith("linux") or not _is_launcher(parent):
        return False
    asked = ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM) == 0
    if os.getppid() != parent:  # it ended before Linux was asked
        os.kill(os.getpid(), signal.SIGTERM)
    return asked


def _is_launcher(process: int) -> bool:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return False
    return any(Path(word).name in _LAUNCHERS for word in words[:4])  # python -m NAME, python /PATH/NAME, NAME
