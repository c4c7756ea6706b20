"""Seconds to index a corpus, to find that nothing changed, and to add and remove ten documents.

python benchmarks/bench_index.py --data ../shared/data/2wiki [--json] [--embedder hash]

Each figure is given for a process of its own, as a user waits for it, and for the work alone, without imports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnrag.index.store import Store
from running import ROOT, run, timed

from gnnrag.cli.console import plain_table
from gnnrag.datasets.base import load_passages
from gnnrag.index.update import update_index
from gnnrag.types import Passage

WITHOUT = "passages,text,hierarchy,lexical"
DOCUMENTS = 10


def main() -> None:
    """Measure without and with embeddings, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a corpus, as data.path names it")
    parser.add_argument("--embedder", default="embedded", help="index.embedder.model")
    parser.add_argument(
        "--rounds", type=int, default=3, help="repetitions of the short measurements; the fastest counts"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    data, dots = args.data.resolve(), [f"index.embedder.model={args.embedder}"]
    changed = [replace(p, id=f"new-{p.id}", text=f"{p.text} It was added.") for p in load_passages(data).passages]
    result: dict[str, Any] = {"data": str(args.data), "embedder": args.embedder, "cpus": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder:
        for name, stages in (("without", [f"--stages={WITHOUT}"]), ("with", [])):
            build = ["build", f"data.path={data}", f"index.path={folder}/{name}", *dots, *stages]
            result[name] = measure(Path(folder, name), build, changed[:DOCUMENTS], args.rounds)
    print(json.dumps(result, indent=2) if args.json else table(result))


def measure(root: Path, build: list[str], new: list[Passage], rounds: int) -> dict[str, float]:
    """Return the figures of one index."""
    extra, ids = root.with_name(f"{root.name}-new"), [p.id for p in new]
    extra.mkdir()
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in new]
    (extra / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found = {"build": script(*build)}
    entries = Store(root).manifest["stages"]
    found["build_work"] = sum(entry["info"]["seconds"] for entry in entries.values())
    if "embeddings" in entries:
        info = entries["embeddings"]["info"]
        found["passages_per_second"] = info["computed"] / info["seconds"]
    found["passages"] = entries["passages"]["info"]["passages"]
    found["second_run"] = min(script(*build) for _ in range(rounds))
    both = [(script("add", str(root), str(extra)), script("remove", str(root), *ids)) for _ in range(rounds)]
    found["add"], found["remove"] = (min(column) for column in zip(*both, strict=True))
    update_index(root, add=new)  # once to warm up: imports, and the embedder's kernels
    update_index(root, remove=ids)
    both = [
        (timed(lambda: update_index(root, add=new))[0], timed(lambda: update_index(root, remove=ids))[0])
        for _ in range(rounds)
    ]
    found["add_work"], found["remove_work"] = (min(column) for column in zip(*both, strict=True))
    return {name: round(value, 3) for name, value in found.items()}


def script(*arguments: str) -> float:
    """Return the seconds that `inference/index.py` takes."""
    command = [sys.executable, str(ROOT / "inference" / "index.py"), *arguments]
    return timed(lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT))[0]


def table(result: dict[str, Any]) -> str:
    """Return the figures as text."""
    plain, full = result["without"], result["with"]
    title = f"{result['data']}: {plain['passages']} passages, embedder {result['embedder']}"
    headings = (
        "seconds (share of the full build)",
        *("without embeddings", "work alone", "with embeddings", "work alone"),
    )
    rows = []
    for label, name in (
        ("full build", "build"),
        ("second run, nothing changed", "second_run"),
        (f"add {DOCUMENTS} documents", "add"),
        (f"remove {DOCUMENTS} documents", "remove"),
    ):
        cells = []
        for found in (plain, full):
            for key, whole in ((name, "build"), (f"{name}_work", "build_work")):
                value = found.get(key)
                share = "" if name == "build" or value is None else f" ({value / found[whole]:.3f})"
                cells.append("-" if value is None else f"{value:.2f}{share}")
        rows.append((label, *cells))
    return f"{plain_table(headings, rows, title)}\n{full['passages_per_second']:.0f} passages embedded a second"


if __name__ == "__main__":
    run(main, __doc__)
