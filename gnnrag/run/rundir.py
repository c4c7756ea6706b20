"""The folder of a run: settings, inputs, journals of predictions and traces, metrics; and the shards of a run.

Also here: the flag that SIGTERM sets, and the record of which questions a checkpoint was trained on.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import deepcopy
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]

from gnnrag import __version__
from gnnrag.config import to_plain
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.io import (
    Journal,
    digest,
    exclusive_lock,
    interpreting,
    read_journal,
    read_json,
    read_lines,
    read_object,
    remove,
    write_atomic,
    write_json,
    write_jsonl,
)
from gnnrag.session import Session
from gnnrag.types import Prediction, to_dict

T = TypeVar("T")
_FIELDS = {field.name for field in fields(Prediction)}
_LISTS = ("ranking", "context", "nodes")
# A run may be continued with other values of these settings, as when a server has a new address or an index has moved.
# They do not influence predictions, or the fingerprints of the inputs cover them.
MAY_CHANGE = {
    *("concurrency", "executor", "run", "shard", "metrics", "llm_cache"),
    *("data.path", "data.questions", "index.path", "index.root"),
    *(f"llm.{name}" for name in ("base_url", "api_key_env", "timeout_s", "max_retries", "concurrency")),
    "roles.rewriter",  # rewrites a follow-up before the run answers it
}
SHARDS = "shards"  # folder of a run's shards; each shard is a run directory, too


class RunDir:
    """One run on disk: `config.yaml`, `meta.json`, `predictions.jsonl`, `traces.jsonl`, `log.jsonl`, `metrics.json`.

    Rows are appended as questions end, and survive a kill; `finish` puts them in question order. `inputs` are
    fingerprints of data, index and prompts; `fresh` deletes an earlier run of that name. Raises ConfigError where a run
    of that name has other settings or inputs, GnnragError while another process is writing it.
    """

    def __init__(
        self, root: str | Path, name: str, config: Mapping[str, Any], inputs: Mapping[str, Any], fresh: bool = False
    ) -> None:
        self.path = Path(root) / name
        self.settings, self.inputs = deciding_settings(config), inputs
        self._lock = ExitStack()
        self._lock.enter_context(claimed(self.path, config, self.settings, inputs, fresh))
        self._predictions = Journal(self.path / "predictions.jsonl")
        self._traces = Journal(self.path / "traces.jsonl")
        self._log = Journal(self.path / "log.jsonl")
        self._meta = {"settings": self.settings, "inputs": inputs, "commit": code_version(), "gnnrag": __version__}
        self.note(python=platform.python_version())

    def note(self, **facts: Any) -> None:
        """Write facts into `meta.json` that are not compared when the run is continued."""
        self._meta |= facts
        write_json(self.path / "meta.json", self._meta)

    def done(self) -> set[str]:
        """Return the questions that earlier sessions have answered: failed ones are to be tried again."""
        rows = {row["question_id"]: row for row in self._predictions.rows}
        return {id_ for id_, row in rows.items() if row.get("error") is None}

    def add(self, prediction: Prediction, session: Session) -> None:
        """Record a question that has ended. The prediction is written last, so a question cut short here is redone."""
        row = to_dict(prediction)
        seconds = row.pop("seconds")
        self._traces.append({"question_id": prediction.question_id, "events": session.events})
        details: dict[str, Any] = {"traceback": session.traceback} if session.traceback else {}
        details |= {"seconds": round(seconds, 4), "cached_calls": session.cached_calls}
        self.log("question", id=prediction.question_id, **details)
        self._predictions.append(row)

    def log(self, event: str, **details: Any) -> None:
        self._log.append({"time": round(time.time(), 3), "event": event, **details})

    def take_shards(self, order: Sequence[str]) -> None:
        """Add the rows of all shards. If a question has several rows, the first without an error is taken.

        Raises ConfigError if a shard has other settings or inputs, and GnnragError if one is being written.
        """
        shards = shards_of(self.path)
        if not shards:
            return
        rows = {row["question_id"]: row for row in read_journal(self.path / "predictions.jsonl")}
        known = [row for row in read_journal(self.path / "log.jsonl") if row["event"] != "question"]
        with ExitStack() as locks:
            for folder in shards:
                check_same(folder, self.settings, self.inputs)
                locks.enter_context(lock_run(folder))
                taken = set()
                for row in read_journal(folder / "predictions.jsonl"):
                    earlier = rows.get(row["question_id"])
                    if earlier is None or (earlier["error"] is not None and row["error"] is None):
                        rows[row["question_id"]] = row
                        taken.add(row["question_id"])
                self._predictions.append(*(rows[id_] for id_ in order if id_ in taken))
                traces = (row for row, _ in read_lines(folder / "traces.jsonl"))
                self._traces.append(*(row for row in traces if row["question_id"] in taken))
                for row in read_journal(folder / "log.jsonl"):
                    is_new = row["id"] in taken if row["event"] == "question" else row not in known
                    if is_new:
                        self._log.append(row)
        self._predictions.rows, self._log.rows = list(rows.values()), read_journal(self.path / "log.jsonl")

    def finish(self, order: Sequence[str]) -> list[Prediction]:
        """Keep each question's newest prediction and trace, in question order. GnnragError for missing predictions."""
        rows = {row["question_id"]: row for row in read_journal(self.path / "predictions.jsonl")}
        if missing := [id_ for id_ in order if id_ not in rows]:
            raise GnnragError(f"run {self.path}: {len(missing)} questions have no row, the first is {missing[0]!r}")
        write_jsonl(self.path / "predictions.jsonl", [rows[id_] for id_ in order])
        traces = {row["question_id"]: line for row, line in read_lines(self.path / "traces.jsonl")}
        write_atomic(self.path / "traces.jsonl", b"".join(traces[id_] for id_ in order if id_ in traces))
        self.close()
        return read_predictions(self.path)

    def close(self) -> None:
        """Close the files and let other processes write them."""
        for journal in (self._predictions, self._traces, self._log):
            journal.close()
        self._lock.close()


