"""Running a script's main so that it ends cleanly; `start.py` is what calls it."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from gnnrag.cli.ending import explained
from gnnrag.cli.start import put_back, take_signals
from gnnrag.cli.terminal import guarded_output
from gnnrag.common.untrusted import counted_repairs, well_formed
from gnnrag.common.waiting import told_when_still


def run_named(name: str, instead: Sequence[str], before: Mapping[int, Any]) -> int:
    """Run a script as `gnnrag.cli.start.start` is asked to; returns the exit code.

    Args:
        name: see there.
        instead: see there.
        before: handlers of signals that are to be put back.
    """
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show is no reason to end
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def run() -> int:
        listened = take_signals()
        script = import_module(name)
        put_back(listened)
        return run_main(script.main, sys.argv[1:] or instead, getattr(script, "HELP", script.__doc__))

    code = _ended(run, before)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is written: Ctrl-C now ends what is being taken down
    return code


def run_script(main: Callable[[Sequence[str]], int], arguments: Sequence[str], help_text: str | None) -> int:
    """Run a script's main; returns the exit code.

    - What `main` returns: 0, or 1 where there is no result, or not all of it.
    - 2: what was asked for or given cannot be (a setting, a file, a server): one line says what, and the fix.
    - 1: the system failed (disk full or read-only, no permission, no memory, something nested too deeply): one line.
      Also what nobody foresaw, with its traceback.
    - 130: Ctrl-C. 75 (`gnnrag.run.stopping`): a scheduler's signal to stop, which tells it to start the same
      command again.

    However it ends, what was written is whole, and the same command goes on from it. What is printed reaches a terminal
    through `gnnrag.cli.terminal`.
    """
    return _ended(lambda: run_main(main, arguments, help_text))


def run_main(main: Callable[[Sequence[str]], int], arguments: Sequence[str], help_text: str | None) -> int:
    """Run a main; asked for help, print it instead, unless it is None: then `main` has its own."""
    if help_text is not None and any(a in ("-h", "--help") for a in arguments):
        print(help_text.strip())
        return 0
    for library in ("pypdf", "trafilatura"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # a damaged file is named by our own note
    with counted_repairs() as repairs:  # what is no UTF-8 reaches us as halves of characters
        arguments = [well_formed(argument) for argument in arguments]
    if repairs.count:
        print(f"note: the command line is no UTF-8; {repairs.remark}", file=sys.stderr)
    return main(arguments)


def _ended(run: Callable[[], int], before: Mapping[int, Any] | None = None) -> int:
    told: list[str] = []
    with guarded_output():
        try:
            put_back(before or {})
            with told_when_still(logging.getLogger("gnnrag.standstill").warning):
                code = run()
                sys.stdout.flush()  # here, where a full disk can still be told
                return code
        except BaseException as error:
            if isinstance(error, SystemExit):
                raise
            return explained(error, told)
        finally:
            _give_up_output()


def _give_up_output() -> None:
    """Leave nothing behind that Python would try to write once more, and complain of, when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _discard(stream)


def _discard(stream: Any) -> None:
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
