"""What the page says of a run: its label, its figures, and what they must not be taken for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.comparison import Run
from gnnrag.explorer.measures import trimmed
from gnnrag.files import read_object
from gnnrag.metrics.replies import described
from gnnrag.rundir import roles_label


def describe_runs(
    paths: Sequence[Path], runs: Sequence[Run], configs: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return name, label, method, notes and figures of each run; no two have one label."""
    rows = [_describe(path, run, config) for path, run, config in zip(paths, runs, configs, strict=True)]
    labels = [row["label"] for row in rows]
    ends = [f"{row['label']} · {row['name'].rsplit('-', 1)[-1]}" for row in rows]
    for row, label, end in zip(rows, labels, ends, strict=True):
        if labels.count(label) > 1:  # the end of a folder's name is its digest; folders of one name need all of it
            row["label"] = end if ends.count(end) == 1 else f"{label} · {row['name']}"
    return rows


def _describe(path: Path, run: Run, config: Mapping[str, Any]) -> dict[str, Any]:
    roles = config.get("roles") or {}
    method, retriever = ((config.get(part) or {}).get("name", "?") for part in ("method", "retriever"))
    own = {name: role for name, role in roles.items() if isinstance(role, dict) and "impl" in role}
    who = roles_label({"default": roles.get("default", "?"), **own})
    return {
        "name": run.name,
        "label": f"{method} · {retriever} · {who}",
        "method": method,
        "notes": [*_warnings(path, roles.get("default"), own, run)],
        "metrics": trimmed(run.metrics),
    }


def _warnings(path: Path, default: Any, own: Mapping[str, Any], run: Run) -> list[str]:
    trained = read_object(path / "meta.json").get("trained_on") or {}
    notes = [f"{name} was trained on {count} of these questions: no result." for name, count in trained.items()]
    oracles = [name for name, role in own.items() if role["impl"] == "oracle"]
    if default == "oracle" or oracles:
        whom = "All roles" if default == "oracle" else f"The role {', '.join(oracles)}"
        read = "reads" if len(oracles) == 1 and default != "oracle" else "read"
        notes.append(f"{whom} {read} the gold annotations (oracle): a ceiling of what is possible, not a result.")
    if failed := run.metrics.get("failed"):
        notes.append(f"{failed} questions failed; they count as wrong.")
    rows = run.metrics.get("replies", {}).items()
    notes += [f"The model in the role {role}: {described(counts)}." for role, counts in rows if counts["bad"]]
    if not (path / "traces.jsonl").is_file():
        notes.append("No traces were kept (run.traces=false): its rounds cannot be shown.")
    return notes
