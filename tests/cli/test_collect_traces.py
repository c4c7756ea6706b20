"""`inference/collect_traces.py`: its commands, its messages, and a `kill -9` at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.training.rows import VerifierRow, read_rows
from tests.helpers.traces import run_settings, write_set


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script")
    write_set(path / "set")
    assert call(*run_settings(path, "roles.verifier=oracle"), f"out={path / 'one'}", "keep.idle_share=null") == 0
    return path


def call(*arguments: str) -> int:
    return run(["collect-traces", *arguments])


def test_join_and_import(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = run_settings(root, "roles.verifier=oracle", "retriever=bm25")
    assert call(*settings, f"out={root / 'two'}", "keep.idle_share=null") == 0
    assert call("join", str(root / "one"), str(root / "two"), f"out={root / 'both'}") == 0
    assert 7 < len(read_rows(root / "both" / "verifier.jsonl", VerifierRow)) <= 14
    assert call("import", str(root / "both" / "verifier.jsonl"), f"out={root / 'in'}") == 0
    assert (root / "in" / "verifier.jsonl").read_bytes() == (root / "both" / "verifier.jsonl").read_bytes()
    capsys.readouterr()
    assert call("import", f"out={root / 'in'}") == 2 and "import takes one file, got none" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["method=ircot", "out=x"], "method=ircot asks neither thoughts nor verifier"),
        (["method=bdtr"], "out=DIR: give the folder"),
        (["method=bdtr", "out=x", "keep.precise=1"], "unknown setting 'keep.precise'"),
        (["method=bdtr", "out=x", "keep.precision=7"], "keep.precision"),
        (
            ["method=bdtr", "out=x", "outt=x"],
            "unknown setting 'outt'",
        ),
        (["method=bdtr", "out=x", "metod=x"], "unknown setting 'metod'. Did you mean 'method'?"),
        (["out=x", "shard=1/2"], "shard='1/2' is a setting of gnnrag evaluate; a recording answers all"),
    ],
)
def test_wrong_settings_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 2
    assert message in capsys.readouterr().err
