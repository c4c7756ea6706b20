"""The command `gnnrag`: help, one line for an error, scripts that are the same commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import get_terminal_size

import pytest
import typer

from gnnrag.cli.app import app, run
from gnnrag.training import TRAININGS
from tests.helpers.indexes import HASH_DOTS, REPOSITORY, environment

COMMANDS = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
SCRIPTS = sorted((REPOSITORY / "inference").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"Usage: gnnrag {name}" in capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_a_command(script: Path) -> None:
    assert script.stem.replace("_", "-") in COMMANDS
    assert f'main("{script.stem.replace("_", "-")}")' in script.read_text()


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_script_is_a_command(name: str) -> None:
    part = name.removeprefix("train_").removesuffix(".py")
    assert f'main("train", "{part}")' in (REPOSITORY / "training" / name).read_text()


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["evalute"], "evaluate"),
        (["train", "verfier"], "verifier"),
        (["compare", "no/such/run"], "no/such/run"),
        (["ask", "configs/evaluate/sample.yaml"], "question"),
        (["collect-traces", "method=bdtr"], "out=DIR"),
    ],
)
def test_a_mistake_ends_with_2_and_names_what_is_wrong(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert named in capsys.readouterr().err


def test_a_part_of_the_current_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise OSError('imported')")
    command = [sys.executable, "-P", "-m", "gnnrag.cli.app", "ask", "Who?", "retriever=mine:X"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment(PYTHONPATH=str(REPOSITORY))
    )
    assert "imported" in done.stderr, done.stderr


def test_a_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "a.txt").write_text("Solaris was directed by Andrei Tarkovsky. Andrei Tarkovsky was born in Zavrazhye.")
    typed: Iterator[str] = iter(
        ["/more", "Who directed Solaris?", "", "Where was he born?", "/sources", "/more", "/nothing", "/quit", "unread"]
    )
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    dots = [f"data.path={papers}", f"index.path={tmp_path / 'index'}", *HASH_DOTS, "method=single"]
    assert run(["ask", *dots]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "nothing has been asked yet" and lines[1].startswith("Andrei Tarkovsky [1]")
    assert lines[2].startswith("[1] a (a.txt") and len(lines[2]) <= get_terminal_size().columns
    assert lines[3].startswith("Zavrazhye [1]") and lines[4].startswith("[1] a") and lines[5] == "Evidence"
    assert "Answer: Zavrazhye" in out and "/nothing is no command" in out and out.rstrip().endswith("as Ctrl-D does")
    assert list(typed) == ["unread"]
    assert "asked: Where was Andrei Tarkovsky born?" in err
