"""The folder of collected rows: `verifier.jsonl`, `thoughts.jsonl`, the data card, and `meta.json`, written last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag import __version__
from gnnrag.common.files import file_digest, remove, write_atomic, write_json, write_jsonl
from gnnrag.common.outputs import ROWS, refuse_other
from gnnrag.common.untrusted import markdown
from gnnrag.distil.sifting import Row, check_sides
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.run.rundir import commit
from gnnrag.tuned.rows import KINDS, plain_rows

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
        raise GnnragError(f"no row is left to write to {folder} ({told}); see keep.* in gnnrag/distil/config.py")
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
    return [f"from gnnrag.tuned.rows import {names}, read_rows", "", *reads]
