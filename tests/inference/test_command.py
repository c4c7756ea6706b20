"""The command `gnnrag`: help that teaches, completion, dispatch, a conversation; quick to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnrag.cli import app, ask
from gnnrag.cli.console import run_script
from gnnrag.registry import TRAININGS
from tests.helpers.each import each
from tests.helpers.indexes import HASH_DOTS, REPOSITORY, environment


def call(*arguments: str) -> int:
    return run_script(app.main, arguments, app.HELP)


@each("arguments", [["--help"], ["-h"], []])
def test_help_teaches_and_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 0
    out = capsys.readouterr().out
    assert "index a folder of documents, and ask it" in out and all(f"\n  {name} " in out for name in app.COMMANDS)


@each("name", list(app.COMMANDS))
def test_every_command_tells_its_own_and_is_a_script_too(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(name, "--help") == 0
    out = capsys.readouterr().out
    assert f"gnnrag {name}" in out
    assert name == "train" or (REPOSITORY / "inference" / f"{name.replace('-', '_')}.py").is_file()


def test_scripts_and_commands_are_the_same_ones() -> None:
    scripts = {p.stem.replace("_", "-") for p in (REPOSITORY / "inference").glob("*.py")} - {"--init--"}
    assert scripts | {"train"} == set(app.COMMANDS)
    for name, instead in app._INSTEAD.items():
        thin = (REPOSITORY / "inference" / f"{name.replace('-', '_')}.py").read_text()
        assert f'", "{instead[0]}")' in thin


@each(
    "arguments, message",
    [
        (["evalute"], "Did you mean 'evaluate'?"),
        (["--json"], "there is no such command"),
        (["train", "verfier"], "Did you mean 'verifier'?"),
        (["evaluate", "--jsn"], "--jsn"),
        (["ask", "retriever=chgg", "--json"], "give the question first"),
        (["ask"], "give the question first"),  # no terminal
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 2
    err = capsys.readouterr().err
    assert message in err and len(err.splitlines()) == 1


def test_every_training_can_be_named() -> None:
    from gnnrag.cli.train import KINDS

    assert set(KINDS.values()) == set(TRAININGS) and "verifier" in KINDS


@each(
    "word, completed",
    [
        ("retriever=hippo", ["retriever=hipporag", "retriever=hipporag2"]),
        ("method=bd", ["method=bdtr"]),
        ("roles.verifier=tu", ["roles.verifier=tuned"]),
        ("configs/evaluate/sam", ["configs/evaluate/sample.yaml"]),
        ("meth", ["method="]),
        ("data.limit=", []),
    ],
)
def test_completion(word: str, completed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.complete(word) == completed


def test_a_shell_gets_completions_and_loads_no_torch() -> None:
    code = "from gnnrag.cli import app; import sys; app.main([]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=REPOSITORY, env=environment())
    asked = environment(COMP_WORDS="gnnrag ask method=grap", COMP_CWORD="2", _GNNRAG_COMPLETE="complete_bash")
    done = subprocess.run(
        [sys.executable, "-m", "gnnrag.cli.command"], capture_output=True, text=True, cwd=REPOSITORY, env=asked
    )
    assert done.stdout.split() == ["method=graphsearch"], done.stderr


def test_a_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "a.txt").write_text("Solaris was directed by Andrei Tarkovsky. Andrei Tarkovsky was born in Zavrazhye.")
    typed: Iterator[str] = iter(["Who directed Solaris?", "Where was he born?", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    dots = [f"data.path={papers}", f"index.path={tmp_path / 'index'}", *HASH_DOTS, "method=single"]
    assert run_script(ask.main, dots, ask.__doc__) == 0
    told = capsys.readouterr()
    assert "Answer: Andrei Tarkovsky" in told.out and "Answer: Zavrazhye" in told.out
    assert "note: asked: Where was Andrei Tarkovsky born?" in told.err and next(typed, None) is None


def test_modules_of_the_current_folder_are_looked_in_only_where_one_is_named(tmp_path: Path) -> None:
    """A folder of documents from elsewhere may hold a file that is named as a library which is not installed."""
    (tmp_path / "mine.py").write_text("raise OSError('imported')")
    for argument, is_there in (("retriever=mine:X", True), ("llm.base_url=http://x:80", False), ("limit=3", False)):
        code = f"import sys; from gnnrag.cli import start; print(start._names_own({argument!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
        assert done.stdout.strip() == str(is_there)
    command = [sys.executable, "-P", "-m", "gnnrag.cli.command", "ask", "Who?"]
    away = environment(PYTHONPATH=str(REPOSITORY))
    for own, code in ((["retriever=mine:X"], "mine fails: OSError"), (["retriever=mine"], "is unknown")):
        done = subprocess.run([*command, *own], capture_output=True, text=True, cwd=tmp_path, env=away)
        assert code in done.stderr, done.stderr
