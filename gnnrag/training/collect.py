"""Record a teacher and write training rows into a folder with a data card; merge folders, import rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gnnrag import __version__
from gnnrag.common.files import (
    child,
    digest,
    file_digest,
    read_journal,
    read_json,
    remove,
    write_atomic,
    write_json,
    write_jsonl,
)
from gnnrag.common.records import ROWS, interpreting, refuse_other, text
from gnnrag.config import Choice, EvaluateConfig, implementation, to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.index.index import Index
from gnnrag.metrics.replies import remarks
from gnnrag.parts import find, make_part, names
from gnnrag.run.evaluate import Observer, evaluate, load_questions_for
from gnnrag.run.pipeline import asked_roles, open_retriever, open_shared_index
from gnnrag.run.rundir import commit, refuse_shard
from gnnrag.training.decisions import (
    RECORDED,
    BridgeQueries,
    Recorder,
    RowMaker,
    became_right,
    failures,
    near_misses,
    read_decisions,
    verdict_on,
    with_chat,
)
from gnnrag.training.rows import (
    KINDS,
    Row,
    ThoughtsRow,
    TracesConfig,
    VerifierRow,
    balanced,
    card,
    check_sides,
    check_traces,
    counted_parts,
    parts_of,
    plain_rows,
    read_rows,
    unique,
)

MARK = "recording.json"  # the first file of a folder of rows
# Of the originals; data/README.md says where they come from. Passages of Wikipedia are under its own licence as well.
LICENCES = {
    "2wiki": "Apache-2.0",
    "2wikimultihopqa": "Apache-2.0",
    "hotpotqa": "CC BY-SA 4.0",
    "musique": "CC BY 4.0",
    "metaqa": "CC BY 3.0",
    "popqa": "MIT",
    "nq_rear": "CC BY-SA 3.0",
    "narrativeqa": "Apache-2.0",
    "sample": "public domain",
}
UNKNOWN = "unknown: ask where the data comes from"


def licence_of(name: str) -> str:
    """Return the licence of a known set by the name of its folder."""
    return LICENCES.get(name.casefold(), UNKNOWN)


def mark(folder: Path, what: dict[str, Any] | None = None) -> None:
    """Begin or go on with a folder of rows. Raises ConfigError where the folder is of something else."""
    refuse_other(folder, ROWS)
    ours = [*(f"{role}.jsonl" for role in KINDS), "README.md", "meta.json"]
    if not (folder / MARK).exists() and (taken := [name for name in ours if (folder / name).exists()]):
        raise ConfigError(f"out={folder} would write over {taken[0]}, which is not of such a folder; give another out")
    if what is not None or not (folder / MARK).exists():
        write_json(folder / MARK, what or {})


def write_folder(folder: Path, rows: Mapping[str, Sequence[Row]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write rows by role, the data card and `meta.json`; a role without rows has no file.

    Args:
        folder: made where it is missing.
        rows: by role.
        facts: of the recording: `teachers`, `counts`, `licences`, and anything else that `meta.json` should hold.

    Returns:
        What `meta.json` holds.

    Raises:
        GnnragError: there are no rows, or a question is on two sides.
    """
    kept = {role: rows[role] for role in KINDS if rows.get(role)}
    if not kept:
        told = "; ".join(f"{role}: {counts}" for role, counts in facts.get("counts", {}).items())
        raise GnnragError(f"no row is left to write to {folder} ({told}); see keep.* in gnnrag/training/rows.py")
    check_sides(row for role in kept.values() for row in role)
    mark(folder)
    for role in KINDS:
        path = folder / f"{role}.jsonl"
        if role in kept:
            write_jsonl(path, plain_rows(kept[role]))
        else:
            remove(path, folder)
    files = {f"{role}.jsonl": file_digest(folder / f"{role}.jsonl") for role in kept}
    parts = {role: counted_parts(found) for role, found in kept.items()}
    meta = {"gnnrag": __version__, "commit": commit(), **facts, "parts": parts, "files": files}
    write_atomic(folder / "README.md", card(meta))
    write_json(folder / "meta.json", meta)
    return meta


def join(folders: Sequence[Path], own: TracesConfig) -> dict[str, Any]:
    """Write the rows of several folders into `own.out`, in their order, each decision once.

    Returns:
        What `meta.json` holds.

    Raises:
        ConfigError: fewer than two folders, or `out` is one of them.
        DataError: a folder that `collect_traces.py` did not write or finish, or whose rows were changed since.
        ArtefactError: its `meta.json` is damaged or forged.
        GnnragError: a question is on two sides.
    """
    out = Path(own.out)
    if len(folders) < 2 or out.resolve() in {f.resolve() for f in folders}:
        raise ConfigError(
            f"join {' '.join(map(str, folders))} out={out}: give two folders or more, and another for out"
        )
    metas = [_read_meta(folder) for folder in folders]
    rows, counts = {}, {}
    for role, kind in KINDS.items():
        paths = [
            f / f"{role}.jsonl" for f, meta in zip(folders, metas, strict=True) if f"{role}.jsonl" in meta["files"]
        ]
        found: list[Any] = [row for path in paths for row in read_rows(path, kind)]
        if found:
            rows[role], counts[role] = _once(found, own, paths[-1])
    sources = ["; ".join(f"{key} {value}" for key, value in meta["recording"].items()) for meta in metas]
    facts = {
        "teachers": _teachers(rows),
        "prompts": _merged(meta["prompts"] for meta in metas),
        "recording": {
            f"folder {f.name} ({n})": text for n, (f, text) in enumerate(zip(folders, sources, strict=True), 1)
        },
        "counts": counts,
        "licences": {name: text for meta in metas for name, text in meta["licences"].items()},
        "joined": [meta["files"] for meta in metas],
    }
    return write_folder(out, rows, facts)


