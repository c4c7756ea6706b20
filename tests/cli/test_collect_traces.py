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
