"""The process that talks to Weights & Biases for a run, and the only file that imports `wandb`.

`tracker.py` starts it as a file, without gnnrag. It follows a file of messages, one JSON object a line, and answers
when something failed or all is done. A client that blocks or crashes is ended here without harm to the run.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

STOPPED = 75  # `gnnrag.cluster.stopping`, which this process does not load
MUTABLE = 1 << 26  # a larger file is not copied before it is sent
POLL_S = 0.05


class Session:
    """A W&B run, from `mode`, `settings` and what `wandb.init` takes; a message of a method's name asks for it."""

    def __init__(self, first: Mapping[str, Any]) -> None:
        import wandb

        self._wandb, self._is_offline = wandb, first["mode"] == "offline"
        known = getattr(wandb.Settings, "model_fields", first["settings"])  # those of this release
        quiet = wandb.Settings(**{name: value for name, value in first["settings"].items() if name in known})
        given = dict(first["run"])
        if os.environ.get("WANDB_SWEEP_ID"):  # an agent has already said which run this is
            given = {name: value for name, value in given.items() if name not in ("id", "project", "entity", "resume")}
        self._run = wandb.init(mode=first["mode"], settings=quiet, **given)

    def define(self, name: str, step_metric: str) -> None:
        """Draw metrics over another one than the step."""
        self._run.define_metric(step_metric, hidden=True)
        self._run.define_metric(name, step_metric=step_metric)

    def log(self, values: Mapping[str, Any], step: int) -> None:
        """Log the values of a step."""
        self._run.log(dict(values), step=step)

    def table(self, name: str, columns: list[str | int], rows: list[list[Any]], step: int) -> None:
        """Log a table."""
        self._run.log({name: self._wandb.Table(columns=columns, data=rows, allow_mixed_types=True)}, step=step)

    def image(self, name: str, path: str, step: int) -> None:
        """Log a picture."""
        self._run.log({name: self._wandb.Image(path)}, step=step)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Set final values."""
        self._run.summary.update(dict(values))

    def artifact(self, what: Mapping[str, Any], is_input: bool) -> None:
        """Log an artifact as a result of the run, or as one of its inputs."""
        made = self._wandb.Artifact(what["name"], type=what["type"], metadata=dict(what["metadata"]))
        for name, text in what["texts"].items():
            with made.new_file(name, encoding="utf-8") as out:
                out.write(text)
        for name, path in what["files"].items():
            policy: Any = "mutable" if os.path.getsize(path) <= MUTABLE else "immutable"
            made.add_file(path, name=name, skip_cache=True, policy=policy)
        aliases = list(what["aliases"])
        if not is_input:
            self._run.log_artifact(made, aliases=["latest", *aliases])
        elif self._is_offline:  # `use_artifact` refuses; this writes the record that a later `wandb sync` needs
            self._run._log_artifact(made, aliases=aliases, is_user_created=True, use_after_commit=True)
        else:
            self._run.use_artifact(made, aliases=aliases)

    def finish(self, code: int) -> None:
        """End the run; a scheduler's stop is no failure."""
        if code == STOPPED and not os.environ.get("WANDB_SWEEP_ID"):  # a sweep that stops a run wants no more of it
            self._run.mark_preempting()
        self._run.finish(exit_code=code)


def main() -> int:
    """Do what the messages of a run say until it ends the session, or ends itself; returns the exit code."""
    # A scheduler tells every process of a step to stop: the run then ends this one, or is killed and writes no more.
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    messages, answers = _files()
    first = json.loads(messages.readline())  # written before this process was started
    try:
        session = Session(first)
    except Exception as error:  # noqa: BLE001  # whatever it is, the run is told, and goes on
        _answer(answers, failed=f"{type(error).__name__}: {error}", fatal=True)
        return 1
    has_failed = False
    for message in _follow(messages, first["parent"]):
        name = message.pop("do")
        try:
            getattr(session, name)(**message)
        except Exception as error:  # noqa: BLE001  # what else there is to log is still worth it
            if not has_failed:
                _answer(answers, failed=f"{name}: {type(error).__name__}: {error}")
            has_failed = True
        if name == "finish":
            _answer(answers, done=True)
            return 0
    signal.alarm(int(first["wait"]) or 1)  # the run was killed: what it had logged is saved; nobody waits for this
    session.finish(1)
    return 1


def _files() -> tuple[IO[str], int]:
    """Return where messages come from and answers go to; what the client starts gets neither, and prints to stderr."""
    messages, answers = os.fdopen(os.dup(0), encoding="ascii"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return messages, answers


def _follow(messages: IO[str], parent: int) -> Iterator[dict[str, Any]]:
    """Yield messages as they are written, until their writer has ended."""
    line = ""
    while True:
        is_last = os.getppid() != parent  # asked first: what it wrote before its end is read
        line += messages.readline()
        if line.endswith("\n"):
            yield json.loads(line)
            line = ""
        elif is_last:
            return
        else:
            time.sleep(POLL_S)


def _answer(answers: int, **row: Any) -> None:
    with suppress(OSError):  # a full disk: the exit code tells
        os.write(answers, json.dumps(row).encode() + b"\n")


if __name__ == "__main__":
    raise SystemExit(main())
