"""Record a teacher and write training rows: what `inference/collect_traces.py` does, importable and testable."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gnnrag.common.files import digest, read_journal, read_json
from gnnrag.common.records import interpreting
from gnnrag.config import Choice, EvaluateConfig, build_settings, to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.metrics.replies import remarks
from gnnrag.registry import CANDIDATES, METHODS, RETRIEVERS, resolve
from gnnrag.run.evaluation import Observer, evaluate, load_questions_for
from gnnrag.run.pipeline import asked_roles, open_shared_index
from gnnrag.run.sharding import refuse_shard
from gnnrag.training.distil.decisions import RECORDED, Recorder, became_right, failures, read_decisions, verdict_on
from gnnrag.training.distil.filtering import Row, TracesConfig, balanced, check_traces, parts_of, unique
from gnnrag.training.distil.folder import MARK, licence_of, mark, write_folder
from gnnrag.training.distil.making import RowMaker, near_misses

RUN = "run"  # the run directory, in the folder of the rows
BACK = "candidates alone"  # decisions of no use themselves whose candidates are
# Steps that leave decisions out, in the order they are taken, and the one that takes some back.
STEPS = ("decisions", "failed", "leaked", "stop", "unknown", "useless", BACK, "duplicates", "idle", "type", "round")


def collect(config: EvaluateConfig, own: TracesConfig, observer: Observer | None = None) -> dict[str, Any]:
    """Run a method with a teacher, and write what it decided as rows into `own.out`.

    The same command again continues an interrupted run. With other settings of what is kept, it writes the rows anew
    from what was recorded.

    Returns:
        What `meta.json` holds.

    Raises:
        ConfigError: a setting that cannot be, or a method that asks none of the recorded roles.
        GnnragError: no row is left.
    """
    observer = observer or Observer()
    check_traces(own)
    refuse_shard(config.shard, "a recording")
    if config.run.name or not config.run.traces:
        raise ConfigError("run.name and run.traces are given: the run lies in out/run, and its traces are what is read")
    roles = recorded_roles(config)
    out = Path(own.out)
    config = replace(config, run=replace(config.run, root=str(out), name=RUN, traces=True))
    build = resolve("candidates", own.candidates, CANDIDATES) if own.candidates else None
    data = load_questions_for(config)
    for note in data.remarks:
        observer.on_note(note)
    readers = [config, *(replace(config, retriever=miner) for miner in mining_retrievers(own, config))]
    index = open_shared_index(
        readers, data.name, data.passages, observer.on_index, further=build.stages if build else ()
    )
    _same_recording(out, own, config.run.fresh)
    wrap = partial(Recorder, build=build)

    def on_start(questions: int) -> None:
        mark(out, {"candidates": own.candidates})  # what an earlier recording left is gone by now, if that was asked
        observer.on_start(questions)

    try:
        run, metrics = evaluate(config, replace(observer, on_start=on_start), index, data, wrap)
    except ConfigError as error:  # of a recording with other settings, whose name is not for the user to give
        raise ConfigError(str(error).replace("another run.name", "another out")) from error
    for line in remarks(metrics.get("replies", {}), config.run.warn_bad_replies, None):
        observer.on_note(line)
    return write(run, config, own, data, index, roles)


def write(
    run: Path, config: EvaluateConfig, own: TracesConfig, data: Dataset, index: Index, roles: tuple[str, ...]
) -> dict[str, Any]:
    """Write the rows of a recorded run; see `collect`."""
    questions = {q.id: q for q in data.questions}
    failed, right = failures(run), became_right(run, Path(own.without) if own.without else None, questions)
    with interpreting(run / "meta.json"):
        made = read_json(run / "meta.json")
    teachers = {role: teacher(config, role) for role in roles}
    source = {"method": config.method.name, "retriever": config.retriever.name, "embedder": index.config.embedder.model}
    parts = parts_of(((q.id, q.text) for q in data.questions), own.folds)
    miners = [resolve("retriever", m.name, RETRIEVERS)(index, m.settings) for m in mining_retrievers(own, config)]
    mined = near_misses(miners, data.questions, own.mine_top) if "verifier" in roles else {}
    maker = RowMaker(
        index, data.name, digest([made["decisive"], made["inputs"]])[:10], teachers, source, parts, own, mined
    )
    rows: dict[str, list[Any]] = {role: [] for role in roles}
    gone: dict[str, Counter[str]] = {role: Counter() for role in roles}
    with interpreting(run / "traces.jsonl", "run.fresh=true records anew"):  # of a run that another may have begun
        for decision in read_decisions(run, questions, failed):
            gone[decision.role]["decisions"] += 1
            why = verdict_on(decision, own.keep, right)
            if decision.role == "verifier" and not why:
                rows["verifier"].append(maker.verifier(decision))
            elif decision.role == "thoughts" and (not why or decision.event["candidates"]):
                rows["thoughts"].append(maker.thoughts(decision, helped=not why))
                gone["thoughts"][BACK] += int(bool(why))
            if why:
                gone[decision.role][why] += 1
    kept = {role: _filtered(rows[role], own, gone[role]) for role in roles}
    facts = {
        "teachers": {role: [name] for role, name in teachers.items()},
        "prompts": made["inputs"].get("prompts", {}),
        "recording": {
            "set": f"{data.name}, {config.data.split}, {len(data.questions)} questions ({len(failed)} failed)",
            **source,
            "candidates": own.candidates or "none",
            "near misses": f"{', '.join(own.mine)}, first {own.mine_top}" if mined else "none",
            "run": maker.run,
        },
        "counts": {role: _counts(gone[role], len(kept[role])) for role in roles},
        "licences": {data.name: own.licence or licence_of(data.name)},
        "settings": to_plain(replace(own, out="")),
        "inputs": made["inputs"],
    }
    return write_folder(Path(own.out), kept, facts)


def recorded_roles(config: EvaluateConfig) -> tuple[str, ...]:
    """Return which recorded roles a run may ask. Raises ConfigError naming the methods that ask any."""
    found = tuple(role for role in RECORDED if role in asked_roles(config))
    if not found:
        known = {name: resolve("method", name, METHODS).role_names or () for name in METHODS}
        asking = [f"{name} ({', '.join(r for r in RECORDED if r in asks)})" for name, asks in known.items()
                  if set(asks) & set(RECORDED)]  # fmt: skip
        raise ConfigError(
            f"method={config.method.name} asks neither {' nor '.join(RECORDED)}, so that there is nothing to record; "
            f"those that do: {', '.join(asking)}, and routed with such a route"
        )
    return found


def teacher(config: EvaluateConfig, role: str) -> str:
    """Return who does a role: `oracle`, `offline`, `prompted:MODEL`, `tuned:FOLDER`."""
    settings: Any = getattr(config.roles, role)
    impl = settings.impl or getattr(config.roles, "default")  # noqa: B009 - a dataclass made of the registry
    model = settings.model or getattr(config.llm.settings, "model", None) if impl == "prompted" else settings.path
    return f"{impl}:{model}" if model else impl


def mining_retrievers(own: TracesConfig, config: EvaluateConfig) -> list[Choice]:
    """Return the retrievers of near misses. Raises ConfigError for one that asks roles."""
    found = []
    for name in own.mine if own.mine_top and "verifier" in asked_roles(config) else ():
        cls = resolve("mine", name, RETRIEVERS)
        settings = build_settings(cls, {}, "mine")
        if cls.roles_for(settings):
            raise ConfigError(f"mine={name}: asks roles for each query; give retrievers such as bm25, dense, chg")
        found.append(Choice(name, settings))
    return found


def _same_recording(out: Path, own: TracesConfig, fresh: bool) -> None:
    """Refuse to go on with a recording that labelled other candidates: the run's own settings do not tell."""
    path, told = out / MARK, {"candidates": own.candidates}
    is_begun = bool(read_journal(out / RUN / "predictions.jsonl"))
    if path.exists() and not fresh and is_begun:
        with interpreting(path, "run.fresh=true records anew"):
            have = dict(read_json(path))
        if have.get("replaced"):
            raise ConfigError(
                f"{out} holds a recording that run.fresh=true was to replace, and was cut off before; repeat that "
                "command, run.fresh=true included"
            )
        if have != told:
            raise ConfigError(
                f"{out} was recorded with candidates={have.get('candidates')}, not {own.candidates}; "
                "give another out, or run.fresh=true to record anew"
            )
    mark(out, {**told, "replaced": True} if fresh and is_begun else told)


def _filtered(rows: list[Any], own: TracesConfig, gone: Counter[str]) -> list[Row]:
    """Return the rows that are left of a role, and count those that are not."""
    kept: list[Any] = unique(rows) if own.keep.unique else rows
    gone["duplicates"] += len(rows) - len(kept)
    kept, dropped = balanced(kept, own.keep)
    gone.update(dropped)
    return kept


def _counts(gone: Counter[str], rows: int) -> dict[str, int]:
    """Return how many decisions are left after each step that took any."""
    left, counts = gone["decisions"], {"decisions": gone["decisions"]}
    for step in STEPS[1:]:
        left += gone[step] if step == BACK else -gone[step]
        if gone[step]:
            counts[f"{'with' if step == BACK else 'without'} {step}"] = left
    return counts | {"rows": rows}
