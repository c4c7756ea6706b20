"""How an evaluation looks in Weights & Biases: figures while it runs, at its end metrics and evidence."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from gnnrag.cluster.artefacts import run_artefact
from gnnrag.cluster.stopping import STOPPED
from gnnrag.cluster.tracker import Artefact, Job, Tracker, run_state
from gnnrag.common.files import digest, read_journal
from gnnrag.common.records import interpreting
from gnnrag.config import MetricsConfig, RunConfig
from gnnrag.errors import GnnragError
from gnnrag.metrics.report import per_question
from gnnrag.types import Passage, Prediction, Question

EVERY_S = 1.0  # seconds between two rows of running figures
ROWS, TEXT, SHOWN = 1000, 240, 5  # of the table of predictions: questions, characters of a text, passages
GROUPS = ("by_type", "by_hops", "by_length")
RUNNING = {"recall@5": "retrieval/recall@5", "em": "answer/em", "f1": "answer/f1"}


@dataclass
class Sources:
    """What a run was made from.

    Attributes:
        questions: what is asked.
        passages: the corpus.
        inputs: data, index and checkpoints as artefacts; made when they are asked for, as it takes reading them.
    """

    questions: Sequence[Question]
    passages: Iterable[Passage] = ()
    inputs: Callable[[], Iterable[Artefact]] = tuple
    asked: dict[str, Question] = field(init=False)

    def __post_init__(self) -> None:
        """Index the questions."""
        self.asked = {question.id: question for question in self.questions}


class EvaluationTracker:
    """Follows an evaluation. A context that ends the W&B run as failed, or as stopped, where an error leaves it.

    A run that is continued goes on under its id, with steps after those that were sent, since W&B drops smaller ones
    (questions done, or more where some are answered again); one that is scored again, with other figures, sends those;
    the same command on a finished run sends nothing.

    Args:
        config: `tracking` and so on.
        metrics: how predictions are scored.
        path: the run directory.
        job: what it is shown as.
        sources: what it was made from.
        on_note: told, once, where tracking fails.
    """

    def __init__(
        self,
        config: RunConfig,
        metrics: MetricsConfig,
        path: Path,
        job: Job,
        sources: Sources,
        on_note: Callable[[str], None],
    ) -> None:
        self._config, self._metrics, self._path, self._job = config, metrics, path, job
        self._sources, self._on_note = sources, on_note
        self._tracker: Tracker | None = None
        self._step = 0  # the last one sent, in this session or an earlier one
        self._done, self._sums = 0, dict.fromkeys((*RUNNING, "failed"), 0.0)
        self._spent = dict.fromkeys(("usd", "llm_calls", "tokens"), 0.0)
        self._sent, self._is_pending = -math.inf, False
        self._started = time.monotonic()
        self._log: Callable[..., None] = lambda event, **values: None

    def __enter__(self) -> EvaluationTracker:
        """Return this."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the W&B run."""
        if self._tracker is not None:
            # Ctrl-C, or a scheduler's signal: the same command continues.
            self._tracker.finish(code=STOPPED if kind is KeyboardInterrupt else int(kind is not None))

    def start(self, done: Iterable[Prediction], log: Callable[..., None]) -> None:
        """Start from what was answered in earlier sessions.

        Args:
            done: their predictions.
            log: writes a row of running figures into the run's own log, too.
        """
        if self._config.tracking != "off":
            for prediction in done:
                self._count(prediction)
            self._step, self._log = _last_step(self._path), log

    def question(self, prediction: Prediction) -> None:
        """Count a question that has ended, and send the running figures where the last ones are a second old."""
        if self._config.tracking == "off":
            return
        self._count(prediction)
        self._is_pending = True
        if time.monotonic() - self._sent >= EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Send the running figures, if questions have ended since they were sent."""
        if not self._is_pending or not self._done:
            return
        now, self._is_pending = time.monotonic(), False
        self._sent = now
        means = {f"running/{name}": value / self._done for name, value in self._sums.items() if name != "failed"}
        row = {"running/questions": self._done, "running/failed": int(self._sums["failed"]), **means}
        row |= {f"running/{name}": round(value, 8) for name, value in self._spent.items()}
        row["running/seconds"] = round(now - self._started, 2)
        self._step = max(self._step + 1, self._done)
        self._log("running", step=self._step, **row)
        self._open().log(row, self._step)

    def _count(self, prediction: Prediction) -> None:
        question = self._sources.asked.get(prediction.question_id)
        if question is None:
            return
        variant: Any = self._metrics.f1_variant
        found = per_question([question], [prediction], (5,), variant)
        for name, key in RUNNING.items():
            self._sums[name] += float(found[key][0])
        self._sums["failed"] += float(prediction.error is not None)
        usage = prediction.usage
        self._spent["usd"] += usage.get("cost", 0.0)
        self._spent["llm_calls"] += usage.get("llm_calls", 0)
        self._spent["tokens"] += usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
        self._done += 1

    def _open(self) -> Tracker:
        if self._tracker is None:
            self._tracker = Tracker(self._config, self._path, self._job, self._on_note)
        return self._tracker

    def finish(self, metrics: Mapping[str, Any], predictions: Sequence[Prediction]) -> None:
        """Send the metrics of the whole run, tables, the run's files and what they came from, and end the W&B run.

        Args:
            metrics: what `metrics.json` holds.
            predictions: of all questions.
        """
        if self._config.tracking == "off":
            return
        try:
            state, figures = run_state(self._path), digest(metrics)
            if self._tracker is None and state.get("metrics") == figures:
                return
            self._send(self._open(), metrics, predictions, state)
            self._open().finish(flattened(metrics))
            if self._open().has_succeeded:
                run_state(self._path, metrics=figures, step=self._step)
        except (GnnragError, OSError, ValueError) as error:  # a full disk, a damaged file: metrics.json is written
            self._on_note(f"Weights & Biases failed ({error}); the run directory has all of it")

    def _send(
        self, tracker: Tracker, metrics: Mapping[str, Any], predictions: Sequence[Prediction], state: Mapping[str, Any]
    ) -> None:
        self._step = max(self._step, len(predictions), int(state.get("step", 0)))
        rounds = metrics.get("by_round", [])
        if rounds and "step" not in state:  # a series is sent once: what was sent cannot be taken back
            tracker.define("by_round/*", "round")
            for row in rounds:
                self._step += 1
                values = {f"by_round/{name}": value for name, value in row.items() if name != "round"}
                tracker.log({"round": row["round"], **values}, self._step)
        self._step += 1
        for name in GROUPS:
            if group := metrics.get(name):
                columns = list(dict.fromkeys(key for row in group.values() for key in row))
                rows = [[label, *(row.get(key) for key in columns)] for label, row in group.items()]
                tracker.table(f"tables/{name}", [name.removeprefix("by_"), *columns], rows, self._step)
        columns, rows = prediction_table(self._path, self._sources, predictions)
        tracker.table("tables/predictions", columns, rows, self._step)
        for used in self._sources.inputs():
            tracker.artefact(used, is_input=True)
        tracker.artefact(run_artefact(self._path, self._job.settings, self._config.upload))


def _last_step(path: Path) -> int:
    """Return the last step that a run has sent: what its log says where it was stopped, `wandb.json` where it ended."""
    rows = read_journal(path / "log.jsonl")
    with interpreting(path / "log.jsonl"):
        sent = [int(row["step"]) for row in rows if row.get("event") == "running" and "part" not in row]
    with suppress(GnnragError, OSError, ValueError):  # a damaged file is told of at the end, when it is written
        sent.append(int(run_state(path).get("step", 0)) if (path / "wandb.json").is_file() else 0)
    return max(sent, default=0)


def flattened(metrics: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return nested metrics under names with slashes; rows of a list are numbered, lists of numbers stay whole."""
    flat: dict[str, Any] = {}
    for key, value in metrics.items():
        name = f"{where}/{key}" if where else str(key)
        if isinstance(value, Mapping):
            flat |= flattened(value, name)
        elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
            flat |= flattened({str(number): one for number, one in enumerate(value)}, name)
        else:
            flat[name] = value
    return flat


