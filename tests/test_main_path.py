"""How much code one question runs: BDTR on `dense`, offline, from the script's `main` to the written prediction."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from gnnrag.cli import evaluate, index

ROOT = Path(__file__).resolve().parents[1]
WITHOUT = ROOT / "gnnrag" / "roles" / "offline_reader"  # the rules that stand in for a model that reads
MAX_FILES, MAX_LINES = 51, 3390  # 61 and 3482 in cd59e66; 48 and 3190 before graphs were mapped; to become 30 and 2500


class Traced:
    """The functions of this repository that ran, until a prediction is written."""

    def __init__(self) -> None:
        self.ran: set[CodeType] = set()
        self.is_written = False

    def __call__(self, frame: FrameType, event: str, given: Any) -> None:
        code = frame.f_code
        if event == "call" and not self.is_written and code.co_flags & 0x3:  # a function, no module and no class body
            self.ran.add(code)
        self.is_written |= event == "return" and code.co_qualname == "RunDir.add"

    def functions(self) -> dict[Path, list[range]]:
        """Return the lines of the functions that ran, by file."""
        found: dict[Path, list[range]] = {}
        for code in self.ran:
            path, first = Path(code.co_filename), code.co_firstlineno  # of a lambda or a comprehension, that line
            is_own = any(path.is_relative_to(ROOT / folder) for folder in ("gnnrag", "inference"))
            if is_own and not path.is_relative_to(WITHOUT):
                found.setdefault(path, []).append(range(first, ends(path).get(first, first) + 1))
        return found


@cache
def ends(path: Path) -> dict[int, int]:
    """Return the last line of each function by its first, which is that of its first decorator."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {min(n.lineno for n in (f, *f.decorator_list)): f.end_lineno or f.lineno for f in functions}


@contextmanager
def tracing() -> Iterator[Traced]:
    traced, before = Traced(), sys.getprofile()
    threading.setprofile(traced)
    sys.setprofile(traced)
    try:
        yield traced
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def count(functions: dict[Path, list[range]]) -> tuple[int, int]:
    return len(functions), sum(len(set().union(*ranges)) for ranges in functions.values())


def test_the_main_path_is_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dots = [f"data.path={ROOT / 'data/sample'}", "index.embedder.model=hash", "index.text.language=blank:en"]
    dots += [f"index.path={tmp_path / 'index'}", "retriever=dense"]
    assert index.main(["build", *dots]) == 0
    with tracing() as traced:
        arguments = [*dots, "method=bdtr", "roles=offline", "data.limit=1", f"run.root={tmp_path}", "run.name=run"]
        assert evaluate.main(arguments) == 0
    assert traced.is_written and (tmp_path / "run" / "predictions.jsonl").is_file()
    functions = traced.functions()
    files, lines = count(functions)
    with capsys.disabled():
        sys.stdout.write(f"\nmain path: functions of {files} files, {lines} lines of them\n")
    longest = sorted(((count({p: r})[1], str(p.relative_to(ROOT))) for p, r in functions.items()), reverse=True)
    assert files <= MAX_FILES and lines <= MAX_LINES, "\n".join(f"{n:5} {name}" for n, name in longest)
