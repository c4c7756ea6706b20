"""Forged indexes, runs, checkpoints, caches, configs, replies and documents: opened, or refused by name.

`GNNRAG_CASES=20000 python -m pytest -m slow tests/hostile/test_mutations.py -s` prints how many were which.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.hostile.cases import attempt, prepare
from tests.hostile.forging import KEY, SECRET

Ended = Counter[tuple[str, int]]
MANY = int(os.environ.get("GNNRAG_CASES", "20000"))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("honest") / "all"
    prepare(root)
    return root


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose `inside` is the stranger's; what else is in it, and a key, nobody may touch."""
    monkeypatch.setenv(KEY, SECRET)
    (tmp_path / "victim" / "deep").mkdir(parents=True)
    for name in ("kept.txt", "manifest.json", "deep/kept.txt"):
        (tmp_path / "victim" / name).write_text("nobody may touch this\n")
    monkeypatch.chdir(tmp_path)  # and back, where the cases have been
    yield tmp_path


def run_cases(
    count: int, first: int, honest: Path, canary: Path, output: Callable[[], str]
) -> Counter[tuple[str, int]]:
    ended: Counter[tuple[str, int]] = Counter()

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(first, first + 2**32))
    def case(seed: int) -> None:
        kind, how = attempt(seed, honest, canary, output)
        ended[kind, how.code] += 1

    case()
    return ended


@pytest.mark.slow
def test_forged_things_are_opened_or_refused(honest: Path, canary: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = run_cases(100, 0, honest, canary, lambda: "".join(capfd.readouterr()))
    assert {kind for kind, _ in ended} >= {"index", "run", "checkpoint", "cache", "config", "reply", "documents"}
    assert sum(count for (_, code), count in ended.items() if code == 0) > 10, "most forgeries would not be read at all"
    assert sum(count for (_, code), count in ended.items() if code == 2) > 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more(honest: Path, canary: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = run_cases(MANY, 2**33, honest, canary, lambda: "".join(capfd.readouterr()))
    with capfd.disabled():
        for (kind, code), count in sorted(ended.items()):
            sys.stdout.write(f"{kind:12} {('opened', 'all questions failed', 'refused')[code]:22} {count}\n")
    assert ended.total() >= MANY * 0.99