def take_in(file: Path, own: TracesConfig) -> dict[str, Any]:
    """Write rows that were recorded elsewhere into `own.out`: validated, each decision once, with parts and chats.

    A row that names its `part` keeps it; the others are divided by `own.folds`. A row without `messages` gets them.

    Returns:
        What `meta.json` holds.

    Raises:
        DataError: no such file, or a line that is no row; the message names the line and the field.
        GnnragError: a question is on two sides.
    """
    role = _role_of(file)
    for other in KINDS:
        if other != role and (Path(own.out) / f"{other}.jsonl").exists():
            raise ConfigError(f"out={own.out} holds {other}.jsonl, which would be lost: give another folder, then join")
    found: list[Any] = list(read_rows(file, KINDS[role]))
    parts = parts_of(((row.question_id, row.question) for row in found), own.folds)
    stated = {row.question_id for row in found if "part" in row.model_fields_set}
    made = []
    for row in found:
        part = row.part if row.question_id in stated else parts[row.question_id]
        row = row.model_copy(update={"part": part})
        made.append(row if row.messages else with_chat(row, own.chat_passages))
    rows, counts = _once(made, own, file)
    names = dict.fromkeys(row.set for row in made)
    facts = {
        "teachers": _teachers({role: rows}),
        "prompts": {},
        "recording": {"imported from": f"{file.name}, SHA-256 {file_digest(file)[:16]}"},
        "counts": {role: counts},
        "licences": {name or "unnamed": own.licence or licence_of(name) for name in names},
    }
    return write_folder(Path(own.out), {role: rows}, facts)


def _read_meta(folder: Path) -> dict[str, Any]:
    """Return `meta.json` of a folder whose files are those that it names."""
    path = folder / "meta.json"
    with interpreting(path, "collect the rows again"):
        try:
            meta: dict[str, Any] = dict(read_json(path))
        except OSError as error:
            problem = f"cannot be read ({error.strerror}); join takes folders that collect_traces.py wrote to the end"
            raise DataError(path, problem) from error
        for name in ("files", "recording", "licences"):
            meta[name] = {text(key): str(value) for key, value in meta[name].items()}
        meta["prompts"] = {
            text(role): {text(name): text(value) for name, value in digests.items()}
            for role, digests in meta["prompts"].items()
        }
    for name, wanted in meta["files"].items():
        file = child(folder, name, "|".join(rf"{role}\.jsonl" for role in KINDS))
        if not file.is_file() or file_digest(file) != wanted:
            raise DataError(file, "is missing or was changed since it was written; collect or import it again")
    return meta


def _role_of(file: Path) -> str:
    """Return whose rows a file holds, by its name."""
    found = [role for role in KINDS if file.name.startswith(role)]
    if not found:
        raise ConfigError(f"import {file}: its name must begin with {' or '.join(KINDS)}, to say whose rows it holds")
    return found[0]


def _once(rows: list[Any], own: TracesConfig, path: Path) -> tuple[list[Any], dict[str, int]]:
    """Return rows without repeated decisions, and the counts. Raises DataError where two that differ share an id."""
    kept = unique(rows) if own.keep.unique else rows
    seen: set[str] = set()
    for row in kept:
        if row.id in seen:
            raise DataError(path, f"row {row.id!r} is there twice, with different content; rename one")
        seen.add(row.id)
    return kept, {"read": len(rows), "without duplicates": len(kept), "rows": len(kept)}


def _teachers(rows: Mapping[str, Sequence[VerifierRow | ThoughtsRow]]) -> dict[str, list[str]]:
    return {role: list(dict.fromkeys(row.teacher or "unknown" for row in found)) for role, found in rows.items()}


def _merged(prompts: Iterable[dict[str, dict[str, str]]]) -> dict[str, dict[str, str]]:
    """Return the digests of all prompts; two of one name that differ stand side by side."""
    merged: dict[str, dict[str, str]] = {}
    for found in prompts:
        for role, digests in found.items():
            have = merged.setdefault(role, {})
            for name, value in digests.items():
                have[name if have.get(name, value) == value else f"{name} {value[:8]}"] = value
    return merged


# --------------------------------------------------------------------------------------------------------- collecting
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
    build = BridgeQueries if own.candidates else None
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
    miners = [open_retriever(miner, index, None) for miner in mining_retrievers(own, config)]
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
        known = {name: find("method", name)().role_names or () for name in names("method")}
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
    impl = implementation(config.roles, role)
    model = settings.model or getattr(config.llm.settings, "model", None) if impl == "prompted" else settings.path
    return f"{impl}:{model}" if model else impl


def mining_retrievers(own: TracesConfig, config: EvaluateConfig) -> list[Choice]:
    """Return the retrievers of near misses. Raises ConfigError for one that asks roles."""
    found = []
    for name in own.mine if own.mine_top and "verifier" in asked_roles(config) else ():
        settings = make_part("retriever", name, {}, "mine")
        if settings.role_names:
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
