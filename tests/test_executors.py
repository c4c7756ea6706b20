"""One definition of a map task, three places where it runs: the same results, errors, and ends after a kill."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from gnnrag.errors import BudgetError, ConfigError, DataError, GnnragError, LLMError
from gnnrag.executors import RETRIES, Executor, ExecutorConfig, make_executor

ROOT = Path(__file__).resolve().parents[1]
RAY = pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.timeout(600)])


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A cluster of two cores on this machine."""
    ray = pytest.importorskip("ray")
    ray.shutdown()  # of another file's
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))  # the workers import this file
        ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return make_executor(ExecutorConfig(request.param, workers=2))


everywhere = pytest.mark.parametrize("executor", ["local", "processes", RAY], indirect=True)
elsewhere = pytest.mark.parametrize("executor", ["processes", RAY], indirect=True)


@dataclass(frozen=True)
class Square:
    """Squares numbers; each worker leaves a file for itself, the first time that it is asked."""

    folder: str

    @cached_property
    def table(self) -> dict[int, int]:
        Path(self.folder, f"made-{os.getpid()}-{time.monotonic_ns()}").touch()
        return {number: number * number for number in range(1000)}

    def __call__(self, numbers: list[int]) -> tuple[int, list[int]]:
        return os.getpid(), [self.table[number] for number in numbers]


@everywhere
def test_each_batch_gives_its_result_and_the_work_is_made_once_a_worker(executor: Executor, tmp_path: Path) -> None:
    batches = ([number, number + 1] for number in range(40))  # no length: read as it goes on
    results = list(executor.map(Square(str(tmp_path)), batches))
    assert sorted(position for position, _ in results) == list(range(40))
    assert {position: row for position, (_, row) in results} == {n: [n * n, (n + 1) ** 2] for n in range(40)}
    made = list(tmp_path.glob("made-*"))
    assert {int(path.name.split("-")[1]) for path in made} == {process for _, (process, _) in results}
    assert len(made) == len({process for _, (process, _) in results}) <= executor.workers()


@everywhere
def test_no_batches_give_no_results(executor: Executor, tmp_path: Path) -> None:
    assert list(executor.map(Square(str(tmp_path)), [])) == []


@elsewhere
def test_results_come_as_they_are_ready_and_batches_are_read_as_workers_become_free(executor: Executor) -> None:
    read = []

    def batches() -> Iterator[float]:
        for number in range(12):
            read.append(number)
            yield 1.0 if number == 0 else 0.01

    order = []
    for position, _ in executor.map(time.sleep, batches()):
        if not order:
            assert len(read) <= 7  # two for each worker, one more for each result
        order.append(position)
    assert order[-1] == 0 and sorted(order) == list(range(12))


class UnpicklableError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


ERRORS = [LLMError("no reply"), BudgetError("used up"), DataError("a.jsonl", "no id", 3), ValueError("odd")]


def fail(number: int) -> int:
    if number == len(ERRORS):
        raise UnpicklableError("cannot", "travel")
    if number >= 0:
        raise ERRORS[number]
    return number


