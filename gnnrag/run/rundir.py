"""The folder of a run: settings, inputs, journal of predictions, metrics; read again row by row."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gnnrag import __version__
from gnnrag.common.files import (
    Journal,
    digest,
    lock_run,
    read_journal,
    read_json,
    read_lines,
    remove,
    write_atomic,
    write_json,
    write_jsonl,
)
from gnnrag.common.records import EVALUATION, interpreting, number, refuse_other, start_over, text
from gnnrag.config import to_plain
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.session import Session
from gnnrag.types import Prediction, to_dict

_OVER = "run.fresh=true starts the run over"
_FIELDS = {field.name for field in fields(Prediction)} - {"seconds"}
Row = Mapping[str, Any]


def prediction_rows(run: Path) -> list[Row]:
    """Return the rows of a run's `predictions.jsonl`. Raises ArtefactError where one is no prediction."""
    path = run / "predictions.jsonl"
    return checked(path, read_journal(path), check_prediction)


def log_rows(run: Path) -> list[Row]:
    """Return the rows of a run's `log.jsonl`. Raises ArtefactError where one is no entry."""
    path = run / "log.jsonl"
    return checked(path, read_journal(path), check_entry)


def trace_lines(run: Path) -> dict[str, bytes]:
    """Return the lines of a run's `traces.jsonl` by question, the newest where one was redone: they may be large."""
    path = run / "traces.jsonl"
    with interpreting(path, _OVER):
        return {text(row["question_id"]): line for row, line in read_lines(path)}


def read_meta(run: Path) -> dict[str, Any]:
    """Return what a run's `meta.json` says, empty where there is none. Raises ArtefactError where it is no object."""
    path = run / "meta.json"
    with interpreting(path, _OVER):
        try:
            return _mapping(read_json(path))
        except FileNotFoundError:
            return {}


def trained_counts(run: Path) -> dict[str, str]:
    """Return which trained parts of a run had been shaped by its own questions, and how many: `3 of 50`."""
    noted = read_meta(run).get("trained_on", {})
    with interpreting(run / "meta.json", _OVER):
        return {
            text(name): f"{int(said.split(' of ')[0])} of {int(said.split(' of ')[1])}" for name, said in noted.items()
        }


def compared(run: Path) -> tuple[Row, Row]:
    """Return the settings and the inputs that a run was made with. Raises ArtefactError where it does not say."""
    meta = read_meta(run)
    with interpreting(run / "meta.json", _OVER):
        return _mapping(meta["decisive"]), _mapping(meta["inputs"])


def checked(path: Path, rows: Iterable[Any], check: Callable[[Any], None]) -> list[Row]:
    """Return rows of a file, each checked. Raises ArtefactError naming the first that is not what it should be."""
    found = list(rows)
    with interpreting(path, _OVER):
        for row in found:
            check(row)
    return found


def predictions_of(rows: Iterable[Row], log: Iterable[Row]) -> Iterator[Prediction]:
    """Yield the newest prediction of each question, with its seconds from the log; both have been checked."""
    seconds = {row["id"]: row["seconds"] for row in log if row["event"] == "question"}
    for id_, row in {row["question_id"]: row for row in rows}.items():
        lists = {name: tuple(row.get(name, ())) for name in ("ranking", "context", "nodes")}
        yield Prediction(**{**row, **lists, "seconds": seconds.get(id_, 0.0)})


def check_prediction(row: Any) -> None:
    """Raise ValueError, KeyError or TypeError where a row is none of `predictions.jsonl`."""
    if odd := sorted(_mapping(row).keys() - _FIELDS):
        raise ValueError(f"unknown field {odd[0]!r:.40}")
    for name in ("question_id", "answer"):
        text(row[name])
    for name in ("ranking", "context", "nodes"):
        if not isinstance(ids := row[name] if name != "nodes" else row.get(name, []), list):
            raise ValueError(f"{name} is no list")
        for id_ in ids:
            text(id_)
    number(row["rounds"])
    if row["error"] is not None:
        text(row["error"])
    for name, count in _mapping(row["usage"]).items():
        _check_counts(name, count)


def _check_counts(name: str, count: Any) -> None:
    """Accept what `Session.usage` gives: numbers, and those of each role and flag."""
    if name not in ("roles", "flags"):
        number(count)
        return
    for inner in _mapping(count).values():
        for value in _mapping(inner).values() if name == "roles" else (inner,):
            number(value)


