"""Cross-validated evaluation of a trained retriever: each question is answered with a network that did not train on it.

A fold of training reports on questions that it did not see. They are answered with the fold's checkpoint, by any
method; the predictions of all folds make one run, which is scored as any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnrag.config import EvaluateConfig
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.evaluation import evaluate, write_metrics
from gnnrag.files import digest, read_journal, write_json, write_jsonl
from gnnrag.fit.folds import draw
from gnnrag.pipeline import open_index
from gnnrag.rundir import read_predictions
from gnnrag.types import Question


@dataclass(frozen=True)
class Fold:
    """A trained network with the questions that it may be asked.

    Attributes:
        checkpoint: its folder.
        data: the corpus, and those of the questions that the training only reported on.
    """

    checkpoint: Path
    data: Dataset


def sampled(questions: Sequence[Question], count: int) -> tuple[Question, ...]:
    """Return at most `count` questions, drawn by a hash of their ids, in the order given."""
    if count < 1:
        raise ConfigError(f"sample={count}: must be at least 1")
    kept = {q.id for q in sorted(questions, key=lambda q: draw(q.id, "limit"))[:count]}
    return tuple(q for q in questions if q.id in kept)


def read_folds(training: Path, data: Dataset) -> list[Fold]:
    """Return the networks of a training run, each with those of the questions that it reported on.

    Args:
        training: run directory, with folders `fold0`, `fold1`, ... or of one network.
        data: corpus and questions; the training has them under the same name.

    Raises:
        GnnragError: the folder is no finished training run.
        DataError: some questions are in no fold's report, or in two: nothing honest could be said of them.
    """
    folders = sorted(training.glob("fold[0-9]*")) or [training]
    folds, taken = [], set[str]()
    for folder in folders:
        try:
            parts = json.loads((folder / "folds.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise GnnragError(
                f"{folder} is no training run ({error}); give the folder that train_gnn.py printed"
            ) from error
        if not (folder / "metrics.json").is_file():
            raise GnnragError(f"{folder} has not ended: run its training command again")
        if data.name not in parts:
            raise DataError(folder, f"the training had no set {data.name!r}, only {', '.join(sorted(parts))}")
        mine = set(parts[data.name]["report"])
        if both := sorted(taken & mine):
            raise DataError(folder, f"question {both[0]} is reported on by two folds")
        taken |= mine
        asked = tuple(q for q in data.questions if q.id in mine)
        if asked:
            folds.append(Fold(folder / "best", replace(data, questions=asked)))
    if missing := [q.id for q in data.questions if q.id not in taken]:
        what = f"{len(missing)} of {len(data.questions)} questions are in no fold's report part, such as {missing[0]}"
        raise DataError(training, f"{what}; train with cross=true, or give sets.{data.name}.use=report")
    return folds


def evaluate_folds(
    config: EvaluateConfig, data: Dataset, folds: Sequence[Fold], on_run: Callable[[Path], None] = lambda path: None
) -> Path:
    """Answer the questions of each fold with its network, and score all of them as one run.

    Args:
        config: settings with `retriever=gfm`; its checkpoint is replaced.
        data: the corpus and all questions.
        folds: what `read_folds` returned for them.
        on_run: told the directory of each run that has ended.

    Returns:
        Directory of the merged run.

    Raises:
        ConfigError: another retriever.
    """
    if config.retriever.name != "gfm":
        raise ConfigError(f"retriever={config.retriever.name}: only gfm has a network for each fold")
    index, paths = None, []
    for fold in folds:
        settings = replace(config.retriever.settings, checkpoint=str(fold.checkpoint))
        own = replace(config, retriever=replace(config.retriever, settings=settings))
        index = index or open_index(own, data.name, data.passages)
        path, _ = evaluate(own, index=index, data=fold.data)
        on_run(path)
        paths.append(path)
    merged = paths[0].with_name(f"{data.name}-{config.method.name}-gfm-folds-{digest([p.name for p in paths])[:8]}")
    _merge(paths, data.questions, merged)
    write_metrics(merged, data.questions, read_predictions(merged), config.metrics, config.seed)
    on_run(merged)
    return merged


def _merge(paths: Sequence[Path], questions: Sequence[Question], merged: Path) -> None:
    """Write the predictions of several runs as one, in the order of the questions."""
    merged.mkdir(parents=True, exist_ok=True)
    rows = {row["question_id"]: row for path in paths for row in read_journal(path / "predictions.jsonl")}
    write_jsonl(merged / "predictions.jsonl", [rows[q.id] for q in questions])
    write_jsonl(merged / "log.jsonl", [row for path in paths for row in read_journal(path / "log.jsonl")])
    write_json(merged / "meta.json", {"merged": [path.name for path in paths]})
