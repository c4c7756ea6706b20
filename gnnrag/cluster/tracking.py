"""What evaluations, trainings and builds of an index show in Weights & Biases: figures, tables and artefacts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from gnnrag.cluster.stopping import STOPPED
from gnnrag.cluster.tracker import (
    Artefact,
    Tracker,
    WandbRun,
    checkpoint_artefact,
    data_artefact,
    index_artefact,
    run_artefact,
    run_state,
)
from gnnrag.common.files import digest, read_journal, read_json
from gnnrag.common.records import interpreting
from gnnrag.config import MetricsConfig, RunConfig
from gnnrag.errors import GnnragError
from gnnrag.metrics.report import defined, per_question
from gnnrag.types import Passage, Prediction, Question

EVERY_S = 1.0  # seconds between two rows of running figures
ROWS, TEXT, SHOWN = 1000, 240, 5  # of the table of predictions: questions, characters of a text, passages
GROUPS = ("by_type", "by_hops", "by_length")
RUNNING = {"recall@5": "retrieval/recall@5", "em": "answer/em", "f1": "answer/f1"}
COUNTED = ("failed", "usd", "llm_calls", "tokens")
COLUMNS = ["question_id", "type", "question", "gold answers", "answer", *RUNNING]
COLUMNS += ["evidence", "gold passages", "rounds", "seconds", "llm_calls", "error"]
Note = Callable[[str], None]


@contextmanager
def _harmless(on_note: Note, what: str = "the run directory") -> Iterator[None]:
    """Make a note of what cannot be read or sent: a full disk or a damaged file, when all else is written."""
    try:
        yield
    except (GnnragError, OSError, ValueError) as error:
        on_note(f"Weights & Biases failed ({error}); {what} has all of it")


# ---------------------------------------------------------------------------------------------------- evaluations
@dataclass(frozen=True)
class Sources:
    """Sources of an evaluation."""

    questions: Sequence[Question]
    passages: Iterable[Passage] = ()
    inputs: Callable[[], Iterable[Artefact]] = tuple  # data, index and checkpoints; making them takes reading them


class EvaluationTracker:
    """Follows an evaluation; a context that ends the W&B run as failed, or as stopped, where an error leaves it.

    A continued run keeps its id, with steps after those sent (W&B drops smaller ones); one scored again with other
    figures sends those, a finished one nothing. `on_note` is told, once, where tracking fails.
    """

    def __init__(
        self, config: RunConfig, metrics: MetricsConfig, path: Path, shown: WandbRun, sources: Sources, on_note: Note
    ) -> None:
        self._config, self._metrics, self._path, self._shown = config, metrics, path, shown
        self._sources, self._on_note = sources, on_note
        self._asked = {question.id: question for question in sources.questions}
        self._is_off = config.tracking == "off"
        self._tracker: Tracker | None = None
        self._step = 0  # the last one sent, in this session or an earlier one
        self._done, self._sums = 0, dict.fromkeys((*RUNNING, *COUNTED), 0.0)
        self._defined = dict.fromkeys(RUNNING, 0)
        self._started, self._sent, self._is_pending = time.monotonic(), -math.inf, False
        self._log: Callable[..., None] = lambda event, **values: None

    def __enter__(self) -> EvaluationTracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tracker is not None:
            # Ctrl-C, or a scheduler's signal: the same command continues.
            self._tracker.finish(code=STOPPED if kind is KeyboardInterrupt else int(kind is not None))

    def start(self, done: Iterable[Prediction], log: Callable[..., None]) -> None:
        """Start from the predictions of earlier sessions; `log` writes running figures into the run's own log, too."""
        if not self._is_off:
            for prediction in done:
                self._count(prediction)
            self._step, self._log = _last_step(self._path), log

    def question(self, prediction: Prediction) -> None:
        """Count a question that has ended, and send the running figures where the last ones are a second old."""
        if not self._is_off:
            self._count(prediction)
            self._is_pending = True
            if time.monotonic() - self._sent >= EVERY_S:
                self.flush()

    def _count(self, prediction: Prediction) -> None:
        question = self._asked.get(prediction.question_id)
        if question is None:
            return
        scores = per_question([question], [prediction], replace(self._metrics, ks=[5]))
        usage = prediction.usage
        tokens = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
        counted = (prediction.error is not None, usage.get("cost", 0.0), usage.get("llm_calls", 0), tokens)
        for name, count in zip(COUNTED, counted, strict=True):
            self._sums[name] += float(count)
        for name, key in RUNNING.items():
            values = defined(scores[key])
            self._sums[name] += float(values.sum())
            self._defined[name] += len(values)
        self._done += 1

    def flush(self) -> None:
        """Send the running figures, if questions have ended since they were sent."""
        if not self._is_pending or not self._done:
            return
        self._sent, self._is_pending = time.monotonic(), False
        row = {"questions": self._done, **{k: self._sums[k] / n for k, n in self._defined.items() if n}}
        row |= {name: round(self._sums[name], 8) for name in COUNTED}
        row |= {"failed": int(self._sums["failed"]), "seconds": round(self._sent - self._started, 2)}
        row = {f"running/{name}": value for name, value in row.items()}
        self._step = max(self._step + 1, self._done)
        self._log("running", step=self._step, **row)
        self._open().log(row, self._step)

    def _open(self) -> Tracker:
        if self._tracker is None:
            self._tracker = Tracker(self._config, self._path, self._shown, self._on_note)
        return self._tracker

    def finish(self, metrics: Mapping[str, Any], predictions: Sequence[Prediction]) -> None:
        """Send metrics (of `metrics.json`), tables, the run's files and what they came from, and end the W&B run."""
        if self._is_off:
            return
        with _harmless(self._on_note):
            state, figures = run_state(self._path), digest(metrics)
            if self._tracker is None and state.get("metrics") == figures:
                return
            tracker = self._open()
            self._step = max(self._step, len(predictions), int(state.get("step", 0)))
            if "step" not in state:  # a series is sent once: what was sent cannot be taken back
                self._send_rounds(tracker, metrics.get("by_round", []))
            self._step += 1
            for name in GROUPS:
                tracker.table_of(f"tables/{name}", name.removeprefix("by_"), metrics.get(name) or {}, self._step)
            rows = answer_rows(self._path, self._sources, predictions)
            tracker.table("tables/predictions", COLUMNS, rows, self._step)
            for used in self._sources.inputs():
                tracker.artefact(used, is_input=True)
            tracker.artefact(run_artefact(self._path, self._shown.settings, self._config.upload))
            tracker.finish(flattened(metrics))
            if tracker.has_succeeded:
                run_state(self._path, metrics=figures, step=self._step)

    def _send_rounds(self, tracker: Tracker, rounds: Sequence[Mapping[str, Any]]) -> None:
        if rounds:
            tracker.define("by_round/*", "round")
        for row in rounds:
            self._step += 1
            values = {f"by_round/{name}": value for name, value in row.items() if name != "round"}
            tracker.log({"round": row["round"], **values}, self._step)


