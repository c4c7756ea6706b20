"""What a person is told, and the exit code, where an error ends a script; `run_script` has the list of codes."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from gnnrag.cli.start import GOES_ON, STOPPED
from gnnrag.common.untrusted import one_line
from gnnrag.errors import GnnragError

_FIXES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "give a place that can be written",
    errno.EACCES: "give a place that you may use, or have it permitted",
    errno.EPERM: "give a place that you may use, or have it permitted",
    errno.EMFILE: "allow more open files (ulimit -n)",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # libraries hide them in errors of their own


def explained(error: BaseException, told: Sequence[str]) -> int:
    """Tell a person on stderr why a script ends, in one line where that is foreseen; returns the exit code.

    Args:
        error: what ends it.
        told: by what a scheduler told it to stop (`gnnrag.cluster.stopping.listening`), empty where it did not.
    """
    error = _first(error)
    if isinstance(error, KeyboardInterrupt):
        _say(f"{f'told to stop by {told[0]}' if told else 'interrupted'}; {GOES_ON}")
        return STOPPED if told else 130
    if isinstance(error, BrokenPipeError):  # `| head` has seen enough
        return 0
    if isinstance(error, GnnragError):
        _say(f"error: {error}")
        return 2
    if problem := _of_system(error):
        _say(f"error: {problem}; what was written is kept, and {GOES_ON}")
        return 1
    with suppress(OSError):
        traceback.print_exception(error)
    _say("error: this is a mistake in gnnrag: please report it, with the lines above and the command")
    return 1


def _first(error: BaseException) -> BaseException:
    """Return what happened, out of the groups that tasks which run at once put it into."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _of_system(error: BaseException) -> str:
    """Return in one line what the system refused, and the fix; empty where it is something else."""
    if isinstance(error, RecursionError):
        last = traceback.extract_tb(error.__traceback__)[-1:]
        return f"something that was read is nested too deeply{''.join(f' ({f.filename}:{f.lineno})' for f in last)}"
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:  # torch, safetensors and sqlite raise errors of their own
        seen.append(cause)
        if _is_memory(cause):
            return "out of memory; give a smaller batch, fewer at once, or a larger machine"
        number = cause.errno if isinstance(cause, OSError) else None
        if number is None or number not in _FULL:
            number = next((n for n in _FULL if os.strerror(n) in str(cause)), number)
        if number in _FULL or isinstance(error, OSError):
            return _refusal(cause, number)
        cause = cause.__cause__ or cause.__context__
    return ""


def _is_memory(error: BaseException) -> bool:
    is_named = type(error).__name__ == "OutOfMemoryError" or os.strerror(errno.ENOMEM) in str(error)  # of torch
    return isinstance(error, MemoryError) or is_named


def _refusal(error: BaseException, number: int | None) -> str:
    reason = os.strerror(number) if number else " ".join(str(error).split()) or type(error).__name__
    place = getattr(error, "filename", None)
    fix = _FIXES.get(number or 0)
    return f"{reason}{f': {place}' if place is not None else ''}{f'; {fix}' if fix else ''}"


def _say(line: str) -> None:
    with suppress(OSError):
        print(one_line(line), file=sys.stderr, flush=True)
