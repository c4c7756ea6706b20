"""Recipes: steps in their order, each once, on from where they were cut off; shipped ones name files that are there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gnnrag.cli.console import run_script
from gnnrag.errors import ConfigError, DataError
from tests.helpers.each import each
from training import recipe

SCRIPT = (
    "import sys, pathlib; out = pathlib.Path(sys.argv[1]); out.mkdir(exist_ok=True); (out / 'n').open('a').write('x')"
)
SHIPPED = sorted(recipe.RECIPES.glob("*.yaml"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recipe, "RECORDS", tmp_path / "records")
    (tmp_path / "step.py").write_text(SCRIPT)
    return tmp_path


def write(folder: Path, *names: str) -> Path:
    path = folder / "mine.yaml"
    steps = [f"- {{makes: {folder / name}, run: {folder / 'step.py'} {folder / name}}}\n" for name in names]
    path.write_text("".join(steps))
    return path


def call(*arguments: str) -> int:
    return run_script(recipe.main, list(arguments), recipe.__doc__)


def test_each_step_runs_once_and_what_it_took_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(folder, "a", "b")
    assert call(str(path), "--list") == 0 and "to do" in capsys.readouterr().out
    assert call(str(path)) == 0 == call(str(path))
    assert [(folder / name / "n").read_text() for name in "ab"] == ["x", "x"]
    rows = recipe.read_record(folder / "records" / "mine.jsonl")
    assert [row["code"] for row in rows] == [0, 0] and all(row["cpu_seconds"] > 0 < row["peak_mb"] for row in rows)
    (folder / "b" / "n").unlink()
    (folder / "b").rmdir()  # what a step made is gone: it is made again
    assert call(str(path)) == 0 and (folder / "b" / "n").is_file() and (folder / "a" / "n").read_text() == "x"


def test_a_failing_step_ends_the_recipe_with_its_code_and_is_tried_again(folder: Path) -> None:
    path = write(folder, "a", "b")
    (folder / "step.py").write_text("raise SystemExit(3)")
    assert call(str(path)) == 3 and not (folder / "b").exists()
    (folder / "step.py").write_text(SCRIPT)
    assert call(str(path)) == 0 and (folder / "b" / "n").is_file()


def test_told_to_stop_it_tells_its_step_and_goes_on_later(folder: Path) -> None:
    path = write(folder, "a")
    slow = f"import signal, time\nsignal.signal(signal.SIGTERM, lambda *a: exit(75))\n{SCRIPT}\ntime.sleep(60)"
    (folder / "step.py").write_text(slow)
    home = Path.cwd()
    environment = {**os.environ, "PYTHONPATH": str(home)}
    process = subprocess.Popen([sys.executable, home / "training/recipe.py", path], cwd=folder, env=environment)
    while not (folder / "a" / "n").is_file():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 75
    (row,) = recipe.read_record(folder / "runs/recipes/mine.jsonl")
    assert row["code"] == 75


@each("text", ["- {makes: a}", "- {makes: a, run: [1]}", "makes: a", ""])
def test_what_is_no_recipe_is_named(folder: Path, text: str) -> None:
    path = folder / "mine.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=r"mine\.yaml: (step 1 is|a recipe is a list)"):
        recipe.main([str(path)])


def test_an_unknown_recipe_is_told_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'reeder': allowed are encoder, gnn, reader, verifier"):
        recipe.main(["reeder"])


@each("path", SHIPPED)
def test_recipes_name_scripts_and_configs_that_are_there(path: Path) -> None:
    steps = recipe.read_recipe(path)
    words = [word for step in steps for word in step["run"].split() if word.endswith((".py", ".yaml"))]
    assert words and all(Path(word).is_file() for word in words)
    made = {step["makes"] for step in steps}
    assert len(made) == len(steps)
    for step in steps:
        (config,) = [word for word in step["run"].split() if word.startswith("configs/train/")] or [""]
        name = yaml.safe_load(Path(config).read_text("utf-8"))["run"]["name"] if config else ""
        assert step["makes"] == f"runs/{name}" if config else f"out={step['makes']}" in step["run"].split()