def lock_run(path: Path) -> AbstractContextManager[None]:
    """Lock a run. Raises GnnragError if another process holds the lock."""
    wait_s = 60.0 if path.parent.name == SHARDS else 0.0  # Ray ends the workers of a killed driver within seconds
    return exclusive_lock(path.with_name(f".{path.name}.lock"), f"run {path}", wait_s)


BEGUN = ("predictions.jsonl",)  # files of a run that has begun


@contextmanager
def claimed(
    path: Path,
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
    inputs: Mapping[str, Any],
    fresh: bool,
    begun: Iterable[str] = BEGUN,
) -> Iterator[None]:
    """Hold the lock of a run's folder, with `config` in its `config.yaml`; `fresh` deletes what it held before.

    Raises GnnragError while another process holds the lock, ConfigError: see `check_same`.
    """
    with lock_run(path):
        if fresh:
            remove(path)
        check_same(path, settings, inputs, begun)
        write_atomic(path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
        yield


def check_same(
    path: Path,
    settings: Mapping[str, Any],
    inputs: Mapping[str, Any],
    begun: Iterable[str] = BEGUN,
    fix: str = "give another run.name, or run.fresh=true to start it over",
) -> None:
    """Raise ConfigError, naming the differences, if a run with any file of `begun` has other settings or inputs."""
    if not any((path / name).exists() and (path / name).stat().st_size for name in begun):
        return
    meta = read_object(path / "meta.json")
    for what, wanted in (("settings", settings), ("inputs", inputs)):
        # Through JSON, so that tuples and lists compare equal.
        if changed := sorted(differences(meta.get(what), json.loads(json.dumps(wanted)))):
            raise ConfigError(f"run {path} exists with other {what} ({', '.join(changed[:5])}); {fix}")


# ------------------------------------------------------------------------------------------------------------- reading
def read_predictions(path: str | Path) -> list[Prediction]:
    """Read `predictions.jsonl` of a run, the newest row of each question, with the seconds from its log.

    Raises GnnragError where there is none, ArtefactError for an invalid row.
    """
    folder = Path(path)
    if not (folder / "predictions.jsonl").is_file():
        raise GnnragError(f"{folder} is no run: it has no predictions.jsonl")
    rows, log = read_journal(folder / "predictions.jsonl"), read_journal(folder / "log.jsonl")
    with interpreting(folder / "predictions.jsonl", "run.fresh=true starts the run over"):
        seconds = {row["id"]: row["seconds"] for row in log if row["event"] == "question"}
        newest = {row["question_id"]: {k: v for k, v in row.items() if k in _FIELDS} for row in rows}
        return [
            Prediction(**row | {name: tuple(row.get(name, ())) for name in _LISTS}, seconds=seconds.get(id_, 0.0))
            for id_, row in newest.items()
        ]


def predicted_seconds(path: Path) -> float:
    """Return the seconds that a run has spent on answering. The run may still be in progress."""
    return sum(row["seconds"] for row in read_journal(path / "log.jsonl") if row["event"] == "predicted")


def trained_note(path: str | Path) -> str:
    """Return a note for tables on the parts of a run that were trained on its own questions; empty if none was."""
    counts = read_object(Path(path) / "meta.json").get("trained_on", {})  # name: "3 of 50"
    return ", ".join(f"{name} trained on {count} of these questions" for name, count in counts.items())


# --------------------------------------------------------------------------------------------------------------- names
def run_name(config: Mapping[str, Any], data: str, inputs: Mapping[str, Any]) -> str:
    """Return the default name of a run: a readable prefix, then a hash of settings and inputs."""
    parts = [data, config["method"]["name"], config["retriever"]["name"], roles_label(config["roles"])]
    return "-".join([*parts, digest([deciding_settings(config), inputs])[:8]]).replace(":", "_")


def roles_label(roles: Mapping[str, Any]) -> str:
    """Return the forms of the roles: the default, and each role that differs from it."""
    others = (f"{name}.{role['impl']}" for name, role in roles.items() if name != "default" and role["impl"])
    return "+".join([roles["default"], *(o for o in others if not o.endswith(f".{roles['default']}"))])


def run_label(config: Any) -> str:
    """Return method, retriever and roles of a config, for tables. The roles show which rows use an oracle."""
    return f"{config.method.name} / {config.retriever.name} / {roles_label(to_plain(config.roles))}"


def deciding_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide predictions: all but those of `MAY_CHANGE`."""
    deciding = deepcopy(dict(config))
    for setting in MAY_CHANGE:
        *sections, key = setting.split(".")
        section = deciding
        for name in sections:
            section = section.get(name) or {}
        section.pop(key, None)
    return deciding


@cache
def code_version() -> str:
    """Return the short commit of the code, with `+` where the tree has changes; empty outside a checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()


def differences(a: Any, b: Any, where: str = "") -> set[str]:
    """Return the dotted names in which two mappings differ. A missing section equals one of nulls only."""
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        a, b = a or {}, b or {}
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return {d for k in {*a, *b} for d in differences(a.get(k), b.get(k), f"{where}.{k}" if where else str(k))}
    return set() if a == b else {where}


# -------------------------------------------------------------------------------------------------------------- shards
def read_shard(text: str | None) -> tuple[int, int] | None:
    """Return number (from 1) and count of a shard (`3/16`). ConfigError for other texts."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(f"shard={text!r}: give shard=3/16 for the third of 16 shards, no shard for all together")
    return int(match[1]), int(match[2])


def questions_of(shard: tuple[int, int] | None, rows: Sequence[T]) -> Sequence[T]:
    """Return the rows of a shard: every `count`-th, beginning with the `number`-th."""
    return rows if shard is None else rows[shard[0] - 1 :: shard[1]]


def shards_of(run: Path) -> list[Path]:
    folders = [folder for folder in (run / SHARDS).glob("*-of-*") if (folder / "meta.json").is_file()]
    return sorted(folders, key=lambda folder: [int(number) for number in folder.name.split("-of-")][::-1])


def shard_count(run: Path) -> int:
    """Return how many shards a run is divided into: 0 where it is not, the most where it was divided anew."""
    return max((int(folder.name.partition("-of-")[2]) for folder in shards_of(run)), default=0)


# ------------------------------------------------------------------------------------------------ trained checkpoints
# `questions.json` beside a checkpoint's weights holds hashes of the ids of training and validation questions. Ids of
# different sets are not told apart: a set is the same under another name.
SEEN = "questions.json"


def seen_hash(question_id: str) -> str:
    return hashlib.sha256(question_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def seen_in(parts: Mapping[str, Mapping[str, Iterable[str]]]) -> frozenset[str]:
    """Return the hashes of the questions that train or validate; of a composed one (`a+b`) also of its sources."""
    ids = [id_ for part in parts.values() for name in ("train", "validation") for id_ in part.get(name, ())]
    return frozenset(seen_hash(part) for id_ in ids for part in {id_, *id_.split("+")})


def write_seen(folder: Path, seen: Iterable[str]) -> None:
    """Write which questions shaped the checkpoint of a folder."""
    write_json(folder / SEEN, {"what": "sha256 of question ids, 12 digits", "questions": sorted(seen)})


def read_seen(folder: Path) -> frozenset[str] | None:
    """Return the hashes of the questions that shaped a checkpoint; None where they are not recorded.

    `folder` may be a training run with a checkpoint in `best`, also one that has not ended.
    """
    for place in (folder, folder / "best"):
        if (place / SEEN).is_file():
            with interpreting(place / SEEN, "copy the checkpoint again"):
                return frozenset(map(str, read_json(place / SEEN)["questions"]))
    run = next((run for run in (folder, folder.parent) if (run / "folds.json").is_file()), None)
    if run is None or not (run / "best").is_dir():
        return None
    with interpreting(run / "folds.json"):
        return seen_in(read_json(run / "folds.json"))


# ---------------------------------------------------------------------------------------------------------- signals
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


@contextmanager
def stop_flag() -> Iterator[threading.Event]:
    """Yield an event that is set when a scheduler asks the run to stop; outside of the main thread nothing sets it.

    What is in flight is then finished and saved, and nothing new begins.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
