"""Progress: a line now and then without a terminal, a bar with rate and time left in one."""

import sys
import time

from gnnrag.cli.console import IndexProgress, pace
from tests.helpers.each import each


@each(
    "stage, done, total, seconds, line",
    [
        ("embeddings", 1200, 24000, 60.0, "index: embeddings: 1,200 of 24,000 passages, 20 a second, 19 min 00 s left"),
        ("pages of a.pdf", 25, 30, 10.0, "index: pages of a.pdf: 25 of 30 pages, 2.5 a second, 2 s left"),
        ("files", 3, 3, 0.0, "index: files: 3 of 3 files, 0 a second"),
    ],
)
def test_how_far_how_fast_and_how_long(stage, done, total, seconds, line):
    assert pace(stage, done, total, seconds) == line


def test_a_line_every_ten_seconds_without_a_terminal(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with IndexProgress() as progress:
        for _ in range(24):
            now[0] += 1.0
            progress("pages of a.pdf", 1, 25)
            progress("files", 0, 2)  # between the pages, which go on
    assert capsys.readouterr().err.splitlines() == [
        "note: index: pages of a.pdf: 10 of 25 pages, 1.11 a second, 14 s left",
        "note: index: pages of a.pdf: 20 of 25 pages, 1.05 a second, 5 s left",
    ]


def test_the_stage_of_the_next_index_begins_anew(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with IndexProgress() as progress:
        for total in (30, 10):
            progress("passages", total, total)
            for _ in range(total):
                now[0] += 1.1
                progress("embeddings", 1, total)
    told = [line.partition("embeddings: ")[2].split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["10 of 30 passages", "20 of 30 passages", "30 of 30 passages", "10 of 10 passages"]


def test_a_bar_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = IndexProgress()
    progress("embeddings", 1, 4)
    bar = progress._bar
    progress("embeddings", 2, 4)
    assert not bar.disable and (bar.n, bar.total, bar.unit) == (3, 4, " passages")
    assert ("/4 [" in str(bar) and "passages/s" in str(bar)) or "s/ passages" in str(bar)
    progress.close()
    assert "note" not in capsys.readouterr().err
