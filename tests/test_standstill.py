"""What a process that hangs says."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tqdm import tqdm

import gnnrag.common.waiting as module
from gnnrag.cli.running import run_script
from gnnrag.common.files import Journal
from gnnrag.common.waiting import FIRST_S, Watch, told_when_still, waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1000.0]
    monkeypatch.setattr(module, "_open", {})
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    yield now


def test_a_standstill_is_told_after_a_minute_and_then_at_growing_distances(clock: list[float], tmp_path: Path) -> None:
    watch = Watch()
    with ExitStack() as calls:
        for _ in range(2):
            calls.enter_context(waiting("call to h:1"))
        clock[0] += 15
        calls.enter_context(waiting("question"))
        told = {}
        for second in range(int(8 * FIRST_S)):
            if line := watch.look(clock[0] + second):
                told[second] = line
        assert list(told) == [60, 120, 240]
        waits = "2 calls to h:1, the oldest for 75 s; 1 question, the oldest for 60 s"
        assert told[60] == f"nothing has moved for 60 s; waiting for {waits}"
        clock[0] += 480
        with closing(Journal(tmp_path / "rows")) as journal:  # so do all stages of an index
            journal.append([1])
        assert not watch.look(clock[0] + 59) and watch.look(clock[0] + 60), "what goes on begins anew"
    assert not watch.look(clock[0] + 1e6), "nothing is waited for"


def test_a_script_tells_what_it_waits_for_beside_its_progress_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.001)
    monkeypatch.setattr(Watch, "look", lambda self, now: said.pop() if said else "")
    said = ["nothing has moved: \x1b[31m"]

    def main(arguments: Sequence[str]) -> int:
        with tqdm(total=3, file=sys.stderr, disable=False) as bar:
            while said:
                bar.update(0)
            with told_when_still(print):  # ends with its block
                pass
            logging.getLogger("gnnrag.llm").warning("try 1 of 2")
        return 0

    assert run_script(main, [], None) == 0
    lines = capsys.readouterr().err.replace("\r", "\n").split("\n")
    assert "warning: nothing has moved: \\u001b[31m" in lines and "warning: try 1 of 2" in lines
