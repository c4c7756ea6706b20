"""`inference/collect_traces.py`: its command and its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.training.rows import VerifierRow, read_rows
from tests.helpers.traces import run_settings, write_set


def call(*arguments: str) -> int:
    return run(["collect-traces", *arguments])


def test_rows_are_written_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_set(tmp_path / "set")
    assert call(*run_settings(tmp_path, "roles.verifier=oracle"), f"out={tmp_path / 'one'}") == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "one" / "verifier.jsonl")
    assert len(read_rows(tmp_path / "one" / "verifier.jsonl", VerifierRow)) == 7


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