def check_entry(row: Any) -> None:
    """Raise ValueError, KeyError or TypeError where a row is none of `log.jsonl`."""
    event = text(_mapping(row)["event"])
    if event == "question":
        text(row["id"])
    if event in ("question", "predicted"):
        number(row["seconds"])


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} is no object")
    return value


# Settings that have no influence on any prediction, or that the fingerprints of the inputs stand for: a run may be
# continued with other values of these (a server comes back under another address, an index has moved).
EXCLUDED_FIELDS = {
    *("concurrency", "run", "shard", "metrics", "llm_cache", "data.path", "data.questions", "index.path", "index.root"),
    *(f"llm.{name}" for name in ("base_url", "api_key_env", "timeout_s", "max_retries", "concurrency")),
    "roles.rewriter",  # is asked before a question is
}
SHARDS = "shards"  # folder of a run's parts: runs of their own (gnnrag.run.sharding)
SCORED = ("metrics.json", "scores.jsonl")  # what is made of the rows once all are there


class RunDir:
    """One run on disk: `config.yaml`, `meta.json`, `predictions.jsonl`, `traces.jsonl`, `log.jsonl`, `metrics.json`.

    Rows are appended as questions end, and survive a kill; `finish` puts them in question order. `inputs` are
    fingerprints of data and index; `fresh` deletes an earlier run of that name. Raises ConfigError where a run of that
    name has other settings or inputs, the folder holds something else, or `fresh` would delete more than a run;
    ArtefactError where `meta.json` is damaged; GnnragError while another process is writing it.
    """

    def __init__(
        self,
        root: str | Path,
        name: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, Any],
        fresh: bool = False,
        traces: bool = True,
    ) -> None:
        self.path = Path(root) / name
        self.decisive = fingerprint_fields(config)
        refuse_other(self.path, EVALUATION)
        if not fresh:
            check_same(self.path, self.decisive, inputs)
        self._lock = lock_run(self.path, "run")
        if fresh:
            start_over(self.path, EVALUATION, config)
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(config)))
        self._predictions = Journal(self.path / "predictions.jsonl")
        self._traces = Journal(self.path / "traces.jsonl") if traces else None
        self._log = Journal(self.path / "log.jsonl")
        for journal, check in ((self._predictions, check_prediction), (self._log, check_entry)):
            checked(journal.path, journal.rows, check)
        self.inputs = inputs
        self._meta = {"decisive": self.decisive, "inputs": inputs, "commit": commit(), "gnnrag": __version__}
        self.note(python=platform.python_version())
        self.log("start", commit=commit())

    def note(self, **facts: Any) -> None:
        """Write facts into `meta.json` that are worth knowing and decide nothing."""
        self._meta |= facts
        write_json(self.path / "meta.json", self._meta)

    @property
    def made_by(self) -> set[str]:
        """Commits that had worked on this run before it was opened, if it holds predictions."""
        if not self._predictions.rows:
            return set()
        return {str(row["commit"]) for row in self._log.rows if row["event"] == "start" and row.get("commit")}

    def done(self, retry_failed: bool = True) -> dict[str, Prediction]:
        """Return the predictions of earlier sessions; failed ones are left out when they are to be tried again."""
        kept = predictions_of(self._predictions.rows, self._log.rows)
        return {row.question_id: row for row in kept if not (retry_failed and row.error is not None)}

    def add(self, prediction: Prediction, session: Session) -> None:
        """Record a question that has ended. The prediction goes last: what precedes it is overwritten by a redo."""
        row = to_dict(prediction)
        seconds = row.pop("seconds")
        if self._traces:
            self._traces.append({"question_id": prediction.question_id, "events": session.events})
        self.log("question", id=prediction.question_id, seconds=round(seconds, 4), cached_calls=session.cached_calls)
        self._predictions.append(row)

    def unscore(self) -> None:
        """Remove the figures of an earlier end: there is something to answer again, and they would say all is done."""
        for name in SCORED:
            remove(self.path / name, self.path)

    def log(self, event: str, **details: Any) -> None:
        """Append to `log.jsonl`."""
        self._log.append({"time": round(time.time(), 3), "event": event, **details})

    def replace(self, predictions: Iterable[Any], traces: Iterable[bytes], log: Iterable[Any]) -> None:
        """Replace all rows; the predictions, which decide what is done, come last."""
        self._close_files()
        write_jsonl(self.path / "log.jsonl", log)
        if self._traces:
            write_atomic(self.path / "traces.jsonl", b"".join(traces))
            self._traces = Journal(self.path / "traces.jsonl")
        write_jsonl(self.path / "predictions.jsonl", predictions)
        self._log, self._predictions = Journal(self.path / "log.jsonl"), Journal(self.path / "predictions.jsonl")

    def finish(self, order: Sequence[str]) -> list[Prediction]:
        """Put predictions and traces into question order, the newest of each. Raises GnnragError for missing ones."""
        rows = {row["question_id"]: row for row in prediction_rows(self.path)}
        missing = [id_ for id_ in order if id_ not in rows]
        if missing:
            raise GnnragError(f"run {self.path}: {len(missing)} questions have no row, the first is {missing[0]!r}")
        write_jsonl(self.path / "predictions.jsonl", [rows[id_] for id_ in order])
        if self._traces:
            traces = trace_lines(self.path)
            write_atomic(self.path / "traces.jsonl", b"".join(traces[id_] for id_ in order if id_ in traces))
        self.close()
        return read_predictions(self.path)

    def close(self) -> None:
        """Close the files and let other processes write them."""
        self._close_files()
        self._lock.close()

    def _close_files(self) -> None:
        for journal in (self._predictions, self._traces, self._log):
            if journal:
                journal.close()