def _last_step(path: Path) -> int:
    """Return the last step that a run has sent: what its log says where it was stopped, `wandb.json` where it ended."""
    rows = read_journal(path / "log.jsonl")
    with interpreting(path / "log.jsonl"):
        sent = [int(row["step"]) for row in rows if row.get("event") == "running" and "part" not in row]
    with suppress(GnnragError, OSError, ValueError):  # a damaged file is told of at the end, when it is written
        sent.append(int(run_state(path).get("step", 0)) if (path / "wandb.json").is_file() else 0)
    return max(sent, default=0)


def answer_rows(path: Path, sources: Sources, predictions: Sequence[Prediction]) -> list[list[Any]]:
    """Return rows (`COLUMNS`) of what was answered and why, of at most 1,000 questions at even distances."""
    asked = {question.id: question for question in sources.questions}
    shown = predictions[:: max(math.ceil(len(predictions) / ROWS), 1)]
    required = {id_ for prediction in shown for id_ in _evidence(prediction)}
    passages = {passage.id: passage for passage in sources.passages if passage.id in required}
    with interpreting(path / "scores.jsonl"):
        scores = {row["question_id"]: row for row in read_journal(path / "scores.jsonl")}
    rows: list[list[Any]] = []
    for prediction in shown:
        question, score = asked[prediction.question_id], scores.get(prediction.question_id, {})
        answers = [_cut(" | ".join(question.answers)), _cut(prediction.answer)]
        evidence = [_passages(prediction, question, passages), _cut(", ".join(question.gold))]
        effort = [prediction.rounds, prediction.seconds, prediction.usage.get("llm_calls", 0)]
        row: list[Any] = [question.id, question.type, _cut(question.text), *answers]
        row += [score.get(key) for key in RUNNING.values()]
        rows.append([*row, *evidence, *effort, _cut(prediction.error or "")])
    return rows


def _evidence(prediction: Prediction) -> Sequence[str]:
    return (prediction.ranking or prediction.nodes)[:SHOWN]


def _passages(prediction: Prediction, question: Question, passages: Mapping[str, Passage]) -> str:
    lines = []
    for rank, id_ in enumerate(_evidence(prediction), start=1):
        passage = passages.get(id_)
        text = f"{passage.title}: {' '.join(passage.text.split())}" if passage else id_
        lines.append(_cut(f"{rank}. {'[gold] ' if id_ in question.gold else ''}{text}"))
    return "\n".join(lines)


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # half a pair of surrogates cannot be sent
    return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"