@pytest.mark.parametrize(
    ("executor", "error"),
    [
        ("local", ERRORS[0]),
        ("processes", ERRORS[2]),
        *(pytest.param("ray", error, marks=RAY.marks) for error in ERRORS),
    ],
    indirect=["executor"],
)
def test_an_error_of_the_work_arrives_as_itself(executor: Executor, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        list(executor.map(fail, [-1, ERRORS.index(error), -1]))
    assert type(caught.value) is type(error) and str(caught.value) == str(error)
    if isinstance(error, DataError):
        assert (caught.value.path, caught.value.line) == (Path("a.jsonl"), 3)


@elsewhere
def test_an_error_that_cannot_be_sent_arrives_with_its_message(executor: Executor) -> None:
    with pytest.raises(RuntimeError, match="UnpicklableError: cannot travel"):
        list(executor.map(fail, [len(ERRORS)]))


@dataclass(frozen=True)
class Dies:
    """Is killed with the number 3, as often as `times` says."""

    folder: str
    times: int

    def __call__(self, number: int) -> int:
        deaths = len(list(Path(self.folder).glob("death-*")))
        if number == 3 and deaths < self.times:
            Path(self.folder, f"death-{deaths}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number


@elsewhere
def test_the_batch_of_a_killed_worker_is_done_again(executor: Executor, tmp_path: Path) -> None:
    results = list(executor.map(Dies(str(tmp_path), RETRIES), range(8)))
    assert sorted(results) == [(number, number) for number in range(8)]
    assert len(list(tmp_path.iterdir())) == RETRIES


@elsewhere
def test_a_batch_that_always_kills_its_worker_is_an_error(executor: Executor, tmp_path: Path) -> None:
    with pytest.raises(GnnragError, match=r"executor\.workers|out of memory"):
        list(executor.map(Dies(str(tmp_path), 100), range(8)))
    assert len(list(tmp_path.iterdir())) > RETRIES


@elsewhere
def test_workers_end_with_a_map_that_is_left(executor: Executor, tmp_path: Path) -> None:
    rows = executor.map(Square(str(tmp_path)), ([0] for _ in range(10**9)))
    next(rows)
    processes = {process for _, (process, _) in (next(rows) for _ in range(20))}
    rows.close()
    wait_for_end(processes)
    assert not multiprocessing.active_children()


def wait_for_end(processes: set[int], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while alive := {process for process in processes if is_alive(process)}:
        assert time.monotonic() < deadline, f"{alive} still run"
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def note_and_sleep(path: str) -> None:
    Path(path, str(os.getpid())).touch()
    time.sleep(600)


DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
from gnnrag.executors import ExecutorConfig, make_executor
from test_executors import note_and_sleep

if __name__ == "__main__":
    list(make_executor(ExecutorConfig(sys.argv[1], 2)).map(note_and_sleep, [sys.argv[2]] * 8))
"""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGTERM))]
)
@pytest.mark.parametrize("name", ["processes", RAY])
def test_workers_end_with_their_driver(name: str, number: int, tmp_path: Path) -> None:
    if name == "ray":
        pytest.importorskip("ray")
    script, notes = tmp_path / "driver.py", tmp_path / "notes"
    script.write_text(DRIVER)
    notes.mkdir()
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths, "RAY_ADDRESS": "local"}
    driver = subprocess.Popen([sys.executable, str(script), name, str(notes)], cwd=ROOT, env=environment)
    deadline = time.monotonic() + 120
    while len(processes := {int(path.name) for path in notes.iterdir()}) < 2:
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    driver.send_signal(number)
    driver.wait(60)
    wait_for_end(processes)


def test_cores_are_shared_among_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    executor = make_executor(ExecutorConfig("processes"))
    (_, threads), *_ = executor.map(os.getenv, ["OMP_NUM_THREADS"])
    assert int(threads or 0) == len(os.sched_getaffinity(0))  # one batch, one worker
    assert executor.workers() == len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Visible:
    """Returns the devices that its worker sees."""

    gpus: float

    def __call__(self, seconds: float) -> str | None:
        time.sleep(seconds)
        return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("gpus", "workers", "seen"),
    [
        (2.0, 1, {"0,2"}),
        pytest.param(1.0, 3, {"0", "2", "5"}, marks=pytest.mark.slow),
        pytest.param(0.5, 6, {"0", "2", "5"}, marks=pytest.mark.slow),
    ],
)
def test_each_process_has_gpus_of_its_own(
    monkeypatch: pytest.MonkeyPatch, gpus: float, workers: int, seen: set[str]
) -> None:
    monkeypatch.setattr("gnnrag.executors.visible_gpus", lambda: ["0", "2", "5"])
    executor = make_executor(ExecutorConfig("processes"))
    assert executor.workers(gpus) == workers
    assert {devices for _, devices in executor.map(Visible(gpus), [0.5] * 2 * workers)} == seen


def test_ray_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"gnnrag\[ray\]"):
        make_executor(ExecutorConfig("ray"))
