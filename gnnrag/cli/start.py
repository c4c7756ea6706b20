"""How every script begins: before all that takes time to load, so that Ctrl-C meanwhile ends it cleanly too.

Nothing but these three modules, which Python has loaded anyway, may be imported here.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # `typing` would take longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType
    from typing import Any, NoReturn

GOES_ON = "the same command continues where this one stopped"
STOPPED = 75  # as `gnnrag.run.stopping` has it
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def start(name: str, *instead: str) -> NoReturn:
    """Run a script, whose file calls this before its other imports; see `gnnrag.cli.running.run_script` for its end.

    Args:
        name: the file as a module, which is imported: `gnnrag.cli.ask`. Its `main` is run; its help is `HELP`, or its
            docstring.
        instead: arguments where none are given.
    """
    before = take_signals()
    if any(_names_own(argument) for argument in sys.argv[1:]):
        sys.path.append(os.getcwd())  # last: no file here hides a library's
    from gnnrag.cli.running import run_named

    leave(run_named(name, instead, before))


def _names_own(argument: str) -> bool:
    """Tell whether an argument is of the form `retriever=mine:TitleMatch`, so that modules of this folder are meant."""
    value = argument.partition("=")[2]
    return ":" in value and value.replace(":", "", 1).replace(".", "").isidentifier()


def leave(code: int) -> NoReturn:
    """End the process with this code, also while a model is at work in a thread of it (`gnnrag.llm.local`).

    An interpreter that ends takes its lock away from such a thread in the midst of C++, which then aborts: code 134.
    """
    import atexit
    import contextlib
    import threading

    def is_busy() -> bool:
        return any(thread.name == "gnnrag-llm" for thread in threading.enumerate())

    if is_busy():
        atexit._run_exitfuncs()  # what waits for the thread, for a while, is among them
        if is_busy():
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)
    sys.exit(code)


def take_signals() -> dict[int, Any]:
    """Let a signal end the process itself: code that is being loaded may swallow an exception, or make another of it.

    Returns:
        The handlers that were there, for `put_back`. Ctrl-C that is ignored, as in the background, stays so.
    """
    wanted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, _leave) for number in wanted}


def put_back(handlers: Mapping[int, Any]) -> None:
    """Let signals do again what they did."""
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    is_interrupt = number == signal.SIGINT
    what = "interrupted" if is_interrupt else f"told to stop by {signal.Signals(number).name}"
    try:
        os.write(2, f"{what}; {GOES_ON}\n".encode())
    finally:
        os._exit(130 if is_interrupt else STOPPED)
