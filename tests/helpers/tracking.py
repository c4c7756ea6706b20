"""A stand-in for Weights & Biases: the module `wandb` as far as it is used, for the process that talks to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FAKE = """
import json, os, time

HOW = {how!r}

def say(**row):
    with open({log!r}, "a") as out:
        out.write(json.dumps(row) + "\\n")

if HOW == "absent":
    raise ImportError("No module named 'wandb'")

class Settings:
    model_fields = {{"silent": 0, "console": 0, "init_timeout": 0}}
    def __init__(self, **given):
        self.given = given

class Artifact:
    def __init__(self, name, type, metadata):
        self.row = dict(name=name, type=type, metadata=metadata, files=[])
    def new_file(self, name, encoding):
        self.row["files"].append(name)
        return open(os.devnull, "w")
    def add_file(self, path, name, skip_cache, policy):
        self.row["files"].append(name)

def Table(**row):
    return row

def Image(path):
    return path

class Run:
    def __init__(self):
        self.summary = self
    def define_metric(self, name, **how):
        say(did="define", name=name, **how)
    def log(self, values, step):
        if HOW == "log" and step == 1:
            raise ValueError("no such step")
        if HOW == "dies":
            os._exit(9)
        if HOW == "slow":
            time.sleep(600)
        say(did="log", values=values, step=step)
    def update(self, values):
        say(did="summary", values=values)
    def log_artifact(self, made, aliases):
        say(did="log_artifact", aliases=aliases, **made.row)
    def use_artifact(self, made, aliases):
        say(did="use_artifact", aliases=aliases, **made.row)
    def mark_preempting(self):
        say(did="preempting")
    def finish(self, exit_code):
        if HOW == "hangs":
            time.sleep(600)
        say(did="finish", code=exit_code)

def init(settings, **given):
    if HOW == "init":
        raise OSError("no server")
    if HOW == "init hangs":
        time.sleep(600)
    say(did="init", settings=settings.given, **given)
    return Run()
"""


class FakeWandb:
    """What the stand-in was asked for.

    Args:
        folder: where it is written.
        monkeypatch: puts it before the real one, for processes that are started.
        how: what it does wrong: `absent`, `init`, `init hangs`, `log` (of step 1), `slow`, `dies`, `hangs`; or nothing.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, how: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "calls.jsonl"
        (folder / "wandb.py").write_text(FAKE.format(how=how, log=str(self._log)), "utf-8")
        monkeypatch.setenv("PYTHONPATH", str(folder))

    def calls(self, did: str) -> list[dict[str, Any]]:
        """Return the calls of a kind, in their order."""
        if not self._log.exists():
            return []
        rows = [json.loads(line) for line in self._log.read_text("utf-8").splitlines()]
        return [row for row in rows if row["did"] == did]
