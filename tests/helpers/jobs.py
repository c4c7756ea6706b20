"""Jobs that need nothing but Python, and runs as `evaluate.py` leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.cluster.job import Job, Target


def job(folder: Path, name: str, code: str = "", kind: str = "merge", **more: Any) -> Job:
    """Return a job that runs a script with this code."""
    script = folder / f"{name}.py"
    script.write_text(code)
    argv = (str(script), *(("shard={shard}",) if more.get("tasks") else ()))
    target = more.pop("target", Target(str(folder / "runs"), settings={"name": name}, data=("here", "")))
    return Job(name, kind, name, argv, (), str(folder / "jobs" / name), target, **more)


def graph(*jobs: Job) -> dict[str, Job]:
    """Return jobs by name."""
    return {one.name: one for one in jobs}


def leave_run(
    path: Path, decisive: Mapping[str, Any], ids: Sequence[str], questions: int, scored: bool = False
) -> None:
    """Write what an evaluation leaves: some rows of so many questions."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.yaml").write_text("data: {path: here, questions: null}\n")
    meta = {"decisive": dict(decisive), "inputs": {"index": {}}, "questions": questions}
    (path / "meta.json").write_text(json.dumps(meta))
    (path / "predictions.jsonl").write_text("".join(f'{{"question_id": "{id_}"}}\n' for id_ in ids))
    (path / "log.jsonl").write_text('{"event": "predicted", "seconds": 1.5}\n')
    if scored:
        (path / "metrics.json").write_text(json.dumps({"questions": len(ids), "failed": 0}))