def prediction_table(
    path: Path, sources: Sources, predictions: Sequence[Prediction]
) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows of what was answered and why, of at most 1,000 questions at even distances.

    Args:
        path: the run directory, whose `scores.jsonl` has the figures.
        sources: questions and corpus.
        predictions: rows of the run.
    """
    step = max(math.ceil(len(predictions) / ROWS), 1)
    shown = predictions[::step]
    wanted = {id_ for one in shown for id_ in _evidence(one)}
    passages = {passage.id: passage for passage in sources.passages if passage.id in wanted}
    with interpreting(path / "scores.jsonl"):
        scores = {row["question_id"]: row for row in read_journal(path / "scores.jsonl")}
    columns = ["question_id", "type", "question", "gold answers", "answer", *RUNNING]
    columns += ["evidence", "gold passages", "rounds", "seconds", "llm_calls", "error"]
    rows: list[list[Any]] = []
    for one in shown:
        question, score = sources.asked[one.question_id], scores.get(one.question_id, {})
        row: list[Any] = [
            question.id,
            question.type,
            _cut(question.text),
            _cut(" | ".join(question.answers)),
            _cut(one.answer),
        ]
        row += [score.get(key) for key in RUNNING.values()]
        row += [_shown(one, question, passages), _cut(", ".join(question.gold)), one.rounds, one.seconds]
        rows.append([*row, one.usage.get("llm_calls", 0), _cut(one.error or "")])
    return columns, rows


def _evidence(prediction: Prediction) -> Sequence[str]:
    return (prediction.ranking or prediction.nodes)[:SHOWN]


def _shown(prediction: Prediction, question: Question, passages: Mapping[str, Passage]) -> str:
    lines = []
    for rank, id_ in enumerate(_evidence(prediction), start=1):
        passage = passages.get(id_)
        text = f"{passage.title}: {' '.join(passage.text.split())}" if passage else id_
        lines.append(_cut(f"{rank}. {'[gold] ' if id_ in question.gold else ''}{text}"))
    return "\n".join(lines)


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # half a pair of surrogates cannot be sent
    return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"


def describe(settings: Mapping[str, Any], commit: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a W&B run shows of how it was made: settings, commit of the code, fingerprints."""
    return {**settings, "commit": commit, "inputs": json.loads(json.dumps(inputs))}