def flattened(metrics: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return nested metrics under names with slashes; rows of a list are numbered, lists of numbers stay whole."""
    flat: dict[str, Any] = {}
    for key, value in metrics.items():
        name = f"{where}/{key}" if where else str(key)
        if isinstance(value, Mapping):
            flat |= flattened(value, name)
        elif isinstance(value, list) and any(isinstance(row, Mapping) for row in value):
            flat |= flattened({str(number): row for number, row in enumerate(value)}, name)
        else:
            flat[name] = value
    return flat


def describe(settings: Mapping[str, Any], commit: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a W&B run shows of how it was made: settings, commit of the code, fingerprints."""
    return {**settings, "commit": commit, "inputs": json.loads(json.dumps(inputs))}


# ------------------------------------------------------------------------------------------------------ trainings
class TrackedPlan(Protocol):
    """Part of a training's plan that is tracked."""

    settings: Mapping[str, Any]
    inputs: Mapping[str, Any]
    run: Any

    @property
    def indexes(self) -> Sequence[Any]:
        """Indexes that are read (`gnnrag.index`)."""
        ...


def open_tracker(path: Path, plan: TrackedPlan, commit: str, on_note: Note) -> Tracker:
    """Return the W&B run of a training; a fold is shown in the group of all folds."""
    whole = path.parent.name if path.name.startswith("fold") else None
    settings = describe(plan.settings, commit, plan.inputs)
    return Tracker(plan.run, path, WandbRun("train", _training_name(path), settings, whole), on_note)


def _training_name(path: Path) -> str:
    return f"{path.parent.name}-{path.name}" if path.name.startswith("fold") else path.name


def send_checkpoint(
    tracker: Tracker, path: Path, plan: TrackedPlan, metrics: Mapping[str, Any], step: int, on_note: Note
) -> None:
    """Send the curves, the report (means of each set), and the checkpoint with what it was made from."""
    if plan.run.tracking == "off":  # telling checkpoints apart takes reading them
        return
    with _harmless(on_note):
        if (path / "curves.png").is_file():
            tracker.image("curves", path / "curves.png", step)
        _send_report(tracker, metrics, step)
        for used in _inputs(plan, plan.run.upload):
            tracker.artefact(used, is_input=True)
        tracker.artefact(checkpoint_artefact(path / "best", plan.run.upload, _training_name(path)))


def _inputs(plan: TrackedPlan, upload: str) -> Iterator[Artefact]:
    for name, value in plan.inputs.items():
        whole = isinstance(value, Mapping) and "data" in value
        yield data_artefact(name, value["data"]) if whole else data_artefact(f"training-{name}", value)
    for index in plan.indexes:
        yield index_artefact(index.store.root, index.fingerprint, upload)
    if start := plan.settings.get("start"):
        folder = Path(start) / "best"
        yield checkpoint_artefact(folder if folder.is_dir() else Path(start), upload)


def _send_report(tracker: Tracker, metrics: Mapping[str, Any], step: int) -> None:
    sets = {name: row for name, row in metrics.items() if isinstance(row, Mapping)}
    tracker.table_of("tables/report", "set", sets, step)


def track_folds(plan: TrackedPlan, path: Path, commit: str, metrics: Mapping[str, Any], on_note: Note) -> None:
    """Show the report on all folds together as a run of their group; `plan` is that of any of them."""
    if plan.run.tracking != "off":
        settings = describe({**plan.settings, "fold": None}, commit, {})
        tracker = Tracker(plan.run, path, WandbRun("train", path.name, settings, path.name), on_note)
        _send_report(tracker, metrics, 0)
        tracker.finish(flattened(metrics))


# --------------------------------------------------------------------------------------------- builds of an index
def track_build(
    config: RunConfig, root: Path, settings: Mapping[str, Any], built: Sequence[str], on_note: Note
) -> None:
    """Show what each stage of an index took and holds, if any was built; all builds are steps of run `index-NAME`."""
    if config.tracking == "off" or not built:
        return
    with interpreting(root / "manifest.json", "build the index anew"):
        stages: dict[str, Any] = read_json(root / "manifest.json")["stages"]
        rows = {name: _stage_row(entry, name in built) for name, entry in stages.items()}
    folder = Path(config.root) / f"index-{root.name}"
    tracker = Tracker(config, folder, WandbRun("index", folder.name, {"index": dict(settings)}), on_note)
    try:
        with _harmless(on_note, "the index"):
            step = int(run_state(folder).get("step", 0)) + 1
            tracker.log({f"seconds/{name}": row["seconds"] for name, row in rows.items() if row["built"]}, step)
            tracker.table_of("tables/stages", "stage", rows, step)
            keys = {name: entry["key"] for name, entry in stages.items()}
            tracker.artefact(index_artefact(root, keys, config.upload))
            tracker.finish({"bytes": sum(row["bytes"] for row in rows.values()), **flattened(rows)})
            run_state(folder, step=step)
    finally:
        tracker.finish(code=1)


def _stage_row(entry: Mapping[str, Any], is_new: bool) -> dict[str, Any]:
    info = {key: value for key, value in entry["info"].items() if isinstance(value, int | float)}
    return {"built": is_new, "bytes": sum(file["bytes"] for file in entry["files"].values()), **info}
