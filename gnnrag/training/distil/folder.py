"""Folders of collected rows: written with a data card, merged with others, imported from elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag import __version__
from gnnrag.common.files import child, file_digest, read_json, remove, write_atomic, write_json, write_jsonl
from gnnrag.common.outputs import ROWS, refuse_other
from gnnrag.common.records import interpreting, text
from gnnrag.common.untrusted import markdown
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.run.rundir import commit
from gnnrag.training.distil.filtering import Row, TracesConfig, check_sides, parts_of, unique
from gnnrag.training.distil.making import with_chat
from gnnrag.training.rows import KINDS, ThoughtsRow, VerifierRow, plain_rows, read_rows

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
        raise GnnragError(
            f"no row is left to write to {folder} ({told}); see keep.* in gnnrag/training/distil/filtering.py"
        )
    check_sides(row for role in kept.values() for row in role)
    mark(folder)
    for role in KINDS:
        path = folder / f"{role}.jsonl"
        if role in kept:
            write_jsonl(path, plain_rows(kept[role]))
        else:
            remove(path, folder)
    files = {f"{role}.jsonl": file_digest(folder / f"{role}.jsonl") for role in kept}
    parts = {role: _parts(found) for role, found in kept.items()}
    meta = {"gnnrag": __version__, "commit": commit(), **facts, "parts": parts, "files": files}
    write_atomic(folder / "README.md", card(meta))
    write_json(folder / "meta.json", meta)
    return meta


def _parts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Count rows and questions of each part."""
    counts = Counter(row.part for row in rows)
    questions = Counter(part for part, _ in {(row.part, (row.set, row.question_id)) for row in rows})
    return {part: {"rows": counts[part], "questions": questions[part]} for part in sorted(counts)}


def card(meta: Mapping[str, Any]) -> str:
    """Return the data card of a folder of rows, from what its `meta.json` holds."""
    lines = ["# Training rows of tuned roles", "", "Made by `inference/collect_traces.py`; one decision a line."]
    lines += ["", "## Who decided", "", "| role | teacher | prompts |", "|---|---|---|"]
    prompts = meta.get("prompts", {})
    for role, teachers in meta["teachers"].items():
        digests = ", ".join(f"`{name}` {value[:16]}" for name, value in prompts.get(role, {}).items())
        lines.append(f"| {role} | {markdown(', '.join(teachers))} | {markdown(digests or 'none')} |")
    lines += ["", "## What was recorded", ""]
    lines += [f"- {name}: {markdown(str(value))}" for name, value in meta.get("recording", {}).items()]
    lines += ["", "## What was kept", "", "| role | step | rows | share of the step before |", "|---|---|---:|---:|"]
    for role, counts in meta.get("counts", {}).items():
        before = None
        for step, count in counts.items():
            share = "" if not before else f"{count / before:.3f}"
            lines.append(f"| {role} | {step} | {count} | {share} |")
            before = count
    lines += [
        "",
        "## Parts",
        "",
        "No question is in two.",
        "",
        "| file | part | rows | questions |",
        "|---|---|---:|---:|",
    ]
    for role, parts in meta["parts"].items():
        lines += [f"| {role}.jsonl | {part} | {n['rows']} | {n['questions']} |" for part, n in parts.items()]
    lines += ["", "## Licence of the source", ""]
    lines += [f"- {markdown(name)}: {markdown(licence)}" for name, licence in meta["licences"].items()]
    lines += ["", "The passages stand in the rows: what the source's licence asks holds for these files.", ""]
    lines += ["## Loading", "", "```python", *_loading(meta["files"]), "```", ""]
    return "\n".join(lines)


def _loading(files: Mapping[str, str]) -> list[str]:
    kinds = {f"{role}.jsonl": kind.__name__ for role, kind in KINDS.items()}
    names = ", ".join(kinds[name] for name in files)
    reads = [f'{name.removesuffix(".jsonl")} = read_rows("{name}", {kinds[name]})' for name in files]
    return [f"from gnnrag.training.rows import {names}, read_rows", "", *reads]


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
    for name, digest in meta["files"].items():
        file = child(folder, name, "|".join(rf"{role}\.jsonl" for role in KINDS))
        if not file.is_file() or file_digest(file) != digest:
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
