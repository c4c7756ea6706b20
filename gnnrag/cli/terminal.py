"""What a script prints, fit for a terminal: escapes and overrides of data, names and errors are spelt out.

Whatever is printed, logged, warned of or shown as a traceback passes through here, so that no caller has to think
of it.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gnnrag.common.untrusted import printable

_MOVES = re.compile("(?:\r|\n|\x1b\\[A)*")  # how a progress bar goes back to its line


class Terminal:
    r"""A text stream that spells out what would act on a terminal, as `\u001b`; line feeds and tabs pass.

    JSON stays equal, as these are its own escapes. The moves at the beginning of what tqdm writes pass as well.

    Args:
        stream: where the text goes; everything but writing is asked of it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; returns its length."""
        moves = ""
        if text[:1] in "\r\n\x1b" and sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] == "tqdm":
            moves = _MOVES.match(text)[0]  # type: ignore[index]  # it matches nothing at all, too
        self._stream.write(moves + printable(text[len(moves) :]))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Log(logging.Handler):
    """Prints what is logged as a line of its own, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.levelname.lower()}: {self.format(record)}"
        with suppress(OSError, ValueError):  # a full disk behind stderr must not fail the call that is told of
            if "tqdm" in sys.modules:
                sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
            else:
                print(line, file=sys.stderr)


@contextmanager
def guarded_output() -> Iterator[None]:
    """Let everything that is printed or logged within the block pass through a `Terminal`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream if isinstance(stream, Terminal) else Terminal(stream) for stream in before)
    log = _Log(logging.WARNING)
    logging.getLogger().addHandler(log)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(log)
        sys.stdout, sys.stderr = before
