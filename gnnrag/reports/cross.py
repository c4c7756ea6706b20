"""Cross-validated evaluation of trained parts: each question is answered with checkpoints that did not train on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.config import ROLES, EvaluateConfig, RoleConfig, to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError, GnnragError, nearest
from gnnrag.io import digest, folds_of, read_journal, read_object, write_atomic, write_json, write_jsonl
from gnnrag.parts import has_class
from gnnrag.run.evaluate import Observer, asked_roles, evaluate, load_data_for, open_index, open_tracker, write_metrics
from gnnrag.run.rundir import code_version, read_predictions, read_seen, seen_hash
from gnnrag.types import Question

GNN = "gnn"  # the part that is no role: the network of retriever=gfm


@dataclass(frozen=True)
class Part:
    """A trained part: `gnn`, or a role; `checkpoints` maps a question id to one that was not trained on it."""

    name: str
    run: Path
    checkpoints: Mapping[str, Path]


def split_trained(arguments: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """Return the training runs that arguments name (`gnn=RUN verifier=RUN`), and the other arguments."""
    pairs = [(key, value) for key, _, value in (a.partition("=") for a in arguments) if key in (GNN, *ROLES)]
    return {key: Path(value) for key, value in pairs}, [a for a in arguments if a.partition("=")[0] not in dict(pairs)]


def read_part(name: str, run: Path, data: Dataset) -> Part:
    """Return the checkpoints of a training, each for questions that it was not trained on.

    `run` has folders `fold0`, `fold1`, ... (cross=true), or is a single training or checkpoint.
    Raises ConfigError where there is no such part or it is not trained, GnnragError where the training is unfinished,
    DataError where every checkpoint was trained on a question.
    """
    if name != GNN and not has_class("role", f"{name}.tuned"):
        known = [GNN, *(role for role in ROLES if has_class("role", f"{role}.tuned"))]
        raise ConfigError(f"{name}={run}: no such part is trained. {nearest(name, known)}")
    checkpoints: dict[str, Path] = {}
    for folder in folds_of(run) or [run]:
        seen = read_seen(folder)
        if seen is None:
            raise GnnragError(
                f"{folder} is no training run, and no checkpoint that says which questions it was trained on; give the "
                "folder that the training printed"
            )
        if (folder / "folds.json").is_file() and not (folder / "metrics.json").is_file():
            raise GnnragError(f"{folder} has not ended: run its training command again")
        best = folder / "best" if (folder / "best").is_dir() else folder
        checkpoints = {q.id: best for q in data.questions if seen_hash(q.id) not in seen} | checkpoints
    if missing := [q.id for q in data.questions if q.id not in checkpoints]:
        what = f"{len(missing)} of {len(data.questions)} questions, such as {missing[0]!r}, trained it, "
        raise DataError(run, what + "or decided when its training stopped; train with cross=true")
    return Part(name, run, checkpoints)


def used_parts(config: EvaluateConfig, parts: Sequence[Part]) -> list[Part]:
    """Return the parts that a config may ask: the others would only make more runs."""
    asked = {*asked_roles(config), *([GNN] if config.retriever.name == "gfm" else [])}
    return [part for part in parts if part.name in asked]


def with_checkpoints(config: EvaluateConfig, chosen: Mapping[str, Path]) -> EvaluateConfig:
    """Return the settings with the checkpoint of each part; a role becomes `tuned`.

    Its options count as the tuned role's, unless the settings name another implementation for it.
    """
    retriever, roles = config.retriever, config.roles
    for name, folder in chosen.items():
        if name == GNN:
            retriever = replace(retriever, part=replace(retriever.part, checkpoint=str(folder)))
            continue
        role: RoleConfig = getattr(roles, name)
        base = role if role.impl in (None, "tuned", "auto") else RoleConfig()
        roles = replace(roles, **{name: replace(base, impl="tuned", path=str(folder))})
    return replace(config, retriever=retriever, roles=roles)


def with_training_runs(config: EvaluateConfig, parts: Sequence[Part]) -> EvaluateConfig:
    """Return the settings with the parts that they ask, each by its training run: what stands in a merged run."""
    return with_checkpoints(config, {part.name: part.run for part in used_parts(config, parts)})


def cross_evaluate(
    config: EvaluateConfig, parts: Sequence[Part], data: Dataset | None = None, observer: Observer | None = None
) -> tuple[Path, dict[str, Any]]:
    """Answer each question with checkpoints that were not trained on it, and score all of them as one run.

    `parts` (of `read_part`, for these questions) replace what the config says of them; those it does not ask are passed
    over. `data` stands in for the configured. Returns the merged run's directory and metrics, or an ordinary run's
    where no part is asked.
    """
    observer = observer or Observer()
    parts = used_parts(config, parts)
    if not parts:
        return evaluate(config, observer, data=data)
    if config.shard:
        raise ConfigError(f"shard={config.shard}: a run over folds is not divided; leave it out")
    data = data or load_data_for(config)
    groups: dict[tuple[Path, ...], list[Question]] = {}
    for question in data.questions:
        groups.setdefault(tuple(part.checkpoints[question.id] for part in parts), []).append(question)
    index, runs = None, dict[Path, dict[str, Any]]()  # what each run answered, and with which checkpoints
    for number, (folders, questions) in enumerate(groups.items()):
        chosen = dict(zip((p.name for p in parts), folders, strict=True))
        name = f"{config.run.name}-group{number}" if config.run.name else None
        single = replace(with_checkpoints(config, chosen), run=replace(config.run, tracking="off", name=name))
        index = index or open_index([single], data.name, data.passages, observer.on_index)
        path, _ = evaluate(single, observer, index, replace(data, questions=tuple(questions)))
        checkpoints = {name: str(folder) for name, folder in chosen.items()}
        runs[path] = {"checkpoints": checkpoints, "questions": [q.id for q in questions]}
    first = next(iter(runs))
    name = config.run.name or f"{first.name.rpartition('-')[0]}-folds-{digest([p.name for p in runs])[:8]}"
    merged, whole = first.with_name(name), with_training_runs(config, parts)
    _merge(list(runs), data.questions, merged)
    write_json(merged / "folds.json", {path.name: group for path, group in runs.items()})
    write_atomic(merged / "config.yaml", yaml.safe_dump(to_plain(whole), sort_keys=False, allow_unicode=True))
    predictions = read_predictions(merged)
    metrics = write_metrics(merged, data, predictions, config.metrics, config.seed, observer.on_note, index)
    open_tracker(whole, merged, {"data": data.fingerprints}).finish(metrics)
    return merged, metrics


def _merge(runs: Sequence[Path], questions: Sequence[Question], merged: Path) -> None:
    merged.mkdir(parents=True, exist_ok=True)
    for name in ("predictions.jsonl", "traces.jsonl"):
        rows = {row["question_id"]: row for path in runs for row in read_journal(path / name)}
        write_jsonl(merged / name, [rows[q.id] for q in questions if q.id in rows])
    write_jsonl(merged / "log.jsonl", [row for path in runs for row in read_journal(path / "log.jsonl")])
    counts: Counter[str] = Counter()
    for path in runs:
        shares = read_object(path / "meta.json").get("trained_on", {})
        counts.update({name: int(text.split()[0]) for name, text in shares.items()})  # "3 of 50"
    trained = {name: f"{count} of {len(questions)}" for name, count in counts.items()}
    meta = {"merged": [path.name for path in runs], "commit": code_version()}
    write_json(merged / "meta.json", meta | ({"trained_on": trained} if trained else {}))