def check_same(path: Path, decisive: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """Raise ConfigError naming what differs where a run with predictions has other settings or inputs.

    Raises ArtefactError where its `meta.json` is damaged.
    """
    meta, rows = path / "meta.json", path / "predictions.jsonl"
    if not meta.exists() or not rows.exists() or not rows.stat().st_size:
        return
    settings, data = compared(path)
    for what, have, want in (("settings", settings, decisive), ("inputs", data, inputs)):
        # Through JSON, so that tuples and lists compare equal.
        changed = sorted(differences(have, json.loads(json.dumps(want))))
        if changed:
            raise ConfigError(
                f"run {path} exists with other {what} ({', '.join(changed[:5])}); "
                "give another run.name, or run.fresh=true to start it over"
            )


def read_predictions(path: str | Path) -> list[Prediction]:
    """Read `predictions.jsonl` of a run, the newest row of each question, with the seconds from its log."""
    folder = Path(path)
    if not (folder / "predictions.jsonl").is_file():
        raise GnnragError(f"{folder} is no run: it has no predictions.jsonl")
    return list(predictions_of(prediction_rows(folder), log_rows(folder)))


def predicted_seconds(path: Path) -> float:
    """Return the seconds that a run, which may still be writing its log, has spent on answering."""
    return sum(row["seconds"] for row in log_rows(path) if row["event"] == "predicted")


def trained_note(path: str | Path) -> str:
    """Return which trained parts of a run had been shaped by its own questions, for tables; empty where none had."""
    found = trained_counts(Path(path))
    return ", ".join(f"{name} trained on {count} of these questions" for name, count in found.items())


def run_name(config: Mapping[str, Any], data: str, inputs: Mapping[str, Any]) -> str:
    """Return the default name: readable in front, a hash of settings and inputs behind."""
    parts = [data, config["method"]["name"], config["retriever"]["name"], roles_label(config["roles"])]
    return "-".join([*parts, digest([fingerprint_fields(config), inputs])[:8]]).replace(":", "_")


def roles_label(roles: Mapping[str, Any]) -> str:
    """Return who does the roles: the default, and the roles that differ from it."""
    others = (f"{name}.{role['impl']}" for name, role in roles.items() if name != "default" and role["impl"])
    return "+".join([roles["default"], *(o for o in others if not o.endswith(f".{roles['default']}"))])


def run_label(config: Any) -> str:
    """Return method, retriever and roles of a config, for tables; an oracle never passes for a result."""
    return f"{config.method.name} / {config.retriever.name} / {roles_label(to_plain(config.roles))}"


def fingerprint_fields(config: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return the settings that decide predictions."""
    kept = {key: value for key, value in config.items() if f"{where}{key}" not in EXCLUDED_FIELDS}
    return {k: fingerprint_fields(v, f"{where}{k}.") if isinstance(v, Mapping) else v for k, v in kept.items()}


@cache
def commit() -> str:
    """Return the short commit of the code, with `+` where the tree has changes; empty outside a checkout."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()


def differences(a: Any, b: Any, where: str = "") -> set[str]:
    """Return the dotted names of what two mappings differ in."""
    if (isinstance(a, Mapping) and b is None) or (isinstance(b, Mapping) and a is None):
        a, b = a or {}, b or {}  # older settings lack a section: one of nulls alone is as if it were not there
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return {d for k in {*a, *b} for d in differences(a.get(k), b.get(k), f"{where}.{k}" if where else str(k))}
    return set() if a == b else {where}
