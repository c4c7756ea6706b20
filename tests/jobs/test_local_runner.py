"""Jobs on this machine: their order, failures, and being stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gnnrag.cluster.job import Job, State
from gnnrag.cluster.local import LocalRunner, Outcome
from tests.helpers.jobs import graph, job

ROOT = Path(__file__).resolve().parents[2]
NOTE = "import sys, time; open('order.txt', 'a').write({name!r} + ' ' + ' '.join(sys.argv[1:]) + '\\n')"
# Ends with 75 once it is told to stop, as the project's scripts do.
LISTENS = (
    "import os, signal, sys, time; signal.signal(15, lambda *_: (open('told.txt', 'a').write('x'), sys.exit(75)));"
    "open('up.txt', 'w'); time.sleep(60)"
)


def run(jobs: dict[str, Job], home: Path, workers: int = 2, budget: float | None = None) -> Outcome:
    states = [State(one, "to do", tuple(one.numbers)) for one in jobs.values()]
    return LocalRunner(states, home, workers).run(None if budget is None else time.monotonic() + budget)


def order(home: Path) -> list[str]:
    return [line.strip() for line in (home / "order.txt").read_text().splitlines()]


def test_jobs_run_after_what_they_need_and_shards_are_told_apart(tmp_path: Path) -> None:
    first = job(tmp_path, "first", NOTE.format(name="first"))
    parts = job(tmp_path, "parts", NOTE.format(name="parts"), "evaluate", tasks=3, needs=("first",))
    last = job(tmp_path, "last", NOTE.format(name="last"), needs=("parts",))
    outcome = run(graph(first, parts, last), tmp_path, workers=1)
    assert order(tmp_path) == ["first", "parts shard=1/3", "parts shard=2/3", "parts shard=3/3", "last"]
    assert set(outcome.codes.values()) == {0}
    assert not outcome.has_failed
    assert [parts.ended(task)[0] for task in (1, 2, 3)] == [0, 0, 0]


def test_what_needs_a_failed_job_is_not_run_but_a_report_is(tmp_path: Path) -> None:
    bad = job(tmp_path, "bad", "raise SystemExit('the reason')")
    good = job(tmp_path, "good", NOTE.format(name="good"))
    after = job(tmp_path, "after", NOTE.format(name="after"), needs=("bad",))
    later = job(tmp_path, "later", NOTE.format(name="later"), needs=("after",))
    report = job(tmp_path, "report", NOTE.format(name="report"), needs=("later", "good"), ends_anyway=True)
    empty = job(tmp_path, "empty", NOTE.format(name="empty"), needs=("later",), ends_anyway=True)
    outcome = run(graph(bad, good, after, later, report, empty), tmp_path)
    assert order(tmp_path) == ["good", "report"]
    assert set(outcome.blocked) == {"after", "later", "empty"}
    assert outcome.blocked["after"] == "bad has failed"
    assert outcome.has_failed
    assert bad.log_tail(0) == ["the reason"]


@pytest.mark.slow
def test_a_failed_shard_costs_no_other_shard_and_reports_wait_for_all(tmp_path: Path) -> None:
    code = NOTE.format(name="part") + ";sys.exit(3) if sys.argv[1] == 'shard=1/4' else time.sleep(0.3)"
    parts = job(tmp_path, "parts", code, "evaluate", tasks=4)
    merge = job(tmp_path, "merge", NOTE.format(name="merge"), needs=("parts",))
    other = job(tmp_path, "other", NOTE.format(name="other"))
    report = job(tmp_path, "report", NOTE.format(name="report"), needs=("merge", "other"), ends_anyway=True)
    for workers in (1, 3):
        (tmp_path / "order.txt").unlink(missing_ok=True)
        outcome = run(graph(other, parts, merge, report), tmp_path, workers)
        assert sorted(order(tmp_path)[:-1]) == ["other", *(f"part shard={i}/4" for i in (1, 2, 3, 4))]
        assert order(tmp_path)[-1] == "report"
        assert [outcome.codes["parts", i] for i in (1, 2, 3, 4)] == [3, 0, 0, 0]
        assert outcome.blocked == {"merge": "parts has failed"}
        assert outcome.left == []


@pytest.mark.slow
def test_jobs_of_one_word_never_run_together(tmp_path: Path) -> None:
    code = "import os, time; os.mkdir('held'); time.sleep(0.2); os.rmdir('held')"
    jobs = graph(*(job(tmp_path, f"j{i}", code, alone="word") for i in range(3)))
    assert set(run(jobs, tmp_path, workers=3).codes.values()) == {0}


@pytest.mark.slow
def test_the_end_of_the_budget_stops_what_runs_and_starts_nothing(tmp_path: Path) -> None:
    deaf = job(tmp_path, "deaf", "import time; time.sleep(60)")  # it is stopped all the same
    after = job(tmp_path, "next", NOTE.format(name="next"), needs=("long",))
    jobs = graph(job(tmp_path, "long", LISTENS), deaf, after)
    outcome = run(jobs, tmp_path, budget=2.0)
    assert outcome.codes == {("long", 0): 75, ("deaf", 0): 75}
    assert (tmp_path / "told.txt").read_text() == "x"
    assert not (tmp_path / "order.txt").exists()
    assert jobs["long"].ended(0) == (75, "was stopped")
    assert not outcome.has_failed or outcome.blocked  # nothing is called broken that was only stopped


def test_ctrl_c_stops_what_runs(tmp_path: Path) -> None:
    jobs = graph(job(tmp_path, "long", LISTENS))

    def interrupt() -> None:
        while not (tmp_path / "up.txt").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            run(jobs, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert jobs["long"].ended(0)[0] == 75


def test_a_killed_job_is_a_failure_that_says_so(tmp_path: Path) -> None:
    jobs = graph(job(tmp_path, "killed", "import os; os.kill(os.getpid(), 9)"))
    outcome = run(jobs, tmp_path)
    assert outcome.codes == {("killed", 0): -9}
    assert jobs["killed"].ended(0) == (-9, "was killed by signal 9")
    assert not jobs["killed"].was_cut_off(0)


@pytest.mark.slow
def test_sigterm_ends_the_script_cleanly_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """`submit.py --local`, with a real evaluation, told to stop while its first job runs."""
    command = [
        *(sys.executable, "slurm/submit.py", "configs/evaluate/sample.yaml", "method=single", "retriever=bm25"),
        *(f"run.root={tmp_path / 'runs'}", f"index.root={tmp_path / 'indexes'}", "data.limit=3"),
        *("--local", "--folder", str(tmp_path / "jobs")),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while "started" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    assert process.returncode == 75
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 done of 2 jobs" in done.stdout
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert again.stderr == ""
    assert "2 done of 2 jobs" in again.stdout
