"""The process that talks to Weights & Biases on behalf of a run, and the only file that imports it.

It is started by `gnnrag.cluster.tracker`, as a file and with nothing of gnnrag loaded, reads one JSON order a line
from its standard input, and answers only when something failed or all is done. What a third party's client does
(block, crash, print, keep a process alive at exit) happens here, where it can be ended without harm to the run.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from typing import IO, Any

STOPPED = 75  # `gnnrag.cluster.stopping`, which this process does not load
TOLD = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
FAILURES = 3  # that are told; more of the same would say no more
MUTABLE = 1 << 26  # a larger file is not copied before it is sent


class Mirror:
    """A W&B run, and what can be asked of it: each public method is an order by its name.

    Args:
        order: `mode`, `settings`, and what `wandb.init` takes.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        import wandb

        self._wandb, self._is_offline = wandb, order["mode"] == "offline"
        known = getattr(wandb.Settings, "model_fields", order["settings"])  # those of this release
        quiet = wandb.Settings(**{name: value for name, value in order["settings"].items() if name in known})
        given = dict(order["run"])
        if os.environ.get("WANDB_SWEEP_ID"):  # an agent has already said which run this is
            given = {name: value for name, value in given.items() if name not in ("id", "project", "entity", "resume")}
        self._run = wandb.init(mode=order["mode"], settings=quiet, **given)

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
        """Log an artifact as a result of the run, or as one of its inputs.

        Offline, `use_artifact` refuses every artifact, though the record that it would write is all that a later
        `wandb sync` needs: `_log_artifact` writes it.
        """
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
        elif self._is_offline:
            self._run._log_artifact(made, aliases=aliases, is_user_created=True, use_after_commit=True)
        else:
            self._run.use_artifact(made, aliases=aliases)

    def finish(self, code: int) -> None:
        """End the run; a scheduler's stop is no failure."""
        if code == STOPPED and not os.environ.get("WANDB_SWEEP_ID"):  # a sweep that stops a run wants no more of it
            self._run.mark_preempting()
        self._run.finish(exit_code=code)


def main() -> int:
    """Do what is ordered until the end is; returns the exit code."""
    # A scheduler tells every process of a step to stop. The run obeys, and then orders this one's end, or is killed and
    # leaves no more to read. (W&B's own service outlives USR1; TERM, sent to it too, ends it whatever it inherits.)
    for told in TOLD:
        signal.signal(told, signal.SIG_IGN)
    orders, replies = _streams()
    first = next(_read(orders), None)
    if first is None:
        return 0
    wait = int(first.pop("wait")) or 1
    try:
        mirror = Mirror(first)
    except Exception as error:  # noqa: BLE001  # whatever it is, the run is told, and goes on
        _say(replies, failed=f"{type(error).__name__}: {error}", fatal=True)
        return 1
    failures = 0
    for order in _read(orders):
        name = order.pop("do")
        try:
            getattr(mirror, name)(**order)
        except Exception as error:  # noqa: BLE001  # what else there is to log is still worth it
            failures += 1
            if failures <= FAILURES:
                _say(replies, failed=f"{name}: {type(error).__name__}: {error}")
        if name == "finish":
            _say(replies, done=True)
            return 0
    signal.alarm(wait)  # the run was killed: what it had logged is saved, and nobody waits for this process
    mirror.finish(1)
    return 1


def _streams() -> tuple[IO[str], IO[str]]:
    """Return where orders come from and answers go to; what the client starts gets neither, and prints to stderr."""
    orders = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return orders, replies


def _read(orders: IO[str]) -> Iterator[dict[str, Any]]:
    for line in orders:
        if line.endswith("\n"):  # else the run was killed while it wrote
            yield json.loads(line)


def _say(replies: IO[str], **reply: Any) -> None:
    try:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    except OSError:
        pass  # the run has ended


if __name__ == "__main__":
    raise SystemExit(main())
