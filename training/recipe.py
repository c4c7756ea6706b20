"""Make a trained part that ships, from raw data to checkpoint: one command, its steps one after the other.

    python training/recipe.py verifier                 # or: gnn, encoder, reader (configs/recipes)
    python training/recipe.py my-recipe.yaml --list    # the commands, and what each has taken so far

A step goes on where it was cut off, and one that is done is not begun again; what each took (seconds, seconds of
processor time, memory) is kept in runs/recipes/NAME.jsonl. Trainings run in one process: with several GPUs, run the
last commands by `accelerate launch` yourself. To do it all again, delete that file and the folders that steps make.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("training.recipe", "--help")

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from gnnrag.cli.console import note, refuse_flags, render
from gnnrag.cli.start import STOPPED
from gnnrag.common.files import lock_run, read_journal, write_jsonl
from gnnrag.common.untrusted import parse_yaml
from gnnrag.errors import ConfigError, DataError

RECIPES, RECORDS = Path("configs/recipes"), Path("runs/recipes")


def main(arguments: Sequence[str]) -> int:
    """Run the steps that are left; returns the exit code of the first that does not end well."""
    names = [word for word in arguments if word != "--list"]
    refuse_flags(names, ["--list"])
    known = ", ".join(sorted(path.stem for path in RECIPES.glob("*.yaml")))
    if len(names) != 1:
        raise ConfigError(f"recipe {' '.join(names)!r}: give one of {known}, or a .yaml file")
    path = Path(names[0]) if names[0].endswith(".yaml") else RECIPES / f"{names[0]}.yaml"
    if not path.is_file():
        raise ConfigError(f"recipe {names[0]!r}: allowed are {known}, or a .yaml file that is there")
    steps, record = read_recipe(path), RECORDS / f"{path.stem}.jsonl"
    if "--list" in arguments:
        print(table(steps, read_record(record)))
        return 0
    RECORDS.mkdir(parents=True, exist_ok=True)
    with lock_run(RECORDS, f"the recipe {path.stem}"):
        code = run_steps(steps, record)
    print(table(steps, read_record(record)))
    return code


def read_recipe(path: Path) -> list[dict[str, str]]:
    """Return the steps of a recipe: `makes`, the folder that is there afterwards, and `run`, script and arguments."""
    steps = parse_yaml(path.read_bytes())
    if not isinstance(steps, list) or not steps:
        raise DataError(path, "a recipe is a list of steps, each with makes and run")
    for number, step in enumerate(steps, start=1):
        if (
            not isinstance(step, dict)
            or {*step} != {"makes", "run"}
            or not all(isinstance(v, str) for v in step.values())
        ):
            raise DataError(path, f"step {number} is {step!r}: a step has makes and run, both texts")
    return steps


def read_record(path: Path) -> list[dict[str, Any]]:
    """Return what steps have taken: rows of `run`, `code`, `seconds`, `cpu_seconds`, `peak_mb`."""
    return read_journal(path) if path.is_file() else []


def run_steps(steps: Sequence[dict[str, str]], record: Path) -> int:
    """Run each step that has not ended well, in their order, until one does not; after a new one, all that follow."""
    is_new = False
    for number, step in enumerate(steps, start=1):
        rows = read_record(record)
        has_ended = any(row["run"] == step["run"] and row["code"] == 0 for row in rows)
        if has_ended and not is_new and Path(step["makes"]).is_dir():
            note(f"step {number} of {len(steps)} is done: {step['makes']}")
            continue
        note(f"step {number} of {len(steps)}: python {step['run']}")
        is_new, row = True, run_step(step["run"])
        write_jsonl(record, [*rows, row])
        if row["code"]:
            stopped = row["code"] == STOPPED
            note(f"step {number} was stopped; the same command goes on" if stopped else f"step {number} failed")
            return int(row["code"])
    return 0


def run_step(words: str) -> dict[str, Any]:
    """Run a script to its end and return what it took; told to stop, it is told so and waited for."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *shlex.split(words)], stdin=subprocess.DEVNULL)
    try:
        _, status, used = os.wait4(process.pid, 0)
    except KeyboardInterrupt:
        process.terminate()
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    taken = {"seconds": round(time.perf_counter() - started, 1), "cpu_seconds": round(used.ru_utime + used.ru_stime, 2)}
    return {"run": words, "code": STOPPED if code < 0 else code, **taken, "peak_mb": used.ru_maxrss // 1024}


def table(steps: Sequence[dict[str, str]], rows: Sequence[dict[str, Any]]) -> str:
    """Return the steps with what all their tries have taken together."""
    from rich.table import Table

    shown = Table("step", "makes", "state", "minutes", "CPU minutes", "peak MB")
    for number, step in enumerate(steps, start=1):
        own = [row for row in rows if row["run"] == step["run"]]
        state = "to do" if not own else "done" if own[-1]["code"] == 0 else f"ended with {own[-1]['code']}"
        sums = [f"{sum(row[key] for row in own) / 60:.1f}" for key in ("seconds", "cpu_seconds")]
        shown.add_row(str(number), step["makes"], state, *sums, str(max((row["peak_mb"] for row in own), default=0)))
    return render(shown, *(f"{number}. python {step['run']}" for number, step in enumerate(steps, start=1)))
